"""Files that state what cannot be, or that are made to take for ever."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor import api
from advisor.ingest import NothingRead, load, load_traces
from advisor.ingest.nvidia_smi.query_text import QuerySection
from advisor.ingest.plausible import FARTHEST_NS, LONGEST_NS, keep_plausible
from advisor.ingest.source import Source
from advisor.ingest.torch_trace import parallel, read
from advisor.model import Device, InputError, Table, Trace
from build.nsys import NsysExport
from build.recordings import kineto

S = 1_000_000_000


def written(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(document))
    return path


def within(seconds: float, action: Callable[[], Any]) -> Any:
    """The result of an action, which must not take longer in processor time: the machine may be busy."""
    begin = time.process_time()
    result = action()
    assert time.process_time() - begin < seconds
    return result


def test_impossible_times_take_their_rows_along() -> None:
    start = np.array([0, 10, -FARTHEST_NS - 1, FARTHEST_NS + 1, 20, 30, 2**62])
    end = np.array([5, 9, 0, FARTHEST_NS + 2, 20 + LONGEST_NS + 1, 30, -(2**62)])
    trace = Trace("t", "torch-trace", tables={"kernels": Table("kernels", {"start": start, "end": end, "name": start * 0})})
    kept = keep_plausible(trace)
    assert kept.table("kernels")["start"].tolist() == [0, 30]
    assert [(notice.code, notice.message.split()[0]) for notice in kept.notices] == [("times-impossible", "5")]


def test_nothing_left_is_an_error() -> None:
    at = np.array([FARTHEST_NS * 2 - 1])
    table = Table("device_samples", {"time": at, "device": at * 0})
    with pytest.raises(InputError, match="a clock could show"):
        keep_plausible(Trace("t", "nvidia-smi-csv", tables={"device_samples": table}))


def test_impossible_values_are_not_recorded_ones() -> None:
    at = np.arange(3)
    kernels = {"start": at, "end": at, "name": at * 0, "device": [-7, -1, 2], "grid_x": [-5, -1, 8], "stream": [-9, -1, 7]}
    copies = {"start": at, "end": at, "bytes": [-5, -1, 64]}
    memory = {"time": at, "device": [-1, 0, 0], "bytes": [-5, 5, 0], "source": at * 0, "allocated": [-(2**62), -1, 3]}
    samples = {"time": at, "device": [-3, -1, 0], "power": [np.inf, np.nan, 5.0]}
    tables = {
        name: Table(name, columns)
        for name, columns in (("kernels", kernels), ("copies", copies), ("memory_events", memory), ("device_samples", samples))
    }
    devices = [
        Device(-7),
        Device(0, compute_capability=(9, -3), sm_count=-5, memory_bytes=0),
        Device(1, None, None, None, (9, 0)),
    ]
    trace = keep_plausible(
        Trace("t", "torch-trace", tables=tables, devices=devices, rank=-1, world_size=-1, epoch_ns=9_000_000_000 * S)
    )
    assert trace.table("kernels")["device"].tolist() == [0, 0, 2]
    assert trace.table("kernels")["grid_x"].tolist() == [-1, -1, 8]
    assert trace.table("kernels")["stream"].tolist() == [-9, -1, 7]  # an id may be any number
    assert trace.table("copies")["bytes"].tolist() == [-1, -1, 64]
    assert trace.table("memory_events")["bytes"].tolist() == [-5, 5, 0]  # released bytes
    assert trace.table("memory_events")["allocated"].tolist() == [-1, -1, 3]
    assert trace.table("memory_events")["device"].tolist() == [-1, 0, 0]
    assert trace.table("device_samples")["device"].tolist() == [0, 0, 0]
    assert np.isnan(trace.table("device_samples")["power"][:2]).all()
    assert trace.devices == [Device(0), Device(1, compute_capability=(9, 0))]
    assert (trace.rank, trace.world_size, trace.epoch_ns) == (None, None, None)


def test_one_extreme_row_does_not_move_the_others(tmp_path: Path) -> None:
    for field, value in (("ts", -(2**62) // 1000), ("ts", 2**62 // 1000), ("dur", 2**62 // 1000), ("ts", -1e15)):
        document = kineto()
        kernels = [event for event in document["traceEvents"] if event["cat"] == "kernel"]
        kernels[0][field] = value
        run = load([written(tmp_path, document)])
        start = run.table("kernels")["start"]
        assert len(start) == len(kernels) - 1 and start.min() >= 0 and start.max() < S


def test_ranks_ages_apart(tmp_path: Path) -> None:
    for rank, base in enumerate((10**18, 2**63 - 1, -(2**63))):
        path = tmp_path / f"rank{rank}.json"
        path.write_text(json.dumps(kineto(rank=rank) | {"baseTimeNanoseconds": base}))
    run = load([tmp_path])
    assert run.ranks == [0, 1, 2] and run.table("kernels")["start"].min() >= 0
    assert run.table("kernels")["end"].max() < 100 * S


def test_extreme_times_in_an_export(tmp_path: Path) -> None:
    export = NsysExport("2024.2")
    launch = export.call("cudaLaunchKernel_v7000", 100, 110)
    export.kernel("gemm", 200, 300, correlation=launch)
    export.kernel("gemm", 400, 500)
    export.write(tmp_path / "r.sqlite")
    connection = sqlite3.connect(tmp_path / "r.sqlite")
    connection.execute(
        f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = {-(2**63) + 1}, end = {2**63 - 1}, deviceId = -7 WHERE start = 400"
    )
    connection.commit()
    connection.close()
    document = api.info([tmp_path / "r.sqlite"])
    (gpu,) = document["files"][0]["gpu"]
    assert gpu["kernel_sum_ns"] == 100 and gpu["first_ns"] >= 0


def test_damage_before_the_first_event_is_no_empty_file(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(json.dumps(kineto()).encode()))
    packed[12:60] = bytes(48)
    (tmp_path / "t.json.gz").write_bytes(packed)
    with pytest.raises(NothingRead, match="gzip stream is damaged before the first event"):
        load([tmp_path / "t.json.gz"])
    (tmp_path / "t.json.gz").write_bytes(packed[:11])
    with pytest.raises(NothingRead, match="gzip stream is cut short before the first event"):
        load([tmp_path / "t.json.gz"])


def test_blank_stretches_take_no_time(tmp_path: Path) -> None:
    text = json.dumps(kineto()).encode()
    for blank in (b"\0", b" ", b"\n"):
        (tmp_path / "t.json").write_bytes(text + blank * 40_000_000)
        assert within(2, lambda: len(load([tmp_path / "t.json"]).table("kernels"))) == 6
    for gap in (b",", b" ", b"\0"):
        (tmp_path / "t.json").write_bytes(text.replace(b"[{", b"[" + gap * 20_000_000 + b"{", 1))
        assert within(4, lambda: len(load([tmp_path / "t.json"]).table("kernels"))) == 6


def test_no_more_processes_than_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(text: object, source: object, processes: int) -> Any:
        asked.append(processes)
        raise parallel.NeedsOneProcess

    monkeypatch.setattr(parallel, "read_together", refuse)
    monkeypatch.setattr(parallel, "POSSIBLE", True)
    read(Source(written(tmp_path, kineto())), processes=10**9)
    assert asked == [parallel.MOST_ASKED]


def test_lines_of_blanks_in_a_query_log() -> None:
    class Collector:
        beat = 0

        def __init__(self) -> None:
            self.rows: list[Any] = []
            self.facts: dict[str, str] = {}

        def add_row(self, table: str, row: dict[str, Any], stamp: object) -> None:
            self.rows.append(row)

    head = ["====NVSMI LOG====", "GPU 00000000:01:00.0", "    Utilization", "        Gpu   : 50 %", "  : nothing"]
    for filler in (" " * 990 + "x", " " * 980 + "x" + ":", "\t" * 240 + "x : y", "a " * 480, ": " * 480):
        collector = Collector()
        section = QuerySection(collector)  # type: ignore[arg-type]
        within(2, lambda section=section, filler=filler: section.feed(head + [filler] * 5000, 0, lambda line: False))
        section.close()
        assert [row["utilization"] for row in collector.rows] == [50.0]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a folder that may not be read")
def test_one_problem_a_folder(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    try:
        assert load_traces([closed])[1] == [(str(closed), "permission denied")]
    finally:
        closed.chmod(0o700)
