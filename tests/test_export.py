"""Exports: what a viewer or a data frame gets is what was recorded, plus our tracks."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import advisor
from advisor.cli import main
from advisor.derive.activity import CAUSES, activities, idle_causes
from advisor.derive.intervals import length, subtract
from advisor.derive.steps import steps
from advisor.export import perfetto
from advisor.export.selection import select
from advisor.export.words import microseconds
from advisor.model import InputError, Run
from advisor.rules.engine import analyze_with_changes
from build.any_run import runs
from build.shared import largest
from build.workload import Workload

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"
HOSTILE = '</script><img src=x onerror=alert(1)> "quoted" \\ {"a": 1} \x00\x1b[31m \ud800 /home/ann/secret/train.py'


def export(run: Run, **selection: Any) -> dict[str, Any]:
    report, changes = analyze_with_changes(run)

    class Out:
        data = b""

        def write(self, part: bytes) -> int:
            self.data += part
            return len(part)

    out = Out()
    written = perfetto.write(run, report, changes, select(run, **selection), out, lambda text: text)  # type: ignore[arg-type]
    document = json.loads(out.data)
    assert written.events == len(document["traceEvents"])
    return document


def ns(text: float | str) -> int:
    return round(float(text) * 1000)


def check_document(document: dict[str, Any]) -> None:
    """What both viewers need of a file."""
    rows: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    named = set()
    flows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in document["traceEvents"]:
        assert event["ph"] in "XMsfiC" and isinstance(event["name"], str)
        assert 0 <= event["pid"] < 2**31
        if event["ph"] != "C":
            assert 0 <= event["tid"] < 2**31
        if event["ph"] == "X":
            assert event["dur"] >= 0
            rows[event["pid"], event["tid"]].append((ns(event["ts"]), ns(event["dur"])))
        if event["ph"] == "M" and event["name"].endswith("_name"):
            named.add((event["name"], event["pid"], event["tid"] if event["name"] == "thread_name" else 0))
        if event["ph"] in "sf":
            flows[event["id"]].append(event)
    for (pid, tid), spans in rows.items():
        assert ("process_name", pid, 0) in named and ("thread_name", pid, tid) in named
        open_ends: list[int] = []
        for start, duration in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or start + duration <= open_ends[-1], "events of one row must nest"
            open_ends.append(start + duration)
    begins = {row: {start for start, _ in spans} for row, spans in rows.items()}
    for ends in flows.values():
        assert [event["ph"] for event in ends] == ["s", "f"] and ends[1]["bp"] == "e"
        for event in ends if ends[0]["name"] == "ac2g" else []:  # an arrow hangs on an event that begins there
            assert ns(event["ts"]) in begins[event["pid"], event["tid"]]


def of_category(document: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event.get("cat") == category and event["ph"] == "X"]


def tracks(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Our tracks by name."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    result: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in of_category(document, "advisor"):
        result[names[event["pid"], event["tid"]]].append(event)
    return result


@settings(deadline=None, max_examples=40)
@given(runs(), st.booleans())
def test_any_run_gives_a_document_that_viewers_open(run: Run, everything: bool) -> None:
    check_document(export(run, everything=everything))


@settings(deadline=None, max_examples=25)
@given(runs(most_ranks=1))
def test_our_own_reader_finds_in_the_export_what_was_recorded(tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    path = tmp_path_factory.mktemp("export") / "t.json"
    path.write_text(json.dumps(export(run, everything=True)))
    names = [name for name in ("kernels", "copies", "runtime_calls", "host_ops") if len(run.table(name))]
    if not names:
        return
    again = advisor.load(path)
    for name in names:
        # A host event that outlasts the one around it is cut, so ends are compared on the GPU only.
        columns = ["start", "end", "stream", "device", "correlation"] if name in ("kernels", "copies") else ["start"]
        for column in [*columns, *(["name"] if name != "copies" else ["bytes", "kind"])]:
            first, second = (frame(one, name, column) for one in (run, again))
            assert first == second, (name, column)


def frame(run: Run, name: str, column: str) -> list[Any]:
    values = run.frame(name)[column].tolist()
    if column in ("start", "end"):
        values = [value - int(run.table(name)["start"].min()) for value in values]
    return sorted(values)


def test_times_are_exact_to_the_nanosecond() -> None:
    for value in (0, 1, 999, 1000, 1_234_567_890_123_456_789, -1, -1001):
        text = microseconds(value)
        whole, decimals = text.lstrip("-").split(".")
        assert (int(whole) * 1000 + int(decimals)) * (-1 if text.startswith("-") else 1) == value and len(decimals) == 3


def loop() -> Workload:
    w = Workload()
    for _ in w.steps(8):
        for _ in range(4):
            with w.op("aten::mm", us=6, shapes=[[64, 64]], types=["float"]):
                w.launch("sgemm", gpu_us=500)
            w.item()
    return w


def test_the_default_is_a_steady_step_with_its_neighbours() -> None:
    run = loop().to_run()
    document = export(run)
    names = Counter(event["name"] for event in of_category(document, "user_annotation"))
    assert len(names) <= 4 and len(of_category(document, "kernel")) < len(run.table("kernels"))
    shown = [event["name"] for event in tracks(document)["steps on the host"]]
    assert len(shown) == 3 and all(event["args"]["steady"] in (True, False) for event in tracks(document)["steps on the host"])
    for event in of_category(document, "kernel"):
        assert event["args"]["stream"] == event["tid"]
    assert {e["name"] for e in document["traceEvents"] if e["ph"] == "s"} == {"ac2g"}


def test_chosen_steps_and_everything() -> None:
    run = loop().to_run()
    assert len(tracks(export(run, wanted=(2, 4)))["steps on the host"]) == 2
    assert len(tracks(export(run, wanted=(-2, None)))["steps on the host"]) == 2
    whole = export(run, everything=True)
    assert len(of_category(whole, "kernel")) == len(run.table("kernels"))
    assert len(of_category(whole, "cpu_op")) == len(run.table("host_ops"))
    with pytest.raises(InputError, match=r"steps 20:30 holds no step: there are 8"):
        select(run, (20, 30))


def test_our_tracks_hold_idle_time_by_cause_and_findings_with_their_fix() -> None:
    run = loop().to_run()
    document = export(run, everything=True)
    ours = tracks(document)
    (activity,) = activities(run)
    window = (np.array([activity.busy[0][0]]), np.array([activity.busy[1][-1]]))
    wanted = {cause: length(part) for cause, part in idle_causes(run, activity, window).items()}
    got = dict.fromkeys(CAUSES, 0)
    for event in ours["GPU 0 idle, by cause"]:
        got[event["name"]] += ns(event["dur"])
    assert got == wanted and sum(got.values()) > 0
    (waits,) = (finding for finding in advisor.analyze(run).findings if finding.rule == "host-sync-in-step")
    place = next(name for name in ours if name.endswith("host-sync-in-step (host)"))
    assert len(ours[place]) >= 4 * steps(run).steady.sum()
    args = ours[place][0]["args"]
    assert args["title"] == waits.title and args["fix"] == waits.fixes[0].title
    assert args["saving a step, ms"]["expected"] == waits.saving.expected_ns / 1e6
    assert args["shown"] == "what its fix changes"


def test_exposed_communication_is_what_compute_does_not_hide() -> None:
    w = Workload(ranks=2)
    for _ in range(4):
        for number, rank in enumerate(w.ranks):
            with rank.step():
                rank.launch("gemm", gpu_us=100)
                rank.host(200 + 300 * number)
        w.collective("allreduce", elements=1000, gpu_us=80)
    run = w.to_run()
    document = export(run, everything=True)
    check_document(document)
    wanted = sum(length(subtract(one.communication, one.compute)) for one in activities(run))
    got: Counter[str] = Counter()
    for name, events in tracks(document).items():
        if name.endswith("exposed communication"):
            for event in events:
                got[event["name"]] += ns(event["dur"])
    assert got.total() == wanted > 0 and got["waiting for other ranks"] > 0
    processes = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert {"rank 0 advisor", "rank 1 advisor", "rank 0 GPU 0"} <= processes


def test_an_nsys_export_becomes_a_trace_that_can_be_read_again(tmp_path: Path) -> None:
    run = advisor.load(SAMPLES / "loader-starved.nsys.sqlite.gz")
    document = export(run, everything=True)
    check_document(document)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    again = advisor.load(path)
    first, second = (advisor.analyze(one) for one in (run, again))
    assert [f.rule for f in first.findings][:1] == [f.rule for f in second.findings][:1]
    assert second.run["devices"][0]["name"] == first.run["devices"][0]["name"]
    for table in ("kernels", "copies", "runtime_calls"):
        assert len(run.table(table)) == len(again.table(table))
    assert second.breakdown[0].busy_ns == pytest.approx(first.breakdown[0].busy_ns, rel=0.01)


def command(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return int(left.value.code or 0)


def hostile_trace(tmp_path: Path) -> Path:
    w = Workload()
    for _ in w.steps(4):
        with w.op(HOSTILE, us=5), w.range(HOSTILE):
            w.launch(HOSTILE, gpu_us=50)
        w.sync()
    return w.write_kineto(tmp_path / "in")[0]


def test_hostile_names_stay_text_and_homes_are_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = hostile_trace(tmp_path)
    before = trace.read_bytes()
    assert command("export", trace, "--perfetto", tmp_path / "o.json.gz", "--parquet", tmp_path / "tables") == 0
    assert trace.read_bytes() == before
    text = gzip.decompress((tmp_path / "o.json.gz").read_bytes()).decode("ascii")
    check_document(json.loads(text))
    assert "ann" not in re.findall(r"home\W+(\w+)", text) and "\\u0000" not in text and "\\ud800" not in text
    kernels = __import__("pandas").read_parquet(tmp_path / "tables" / "kernels.parquet")
    assert len(kernels) >= 4 and not kernels["name"].astype(str).str.contains("/home/ann").any()
    out, err = capfd.readouterr()
    assert out == "" and "events, " in err and "kernels.parquet" in err


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for number in (1, 2):
        assert (
            command("export", SAMPLES / "tiny-kernels.torch-cuda-only.json.gz", "--perfetto", tmp_path / f"{number}.json.gz") == 0
        )
    assert (tmp_path / "1.json.gz").read_bytes() == (tmp_path / "2.json.gz").read_bytes()


def test_nothing_that_exists_is_overwritten_silently(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = hostile_trace(tmp_path)
    out, tables = tmp_path / "o.json", tmp_path / "tables"
    out.write_text("mine")
    assert command("export", trace, "--perfetto", out) == 2
    assert "exists; --force overwrites it" in capfd.readouterr().err and out.read_text() == "mine"
    tables.mkdir()
    (tables / "kernels.parquet").write_text("mine")
    assert command("export", trace, "--parquet", tables) == 2
    assert (tables / "kernels.parquet").read_text() == "mine" and len(list(tables.iterdir())) == 1
    assert command("export", trace, "--perfetto", out, "--parquet", tables, "--force") == 0
    assert json.loads(out.read_text())["traceEvents"] and (tables / "kernels.parquet").read_bytes()[:4] == b"PAR1"
    assert command("export", trace, "--perfetto", trace, "--force") == 2
    assert "is one of the inputs" in capfd.readouterr().err
    assert not list(tmp_path.rglob(".advisor-*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to write"),
        (["--perfetto", "o.json", "--all", "--steps", "1:2"], "exclude one another"),
        (["--perfetto", "nowhere/o.json"], "there is no folder nowhere"),
        (["--perfetto", "o.json", "--steps", "9:1"], "selects nothing"),
        (["--perfetto", "o.json", "--steps", "70:80"], "holds no step"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("export", SAMPLES / "tiny-kernels.torch-cuda-only.json.gz", *arguments) == 2
    out, err = capfd.readouterr()
    assert out == "" and message in err and len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_log_alone_has_tables_and_no_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = SAMPLES / "loader-starved.smi.csv"
    assert command("export", log, "--perfetto", tmp_path / "o.json") == 2
    assert "there is no trace in this input" in capfd.readouterr().err and not list(tmp_path.iterdir())
    pytest.importorskip("pyarrow")
    assert command("export", log, "--parquet", tmp_path / "t") == 0
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["device_samples.parquet"]


@pytest.mark.shared
@pytest.mark.parametrize("path", largest(2), ids=lambda path: path.name[:40])
def test_public_recordings_become_documents_that_viewers_open(path: Path) -> None:
    check_document(export(advisor.load(path), everything=True))


def test_it_writes_to_standard_output_too() -> None:
    arguments = ["export", str(SAMPLES / "tiny-kernels.torch-cuda-only.json.gz"), "--perfetto", "-"]
    done = subprocess.run([sys.executable, "-m", "advisor", *arguments], capture_output=True, timeout=120, check=True)
    check_document(json.loads(done.stdout))
    assert done.stderr == b""


@settings(deadline=None, max_examples=15)
@given(runs())
def test_tables_come_back_from_parquet_as_they_were(tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    pd = pytest.importorskip("pandas")
    from advisor.export import parquet

    folder = tmp_path_factory.mktemp("tables")
    written = parquet.write(run, lambda name: folder / name, "0")
    assert set(written) == {path.name for path in folder.iterdir()}
    for name, rows in written.items():
        data = pq.read_table(folder / name)
        assert len(data) == rows and data.schema.metadata[b"table"] == name.removesuffix(".parquet").encode()
        for field in data.schema:
            assert field.metadata[b"meaning"]
        if name == "steps.parquet":
            assert data["start"].to_pylist() == steps(run).start.tolist()
            continue
        table = run.table(name.removesuffix(".parquet"))
        back = pd.read_parquet(folder / name)
        wanted = run.frame(table.name)
        for column in table.spec.columns:
            known = table.known(column.name)
            assert back[column.name].isna().tolist() == (~known).tolist()
            assert back[column.name][known].tolist() == wanted[column.name][known].tolist()
            assert data.schema.field(column.name).metadata[b"unit"] == column.unit.encode()


def test_large_tables_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    from advisor.export import parquet

    monkeypatch.setattr(parquet, "ROWS", 7)
    run = loop().to_run()
    parquet.write(run, lambda name: tmp_path / name, "0")
    data = pq.ParquetFile(tmp_path / "kernels.parquet")
    assert data.num_row_groups == -(-len(run.table("kernels")) // 7)
    assert data.read()["name"].to_pylist() == run.frame("kernels")["name"].tolist()
