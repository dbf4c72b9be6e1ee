"""The data behind the pictures: bounded, inside the step, and in agreement with the report it belongs to."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import advisor
from advisor.derive.activity import CAUSES
from advisor.derive.detail import fewer, lanes, rectangles, thinned
from advisor.derive.intervals import union
from advisor.model import Report, Run
from advisor.model.pictures import Pictures, Timeline, Track
from advisor.pictures.names import shortened
from advisor.pictures.timeline import MOST_DEPTHS, MOST_RECTANGLES
from build.any_run import runs
from build.shared import largest
from build.workload import Workload

SPANS = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60)), max_size=60)


def spans(items: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    ordered = sorted((start, -length) for start, length in items)
    start = np.array([one for one, _ in ordered], np.int64)
    return start, start - np.array([one for _, one in ordered], np.int64)


def overlaps(start: list[int], end: list[int], depth: list[int]) -> bool:
    last: dict[int, int] = {}
    for s, e, d in sorted(zip(start, end, depth, strict=True)):
        if s < last.get(d, -1):
            return True
        last[d] = e
    return False


@given(SPANS, st.integers(1, 8))
def test_events_of_one_lane_never_overlap(items: list[tuple[int, int]], most: int) -> None:
    start, end = spans(items)
    lane = lanes(start, end, most)
    assert ((lane >= 0) & (lane <= most)).all()
    shown = lane < most
    assert not overlaps(start[shown].tolist(), end[shown].tolist(), lane[shown].tolist())
    for i in np.flatnonzero(~shown):  # whoever finds no room meets `most` others when it starts
        open_then = (start[: i + 1] <= start[i]) & (end[: i + 1] > start[i])
        assert open_then.sum() > most


def test_what_nests_gets_its_depth() -> None:
    start, end = np.array([0, 0, 2, 5, 20]), np.array([20, 10, 4, 9, 30])
    assert lanes(start, end, 9).tolist() == [0, 1, 2, 2, 0]
    assert lanes(start, end, 2).tolist() == [0, 1, 2, 2, 0]


@given(SPANS, st.integers(1, 30), st.integers(1, 20), st.randoms(use_true_random=False))
def test_rectangles_stand_for_every_event(items: list[tuple[int, int]], most: int, narrow: int, random) -> None:
    start, end = spans(items)
    depth = lanes(start, end, 1000)
    category = np.array([random.randrange(4) for _ in items], np.int64)
    made = rectangles(start, end, depth, category, most, narrow)
    depths = len(set(depth.tolist()))
    assert len(made) <= max(most, depths)
    assert int(made.count.sum()) == len(items) and int(made.covered.sum()) == int((end - start).sum())
    assert not overlaps(made.start.tolist(), made.end.tolist(), made.depth.tolist())
    assert (made.covered <= made.end - made.start).all()
    for i in range(len(made)):
        mine = np.flatnonzero(made.of_event == i)
        assert made.count[i] == len(mine) > 0 and set(depth[mine]) == {made.depth[i]}
        assert (made.start[i], made.end[i]) == (start[mine].min(), end[mine].max())
        lengths = (end - start)[mine]
        assert lengths.max() == (end - start)[made.longest[i]]
        spent = np.bincount(category[mine], weights=lengths)
        assert spent[made.category[i]] == spent.max()
        if len(mine) > 1:
            assert lengths.max() < made.merged_below
    if len(items) <= most:
        assert made.merged_below == 0 and len(made) == len(items)


def test_the_longest_events_stay_single() -> None:
    start = np.arange(0, 10_000, 10)
    end = start + 3
    end[500] = start[500] + 9
    end[[100, 900]] = start[[100, 900]] + 8
    made = rectangles(start, end, np.zeros(1000, np.int64), np.zeros(1000, np.int64), 9, 4)
    assert made.count.tolist() == [1000] or set(made.longest[made.count == 1].tolist()) <= {100, 500, 900}
    assert int(made.count.sum()) == 1000 and len(made) <= 9


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(-50, 50)), max_size=200), st.integers(4, 40))
def test_a_thinned_curve_keeps_its_lows_and_highs(items: list[tuple[int, int]], most: int) -> None:
    time = np.array(sorted(t for t, _ in items), np.int64)
    value = np.array([v for _, v in items], np.int64)
    kept = thinned(time, value, most)
    assert len(kept) <= max(most, 0) and (np.diff(kept) > 0).all()
    if len(items):
        assert kept[0] == 0 and kept[-1] == len(items) - 1
        assert value[kept].max() == value.max() and value[kept].min() == value.min()


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=40), st.integers(1, 10))
def test_fewer_intervals_cover_what_there_was(items: list[tuple[int, int]], most: int) -> None:
    whole = union(np.array([a for a, _ in items], np.int64), np.array([b for _, b in items], np.int64))
    start, end = fewer(whole, most)
    assert len(start) == min(most, len(whole[0])) and (start < end).all() and (start[1:] > end[:-1]).all()
    for s, e in zip(*whole, strict=True):
        assert ((start <= s) & (e <= end)).any()


@given(st.text(max_size=400), st.integers(3, 160))
def test_shortened_names_keep_both_ends(text: str, most: int) -> None:
    short = shortened(text, most)
    assert len(short) <= most
    assert short == text if len(text) <= most else short[0] == text[0] and "…" in short


def checked(run: Run, report: Report) -> Pictures:
    """The pictures, after what must hold for every run."""
    pictures = report.pictures
    assert pictures is not None
    text = json.dumps(pictures.to_dict(), allow_nan=False)
    assert len(text) < 2_000_000
    for line in pictures.timelines:
        _check_timeline(pictures, line, report)
    table = pictures.kernels
    if table is not None:
        rows = [*table.rows, *([table.others] if table.others else [])]
        assert abs(sum(row.total_ns for row in rows) - table.total_ns) <= len(rows)
        assert [row.total_ns for row in table.rows] == sorted((row.total_ns for row in table.rows), reverse=True)
        assert all(0 <= row.share <= 1 and row.name < len(pictures.strings) for row in rows)
    assert len(pictures.ranks.cells) == len(pictures.ranks.rank) == len(report.breakdown)
    for row in pictures.ranks.cells:
        assert row[0] == sum(row[1:])
    for name in ("timelines", "memory", "samples", "roofline", "kernels"):
        assert bool(getattr(pictures, name)) != (name in pictures.missing), name
    return pictures


def _check_timeline(pictures: Pictures, line: Timeline, report: Report) -> None:
    assert 0 <= line.host_start_ns <= line.host_end_ns <= line.duration_ns
    assert 0 <= line.gpu_start_ns <= line.gpu_end_ns <= line.duration_ns
    assert sum(map(len, line.tracks)) <= MOST_RECTANGLES + sum(track.depths for track in line.tracks)
    for track in line.tracks:
        columns = [getattr(track, each.name) for each in fields(Track) if isinstance(getattr(track, each.name), list)]
        assert len({len(column) for column in columns}) == 1
        end = [s + d for s, d in zip(track.start_ns, track.duration_ns, strict=True)]
        assert all(0 <= s < e <= line.duration_ns for s, e in zip(track.start_ns, end, strict=True))
        assert all(0 <= d < track.depths <= MOST_DEPTHS for d in track.depth)
        assert not overlaps(track.start_ns, end, track.depth)
        assert sum(track.count) + track.hidden == track.events
        assert all(0 <= name < len(pictures.strings) for name in track.name)
        for count, covered, duration in zip(track.count, track.covered_ns, track.duration_ns, strict=True):
            assert 0 < covered <= duration and (count > 1 or covered == duration)
    idle = [track for track in line.tracks if track.kind == "idle"]
    assert len(idle) == len(line.breakdown)
    for track, part in zip(idle, line.breakdown, strict=True):
        by_cause = dict.fromkeys(CAUSES, 0)
        for category, covered in zip(track.category, track.covered_ns, strict=True):
            by_cause[line.categories[category]] += covered
        assert by_cause == part.idle_by_cause
        assert part.step_ns == line.gpu_end_ns - line.gpu_start_ns == part.busy_ns + part.idle_ns
        assert all(s >= line.gpu_start_ns for s in track.start_ns)
    links = line.links
    for at, ns, depth, to, which in zip(
        links.from_track, links.from_ns, links.from_depth, links.to_track, links.to_rectangle, strict=True
    ):
        assert line.tracks[at].kind == "host" and line.tracks[to].kind == "stream"
        assert 0 <= ns < line.duration_ns and 0 <= depth < line.tracks[at].depths
        assert line.tracks[to].count[which] == 1
    assert set(line.highlights) == {finding.fingerprint for finding in report.findings}
    for mark in line.highlights.values():
        assert (mark.basis == "none") == (not mark.track)
        assert mark.intervals >= len(mark.track)
        end = [s + d for s, d in zip(mark.start_ns, mark.duration_ns, strict=True)]
        assert not overlaps(mark.start_ns, end, mark.track)
        for at, s, e in zip(mark.track, mark.start_ns, end, strict=True):
            on_gpu = line.tracks[at].kind == "stream"
            low, high = (line.gpu_start_ns, line.gpu_end_ns) if on_gpu else (line.host_start_ns, line.host_end_ns)
            assert low <= s < e <= high


@settings(deadline=None, max_examples=40)
@given(runs())
def test_any_run_has_pictures_that_agree_with_its_report(run: Run) -> None:
    checked(run, advisor.analyze(run, pictures=True))


def test_pictures_are_made_only_when_asked_for_and_are_no_part_of_the_contract() -> None:
    run = loop().to_run()
    plain, drawn = advisor.analyze(run), advisor.analyze(run, pictures=True)
    assert plain.pictures is None and drawn.pictures is not None
    assert plain.to_dict() == drawn.to_dict()


def loop(steps: int = 6) -> Workload:
    """10 products of 300 us a step, read back one by one."""
    w = Workload()
    for _ in w.steps(steps):
        for _ in range(10):
            with w.op("aten::mm", us=6, shapes=[[1024, 1024], [1024, 1024]], types=["float", "float"]):
                w.launch("sgemm_128x128", gpu_us=300)
            w.item()
    return w


def test_a_loop_of_waits_is_shown_with_its_waits_marked() -> None:
    report = advisor.analyze(loop().to_run(), pictures=True)
    pictures = checked(loop().to_run(), report)
    (line,) = pictures.timelines
    by_kind = {track.kind: track for track in line.tracks}
    stream, host = by_kind["stream"], by_kind["host"]
    names = [pictures.strings[code] for code in stream.name]
    assert names.count("sgemm_128x128") == 10
    assert {line.categories[c] for c in stream.category} >= {"matrix multiply", "memory copy"}
    assert host.depths >= 2
    called = {pictures.strings[line.tracks[at].name[0]] for at in line.links.from_track}
    assert called and len(line.links.from_ns) == len(stream)
    (waits,) = (f for f in report.findings if f.rule == "host-sync-in-step")
    mark = line.highlights[waits.fingerprint]
    assert mark.basis == "change" and mark.intervals == 10
    assert {line.tracks[at].kind for at in mark.track} == {"host"}
    assert min(mark.duration_ns) > 250_000  # each wait lasts as long as its product
    row = pictures.kernels.rows[0]
    assert (pictures.strings[row.name], row.calls, row.mean_ns, row.kernel_class) == (
        "sgemm_128x128",
        10,
        300_000,
        "matrix multiply",
    )
    assert pictures.strings[row.operator] == "aten::mm" and row.tensor_cores is False
    point = pictures.roofline.points[0]
    assert point.flops == round(2 * 1024**3 / 300e-6) and point.dtype == "fp32"
    assert point.intensity == pytest.approx(2 * 1024**3 / (3 * 4 * 1024**2), rel=1e-4)


def test_many_events_come_to_few_rectangles() -> None:
    w = Workload()
    for _ in w.steps(3):
        for _ in range(9000):
            w.launch("elementwise_kernel", gpu_us=1, us=2)
        w.launch("gemm", gpu_us=4000)
    report = advisor.analyze(w.to_run(), pictures=True)
    line = checked(w.to_run(), report).timelines[0]
    stream = next(track for track in line.tracks if track.kind == "stream")
    assert stream.events >= 9001 > len(stream) and stream.merged_below_ns > 0
    assert any(count == 1 and ns == 4_000_000 for count, ns in zip(stream.count, stream.duration_ns, strict=True))
    assert any("say how many they stand for" in note for note in line.notes)


def test_of_many_ranks_three_are_shown() -> None:
    w = Workload(ranks=6)
    for _ in range(4):
        for number, rank in enumerate(w.ranks):
            with rank.step():
                rank.host(100 * (number == 4) + 10)
                rank.launch("gemm", gpu_us=400 + 50 * (number == 2))
        w.collective("allreduce", elements=1000, gpu_us=50)
    pictures = checked(w.to_run(), advisor.analyze(w.to_run(), pictures=True))
    assert 1 <= len(pictures.timelines) <= 3
    assert pictures.timelines[0].why.startswith("sets the pace")
    assert pictures.step_map.rank == list(range(6)) and len(pictures.step_map.cells[0]) == 4
    assert any(track.kind == "collectives" for track in pictures.timelines[0].tracks)


def test_a_picture_that_fails_is_absent_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("in here")

    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)
    monkeypatch.setattr("advisor.pictures.gather.memory_curves", broken)
    pictures = advisor.analyze(loop().to_run(), pictures=True).pictures
    assert pictures.memory == [] and pictures.missing["memory"] == "it could not be made (ZeroDivisionError)"
    assert pictures.timelines


def test_hostile_names_cannot_make_the_pictures_large() -> None:
    w = Workload()
    for number in range(3):
        with w.step():
            for i in range(9000):
                w.launch(f"{number * 9000 + i}" + "\U0001f600" * 400, gpu_us=3, us=2)
    pictures = checked(w.to_run(), advisor.analyze(w.to_run(), pictures=True))
    assert max(map(len, pictures.strings)) <= 160


def test_a_log_alone_has_samples_and_reasons(tmp_path) -> None:
    folder = Path(__file__).resolve().parents[1] / "sample_traces"
    run = advisor.load(folder / "loader-starved.smi.csv")
    pictures = checked(run, advisor.analyze(run, pictures=True))
    assert not pictures.samples.aligned and "no trace" in pictures.samples.reason
    assert "no trace of the program" in pictures.missing["timelines"]
    curves = pictures.samples.gpus[0].metrics
    table = run.table("device_samples")
    assert max(curves["power"].value) == pytest.approx(float(np.nanmax(table["power"])), abs=0.001)
    assert curves["power"].points == int(np.isfinite(table["power"]).sum())


def test_a_recording_of_the_host_alone_is_drawn_without_gpu_tracks() -> None:
    w = Workload()
    for _ in w.steps(4):
        with w.op("aten::mm"):
            w.host(100)
    run = w.to_run()
    pictures = checked(run, advisor.analyze(run, pictures=True))
    (line,) = pictures.timelines
    assert {track.kind for track in line.tracks} == {"ranges", "host"} and line.breakdown == []
    assert "no GPU work" in pictures.missing["kernels"]


def test_throttling_is_told_in_intervals() -> None:
    w = Workload()
    for _ in w.steps(4):
        w.launch("gemm", 100)
        w.sample(utilization=90.0, throttle_reasons=0x4, power=300.0)
        w.host(1000)
        w.sample(utilization=90.0, throttle_reasons=0, power=200.0)
        w.host(1000)
    gpu = advisor.analyze(w.to_run(), pictures=True).pictures.samples.gpus[0]
    (held,) = gpu.throttled
    assert held.label == "power limit" and len(held.start_ns) == 4
    assert all(900_000 < ns < 1_200_000 for ns in held.duration_ns)


@pytest.mark.shared
@pytest.mark.parametrize("path", largest(4), ids=lambda path: path.name[:40])
def test_public_recordings_stay_small_and_agree(path: Path) -> None:
    run = advisor.load(path)
    checked(run, advisor.analyze(run, pictures=True))
