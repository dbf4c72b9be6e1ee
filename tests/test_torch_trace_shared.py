"""Real traces against facts that were counted by other means; skipped where the recordings are not there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from advisor.ingest import torch_trace
from advisor.ingest.source import Source
from advisor.model import InputError, Trace

SHARED = Path(__file__).resolve().parents[1] / "../shared"
COUNTED = ("kernels", "copies", "runtime_calls", "host_ops", "python_frames", "ranges", "memory_events")
pytestmark = pytest.mark.shared


def facts() -> list[tuple[Path, dict[str, Any]]]:
    """Traces of many origins, and some of the many of one origin."""
    found = []
    for folder, every in (("traces", 1), ("corpus", 6)):
        file = SHARED / folder / "facts.json"
        if file.is_file():
            entries = json.loads(file.read_text()).items()
            of_ours = [(SHARED / folder / name, fact) for name, fact in entries if fact["format"] == torch_trace.FORMAT]
            found += of_ours[::every]
    return found


def union(start: np.ndarray, end: np.ndarray) -> int:
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    return int((end - np.maximum(start, np.append(start[:1], end[:-1]))).clip(0).sum())


def gpu(trace: Trace, device: int) -> dict[str, int]:
    kernels, copies = (table.take(table["device"] == device) for table in map(trace.table, ("kernels", "copies")))
    start, end = (np.concatenate([kernels[key], copies[key]]) for key in ("start", "end"))
    return {
        "span": int(end.max() - start.min()),
        "kernel_sum_ns": int((kernels["end"] - kernels["start"]).sum()),
        "kernel_busy_ns": union(kernels["start"], kernels["end"]),
        "busy_ns": union(start, end),
    }


def check(path: Path, fact: dict[str, Any]) -> None:
    trace = torch_trace.read(Source(path), processes=1)
    assert trace.rank == fact["rank"]
    for table in COUNTED:
        expected = fact["tables"][table]
        if expected is not None:
            assert len(trace.table(table)) in (expected if isinstance(expected, list) else [expected]), table
    for expected in fact["gpu"]:
        found = gpu(trace, expected["device"])
        assert abs(found["span"] - (expected["last_ns"] - expected["first_ns"])) <= 2000
        for key in ("kernel_sum_ns", "kernel_busy_ns", "busy_ns"):
            assert abs(found[key] - expected[key]) <= max(2000, expected[key] / 1000), key
    for expected in fact["devices"] or ():
        assert (expected["index"], expected["name"]) in [(d.index, d.name) for d in trace.devices]


@pytest.mark.skipif(not facts(), reason="the recordings are not here")
def test_facts_of_real_traces() -> None:
    for path, fact in facts():
        try:
            check(path, fact)
        except AssertionError as error:
            raise AssertionError(f"{path.name}: {error}") from error


@pytest.mark.skipif(not facts(), reason="the recordings are not here")
def test_real_traces_cut_at_random_places(tmp_path: Path) -> None:
    random, file = Random(5), tmp_path / "cut.json"
    for path, _ in facts():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if len(data) > 1_500_000:
            continue
        for cut in sorted(random.randrange(len(data)) for _ in range(4)):
            file.write_bytes(data[:cut])
            try:
                trace = torch_trace.read(Source(file), processes=1)
            except InputError as error:
                assert "\n" not in str(error)
            else:
                assert "input-cut-short" in {notice.code for notice in trace.notices}
