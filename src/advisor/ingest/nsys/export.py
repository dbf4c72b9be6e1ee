"""One open export: its tables by base name, its strings, and the decoding of its ids."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from advisor.ingest.nsys.database import NULL, Database
from advisor.model import Strings, Trace
from advisor.model.tables import Array

NO_STREAM = 0xFFFFFFFF  # streamId of a row that belongs to no stream
_VERSIONED = re.compile(r"^(.*)_V(\d+)$")


class Export:
    """The database of an export and the trace that is being filled from it."""

    def __init__(self, database: Database, trace: Trace) -> None:
        self.database = database
        self.trace = trace
        self._tables: dict[str, str | None] = {}
        self._codes: dict[int, int] = {}

    def table(self, base: str) -> str | None:
        """Name of the table with rows that `base` stands for: itself, else its newest _V2, _V3 ... form."""
        if base not in self._tables:
            self._tables[base] = self._find(base)
        return self._tables[base]

    def _find(self, base: str) -> str | None:
        if self.database.has_rows(base):
            return base
        later = [(int(m[2]), name) for name in self.database.tables if (m := _VERSIONED.match(name)) and m[1] == base]
        for _, name in sorted(later, reverse=True):
            if self.database.has_rows(name):
                self.trace.notice("renamed-table", f"{base} is read from {name}, a form newer than this reader knows")
                return name
        return None

    def read(self, base: str, columns: Mapping[str, str], texts: Strings | None = None) -> dict[str, Array] | None:
        """Columns of a table (see Database.read), None where it has no row."""
        table = self.table(base)
        return None if table is None else self.database.read(table, columns, texts)

    def has_column(self, base: str, column: str) -> bool:
        return column in self.database.tables.get(self.table(base) or "", ())

    def read_timed(self, base: str, columns: Mapping[str, str]) -> dict[str, Array] | None:
        """`read` with start and end; rows without a duration of at least 0 are left out, with a notice."""
        found = self.read(base, {"start": "int64", "end": "int64", **columns})
        if found is None:
            return None
        good = (found["start"] != NULL) & (found["end"] != NULL) & (found["end"] >= found["start"])
        lost = len(good) - int(np.count_nonzero(good))
        if lost:
            self.trace.notice("rows-skipped", f"{lost} rows of {base} have no valid start and end and were left out")
            found = {name: values[good] for name, values in found.items()}
        return found

    def names(self, ids: Array) -> Array:
        """Codes of the texts that string ids stand for; -1 where the id or its text is missing."""
        values, inverse = distinct(ids)
        new = [i for i in values.tolist() if i >= 0 and i not in self._codes]
        if new:
            texts = self.database.texts(self.table("StringIds") or "", "id", "value", np.array(new))
            self._codes.update((i, self.trace.strings.code(texts[i]) if i in texts else -1) for i in new)
        codes = np.array([self._codes.get(i, -1) for i in values.tolist()], np.int32)
        return codes[inverse] if len(codes) else np.empty(0, np.int32)


def distinct(ids: Array) -> tuple[Array, Array]:
    """Distinct values in order and, for each row, the position of its value among them. Fast for ids that lie close."""
    if not len(ids):
        return ids, ids
    low, high = int(ids.min()), int(ids.max())
    if high - low > 4 * len(ids) + (1 << 20):
        return np.unique(ids, return_inverse=True)
    seen = np.zeros(high - low + 1, bool)
    shifted = ids - low
    seen[shifted] = True
    values = np.flatnonzero(seen)
    position = np.zeros(len(seen), np.int32)
    position[values] = np.arange(len(values))
    return values + low, position[shifted]


def grouped(*columns: Array) -> tuple[list[tuple[int, ...]], Array]:
    """Distinct combinations of the values of some columns and, for each row, the position of its own among them."""
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, position = distinct(column)
        if len(values) > 1:
            group = distinct(group * len(values) + position)[1].astype(np.int64)
    rows = np.arange(len(group))[::-1]
    first = np.zeros(int(group.max()) + 1 if len(group) else 0, np.int64)
    first[group[::-1]] = rows
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), group


def process(global_id: Array) -> Array:
    """Process id of globalPid or globalTid (hwId << 56 | vmId << 48 | pid << 24 | tid), -1 where there is none."""
    return np.where(global_id == NULL, -1, (global_id >> 24) & 0xFFFFFF)


def thread(global_tid: Array) -> Array:
    """Thread id of globalTid, -1 where there is none."""
    return np.where(global_tid == NULL, -1, global_tid & 0xFFFFFF)


def stream(stream_id: Array) -> Array:
    """Stream id, -1 where the row belongs to no stream."""
    return np.where(stream_id == NO_STREAM, -1, stream_id)


PLACE = {
    "deviceId": "int32",
    "contextId": "id",
    "streamId": "id",
    "correlationId": "id",
    "globalPid": "int64",
}


def place(found: dict[str, Array]) -> dict[str, Array]:
    """The schema's columns that every row of GPU work has in common, from those of PLACE."""
    return {
        "start": found["start"],
        "end": found["end"],
        "process": process(found["globalPid"]),
        "device": found["deviceId"],
        "context": found["contextId"],
        "stream": stream(found["streamId"]),
        "correlation": found["correlationId"],
    }


class Calls:
    """Finds the API call of (process, correlation)."""

    _BITS = 40

    def __init__(self, processes: Array, correlations: Array) -> None:
        self._processes = distinct(processes)[0]
        keys = self._keys(processes, correlations)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def _keys(self, processes: Array, correlations: Array) -> Array:
        """One number a pair; negative where no call can have it."""
        if not len(self._processes):
            return np.full(len(processes), -1, np.int64)
        place = np.minimum(np.searchsorted(self._processes, processes), len(self._processes) - 1)
        valid = (self._processes[place] == processes) & (correlations > 0) & (correlations < 1 << self._BITS)
        return np.where(valid, (place.astype(np.int64) << self._BITS) | correlations, -1)

    def find(self, processes: Array, correlations: Array) -> Array:
        """Row of the call for each pair, -1 where there is none."""
        keys = self._keys(processes, correlations)
        if not len(self._sorted):
            return np.full(len(keys), -1, np.int64)
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where((self._sorted[place] == keys) & (keys >= 0), self._order[place], -1)
