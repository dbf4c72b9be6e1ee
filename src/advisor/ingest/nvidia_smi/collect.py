"""Rows of every format -> one `Trace`. Rows come as columns of many or as one dict, with their stamps and sample numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.ingest.nvidia_smi import identity, timeline
from advisor.ingest.nvidia_smi.stamps import NO_STAMP, SECOND, Clock, Stamp
from advisor.model import TABLES, Capture, Device, InputError, Notice, Strings, Table, Trace

Columns = dict[str, npt.NDArray[Any]]
Ints = npt.NDArray[np.int64]
SAMPLES, PROCESSES = "device_samples", "device_processes"

_SIDE = dict.fromkeys(("index", "uuid_code", "bus", "capability", "driver", "cuda"), "int32") | {"free": "int64"}
_FEW = 16
_TEXTS = ("name", "uuid_code", "bus", "capability", "driver", "cuda", "type", "command")


def dtype_of(table: str, column: str) -> str:
    """dtype in which a column is collected."""
    return _SIDE.get(column) or TABLES[table].column(column).dtype


def missing_of(dtype: str) -> float | int:
    return float("nan") if dtype.startswith("float") else -1


@dataclass
class _Part:
    order: npt.NDArray[np.int64]
    beat: npt.NDArray[np.int64]
    ns: npt.NDArray[np.int64]
    clock: npt.NDArray[np.uint8]
    columns: Columns


@dataclass
class _Loose:
    """Rows that came one by one, until they become a part."""

    at: list[tuple[int, int, int, int]] = field(default_factory=list)
    values: list[Mapping[str, float | str]] = field(default_factory=list)


class Collector:
    """Takes in rows in the order of the file. `beat` is the number of the sample that is being read."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.beat = -1
        self.rows: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()  # what was left out, by notice code
        self.facts: dict[str, str | int | float] = {}
        self.links: list[tuple[str, str, str]] = []
        self.declared: list[tuple[int, int, int, int]] = []  # index, uuid, bus, name of GPUs that a list names
        self.complaints: list[str] = []
        self.notices: list[Notice] = []
        self._order = 0
        self._parts: dict[str, list[_Part]] = {SAMPLES: [], PROCESSES: []}
        self._loose: dict[str, _Loose] = {SAMPLES: _Loose(), PROCESSES: _Loose()}
        self._marks: list[tuple[int, int, int, int]] = []

    def add(
        self, table: str, beat: npt.NDArray[np.int64], ns: npt.NDArray[np.int64], clock: npt.NDArray[np.uint8], columns: Columns
    ) -> None:
        """Rows as columns, in the dtypes of `dtype_of`; texts as codes into `strings`."""
        if len(beat) < _FEW:  # many small arrays would take more memory than the log
            for i in range(len(beat)):
                self._loosen(table, {name: values[i].item() for name, values in columns.items()}, beat[i], ns[i], clock[i])
            return
        self._bind(table)
        order = np.arange(self._order, self._order + len(beat))
        self._order += len(beat)
        self.rows[table] += len(beat)
        self._parts[table].append(_Part(order, beat, ns, clock, columns))

    def add_row(self, table: str, values: Mapping[str, float | str], stamp: Stamp = NO_STAMP) -> None:
        """One row of the current beat."""
        self._loosen(table, values, self.beat, stamp.ns, stamp.clock)

    def _loosen(self, table: str, values: Mapping[str, float | str], beat: int, ns: int, clock: int) -> None:
        loose = self._loose[table]
        loose.at.append((self._order, int(beat), int(ns), int(clock)))
        loose.values.append(values)
        self._order += 1
        self.rows[table] += 1
        if len(loose.values) >= 4096:
            self._bind(table)

    def _bind(self, table: str) -> None:
        loose = self._loose[table]
        if not loose.values:
            return
        at = np.array(loose.at, np.int64)
        columns = {}
        for name in dict.fromkeys(name for values in loose.values for name in values):
            dtype = dtype_of(table, name)
            missing = missing_of(dtype)
            cells: Iterable[Any] = (values.get(name, missing) for values in loose.values)
            if name in _TEXTS:
                cells = (self.strings.code(cell) if isinstance(cell, str) else cell for cell in cells)
            columns[name] = np.array([missing if cell != cell else cell for cell in cells], dtype)
        self._parts[table].append(_Part(at[:, 0], at[:, 1], at[:, 2], at[:, 3].astype(np.uint8), columns))
        self._loose[table] = _Loose()

    def mark(self, stamp: Stamp) -> None:
        """A date line: the moment of the sample that follows."""
        if stamp.clock != Clock.NONE:
            self._marks.append((self._order, self.beat + 1, stamp.ns, stamp.clock))
            self._order += 1

    def declare(self, index: int, name: str | None, uuid: str | None, bus: str | None = None) -> None:
        """A GPU that a list names, beside the rows."""
        codes = [-1 if text is None else self.strings.code(text) for text in (uuid, bus, name)]
        if len(self.declared) < 4096:
            self.declared.append((index, *codes))  # type: ignore[arg-type]

    def trace(self, path: str, form: str) -> Trace:
        """Everything as a Trace of the format `form`. Raises InputError when there is nothing in it."""
        trace = Trace(path, form, strings=self.strings, capture=Capture(tool="nvidia-smi"), facts=dict(self.facts))
        for table in (SAMPLES, PROCESSES):
            self._bind(table)
        if not (self.rows.total() or self.links or self.declared):
            raise InputError(self.complaints[0] if self.complaints else "no sample of nvidia-smi in it")
        trace.notices += self.notices
        self._fill_tables(trace)
        if self.links:
            ends = zip(*self.links, strict=True)
            trace.tables["links"] = Table("links", dict(zip(("a", "b", "link"), map(self.strings.codes, ends), strict=True)))
        for code, (count, text) in ((c, (n, _LEFT_OUT[c])) for c, n in self.counts.items()):
            trace.notice(code, text.format(n=count))
        for text in self.complaints[:3]:
            trace.notice("nvidia-smi-error", f"the log holds an error: {text}")
        return trace

    def _fill_tables(self, trace: Trace) -> None:
        parts = [(table, part) for table in (SAMPLES, PROCESSES) for part in self._parts[table]]
        if not parts:
            listed = [device for device in self.declared if device[0] >= 0]
            trace.devices = [Device(index, self._text(name), uuid=self._text(uuid)) for index, uuid, _, name in listed]
            return
        order, beat, ns, clock = (np.concatenate([getattr(p, of) for _, p in parts]) for of in ("order", "beat", "ns", "clock"))
        clocked = timeline.resolve(order, beat, ns, clock, self._marks)
        trace.epoch_ns, trace.local_clock = clocked.epoch_ns, clocked.local
        trace.notices += clocked.notices
        sizes = {table: sum(len(p.order) for p in self._parts[table]) for table in (SAMPLES, PROCESSES)}
        columns = {table: self._columns(table, sizes[table]) for table in (SAMPLES, PROCESSES)}
        index, uuid, bus = (
            np.concatenate([columns[t][key] for t in (SAMPLES, PROCESSES)]) for key in ("index", "uuid_code", "bus")
        )
        in_file_order = np.argsort(order, kind="stable")
        several = self._looks_like_several(clocked, order[: sizes[SAMPLES]], columns[SAMPLES]["name"])
        back = np.empty(len(order), np.int64)
        back[in_file_order] = np.arange(len(order))
        declared = [device[:3] for device in self.declared]
        sorted_keys = index[in_file_order], uuid[in_file_order], bus[in_file_order]
        device = identity.resolve(sorted_keys, declared, several, trace.notices)[back]
        self._list_devices(trace, device[: sizes[SAMPLES]], columns[SAMPLES], device)
        self._state_facts(trace, columns)
        start = 0
        for table in (SAMPLES, PROCESSES):
            rows = slice(start, start + sizes[table])
            start += sizes[table]
            if sizes[table]:
                found = self._schema_columns(table, columns.pop(table))
                trace.tables[table] = Table(table, {"time": clocked.times[rows], "device": device[rows], **found}).ordered()

    def _columns(self, table: str, length: int) -> Columns:
        """The parts' columns put together; those of _SIDE and name always, others where a part has them."""
        parts = self._parts[table]
        names = dict.fromkeys([*_SIDE, "name", *(name for part in parts for name in part.columns)])
        result: Columns = {}
        for name in names:
            dtype = "int32" if name == "name" else dtype_of(table, name)
            pieces = [part.columns.pop(name, None) for part in parts]
            if all(piece is None for piece in pieces):
                result[name] = np.broadcast_to(np.array(missing_of(dtype), dtype), (length,))
                continue
            result[name] = np.concatenate(
                [np.full(len(p.order), missing_of(dtype), dtype) if x is None else x for p, x in zip(parts, pieces, strict=True)]
            ).astype(dtype, copy=False)
        return result

    @staticmethod
    def _schema_columns(table: str, columns: Columns) -> Columns:
        if table == SAMPLES:
            columns["uuid"] = np.where(columns["uuid_code"] >= 0, columns["uuid_code"], columns["bus"])
            used, total, free = columns.get("memory_used"), columns.get("memory_total"), columns["free"]
            if used is not None and (free >= 0).any():
                total = np.full(len(free), -1, np.int64) if total is None else total
                columns["memory_total"] = np.where((total < 0) & (used >= 0) & (free >= 0), used + free, total)
        known = {column.name for column in TABLES[table].columns}
        return {name: values for name, values in columns.items() if name in known}

    @staticmethod
    def _looks_like_several(clocked: timeline.Clocked, order: npt.NDArray[np.int64], name: npt.NDArray[np.int32]) -> bool:
        """Without a key: several product names, or rows in groups that follow each other much faster than the samples do."""
        if len(np.unique(name[name >= 0])) > 1:
            return True
        times = clocked.times[: len(order)][np.argsort(order, kind="stable")]
        if len(times) < 4 or not clocked.stamped:
            return False
        gaps = np.diff(times)
        if (times % SECOND).any():
            return bool((gaps < 0.1 * np.quantile(gaps, 0.9)).mean() >= 0.3)
        # Whole seconds: one GPU that is asked more often gives groups of uneven size, several give the same number each time.
        sizes = np.diff(np.flatnonzero(np.concatenate([[True], gaps != 0, [True]])))
        usual = np.bincount(sizes).argmax()
        return bool(usual > 1 and (sizes == usual).mean() > 0.9)

    def _list_devices(
        self, trace: Trace, device: npt.NDArray[np.int32], columns: Columns, everywhere: npt.NDArray[np.int32]
    ) -> None:
        listed = {index: (uuid, name) for index, uuid, _, name in self.declared if index >= 0}
        numbers = sorted({*np.unique(everywhere[everywhere >= 0]).tolist(), *listed})
        for number in numbers:
            rows = device == number
            uuids = columns["uuid_code"][rows]
            uuid = int(uuids.max(initial=-1))
            names = [self.strings[c] for c in np.unique(columns["name"][rows]).tolist() if c >= 0]
            if number in listed:
                uuid = uuid if uuid >= 0 else listed[number][0]
                names += [self.strings[listed[number][1]]] if listed[number][1] >= 0 else []
            whole = [n for n in names if not n.endswith("...")] or names
            capability = [self.strings[c] for c in np.unique(columns["capability"][rows]).tolist() if c >= 0]
            trace.devices.append(
                Device(
                    number,
                    max(whole, key=len, default=None),
                    compute_capability=_capability(capability),
                    memory_bytes=_largest(columns.get("memory_total"), rows),
                    max_clock=_largest(columns.get("sm_clock_max"), rows),
                    uuid=self._text(uuid),
                )
            )

    def _state_facts(self, trace: Trace, columns: Mapping[str, Columns]) -> None:
        for column, fact in (("driver", "driver_version"), ("cuda", "cuda_driver_version")):
            codes = columns[SAMPLES][column]
            if fact not in trace.facts and (codes >= 0).any():
                trace.facts[fact] = self.strings[int(codes[codes >= 0][-1])]

    def _text(self, code: int) -> str | None:
        return self.strings[code] if code >= 0 else None


_LEFT_OUT = {
    "lines-skipped": "{n} lines belong to no known output of nvidia-smi and are left out",
    "rows-skipped": "{n} rows do not fit their header and are left out",
    "mig-devices": "MIG is on: samples describe the whole GPU, {n} MIG devices are not listed one by one",
    "xml-damaged": "{n} XML documents are damaged or cut short: what follows the damage is left out",
    "value-cut": "the last line is cut short: its last value is left out",
}


def _capability(texts: list[str]) -> tuple[int, int] | None:
    for text in texts:
        major, _, minor = text.partition(".")
        if major.isdecimal() and minor.isdecimal() and len(text) <= 6:
            return int(major), int(minor)
    return None


def _largest(values: npt.NDArray[Any] | None, rows: npt.NDArray[np.bool_]) -> Any:
    if values is None:
        return None
    values = values[rows]
    values = values[values > 0]
    return values.max().item() if len(values) else None
