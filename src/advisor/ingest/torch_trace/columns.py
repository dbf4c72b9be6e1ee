"""Events -> growing columns, a chunk at a time."""

from __future__ import annotations

import re
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from advisor.ingest.torch_trace.copies import CopyKinds
from advisor.ingest.torch_trace.events import NO_TEXT, as_int
from advisor.ingest.torch_trace.intern import Names, Texts, api_name, frame_name, plain, stack_text
from advisor.ingest.torch_trace.times import NO_TIME, Times, nanoseconds, nanoseconds_of_texts
from advisor.model import TABLES, MemorySource, RangeKind, Strings, SyncKind

_TYPECODES = {"int64": "q", "int32": "i", "int8": "b", "float64": "d", "float32": "f"}
_DIGITS = re.compile(r"\d+")
_HELD = 200_000  # begin and end rows kept until they can be paired

# Which table a category feeds, in lower case, in the spellings since 2021. None: known, and no row of ours.
CATEGORIES: dict[str, str | None] = {
    "cpu_op": "host_ops",
    "operator": "host_ops",
    "user_annotation": "ranges",
    "kernel": "kernels",
    "gpu_memcpy": "copies",
    "memcpy": "copies",
    "gpu_memset": "copies",
    "memset": "copies",
    "runtime": "runtime_calls",
    "cuda_runtime": "runtime_calls",
    "cuda_driver": "runtime_calls",
    "hip_runtime": "runtime_calls",
    "hip_driver": "runtime_calls",
    "python_function": "python_frames",
    "cuda_sync": "sync_events",
    "overhead": "overheads",
    "gpu_user_annotation": None,
    "trace": None,
}
_SYNC_KINDS = {
    "stream wait event": SyncKind.STREAM_WAIT_EVENT,
    "stream sync": SyncKind.STREAM,
    "stream synchronize": SyncKind.STREAM,
    "event sync": SyncKind.EVENT,
    "event synchronize": SyncKind.EVENT,
    "context sync": SyncKind.DEVICE,
    "context synchronize": SyncKind.DEVICE,
}
# Before `user_annotation` existed, PyTorch's own ranges stood among the operators; a '#' marks them.
_STEP = "ProfilerStep#"


FLOWS = {"time": "q", "process": "q", "thread": "q", "id": "q"}  # one end of a forward-backward arrow


class Growing:
    """Columns of one table, in the dtypes of the schema. A column that no row has put anything into stays empty."""

    def __init__(self, table: str) -> None:
        spec = TABLES.get(table)
        typecodes = FLOWS if spec is None else {c.name: _TYPECODES[c.dtype] for c in spec.columns}
        self._missing = {} if spec is None else {c.name: c.missing or 0 for c in spec.columns}
        self._columns: dict[str, Any] = {name: array(typecode) for name, typecode in typecodes.items()}
        self.rows = 0

    def times(self, name: str, values: Times) -> None:
        """Append times; the first column of each batch of rows."""
        column = self._columns[name]
        column.frombytes(values.tobytes())
        self.rows = len(column)

    def put(self, name: str, values: list[Any], number: Callable[[Any], float] | None = None) -> None:
        """Append codes or numbers of the last rows. `number` makes one of what does not fit: text, null, too large."""
        column = self._columns[name]
        self._pad(name, self.rows - len(values))
        try:
            column.extend(array(column.typecode, values))
        except (TypeError, OverflowError):
            number = number or (_fit_real if column.typecode in "fd" else _fit_short if column.typecode == "i" else _fit)
            column.extend(array(column.typecode, map(number, values)))

    def filled(self) -> dict[str, Any]:
        """The columns that hold something, all of one length."""
        filled = {name: column for name, column in self._columns.items() if column}
        for name in filled:
            self._pad(name, self.rows)
        return filled

    def _pad(self, name: str, length: int) -> None:
        column = self._columns[name]
        if len(column) < length:
            column.extend(array(column.typecode, [self._missing[name]]) * (length - len(column)))


def _fit(value: Any) -> int:
    number = as_int(value)
    return -1 if number is None else number


def _fit_short(value: Any) -> int:
    number = _fit(value)
    return number if -(1 << 31) <= number < 1 << 31 else -1


def _fit_real(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def thread_number(value: Any) -> int:
    """A process, thread or stream id as a number; for text without digits a negative one that the text determines."""
    number = as_int(value)
    if number is None and isinstance(value, str) and value:
        digits = _DIGITS.search(value)
        number = -2 - zlib.crc32(value.encode()) if digits is None else as_int(digits.group()[:18])
    return -1 if number is None else number


class Builder:
    """Takes events and keeps columns. `add` raises NeedsText, without effect, when times need the exact decoder."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.tables: dict[str, Growing] = {}
        self.dropped: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self.halves: list[Any] = []  # begin and end rows
        self._names = Names(self.strings)
        self._apis = Names(self.strings, api_name)
        self._frames = Names(self.strings, frame_name)
        self._texts = Texts(self.strings)
        self._words = Texts(self.strings, plain)
        self._stacks = Texts(self.strings, stack_text)
        self._copy_kinds = CopyKinds()
        self.copied: dict[int, int] = {}  # correlation -> bytes, where only the call tells them
        self._exact = False

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
        self._exact = exact
        groups: dict[Any, list[Any]] = defaultdict(list)
        for event in events:
            groups[event.cat].append(event)
        groups.pop("\0ignored", None)
        ready = [(category, *self._timed(category, rows)) for category, rows in groups.items()]
        self.dropped["without a usable time"] += sum(len(groups[category]) - len(rows) for category, rows, _, _ in ready)
        for category, rows, start, end in ready:
            if category and category[0] == "\0":
                self._special(category, rows, start)
                continue
            self.complete(category, rows, start, end)

    def complete(self, category: str | None, rows: list[Any], start: Times, end: Times) -> None:
        known = (category or "").lower()
        table = CATEGORIES.get(known)
        if table is None or not rows:
            if known not in CATEGORIES:
                self.others[category or "without category"] += len(rows)
            return
        if table == "host_ops":
            rows, start, end = self._split_ranges(rows, start, end, known == "operator")
        getattr(self, f"_{table}")(rows, start, end)

    def _timed(self, category: str | None, rows: list[Any]) -> tuple[list[Any], Times, Times]:
        """Rows with a usable time, their starts and ends."""
        convert = nanoseconds_of_texts if self._exact else nanoseconds
        start = convert([e.ts for e in rows])
        end = start
        if category is None or category[:1] != "\0":
            duration = convert([e.dur for e in rows], 0)
            end = start + np.maximum(duration, 0)
            bad = (start == NO_TIME) | (duration < 0)
        else:
            bad = start == NO_TIME
        if bad.any():
            good = ~bad
            rows = [e for e, keep in zip(rows, good.tolist(), strict=True) if keep]
            start, end = start[good], end[good]
        return rows, start, end

    def _split_ranges(self, rows: list[Any], start: Times, end: Times, old: bool) -> tuple[list[Any], Times, Times]:
        marked = [e.name[:13] == _STEP or (old and "#" in e.name) for e in rows]
        if not any(marked):
            return rows, start, end
        mask = np.array(marked)
        self._ranges([e for e, m in zip(rows, marked, strict=True) if m], start[mask], end[mask])
        return [e for e, m in zip(rows, marked, strict=True) if not m], start[~mask], end[~mask]

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
        into.put("device", [e.pid if a.device == -1 else a.device for e, a in zip(rows, args, strict=True)])
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
        if not rows:
            return
        args = [e.args for e in rows]
        into = self._host("host_ops", rows, start, end)
        names, texts, stacks = self._names, self._texts, self._stacks
        into.put("name", [names[e.name] for e in rows])
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
                into.put(column, [known[bytes(raw)] for raw in raws])
        if any(a.collective for a in args):
            self._collectives(rows, start, correlation=False)

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
        into.put("group", [self._words[bytes(a.group)] for a in args])
        into.put("group_ranks", [self._words[bytes(a.group_ranks)] for a in args])

    # Rows that are no complete events

    def _special(self, category: str, rows: list[Any], time: Times) -> None:
        if category == "\0instant":
            self._memory_events(rows, time)
        elif category in ("\0begin", "\0end"):
            kept = max(0, _HELD - len(self.halves))
            self.halves += list(zip([category == "\0begin"] * len(rows), time.tolist(), rows, strict=True))[:kept]
            self.dropped["begin or end rows beyond the limit"] += max(0, len(rows) - kept)
        else:
            self._flows(rows, time, 0 if category == "\0flow start" else 1)

    def _flows(self, rows: list[Any], time: Times, side: int) -> None:
        chosen = [i for i, e in enumerate(rows) if e.category == "fwdbwd"]
        if not chosen:
            return
        into = self.table(("flow_starts", "flow_ends")[side])
        into.times("time", time[chosen])
        into.put("process", [rows[i].pid for i in chosen], thread_number)
        into.put("thread", [rows[i].tid for i in chosen], thread_number)
        into.put("id", [rows[i].id for i in chosen], thread_number)

    def _memory_events(self, rows: list[Any], time: Times) -> None:
        chosen = [i for i, e in enumerate(rows) if e.name == "[memory]" and e.args.bytes is not None]
        if not chosen:
            return
        rows = [rows[i] for i in chosen]
        args = [e.args for e in rows]
        into = self.table("memory_events")
        into.times("time", time[chosen])
        into.put("process", [e.pid for e in rows], thread_number)
        into.put("thread", [e.tid for e in rows], thread_number)
        into.put("device", [-1 if a.device_type == 0 or a.device is None else a.device for a in args])
        into.put("source", [int(MemorySource.FRAMEWORK)] * len(rows))
        into.put("bytes", [a.bytes for a in args])
        into.put("address", [a.address for a in args])
        into.put("allocated", [a.allocated for a in args])
        into.put("reserved", [a.reserved for a in args])
