"""The allocator's counters and snapshots beside a recording, with stand-ins for the GPU's part of torch, and as an input."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import advisor
from advisor.hook import sampler
from advisor.hook.allocator import Allocator
from advisor.hook.bundle import Bundle
from test_bundle import manifest, write

STATISTICS = {
    "allocated_bytes": {"all": {"current": 5 << 20, "peak": 9 << 20, "allocated": 1, "freed": 1}},
    "reserved_bytes": {"all": {"current": 16 << 20, "peak": 20 << 20}},
    "requested_bytes": {"all": {"current": 4 << 20}},
    "inactive_split_bytes": {"all": {"current": 3 << 20, "peak": 6 << 20}},
    "segment": {"all": {"current": 4, "freed": 2}},
    "num_ooms": 1,
    "num_alloc_retries": 7,
    "num_device_alloc": 6,
}


def allocator(folder: Path) -> Allocator:
    one = Allocator(Bundle(folder, 0, 1 << 20), history=False, snapshot_on_oom=True)
    one._device = 0
    one._torch = SimpleNamespace(
        _C=SimpleNamespace(_cuda_memoryStats=lambda device: STATISTICS),
        cuda=SimpleNamespace(memory=SimpleNamespace(_snapshot=lambda: {"segments": [], "device_traces": []})),
    )
    return one


def test_the_summary_of_a_recording_is_the_table_of_memory_summary(tmp_path: Path) -> None:
    about = allocator(tmp_path / "run").about()
    table = advisor.load([write(tmp_path / "rank-0", manifest(companions={"allocator": about, "samples": {}}))]).table(
        "allocator_summaries"
    )
    expected = {
        "device": 0,
        "ooms": 1,
        "retries": 7,
        "allocated": 5 << 20,
        "allocated_peak": 9 << 20,
        "requested": 4 << 20,
        "reserved": 16 << 20,
        "reserved_peak": 20 << 20,
        "non_releasable": 3 << 20,
        "non_releasable_peak": 6 << 20,
        "segments": 4,
        "segments_freed": 2,
    }
    assert {name: int(table[name][0]) for name in expected} == expected


def test_retries_of_the_allocator_are_found(tmp_path: Path) -> None:
    about: Any = allocator(tmp_path / "run").about()
    run = advisor.load([write(tmp_path / "rank-0", manifest(companions={"allocator": about}))])
    (finding,) = advisor.analyze(run, select=["allocator-retries"]).findings
    assert finding.facts["retries"] == 7


def test_impossible_counts_are_left_out(tmp_path: Path) -> None:
    for summary in ({"retries": -5, "ooms": 1 << 63}, {"unknown": 3}, {}, None):
        document = manifest(companions={"allocator": {"device": 1 << 40, "summary": summary}})
        table = advisor.load([write(tmp_path, document)]).table("allocator_summaries")
        assert not len(table) or not table.has("retries")


def test_counters_of_steps_are_thinned_out(tmp_path: Path) -> None:
    one = allocator(tmp_path / "run")
    for count in range(1, 200_000):
        one.end_step(count, None)
    rows = one.about()["rows"]
    assert len(rows) < 2048 and rows[-1][0] > 190_000
    steps = [row[0] for row in rows]
    assert steps == sorted(set(steps)) and rows[0][1:4] == [5 << 20, 16 << 20, 9 << 20]


def test_snapshots_have_names_of_their_own_and_stop_in_time(tmp_path: Path) -> None:
    one = allocator(tmp_path / "run")
    first, second = one.snapshot("mine", {}), one.snapshot("mine", {})
    assert first is not None and second is not None
    assert (first.name, second.name) == ("mine.pickle.gz", "mine-1.pickle.gz")
    assert pickle.loads(gzip.decompress(first.read_bytes())) == {"segments": [], "device_traces": []}
    for _ in range(5):
        one._out_of_memory(0, 1 << 30, 1 << 34, 1 << 20)
    files = sorted(file.name for file in (tmp_path / "run" / "rank-0").iterdir())
    assert files == ["mine-1.pickle.gz", "mine.pickle.gz", "snapshot-oom-2.pickle.gz"]
    assert one.about()["snapshots"][-1] == {
        "file": "snapshot-oom-2.pickle.gz",
        "device": 0,
        "asked_bytes": 1 << 30,
        "device_free_bytes": 1 << 20,
    }


def test_the_topology_is_noted_once(tmp_path: Path, monkeypatch: Any) -> None:
    table = b"\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"
    monkeypatch.setattr(sampler.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=table))
    bundle = Bundle(tmp_path / "run", 0, 1 << 20)
    sampler.Sampler(bundle, 1.0, topology=True)._write_topology()
    links = advisor.load([bundle.folder / "topology.txt"]).frame("links")
    assert links[["a", "b", "link"]].values.tolist() == [["GPU0", "GPU1", "NV18"]]
