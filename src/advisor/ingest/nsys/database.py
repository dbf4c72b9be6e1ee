"""Read-only, bounded access to the tables of an SQLite file, column by column."""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from advisor.model import InputError, Strings
from advisor.model.tables import Array

MAGIC = b"SQLite format 3\0"
NULL = np.iinfo(np.int64).min  # stands for "no value" in columns of kind "int64"
_CHUNK = 100_000  # rows a query: bounds the text that is parsed at once
_LONGEST = 1 << 26  # bytes of the longest value SQLite may build
_LONGEST_TEXT = 1 << 14  # characters kept of a name
_STEPS_PER_BYTE = 64  # a query that needs more virtual-machine steps a byte of file walks in circles


class Database:
    """The real tables of one file (never its views or virtual tables). Raises InputError where the file cannot be read.

    `tables` maps a table's name to its columns. `damage` says that a table ended before its end.
    """

    def __init__(self, file: Path) -> None:
        self.damage: str | None = None
        uri = "file:" + quote(os.fsencode(file.absolute())) + "?mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None)
            self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
            self._connection.execute("PRAGMA trusted_schema = OFF")
            self._budget = 1_000_000 + _STEPS_PER_BYTE * file.stat().st_size
            self._steps = 0
            self._connection.set_progress_handler(self._step, 10_000)
            self.tables = self._schema()
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise InputError("the SQLite database is damaged") from error

    def close(self) -> None:
        self._connection.close()

    def _step(self) -> bool:
        self._steps += 10_000
        return self._steps > self._budget

    def _schema(self) -> dict[str, list[str]]:
        found = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        names = [name for (name,) in self._connection.execute(found)]
        return {name: [row[1] for row in self._connection.execute(f"PRAGMA table_info({_quoted(name)})")] for name in names}

    def has_rows(self, table: str) -> bool:
        """True if the table exists and holds a row. An existing table may well be empty."""
        if table not in self.tables:
            return False
        self._steps = 0
        try:
            return self._connection.execute(f"SELECT 1 FROM {_quoted(table)} LIMIT 1").fetchone() is not None
        except sqlite3.Error:
            return False

    def read(self, table: str, columns: Mapping[str, str], strings: Strings | None = None) -> dict[str, Array]:
        """Whole columns of a table, in row order; a table or column that does not exist gives missing values.

        `columns` maps names to kinds: "int64" (missing: NULL), "id" (int64, missing: -1), "int32", "int8" (missing or out
        of range: -1), "real" (float64, missing: NaN), "text" (int32 codes into `strings`, missing: -1).
        """
        present = [name for name in columns if name in self.tables.get(table, ())]
        parts: dict[str, list[Array]] = {name: [] for name in columns}
        self._steps = 0
        last = None
        try:
            while present:
                bound, rows = self._bound(table, last)
                if not rows:
                    break
                for name, values in self._chunk(table, {n: columns[n] for n in present}, last, bound, strings).items():
                    parts[name].append(values)
                last = bound
        except sqlite3.Error:
            self.damage = f"table {table} ends early"
        length = sum(map(len, parts[present[0]])) if present else 0
        return {name: _joined(parts[name], kind, length) for name, kind in columns.items()}

    def _bound(self, table: str, last: int | None) -> tuple[int, bool]:
        """Row id that ends the next chunk, and whether there is a row at all."""
        after = f"FROM {_quoted(table)} WHERE rowid > {last}" if last is not None else f"FROM {_quoted(table)}"
        full = self._connection.execute(f"SELECT rowid {after} ORDER BY rowid LIMIT 1 OFFSET {_CHUNK - 1}").fetchone()
        if full:
            return full[0], True
        top = self._connection.execute(f"SELECT rowid {after} ORDER BY rowid DESC LIMIT 1").fetchone()
        return (top[0], True) if top else (0, False)

    def _chunk(
        self, table: str, columns: Mapping[str, str], last: int | None, bound: int, strings: Strings | None
    ) -> dict[str, Array]:
        where = f"FROM {_quoted(table)} WHERE rowid <= {bound}" + (f" AND rowid > {last}" if last is not None else "")
        result: dict[str, Array] = {}
        whole = [name for name, kind in columns.items() if kind not in ("real", "text")]
        if whole:
            lists = ", ".join(f"group_concat(coalesce({_quoted(name)}, {NULL}))" for name in whole)
            count, *texts = self._connection.execute(f"SELECT count(*), {lists} {where}").fetchone()
            for name, text in zip(whole, texts, strict=True):
                values = _parsed(text, count)
                if values is None:  # something in this column is no integer
                    q = _quoted(name)
                    checked = f"SELECT CASE typeof({q}) WHEN 'integer' THEN {q} ELSE {NULL} END {where}"
                    values = np.fromiter((v for (v,) in self._connection.execute(checked)), np.int64, count)
                result[name] = _narrow(values, columns[name])
        for name, kind in columns.items():
            q = _quoted(name)
            if kind == "real":
                checked = f"SELECT CASE WHEN typeof({q}) IN ('integer', 'real') THEN {q} END {where}"
                rows = self._connection.execute(checked)
                result[name] = np.array([np.nan if v is None else v for (v,) in rows], np.float64)
            elif kind == "text":
                assert strings is not None
                checked = f"SELECT CASE typeof({q}) WHEN 'text' THEN substr({q}, 1, {_LONGEST_TEXT}) END {where}"
                rows = self._connection.execute(checked)
                code = strings.code
                result[name] = np.array([-1 if v is None else code(v) for (v,) in rows], np.int32)
        return result

    def texts(self, table: str, key: str, value: str, wanted: Array) -> dict[int, str]:
        """`value` of the rows whose integer `key` is among `wanted`; no other text is read."""
        found: dict[int, str] = {}
        if not {key, value} <= set(self.tables.get(table, ())):
            return found
        self._steps = 0
        ids = [int(i) for i in wanted]
        k, v = _quoted(key), _quoted(value)
        try:
            for begin in range(0, len(ids), 500):
                some = ",".join(map(str, ids[begin : begin + 500]))
                query = f"SELECT {k}, substr({v}, 1, {_LONGEST_TEXT}) FROM {_quoted(table)} WHERE {k} IN ({some})"
                found.update((i, text) for i, text in self._connection.execute(query) if isinstance(text, str))
        except sqlite3.Error:
            self.damage = f"table {table} ends early"
        return found

    def rows(self, table: str, columns: list[str], limit: int = 10_000) -> list[tuple[Any, ...]]:
        """Rows of a small table as tuples, at most `limit`; None for a column that does not exist."""
        known = self.tables.get(table, ())
        if not known:
            return []
        picked = ", ".join(_quoted(name) if name in known else "NULL" for name in columns)
        self._steps = 0
        try:
            return self._connection.execute(f"SELECT {picked} FROM {_quoted(table)} LIMIT {limit}").fetchall()
        except sqlite3.Error:
            self.damage = f"table {table} ends early"
            return []


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _parsed(text: object, count: int) -> Array | None:
    """Comma-separated integers as an array, None if they are not just `count` integers."""
    if not isinstance(text, str):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            values = np.fromstring(text, np.int64, sep=",")
        except (DeprecationWarning, ValueError):
            return None
    return values if len(values) == count else None


def _narrow(values: Array, kind: str) -> Array:
    if kind == "int64":
        return values
    dtype = np.dtype("int64" if kind == "id" else kind)
    limits = np.iinfo(dtype)
    inside = (values >= max(limits.min, NULL + 1)) & (values <= limits.max)
    return np.where(inside, values, -1).astype(dtype)


def _joined(parts: list[Array], kind: str, length: int) -> Array:
    if parts:
        return np.concatenate(parts) if len(parts) > 1 else parts[0]
    if kind == "real":
        return np.full(length, np.nan)
    if kind == "int64":
        return np.full(length, NULL, np.int64)
    return np.full(length, -1, {"id": "int64", "text": "int32"}.get(kind, kind))
