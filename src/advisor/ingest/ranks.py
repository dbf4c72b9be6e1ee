"""Which rank each recording is of, and which recording of a rank gives the times and which the evidence."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from advisor.ingest.clocks import bounds, named
from advisor.model import InputError, Notice, Trace

# rank3, rank_3, rank-3, r3, worker0: a word of its own inside a file or folder name.
_RANK_IN_NAME = re.compile(r"(?<![a-z0-9])(?:rank[_-]?|worker[_-]?|r)(\d{1,5})(?![a-z0-9])", re.IGNORECASE)


def rank_from_name(path: str) -> int | None:
    """The rank that a file name states, else the folders it lies in, nearest first."""
    for part in reversed(PurePath(path.replace("::", "/")).parts):
        if match := _RANK_IN_NAME.search(part):
            return int(match[1])
    return None


def assign(traces: Sequence[Trace], wanted: int | None, notices: list[Notice]) -> list[Trace]:
    """The traces with their ranks: as recorded; else, where several need telling apart, by name or because they ran at once.

    `wanted` is the rank the user asks for: traces of unknown rank are taken to be of it, those of others are left out.
    Raises InputError if nothing is left.
    """
    traces = [part for trace in traces for part in _by_recorded_rank(trace, split=len(traces) > 1 or wanted is not None)]
    if wanted is not None:
        given = [replace(trace, rank=wanted) if trace.rank is None else trace for trace in traces]
        kept = [trace for trace in given if trace.rank == wanted]
        if traces and not kept:
            raise InputError(
                f"no recording of rank {wanted}: there are {_listed(sorted({t.rank for t in given if t.rank is not None}))}"
            )
        return kept
    if len(traces) > 1:
        # Folders that all files share tell none apart: /data/worker3 may be the name of a machine.
        shared = os.path.commonpath([os.path.dirname(os.path.abspath(t.path)) for t in traces])
        names = [os.path.relpath(os.path.abspath(t.path), shared) for t in traces]
        traces = [replace(t, rank=rank_from_name(n)) if t.rank is None else t for t, n in zip(traces, names, strict=True)]
    unknown = [trace for trace in traces if trace.rank is None]
    known = sorted({trace.rank for trace in traces if trace.rank is not None})
    if not unknown or len(traces) == 1:
        return traces
    if len(known) == 1:  # another recording of the only rank there is
        return [replace(trace, rank=known[0]) if trace.rank is None else trace for trace in traces]
    if known:
        files = named([trace.path for trace in unknown])
        notices.append(
            Notice("rank-unknown", f"{files}: the rank is not recorded, beside {_listed(known)}; left out (--rank tells it)")
        )
        return [trace for trace in traces if trace.rank is not None]
    return _number_concurrent(traces, notices)


_OF_A_PROCESS = ("allocator_events", "memory_segments", "allocator_summaries", "out_of_memory")


def assign_beside(beside: Sequence[Trace], events: Sequence[Trace], wanted: int | None, notices: list[Notice]) -> list[Trace]:
    """What was seen beside the program, with its rank where it is of one process: a memory snapshot, an error message.

    By what the file states, else by the names, else of the only rank there is. Of several snapshots of one rank and device
    the last one stays: each holds a state of its own.
    """
    of_process = [trace for trace in beside if any(len(trace.table(name)) for name in _OF_A_PROCESS)]
    if not of_process:
        return list(beside)
    known = {trace.rank for trace in events}
    paths = [os.path.abspath(trace.path) for trace in (*of_process, *events)]
    shared = os.path.commonpath([os.path.dirname(path) for path in paths])
    result, latest = [], {}  # type: list[Trace], dict[tuple[int | None, tuple[int, ...]], tuple[tuple[int, str], int]]
    for trace in beside:
        if not any(trace is one for one in of_process):
            result.append(trace)
            continue
        rank = rank_from_name(os.path.relpath(os.path.abspath(trace.path), shared)) if len(paths) > 1 else None
        if len(known) == 1 and (rank is None or (wanted is None and rank not in known)):
            rank = next(iter(known))
        trace = replace(trace, rank=trace.rank if trace.rank is not None else rank)
        if wanted is not None and trace.rank not in (None, wanted):
            continue
        result.append(trace)
        if len(trace.table("memory_segments")) or len(trace.table("allocator_events")):
            devices = tuple(sorted(device.index for device in trace.devices))
            key, age = (trace.rank, devices), (trace.epoch_ns or 0, trace.path)
            latest[key] = max(latest.get(key, (age, len(result) - 1)), (age, len(result) - 1))
    kept = {place for _, place in latest.values()}
    dropped = [
        place
        for place, trace in enumerate(result)
        if place not in kept and (len(trace.table("memory_segments")) or len(trace.table("allocator_events")))
    ]
    if dropped:
        text = f"earlier snapshots of the same rank and device are not used: {named([result[place].path for place in dropped])}"
        notices.append(Notice("recording-unused", text))
    return [trace for place, trace in enumerate(result) if place not in dropped]


def _by_recorded_rank(trace: Trace, split: bool) -> list[Trace]:
    """A trace whose rows state one rank is of that rank; one of several ranks is split, where it has to be told from others."""
    if trace.rank is not None:
        return [trace]
    ranked = {name: table for name, table in trace.tables.items() if len(table) and "rank" in table.column_names}
    found = sorted({int(rank) for table in ranked.values() for rank in np.unique(table["rank"][table.known("rank")])})
    if len(found) == 1:
        return [replace(trace, rank=found[0])]
    if not found or not split:
        return [trace]
    return [
        replace(trace, rank=rank, tables={name: table.take(table["rank"] == rank) for name, table in ranked.items()})
        for rank in found
    ]


def _number_concurrent(traces: list[Trace], notices: list[Notice]) -> list[Trace]:
    """Traces of one tool that ran at the same time are different processes, whatever their names."""
    spans = []
    for trace in traces:
        span = bounds(trace)
        if span is None or trace.epoch_ns is None:
            return traces
        spans.append((trace.epoch_ns + span[0], trace.epoch_ns + span[1]))
    same_tool = len({trace.format for trace in traces}) == 1
    if not same_tool or max(start for start, _ in spans) >= min(end for _, end in spans):
        return traces
    order = sorted(range(len(traces)), key=lambda i: (min(_devices(traces[i]), default=0), traces[i].path))
    names = ", ".join(f"{PurePath(traces[i].path).name} = {number}" for number, i in enumerate(order))
    notices.append(Notice("ranks-numbered", f"these processes ran at once and state no rank; they are numbered: {names}"))
    numbers = {i: number for number, i in enumerate(order)}
    return [replace(trace, rank=numbers[i]) for i, trace in enumerate(traces)]


def _devices(trace: Trace) -> set[int]:
    return set(trace.table("kernels")["device"].tolist())


def choose(traces: Sequence[Trace], notices: list[Notice]) -> tuple[list[Trace], list[Trace]]:
    """(recordings that give the times, recordings that give the evidence): one a rank each.

    The second list is empty unless some rank has a recording that holds more than the one which gives its times; a rank with
    one recording then stands in both.
    """
    groups: dict[int | None, list[Trace]] = defaultdict(list)
    for trace in traces:
        groups[trace.rank].append(trace)
    light: list[Trace] = []
    full: list[Trace] = []
    unused: list[Trace] = []
    for rank in sorted(groups, key=lambda rank: -1 if rank is None else rank):
        first, *others = sorted(groups[rank], key=_slowing)
        light.append(first)
        full.append(max([first, *others], key=_holding))
        unused += [trace for trace in others if trace is not full[-1]]
    pairs = [(a, b) for a, b in zip(light, full, strict=True) if a is not b]
    if pairs:
        times, evidence = ([pair[side] for pair in pairs] for side in (0, 1))
        notices.append(
            Notice(
                "two-recordings",
                f"two recordings of one rank: times are those of {named([t.path for t in times])}, which slows the run less; "
                f"shapes, stacks and other evidence come from {named([t.path for t in evidence])}",
            )
        )
    if unused:
        notices.append(
            Notice("recording-unused", f"further recordings of the same rank are not used: {named([t.path for t in unused])}")
        )
    return light, full if pairs else []


def _slowing(trace: Trace) -> tuple[bool, bool, bool, bool, int, int, str]:
    """Sorts first what slowed the program least, by what was recorded; among equals the longest recording.

    Events on the host are counted per GPU operation, which is per step up to a factor that all recordings of a program share.
    """
    work = len(trace.table("kernels")) + len(trace.table("copies"))
    events = sum(len(trace.table(name)) for name in ("host_ops", "runtime_calls", "python_frames", "ranges", "memory_events"))
    rate = round(math.log(max(events, 1) / max(work, 1), 1.5))
    return (not work, _stacks(trace), _memory(trace), _shapes(trace), rate, -work, trace.path)


def _holding(trace: Trace) -> tuple[bool, bool, bool, bool]:
    return (_stacks(trace), _shapes(trace), _memory(trace), len(trace.table("host_ops")) > 0)


def _stacks(trace: Trace) -> bool:
    return bool(trace.capture.stacks) or len(trace.table("python_frames")) > 0 or trace.table("host_ops").has("stack")


def _shapes(trace: Trace) -> bool:
    return bool(trace.capture.shapes) or trace.table("host_ops").has("shapes")


def _memory(trace: Trace) -> bool:
    return bool(trace.capture.memory) or len(trace.table("memory_events")) > 0


def _listed(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}{', ...' if len(ranks) > 8 else ''}"
