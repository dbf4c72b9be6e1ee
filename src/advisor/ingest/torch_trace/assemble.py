"""Parts -> the tables of a trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.ingest.torch_trace.metadata import Members
from advisor.ingest.torch_trace.parts import Part
from advisor.model import TABLES, Strings, Table

Columns = dict[str, npt.NDArray[Any]]
_HOUR = 3_600_000_000_000
_HOST_TABLES = ("runtime_calls", "host_ops", "python_frames", "ranges", "memory_events")
_GPU_TABLES = ("kernels", "copies", "sync_events")


@dataclass
class Merged:
    """All parts as one: columns by table, text as codes into `strings`."""

    tables: dict[str, Columns] = field(default_factory=dict)
    strings: Strings = field(default_factory=Strings)
    dropped: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    copied: dict[int, int] = field(default_factory=dict)
    repaired: int = 0
    left_out: int = 0
    tail: Members | None = None


def merge(parts: list[Part]) -> Merged:
    """Join parts in the order of the text. Which process read what leaves no trace: strings are coded alphabetically."""
    merged = Merged(strings=Strings(sorted(set().union(*(part.strings for part in parts)))))
    ends = [part for part in parts if part.tail is not None]
    last = 1 << 62
    if ends:
        end = min(ends, key=lambda part: part.marks[-1][0])
        merged.tail, last = end.tail, end.marks[-1][0]
    codes = [np.append(merged.strings.codes(part.strings), np.int32(-1)) for part in parts]
    for part in parts:
        merged.repaired += part.repaired
        merged.left_out += part.left_out
        merged.copied |= part.copied
        merged.others.update(part.others)
        for unit, lost in part.dropped:
            if unit <= last:  # what lies behind the array's end only looks like events
                merged.dropped.update(lost)
    for table in sorted(set().union(*(part.columns for part in parts))):
        merged.tables[table] = _merge_table(table, parts, codes, last)
    return merged


def _merge_table(table: str, parts: list[Part], codes: list[npt.NDArray[np.int32]], last: int) -> Columns:
    runs = sorted(run for i, part in enumerate(parts) for run in _runs(table, i, part, last))
    total = sum(count for _, _, _, count in runs)
    spec = TABLES.get(table)
    columns: Columns = {}
    for name in sorted(set().union(*(part.columns.get(table, ()) for part in parts))):
        column = spec.column(name) if spec else None
        pieces = [part.load(table, name) if name in part.columns.get(table, ()) else None for part in parts]
        if column is not None and column.unit == "text":
            pieces = [None if p is None else code[p] for p, code in zip(pieces, codes, strict=True)]
        only = pieces[0]
        if len(runs) == 1 and len(parts) == 1 and only is not None:
            columns[name] = only
            continue
        dtype = next(p.dtype for p in pieces if p is not None)
        into = columns[name] = np.empty(total, dtype)
        at = 0
        for _, i, first, count in runs:
            piece = pieces[i]
            into[at : at + count] = column.missing if piece is None and column else piece[first : first + count]  # type: ignore[index]
            at += count
    return columns


def _runs(table: str, index: int, part: Part, last: int) -> list[tuple[int, int, int, int]]:
    """(unit, part, first row, rows) of each unit with rows of the table."""
    runs, before = [], 0
    for unit, rows in part.marks:
        after = rows.get(table, 0)
        if after > before and unit <= last:
            runs.append((unit, index, before, after - before))
        before = after
    return runs


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


def without_launch(kernels: Table, copies: Table, calls: Table) -> tuple[int, int]:
    """GPU rows, and how many of them lost their launch. A trace without any call says nothing about that.

    A launch is found by correlation. Rows that start before the first launched one of their stream were launched before the
    recording began, and nothing is lost there.
    """
    correlations, start = (np.concatenate([kernels[name], copies[name]]) for name in ("correlation", "start"))
    if not len(calls):
        return len(correlations), 0
    alone = find(calls["correlation"], correlations) < 0
    streams = np.concatenate([np.stack([t["process"], t["device"], t["stream"]]) for t in (kernels, copies)], axis=1)
    distinct, stream = np.unique(streams, axis=1, return_inverse=True)
    first = np.full(distinct.shape[1], np.iinfo(np.int64).max)
    stream = stream.reshape(-1)
    np.minimum.at(first, stream[~alone], start[~alone])
    last = int(first.max(initial=0, where=first < np.iinfo(np.int64).max))
    first[first == np.iinfo(np.int64).max] = last  # a stream of which no launch was recorded
    return len(correlations), int(np.count_nonzero(alone & (start >= first[stream])))


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
