"""The manifest of a recorded run as an input: steps for recordings without marks, the pace outside windows, bad manifests."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import advisor
from advisor.derive.steps import steps
from advisor.derive.unprofiled import unprofiled_step, unprofiled_steps
from advisor.model import InputError, Run, Table

EPOCH = 1_796_073_868_000_000_000
MS = 1_000_000


def manifest(**more: Any) -> dict[str, Any]:
    return {
        "schema": "advisor.bundle/1",
        "finished": True,
        "rank": 0,
        "world_size": 1,
        "process": 42,
        "start_epoch_ns": EPOCH,
        "surroundings": {
            "torch": "2.13.0",
            "cuda": "13.0",
            "variables": {"OMP_NUM_THREADS": "4", "AWS_SECRET": "hidden"},
            "devices": [
                {"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "memory_bytes": 1 << 37}
            ],
        },
        "windows": [],
        "steps": {"count": 0, "first": 0, "begin_ns": 0, "durations_ns": [], "states": []},
        "notices": [],
        **more,
    }


def write(folder: Path, document: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "manifest.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def timed(numbers: list[int], durations: list[int], states: list[int] | None = None, rank: int = 0) -> Table:
    ends = np.cumsum(durations)
    columns = {
        "start": ends - durations,
        "end": ends,
        "number": np.array(numbers),
        "state": np.array(states or [0] * len(numbers), np.int8),
        "rank": np.full(len(numbers), rank),
        "process": np.full(len(numbers), 42),
    }
    return Table("step_times", columns)


def test_what_the_run_stands_on(tmp_path: Path) -> None:
    run = advisor.load(write(tmp_path / "rank-0", manifest(notices=[{"code": "bundle-full", "message": "full"}])))
    assert run.environment == {"OMP_NUM_THREADS": "4"}
    assert run.facts["torch_version"] == "2.13.0" and run.facts["cuda_runtime_version"] == "13.0"
    (device,) = run.devices
    assert (device.name, device.compute_capability, device.sm_count) == ("NVIDIA H200", (9, 0), 132)
    assert device.process == 42  # as the traces of the same process say, so that it is no other device
    assert [(n.code, n.message) for n in run.notices if n.code.startswith("hook")] == [("hook-bundle-full", "full")]


def test_steps_inside_windows_have_the_clock_of_the_window(tmp_path: Path) -> None:
    durations = [10 * MS] * 6
    document = manifest(
        steps={"count": 6, "first": 0, "begin_ns": 0, "durations_ns": durations, "states": [0, 0, 2, 2, 2, 1]},
        windows=[{"kind": "timing", "first_step": 3, "step_edges_ns": [EPOCH + 31 * MS, EPOCH + 44 * MS, EPOCH + 52 * MS]}],
    )
    table = advisor.load(write(tmp_path, document)).table("step_times")
    assert table["number"].tolist() == [0, 1, 2, 3, 4, 5]
    assert table["state"].tolist() == [0, 0, 1, 2, 2, 1]
    assert (table["start"] // MS).tolist() == [0, 10, 20, 31, 44, 50]
    assert (table["end"] // MS).tolist() == [10, 20, 30, 44, 52, 60]


def test_marks_for_a_recording_without_any(tmp_path: Path) -> None:
    """Kernels alone, whose names show no period, get the steps that the hook timed."""
    edges = [EPOCH + i * 10 * MS for i in range(5)]
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": f"kernel_{i * i % 7}_{i}",
            "pid": 0,
            "tid": 7,
            "ts": (EPOCH // 1000 + 90_000 + i * 2500),  # the GPU is two windows behind
            "dur": 1500,
            "args": {"device": 0, "stream": 7, "correlation": i + 1},
        }
        for i in range(16)
    ]
    events += [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 42,
            "tid": 42,
            "ts": (EPOCH // 1000 + i * 2500 + 100),
            "dur": 5,
            "args": {"correlation": i + 1},
        }
        for i in range(16)
    ]
    (tmp_path / "window.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found = steps(advisor.load([tmp_path / "window.json"]))
    assert found.source != "profiler-step"
    write(tmp_path, manifest(windows=[{"kind": "timing", "first_step": 20, "step_edges_ns": edges}]))
    found = steps(advisor.load([tmp_path]))
    assert (found.source, found.number.tolist()) == ("profiler-step", [20, 21, 22, 23])
    assert np.diff(found.start).tolist() == [10 * MS] * 3


def test_the_pace_is_the_median_of_stretches() -> None:
    durations = [90 * MS] * 5 + [10 * MS] * 320
    durations[100] = 5_000 * MS  # an evaluation
    run = Run(tables={"step_times": timed(list(range(325)), durations)})
    found = unprofiled_step(run)
    assert found is not None and found.step_ns == 10 * MS and found.steps == 320
    assert found.low_ns == found.high_ns == 10 * MS


def test_the_host_running_ahead_does_not_hide_the_wait() -> None:
    """15 quick steps, then one that waits for them all: the mean is the pace, the median step would be wrong."""
    durations = ([1 * MS] * 15 + [145 * MS]) * 20
    run = Run(tables={"step_times": timed(list(range(320)), durations)})
    found = unprofiled_step(run)
    assert found is not None and abs(found.step_ns / (10 * MS) - 1) < 0.1


def test_only_undisturbed_steps_count_and_too_few_say_nothing() -> None:
    assert unprofiled_step(Run(tables={"step_times": timed(list(range(40)), [MS] * 40, [2] * 40)})) is None
    assert unprofiled_step(Run(tables={"step_times": timed(list(range(12)), [MS] * 12)})) is None
    assert unprofiled_step(Run(tables={"step_times": timed(list(range(13)), [MS] * 13)})) is not None
    assert unprofiled_step(Run()) is None


def test_the_slowest_rank_sets_the_pace() -> None:
    table = Table.concat("step_times", [timed(list(range(40)), [(r + 1) * MS] * 40, rank=r) for r in range(3)])
    run = Run(tables={"step_times": table})
    assert {key: found.step_ns for key, found in unprofiled_steps(run).items()} == {(r, 42): (r + 1) * MS for r in range(3)}
    assert unprofiled_step(run).rank == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ('{"schema": "advisor.bundle/1", "rank": ', "not a manifest"),
        (manifest(rank="zero"), "rank"),
        (manifest(schema="advisor.bundle/1", steps={"durations_ns": [1.5]}), "durations_ns"),
        (manifest(steps={"durations_ns": [-5], "states": [0]}), "no possible time"),
        (manifest(steps={"durations_ns": [1 << 62], "states": [0]}), "no possible time"),
        (manifest(steps={"durations_ns": [5] * ((1 << 20) + 1)}), "durations_ns"),
        (manifest(steps={"first": 1 << 60}), "first"),
        (manifest(windows=[{"first_step": 1 << 62}]), "first_step"),
        (manifest(rank=1 << 31, world_size=2), "rank"),
        (manifest(rank=-1), "rank"),
        (manifest(process=10**30), "process"),
        (manifest(start_epoch_ns=10**30), "start_epoch_ns"),
        (manifest(surroundings={"devices": [{"index": 1 << 40}]}), "index"),
        (manifest(notices=[{"code": "x", "message": "y"}] * 2000), "notices"),
        (manifest(note={"schema": "advisor.bundle/1"}, schema="advisor.bundle/2"), "this version reads advisor.bundle/1"),
    ],
)
def test_bad_manifests_are_refused_in_one_line(tmp_path: Path, document: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        advisor.load(write(tmp_path, document))
    assert "\n" not in str(refused.value) and "please report" not in str(refused.value)


def test_a_window_whose_times_cannot_be_does_not_cost_the_others(tmp_path: Path) -> None:
    back, far = [EPOCH + 10, EPOCH], [EPOCH, EPOCH + (1 << 60)]
    good = {"first_step": 7, "step_edges_ns": [EPOCH + 100, EPOCH + 200, EPOCH + 300], "file": "../../../etc/passwd"}
    windows = [{"first_step": 1, "step_edges_ns": back}, {"first_step": 3, "step_edges_ns": far}, good]
    run = advisor.load(write(tmp_path, manifest(windows=windows, steps={"durations_ns": [50], "states": [0]})))
    assert run.table("step_times")["number"].tolist() == [0, 7, 8]
    assert [n.message for n in run.notices if n.code == "hook-window-times"] == [
        "the step times of 2 windows cannot be and are left out"
    ]


@pytest.mark.parametrize("kind", ["pipe", "loop", "device", "folder", "socket", "dangling"])
def test_what_else_may_lie_in_the_folder(tmp_path: Path, kind: str) -> None:
    """Nothing of it is waited for, followed without end, or costs the manifest."""
    write(tmp_path, manifest(steps={"durations_ns": [50], "states": [0]}))
    place = tmp_path / "window-0-timing.json"
    with socket.socket(socket.AF_UNIX) as listening:
        make: dict[str, Callable[[], Any]] = {
            "pipe": lambda: os.mkfifo(place),
            "loop": lambda: place.symlink_to("."),
            "device": lambda: place.symlink_to("/dev/zero"),
            "folder": place.mkdir,
            "socket": lambda: listening.bind(os.path.relpath(place)),
            "dangling": lambda: place.symlink_to("../nowhere"),
        }
        make[kind]()
        assert len(advisor.load(tmp_path).table("step_times")) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3), max_leaves=6
    ),
    st.sampled_from(["rank", "steps", "windows", "surroundings", "start_epoch_ns", "process", "notices", "finished"]),
)
def test_any_value_in_any_place(tmp_path_factory: pytest.TempPathFactory, value: Any, key: str) -> None:
    file = write(tmp_path_factory.mktemp("m"), manifest(**{key: value}))
    try:
        run = advisor.load(file)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert len(run.traces) == 1


def window(folder: Path, name: str, at_ms: int) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": EPOCH // 1000 + at_ms * 1000, "dur": 10}
    event["args"] = {"device": 0, "stream": 7, "correlation": 1}
    (folder / name).write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))


def test_of_several_recordings_the_last_that_all_ranks_have_is_used(tmp_path: Path) -> None:
    for rank, count in ((0, 3), (1, 2)):
        folder = tmp_path / f"rank-{rank}"
        windows = [{"file": f"window-{i}-timing.json", "recording": i, "first_step": 10 * i} for i in range(count)]
        write(folder, manifest(rank=rank, world_size=2, windows=windows))
        for i in range(count):
            window(folder, f"window-{i}-timing.json", 100 * i)
    run = advisor.load([tmp_path])
    used = sorted("/".join(Path(trace.path).parts[-2:]) for trace in run.traces if trace.format == "torch-trace")
    assert used == ["rank-0/window-1-timing.json", "rank-1/window-1-timing.json"]
    assert [n.message for n in run.notices if n.code == "recordings"] == [
        "the run was recorded 3 times; recording 2 is used (name its files to see another)"
    ]
    alone = advisor.load([tmp_path / "rank-0" / "window-0-timing.json"])
    assert len(alone.traces) == 1 and not any(n.code == "recordings" for n in alone.notices)


def test_reports_beside_the_ranks_are_no_matter(tmp_path: Path) -> None:
    write(tmp_path / "rank-0", manifest())
    (tmp_path / "report.json").write_text('{"schema": "advisor.report/1", "findings": []}')
    assert not [n for n in advisor.load([tmp_path]).notices if n.code == "files-skipped"]
    (tmp_path / "notes.json").write_text('{"note": 1}')
    assert [n.message.rpartition(": ")[2] for n in advisor.load([tmp_path]).notices if n.code == "files-skipped"] == [
        "notes.json"
    ]
    with pytest.raises(InputError, match="what advisor wrote itself, not a recording; `advisor compare` reads its reports"):
        advisor.load([tmp_path / "report.json"])
