"""Rows of cells under a header (query CSV, dmon, pmon) -> columns of the collector, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.ingest.nvidia_smi import values
from advisor.ingest.nvidia_smi.collect import PROCESSES, Collector, Columns, dtype_of, missing_of
from advisor.ingest.nvidia_smi.fields import Field
from advisor.ingest.nvidia_smi.stamps import StampCache, parse_many

_CACHED = 200_000
_TEXTS: dict[str, Callable[[str], str | None]] = {
    "text": values.name,
    "uuid": values.uuid,
    "bus": values.bus_id,
    "command": values.command,
}
# Keys under which the collector takes what fields.py calls otherwise.
_TARGETS = {"uuid": "uuid_code"}


class _Cells(dict[str, Any]):
    """cell text -> value. Logs repeat their cells, so most are one look-up; forgets everything when grown large."""

    def __init__(self, convert: Callable[[str], Any]) -> None:
        super().__init__()
        self._convert = convert

    def __missing__(self, text: str) -> Any:
        if len(self) >= _CACHED:
            self.clear()
        value = self[text] = self._convert(text)
        return value


class Grid:
    """Takes rows that have one cell for every field; `None` fields are passed over."""

    def __init__(self, collector: Collector, table: str, fields: Sequence[Field | None]) -> None:
        self._collector = collector
        self._table = table
        self._stamps = StampCache()
        self._at: dict[str, list[int]] = {}
        self._sources: dict[str, list[tuple[int, Field, _Cells]]] = {}
        for i, field in enumerate(fields):
            if field is None:
                continue
            if field.meaning.column in ("date", "stamp"):
                self._at.setdefault(field.meaning.column, []).append(i)
            else:
                self._sources.setdefault(field.meaning.column, []).append((i, field, _Cells(self._converter(field))))
        for sources in self._sources.values():
            sources.sort(key=lambda source: source[1].place)
        for places in self._at.values():
            places.sort(key=lambda i: fields[i].place if fields[i] else 0)  # type: ignore[union-attr]
        self._last_key = float("inf")
        self._seen: set[tuple[int, ...]] = set()
        self._ranks: dict[int, int] = {}

    def _converter(self, field: Field) -> Callable[[str], Any]:
        kind, unit, code = field.meaning.kind, field.unit, self._collector.strings.code
        if not field.meaning.is_text:
            return lambda text: values.number(text, kind, unit)
        read = _TEXTS[kind]

        def text_code(text: str) -> int:
            value = read(text)
            return -1 if value is None else code(value)

        return text_code

    def add(self, rows: Sequence[Sequence[str]]) -> None:
        """Rows in the order of the file."""
        if rows:
            self.add_columns(list(zip(*rows, strict=True)))

    def add_columns(self, cells: Sequence[Sequence[str]]) -> None:
        """The same rows, as one sequence of cells for every field."""
        n = len(cells[0])
        columns: Columns = {}
        for column, sources in self._sources.items():
            if sources[0][1].meaning.kind == "flag":
                continue
            columns[_TARGETS.get(column, column)] = self._column(column, sources, cells)
        self._add_reasons(columns, cells, n)
        ns, clock = parse_many(self._stamp_cells(cells, n), self._stamps)
        self._collector.add(self._table, self._beats(columns, n), ns, clock, columns)

    def _column(self, column: str, sources: list[tuple[int, Field, _Cells]], cells: Sequence[Sequence[str]]) -> npt.NDArray[Any]:
        dtype = dtype_of(self._table, _TARGETS.get(column, column))
        missing = missing_of(dtype)
        result: npt.NDArray[Any] | None = None
        for at, field, cache in sources:
            if field.meaning.kind == "flag":
                continue
            n = len(cells[at])
            if field.meaning.is_text:
                found = np.fromiter(map(cache.__getitem__, cells[at]), np.int32, n)
                unknown = found < 0
            else:
                number = np.fromiter(map(cache.__getitem__, cells[at]), np.float64, n)
                unknown = np.isnan(number)
                found = number.astype(dtype) if dtype.startswith("float") else np.where(unknown, missing, number).astype(dtype)
            if result is None:
                result, lacking = found, unknown
            elif lacking.any():
                result = np.where(lacking, found, result)
                lacking = lacking & unknown
        assert result is not None
        return result

    def _add_reasons(self, columns: Columns, cells: Sequence[Sequence[str]], n: int) -> None:
        """Single reasons (sw_power_cap = Active) for rows without a mask."""
        flags = [source for source in self._sources.get("throttle_reasons", ()) if source[1].meaning.kind == "flag"]
        if not flags:
            return
        masks = [source for source in self._sources["throttle_reasons"] if source[1].meaning.kind != "flag"]
        mask = self._column("throttle_reasons", masks, cells) if masks else np.full(n, -1, np.int64)
        bits = np.zeros(n, np.int64)
        known = np.zeros(n, bool)
        for at, field, cache in flags:
            value = np.fromiter(map(cache.__getitem__, cells[at]), np.float64, n)
            known |= ~np.isnan(value)
            bits |= np.where(value == 1, field.meaning.bit, 0)
        columns["throttle_reasons"] = np.where((mask < 0) & known, bits, mask)

    def _stamp_cells(self, cells: Sequence[Sequence[str]], n: int) -> Sequence[str]:
        dates, times = (self._at.get(key, []) for key in ("date", "stamp"))
        if dates and times and ":" not in cells[dates[0]][0] and len(cells[times[0]][0].strip()) < 16:
            return [f"{date.strip()} {time.strip()}" for date, time in zip(cells[dates[0]], cells[times[0]], strict=True)]
        if times:
            return cells[times[0]]
        # A date alone is no moment, unless a script calls its whole stamp so.
        return [cell if ":" in cell else "" for cell in cells[dates[0]]] if dates else [""] * n

    def _beats(self, columns: Columns, n: int) -> npt.NDArray[np.int64]:
        """Number of the sample of each row: a new one begins where the order of the GPUs begins anew."""
        key = self._keys(columns, n)
        if self._table == PROCESSES:
            starts = self._repeats(key, columns.get("process", np.full(n, -1)))
        else:
            before = np.concatenate([[self._last_key], key[:-1]])
            starts = key <= before
            self._last_key = float(key[-1])
        beats = self._collector.beat + np.cumsum(starts)
        self._collector.beat = int(beats[-1])
        return beats.astype(np.int64)

    def _keys(self, columns: Columns, n: int) -> npt.NDArray[np.float64]:
        index = columns.get("index")
        if index is not None and (index >= 0).any():
            return index.astype(np.float64)
        for name in ("uuid_code", "bus"):
            codes = columns.get(name)
            if codes is not None and (codes >= 0).any():
                rank = self._ranks
                return np.array([rank.setdefault(code, len(rank)) for code in codes.tolist()], np.float64)
        return np.zeros(n)

    def _repeats(self, key: npt.NDArray[np.float64], process: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """pmon: a new sample begins where a process of a GPU comes up again, or a GPU before the last one."""
        starts = np.zeros(len(key), bool)
        for i, row in enumerate(zip(key.tolist(), process.tolist(), strict=True)):
            if row in self._seen or row[0] < self._last_key:
                starts[i] = True
                self._seen.clear()
            self._seen.add(row)
            self._last_key = row[0]
        return starts
