"""Columns that grow by batches of rows."""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Callable
from typing import Any

from advisor.ingest.torch_trace.events import as_int
from advisor.ingest.torch_trace.times import Times
from advisor.model import TABLES

_TYPECODES = {"int64": "q", "int32": "i", "int8": "b", "float64": "d", "float32": "f"}
FLOWS = {"time": "q", "process": "q", "thread": "q", "id": "q"}  # one end of a forward-backward arrow
_DIGITS = re.compile(r"\d+")


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
