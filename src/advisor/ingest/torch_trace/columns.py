"""Events -> growing columns, a chunk at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from advisor.ingest.torch_trace.copies import CopyKinds
from advisor.ingest.torch_trace.events import NO_TEXT, Mark, as_int
from advisor.ingest.torch_trace.growing import Growing, thread_number
from advisor.ingest.torch_trace.intern import Names, Texts, api_name, frame_name, plain, stack_text
from advisor.ingest.torch_trace.times import EARLIEST, Times, nanoseconds, nanoseconds_of_texts
from advisor.model import MemorySource, RangeKind, Strings, SyncKind

_HELD = 200_000  # rows kept as they are until the end: begins and ends, calls that alone tell a copy's size

# Which table a category feeds, in the spellings since 2021 (the older ones begin with a capital). Empty: no row of ours.
CATEGORIES: dict[str | Mark, str] = {
    "cpu_op": "host_ops",
    "Operator": "host_ops",
    "user_annotation": "ranges",
    "kernel": "kernels",
    "Kernel": "kernels",
    "gpu_memcpy": "copies",
    "gpu_memset": "copies",
    "Memcpy": "copies",
    "Memset": "copies",
    "cuda_runtime": "runtime_calls",
    "cuda_driver": "runtime_calls",
    "hip_runtime": "runtime_calls",
    "hip_driver": "runtime_calls",
    "Runtime": "runtime_calls",
    "python_function": "python_frames",
    "cuda_sync": "sync_events",
    "overhead": "overheads",
    "gpu_user_annotation": "",
    "Trace": "",
    Mark.IGNORED: "",
    Mark.HALF: "halves",
    Mark.INSTANT: "memory_events",
    Mark.FLOW_START: "flow_starts",
    Mark.FLOW_END: "flow_ends",
}
CATEGORIES |= {category.lower(): table for category, table in CATEGORIES.items() if isinstance(category, str)}
_SYNC_KINDS = {
    "stream wait event": SyncKind.STREAM_WAIT_EVENT,
    "stream sync": SyncKind.STREAM,
    "stream synchronize": SyncKind.STREAM,
    "event sync": SyncKind.EVENT,
    "event synchronize": SyncKind.EVENT,
    "context sync": SyncKind.DEVICE,
    "context synchronize": SyncKind.DEVICE,
}
_STEP = "ProfilerStep#"


class Builder:
    """Takes events and keeps columns. `add` raises NeedsText, without effect, when times need the exact decoder."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.tables: dict[str, Growing] = {}
        self.dropped: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self.halves: list[tuple[int, Any]] = []  # times and begin or end rows
        self._names = Names(self.strings)
        self._operators = Names(self.strings)
        self._apis = Names(self.strings, api_name)
        self._frames = Names(self.strings, frame_name)
        self._texts = Texts(self.strings)
        self._words = Texts(self.strings, plain)
        self._stacks = Texts(self.strings, stack_text)
        self._copy_kinds = CopyKinds()
        self.copied: dict[int, int] = {}  # correlation -> bytes, where only the call tells them

    @property
    def texts_left_out(self) -> int:
        return self._texts.left_out + self._words.left_out + self._stacks.left_out

    def table(self, name: str) -> Growing:
        if name not in self.tables:
            self.tables[name] = Growing(name)
        return self.tables[name]

    def rows(self) -> dict[str, int]:
        """Rows of each table so far."""
        return {name: table.rows for name, table in self.tables.items()}

    def add(self, events: list[Any], exact: bool) -> None:
        """Append `events`; `exact` says that their times are raw text."""
        batches: dict[str, list[Any]] = {table: [] for table in CATEGORIES.values()}
        groups: dict[Any, list[Any]] = defaultdict(list)
        for category, table in CATEGORIES.items():
            groups[category] = batches[table]  # one list for all categories of a table: rows stay in the order of the text
        for event in events:
            groups[event.cat].append(event)
        others = Counter[str]()
        for category in [c for c in groups if c not in CATEGORIES]:
            for event in groups[category]:
                known = table_of(category) if category else _table_before_kineto(event)
                if known is None:
                    others[category or "without category"] += 1
                else:
                    batches[known].append(event)
        ready = []
        for table, rows in batches.items():
            if table and rows and (wanted := _wanted(table, rows)):
                ready.append((table, len(wanted), *_timed(wanted, exact)))
        self.others += others
        for table, count, rows, start, end in ready:
            self.dropped["without a usable time"] += count - len(rows)
            if rows:
                getattr(self, f"_{table}")(rows, start, end)

    def add_complete(self, event: Any, start: int, end: int) -> None:
        """Append one event made of a begin and an end row. Times in ns."""
        table = table_of(event.category)
        if table:
            getattr(self, f"_{table}")([event], np.array([start]), np.array([end]))
        elif table is None:
            self.others[event.category or "without category"] += 1

    def _host(self, table: str, rows: list[Any], start: Times, end: Times) -> Growing:
        into = self.table(table)
        into.times("start", start)
        into.times("end", end)
        into.put("process", [e.pid for e in rows], thread_number)
        into.put("thread", [e.tid for e in rows], thread_number)
        return into

    def _gpu(self, table: str, rows: list[Any], args: list[Any], start: Times, end: Times) -> Growing:
        into = self.table(table)
        into.times("start", start)
        into.times("end", end)
        into.put("device", [e.pid if a.device in (-1, None) else a.device for e, a in zip(rows, args, strict=True)])
        into.put("context", [a.context for a in args])
        streams = [a.stream for a in args]
        if -1 in streams and table != "sync_events":
            streams = [e.tid if s == -1 else s for e, s in zip(rows, streams, strict=True)]
        into.put("stream", streams, thread_number)
        into.put("correlation", [a.correlation for a in args])
        return into

    @staticmethod
    def _externals(args: list[Any]) -> list[Any]:
        values = [a.external for a in args]
        if -1 in values:
            values = [a.external_old if v == -1 else v for a, v in zip(args, values, strict=True)]
        return [-1 if v == 0 else v for v in values] if 0 in values else values

    # Tables

    def _kernels(self, rows: list[Any], start: Times, end: Times) -> None:
        args = [e.args for e in rows]
        into = self._gpu("kernels", rows, args, start, end)
        names = self._names
        into.put("name", [names[e.name] for e in rows])
        into.put("op", self._externals(args))
        into.put("graph_node", [a.graph_node for a in args])
        for column, values in (("grid", [a.grid for a in args]), ("block", [a.block for a in args])):
            for axis, letter in enumerate("xyz"):
                into.put(f"{column}_{letter}", [v[axis] if type(v) is list and len(v) > axis else -1 for v in values])
        into.put("registers", [a.registers for a in args])
        into.put("shared_memory", [a.shared_memory for a in args])
        into.put("occupancy", [a.occupancy if a.occupancy == a.occupancy else a.occupancy_old for a in args])
        if any(a.collective for a in args):
            self._collectives(rows, start, correlation=True)

    def _copies(self, rows: list[Any], start: Times, end: Times) -> None:
        args = [e.args for e in rows]
        into = self._gpu("copies", rows, args, start, end)
        into.put("op", self._externals(args))
        into.put("graph_node", [a.graph_node for a in args])
        kinds = [self._copy_kinds[e.name] for e in rows]
        for i, column in enumerate(("kind", "source", "target")):
            into.put(column, [k[i] for k in kinds])
        into.put("bytes", [a.bytes for a in args])

    def _runtime_calls(self, rows: list[Any], start: Times, end: Times) -> None:
        args = [e.args for e in rows]
        into = self._host("runtime_calls", rows, start, end)
        names = self._apis
        into.put("name", [names[e.name] for e in rows])
        into.put("correlation", [a.correlation for a in args])
        into.put("op", self._externals(args))
        for a in args:
            if a.size != -1:
                correlation, size = as_int(a.correlation), as_int(a.size)
                if correlation is not None and size is not None and len(self.copied) < _HELD:
                    self.copied[correlation] = size

    def _host_ops(self, rows: list[Any], start: Times, end: Times) -> None:
        operators, texts, stacks = self._operators, self._texts, self._stacks
        names = [operators[e.name] for e in rows]
        if operators.numbered and not operators.numbered.isdisjoint(names):
            others = self._split_ranges(rows, start, end)
            if len(others[0]) < len(rows):
                if others[0]:
                    self._host_ops(*others)
                return
        args = [e.args for e in rows]
        into = self._host("host_ops", rows, start, end)
        into.put("name", names)
        into.put("op", self._externals(args))
        into.put("sequence", [a.sequence for a in args])
        into.put("forward_thread", [a.forward_thread for a in args])
        for column, known, raws in (
            ("shapes", texts, [a.shapes for a in args]),
            ("types", texts, [a.types for a in args]),
            ("strides", texts, [a.strides for a in args]),
            ("inputs", texts, [a.inputs for a in args]),
            ("stack", stacks, [a.stack for a in args]),
        ):
            if any(raw is not NO_TEXT for raw in raws):
                into.put(column, known.codes(raws))
        if any(a.collective for a in args):
            self._collectives(rows, start, correlation=False)

    def _split_ranges(self, rows: list[Any], start: Times, end: Times) -> tuple[list[Any], Times, Times]:
        """Put user ranges among operators where they belong; returns the operators.

        Before there was a category for ranges PyTorch's own stood among the operators. A '#' marks them.
        """
        marked = np.array([e.name.startswith(_STEP) or ("#" in e.name and e.cat.lower() == "operator") for e in rows])
        if marked.any():
            self._ranges([rows[i] for i in np.flatnonzero(marked)], start[marked], end[marked])
        return [rows[i] for i in np.flatnonzero(~marked)], start[~marked], end[~marked]

    def _ranges(self, rows: list[Any], start: Times, end: Times) -> None:
        into = self._host("ranges", rows, start, end)
        into.put("name", [self._names[e.name] for e in rows])
        into.put("kind", [int(RangeKind.RECORD_FUNCTION)] * len(rows))

    def _python_frames(self, rows: list[Any], start: Times, end: Times) -> None:
        args = [e.args for e in rows]
        into = self._host("python_frames", rows, start, end)
        names = self._frames
        into.put("name", [names[e.name] for e in rows])
        into.put("frame", [a.frame for a in args])
        into.put("parent", [a.parent for a in args])
        into.put("module", [a.module for a in args])

    def _sync_events(self, rows: list[Any], start: Times, end: Times) -> None:
        args = [e.args for e in rows]
        into = self._gpu("sync_events", rows, args, start, end)
        kinds = [(a.sync_kind or e.name).lower() for e, a in zip(rows, args, strict=True)]
        into.put("kind", [int(_SYNC_KINDS.get(kind, SyncKind.UNKNOWN)) for kind in kinds])
        into.put("event", [a.wait_event for a in args])
        into.put("wait_stream", [a.wait_stream for a in args])
        into.put("wait_correlation", [a.wait_correlation for a in args])

    def _overheads(self, rows: list[Any], start: Times, end: Times) -> None:
        into = self._host("overheads", rows, start, end)
        into.put("name", [self._names[e.name] for e in rows])
        into.put("correlation", [e.args.correlation for e in rows])

    def _collectives(self, rows: list[Any], start: Times, correlation: bool) -> None:
        """Arguments of collectives; the key is the kernel's correlation or the operator's external id."""
        chosen = [i for i, e in enumerate(rows) if e.args.collective]
        rows = [rows[i] for i in chosen]
        args = [e.args for e in rows]
        into = self.table("collective_calls")
        into.times("start", start[chosen])
        none = [-1] * len(rows)
        into.put("process", none if correlation else [e.pid for e in rows], thread_number)
        into.put("correlation", [a.correlation for a in args] if correlation else none)
        into.put("op", none if correlation else self._externals(args))
        into.put("collective", [self._names[a.collective] for a in args])
        into.put("dtype", [self._names[a.dtype] if a.dtype else -1 for a in args])
        into.put("elements_in", [a.size_in if a.elements_in == -1 else a.elements_in for a in args])
        into.put("elements_out", [a.size_out if a.elements_out == -1 else a.elements_out for a in args])
        into.put("group_size", [a.group_size for a in args])
        into.put("group", self._words.codes([a.group for a in args]))
        into.put("group_ranks", self._words.codes([a.group_ranks for a in args]))

    # Rows that are no complete events

    def _halves(self, rows: list[Any], start: Times, end: Times) -> None:
        kept = max(0, _HELD - len(self.halves))
        self.halves += list(zip(start.tolist(), rows, strict=True))[:kept]
        self.dropped["begin or end beyond the limit"] += max(0, len(rows) - kept)

    def _flow_starts(self, rows: list[Any], start: Times, end: Times) -> None:
        self._flow_ends(rows, start, end, "flow_starts")

    def _flow_ends(self, rows: list[Any], start: Times, end: Times, table: str = "flow_ends") -> None:
        into = self.table(table)
        into.times("time", start)
        into.put("process", [e.pid for e in rows], thread_number)
        into.put("thread", [e.tid for e in rows], thread_number)
        into.put("id", [e.id for e in rows], thread_number)

    def _memory_events(self, rows: list[Any], start: Times, end: Times) -> None:
        args = [e.args for e in rows]
        into = self.table("memory_events")
        into.times("time", start)
        into.put("process", [e.pid for e in rows], thread_number)
        into.put("thread", [e.tid for e in rows], thread_number)
        into.put("device", [-1 if a.device_type == 0 or a.device is None else a.device for a in args])
        into.put("source", [int(MemorySource.FRAMEWORK)] * len(rows))
        into.put("bytes", [a.bytes for a in args])
        into.put("address", [a.address for a in args])
        into.put("allocated", [a.allocated for a in args])
        into.put("reserved", [a.reserved for a in args])


def table_of(category: str | None) -> str | None:
    """The table that a category in any case feeds; empty for none, None for a category that we do not know."""
    return CATEGORIES.get(category or "", CATEGORIES.get((category or "").lower()))


def _table_before_kineto(event: Any) -> str | None:
    """The table of a row without a category. torch's first profiler wrote such rows, of two processes: host and GPU."""
    if event.pid == "CUDA functions":
        event.pid, event.tid = event.tid, None  # the row's thread is the device
        return "kernels"
    if event.pid == "CPU functions":
        event.pid = None
        return "host_ops"
    return None


def _wanted(table: str, rows: list[Any]) -> list[Any]:
    """Of instants and arrows, which come in several kinds, those that become rows."""
    if table == "memory_events":
        return [e for e in rows if e.name == "[memory]" and e.args.bytes is not None]
    if table in ("flow_starts", "flow_ends"):
        return [e for e in rows if e.category == "fwdbwd"]
    return rows


def _timed(rows: list[Any], exact: bool) -> tuple[list[Any], Times, Times]:
    """Rows with a usable time, their starts and ends."""
    start = (nanoseconds_of_texts if exact else nanoseconds)([e.ts for e in rows])
    if hasattr(rows[0], "dur"):
        duration = nanoseconds([e.dur for e in rows], 0, coarse=True)
        end = start + np.maximum(duration, 0)
        bad = (start < EARLIEST) | (duration < 0)
    else:
        end, bad = start, start < EARLIEST
    if bad.any():
        good = np.flatnonzero(~bad)
        return [rows[i] for i in good], start[good], end[good]
    return rows, start, end
