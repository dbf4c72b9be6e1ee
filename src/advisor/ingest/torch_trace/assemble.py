"""Columns of all shares -> the tables of a trace."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.ingest.torch_trace.columns import Builder
from advisor.model import TABLES, Table

Columns = dict[str, npt.NDArray[Any]]
_HOUR = 3_600_000_000_000
_HOST_TABLES = ("runtime_calls", "host_ops", "python_frames", "ranges", "memory_events")
_GPU_TABLES = ("kernels", "copies", "sync_events")


def pair_halves(builder: Builder) -> int:
    """Turn begin and end rows into complete events, the innermost open one first; returns how many stay alone."""
    stacks: dict[Any, list[Any]] = {}
    alone = 0
    for begin, time, event in sorted(builder.halves, key=lambda half: half[1]):
        stack = stacks.setdefault((event.pid, event.tid), [])
        if begin:
            stack.append((time, event))
        elif stack:
            start, opening = stack.pop()
            builder._complete(opening.category, [opening], np.array([start], np.int64), np.array([time], np.int64))
        else:
            alone += 1
    builder.halves.clear()
    return alone + sum(map(len, stacks.values()))


def as_arrays(columns: dict[str, array[Any]]) -> Columns:
    return {name: np.frombuffer(column, column.typecode) for name, column in columns.items() if len(column)}


def drop_zero_times(tables: dict[str, Columns]) -> int:
    """Remove rows at or before time 0 when all others lie hours later; returns how many."""
    keys = {name: "time" if "time" in columns else "start" for name, columns in tables.items()}
    starts = [columns[keys[name]] for name, columns in tables.items()]
    if not any(bool((start <= 0).any()) for start in starts):
        return 0
    later = [int(start[start > 0].min()) for start in starts if bool((start > 0).any())]
    if not later or min(later) < _HOUR:
        return 0
    dropped = 0
    for name, columns in tables.items():
        good = columns[keys[name]] > 0
        dropped += len(good) - int(good.sum())
        for column in columns:
            columns[column] = columns[column][good]
    return dropped


def zero_of(tables: dict[str, Columns]) -> int | None:
    """The earliest time of any row."""
    times = [columns["time" if "time" in columns else "start"] for columns in tables.values()]
    return min((int(t.min()) for t in times if len(t)), default=None)


def shift(tables: dict[str, Columns], zero: int) -> None:
    """Make all times count from `zero`."""
    for columns in tables.values():
        for key in ("start", "end", "time"):
            if key in columns:
                columns[key] = columns[key] - zero


def host_process(tables: dict[str, Columns]) -> int | None:
    """The process that most host rows belong to."""
    for name in _HOST_TABLES:
        if name in tables and len(tables[name]["process"]):
            processes, counts = np.unique(tables[name]["process"], return_counts=True)
            return int(processes[np.argmax(counts)])
    return None


def give_processes(tables: dict[str, Columns], process: int | None) -> None:
    """GPU rows get the process of the call that launched them, by correlation; the others `process`."""
    if process is None:
        return
    calls = tables.get("runtime_calls")
    several = calls is not None and len(np.unique(calls["process"])) > 1
    for name in (*_GPU_TABLES, "collective_calls"):
        columns = tables.get(name)
        if columns is None:
            continue
        known = columns.get("process")
        found = np.full(len(columns["start"]), process, np.int64)
        if several and calls is not None:
            row = find(calls["correlation"], columns["correlation"])
            found = np.where(row >= 0, calls["process"][row], found)
        columns["process"] = found if known is None else np.where(known == -1, found, known)


def find(keys: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Row of `keys` that holds each wanted value first, -1 where none does or the value is missing."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    row = order[place]
    return np.where((keys[row] == wanted) & (wanted != -1), row, -1)


def copy_sizes(tables: dict[str, Columns], copied: dict[int, int]) -> None:
    """Bytes of copies that only the call states (HIP)."""
    copies = tables.get("copies")
    if copies is None or not copied:
        return
    unknown = np.flatnonzero(copies["bytes"] == -1)
    if len(unknown):
        size = copies["bytes"].copy()
        size[unknown] = [copied.get(c, -1) for c in copies["correlation"][unknown].tolist()]
        copies["bytes"] = size


def forward_backward(tables: dict[str, Columns]) -> None:
    """Join both ends of the arrows from forward to backward operators by id."""
    starts, ends = tables.pop("flow_starts", None), tables.pop("flow_ends", None)
    if starts is None or ends is None:
        return
    row = find(starts["id"], ends["id"])
    there = row >= 0
    row = row[there]
    tables["forward_backward"] = {
        "start": starts["time"][row],
        "process": starts["process"][row],
        "forward_thread": starts["thread"][row],
        "backward_start": ends["time"][there],
        "backward_thread": ends["thread"][there],
    }


def to_table(name: str, columns: Columns) -> Table:
    """An ordered table. Takes the columns one by one, so that they are in memory twice only one at a time."""
    spec = TABLES[name]
    key = columns[spec.order]
    order = None if bool((key[1:] >= key[:-1]).all()) else np.argsort(key, kind="stable")
    given: Columns = {}
    for column in spec.columns:
        values = columns.pop(column.name, None)
        if values is None or (column.missing is not None and bool((values == column.missing).all())):
            continue
        given[column.name] = values if order is None else values[order]
    return Table(name, given, length=len(key))
