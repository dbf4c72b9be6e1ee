"""Real exports against facts that were measured by SQL; skipped where the recordings are not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from advisor.ingest import nsys
from advisor.ingest.source import Source
from advisor.model import InputError

SHARED = Path(__file__).resolve().parents[1] / "../shared"
pytestmark = pytest.mark.shared


def facts() -> list[tuple[Path, dict]]:
    found = []
    for folder in ("traces", "corpus"):
        file = SHARED / folder / "facts.json"
        if file.is_file():
            found += [(SHARED / folder / name, fact) for name, fact in json.loads(file.read_text()).items() if "sqlite" in name]
    return found


def union(start: np.ndarray, end: np.ndarray) -> int:
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    return int((end - np.maximum(start, np.append(start[:1], end[:-1]))).clip(0).sum())


@pytest.mark.skipif(not facts(), reason="the recordings are not here")
def test_facts_of_real_exports() -> None:
    for path, fact in facts():
        if fact["refused"]:
            with pytest.raises(InputError):
                nsys.read(Source(path))
            continue
        trace = nsys.read(Source(path))
        for table in ("kernels", "copies", "runtime_calls", "ranges", "memory_events"):
            assert fact["tables"][table] in (None, len(trace.table(table))), (path.name, table)
        for gpu in fact["gpu"] or []:
            kernels, copies = (table.take(table["device"] == gpu["device"]) for table in map(trace.table, ("kernels", "copies")))
            start, end = (np.concatenate([kernels[side], copies[side]]) for side in ("start", "end"))
            assert int(end.max() - start.min()) == gpu["last_ns"] - gpu["first_ns"], path.name
            assert int((kernels["end"] - kernels["start"]).sum()) == gpu["kernel_sum_ns"], path.name
            assert union(kernels["start"], kernels["end"]) == gpu["kernel_busy_ns"], path.name
            assert union(start, end) == gpu["busy_ns"], path.name
        devices = {(device.index, device.name) for device in trace.devices}
        for device in fact["devices"] or []:
            assert (device["index"], device["name"]) in devices, path.name
