"""Columns in NumPy arrays, with the dtype and the missing value that the schema declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from advisor.model.schema import TABLES, TableSpec

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]


class Strings:
    """Interned text: code -> string and back. Code -1 stands for "not recorded"."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values: list[str] = []
        self._codes: dict[str, int] = {}
        for value in values:
            self.code(value)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, code: int) -> str:
        return self.values[code] if code >= 0 else ""

    def code(self, value: str) -> int:
        """Code of `value`, new if it was not there."""
        code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = len(self.values)
            self.values.append(value)
        return code

    def find(self, value: str) -> int:
        """Code of `value`, -1 if it is not there."""
        return self._codes.get(value, -1)

    def codes(self, values: Sequence[str]) -> npt.NDArray[np.int32]:
        """Codes of many values."""
        known, code = self._codes, self.code
        return np.fromiter((known[v] if v in known else code(v) for v in values), np.int32, len(values))

    def merge(self, other: Strings) -> npt.NDArray[np.int32]:
        """Take in the strings of `other`; returns the map from its codes to ours."""
        return self.codes(other.values)


class Table:
    """Rows of one kind. `table["start"]` is a read-only view by convention: never write into a column.

    A column that nobody filled costs no memory: it is a broadcast view of its missing value.
    """

    def __init__(self, name: str, columns: Mapping[str, Any] | None = None, length: int | None = None) -> None:
        """Raises KeyError for a column the schema does not know, ValueError for unequal lengths or a lacking column."""
        self.spec: TableSpec = TABLES[name]
        given = dict(columns or {})
        lengths = {key: len(value) for key, value in given.items()}
        if length is None:
            length = next(iter(lengths.values()), 0)
        if any(n != length for n in lengths.values()):
            raise ValueError(f"table {name}: columns of unequal length {lengths}")
        self._length = length
        self._columns: dict[str, Array] = {}
        self._unfilled: set[str] = set()
        for column in self.spec.columns:
            if column.name in given:
                self._columns[column.name] = np.asarray(given.pop(column.name), dtype=column.dtype)
            elif column.missing is None and length:
                raise ValueError(f"table {name}: column {column.name} is needed in every row")
            else:
                fill = np.array(0 if column.missing is None else column.missing, dtype=column.dtype)
                self._columns[column.name] = np.broadcast_to(fill, (length,))
                self._unfilled.add(column.name)
        if given:
            raise KeyError(f"table {name} has no column {', '.join(sorted(given))}")

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, column: str) -> Array:
        return self._columns[column]

    def __repr__(self) -> str:
        return f"<Table {self.spec.name}: {len(self)} rows>"

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.spec.columns]

    def known(self, column: str) -> npt.NDArray[np.bool_]:
        """True where the value was recorded."""
        spec, values = self.spec.column(column), self._columns[column]
        if spec.missing is None:
            return np.ones(len(self), bool)
        if isinstance(spec.missing, float) and np.isnan(spec.missing):
            return ~np.isnan(values)
        return values != spec.missing

    def has(self, column: str) -> bool:
        """True if at least one row holds a recorded value."""
        return bool(self.known(column).any())

    def take(self, rows: Array) -> Table:
        """The rows of a boolean mask or index array, in that order."""
        rows = np.asarray(rows)
        n = int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        picked = {key: value[rows] for key, value in self._columns.items() if key not in self._unfilled}
        return Table(self.name, picked, length=n)

    def replace(self, **columns: Any) -> Table:
        """A copy with some columns exchanged; the others are shared."""
        kept = {key: value for key, value in self._columns.items() if key not in self._unfilled}
        return Table(self.name, {**kept, **columns}, length=len(self))

    def ordered(self) -> Table:
        """Sorted (stably) by the table's order column."""
        key = self._columns[self.spec.order]
        if len(key) < 2 or bool((key[1:] >= key[:-1]).all()):
            return self
        return self.take(np.argsort(key, kind="stable"))

    def to_pandas(self, strings: Strings | None = None) -> pd.DataFrame:
        """A DataFrame; with `strings`, text columns hold the text (None where not recorded)."""
        import pandas as pd

        frame = {}
        for column in self.spec.columns:
            values = self._columns[column.name]
            if column.unit == "text" and strings is not None:
                lookup = np.array([*strings.values, None], dtype=object)
                frame[column.name] = lookup[values]
            else:
                frame[column.name] = np.array(values)
        return pd.DataFrame(frame)

    @staticmethod
    def concat(name: str, tables: Sequence[Table]) -> Table:
        """Rows of all tables, ordered."""
        tables = [table for table in tables if len(table)]
        if not tables:
            return Table(name)
        if len(tables) == 1:
            return tables[0].ordered()
        columns = {}
        for column in TABLES[name].columns:
            if all(column.name in table._unfilled for table in tables):
                continue
            parts = [table[column.name] for table in tables]
            columns[column.name] = np.concatenate(parts)
        return Table(name, columns, length=sum(map(len, tables))).ordered()
