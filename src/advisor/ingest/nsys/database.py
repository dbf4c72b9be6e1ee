"""The tables of an SQLite file, column by column: read-only, bounded, and as much as is left of a damaged file."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from advisor.ingest.nsys.ddl import Layout, layout
from advisor.ingest.nsys.pages import MAGIC, NotDatabase, Pages
from advisor.ingest.nsys.records import NULL, Rows, scan
from advisor.ingest.source import temporary_folder
from advisor.model import InputError, Strings
from advisor.model.tables import Array

__all__ = ["MAGIC", "NULL", "Database"]

_LONGEST_TEXT = 1 << 16  # bytes kept of a text: a demangled kernel name takes up to some thousand
_MASTER = Layout(["type", "name", "tbl_name", "rootpage", "sql"])
_TYPES = {"int64": "int64", "id": "int64", "int32": "int32", "int8": "int8", "real": "float64", "text": "int32"}


class Database:
    """The ordinary tables of one file, never its views. Raises InputError where there is no database.

    `tables` maps a table's name to the names of its columns.
    """

    def __init__(self, file: Path) -> None:
        try:
            self._pages = Pages(_settled(file))
        except NotDatabase as error:
            raise InputError("not an SQLite database, or its header is damaged") from error
        except OSError as error:
            raise InputError(f"cannot be opened: {error.strerror or error}") from error
        self._leaves: dict[str, Array] = {"sqlite_schema": self._pages.leaves(1)}
        self._layouts: dict[str, Layout] = {"sqlite_schema": _MASTER}
        self._roots: dict[str, int] = {}
        for kind, name, root, statement in self.rows("sqlite_schema", ["type", "name", "rootpage", "sql"]):
            found = layout(statement) if kind == "table" and isinstance(statement, str) else None
            if found is not None and isinstance(name, str) and isinstance(root, int) and root > 0:
                self._layouts[name], self._roots[name] = found, root
        self.tables = {name: self._layouts[name].columns for name in self._roots}

    @property
    def damaged(self) -> bool:
        """True if the part of the file that was read so far is cut short or contradicts itself."""
        return self._pages.damage

    def close(self) -> None:
        self._pages.close()

    def _leaf_pages(self, table: str) -> Array:
        if table not in self._leaves:
            self._leaves[table] = self._pages.leaves(self._roots[table])
        return self._leaves[table]

    def has_rows(self, table: str) -> bool:
        """True if the table exists and holds a row. An existing table may well be empty."""
        if table not in self.tables:
            return False
        return any(len(rows) for rows in scan(self._pages, self._leaf_pages(table), []))

    def read(self, table: str, columns: Mapping[str, str], strings: Strings | None = None) -> dict[str, Array]:
        """Whole columns of a table, in row order; a table or column that does not exist gives missing values.

        `columns` maps names to kinds: "int64" (missing: NULL), "id" (int64, missing: -1), "int32", "int8" (missing or out
        of range: -1), "real" (float64, missing: NaN), "text" (int32 codes into `strings`, missing: -1).
        """
        parts: dict[str, list[Array]] = {name: [] for name in columns}
        for rows in self._scan(table, list(columns)):
            for name, kind in columns.items():
                parts[name].append(self._column(table, rows, name, kind, strings))
        return {name: np.concatenate(parts[name]) if parts[name] else np.empty(0, _TYPES[kind]) for name, kind in columns.items()}

    def _scan(self, table: str, columns: list[str], among: Array | None = None) -> Any:
        known = self._layouts[table].columns if table in self._layouts else []
        wanted = [known.index(name) for name in columns if name in known]
        return scan(self._pages, self._leaf_pages(table), wanted, among) if known else ()

    def _column(self, table: str, rows: Rows, name: str, kind: str, strings: Strings | None) -> Array:
        shape = self._layouts[table]
        if name not in shape.columns:
            missing = {"real": np.nan, "int64": NULL}.get(kind, -1)
            return np.full(len(rows), missing, _TYPES[kind])
        place = shape.columns.index(name)
        if kind == "real":
            return rows.reals(place)
        if kind == "text":
            assert strings is not None
            codes = np.full(len(rows), -1, np.int32)
            known: dict[bytes, int] = {}
            for row, raw in rows.texts(place, _LONGEST_TEXT):
                code = known.get(raw)
                if code is None:
                    code = known[raw] = strings.code(rows.decode(raw))
                codes[row] = code
            return codes
        return _narrow(rows.ids if name == shape.row_id else rows.integers(place), kind)

    def texts(self, table: str, key: str, value: str, wanted: Array) -> dict[int, str]:
        """`value` of the rows whose integer `key` is among `wanted`; the text of no other row is looked at."""
        found: dict[int, str] = {}
        shape = self._layouts.get(table)
        if shape is None or not {key, value} <= set(shape.columns) or not len(wanted):
            return found
        wanted = np.unique(wanted)
        if key != shape.row_id:
            keys = self.read(table, {key: "int64"})[key]
            ids = np.concatenate([rows.ids for rows in self._scan(table, [key])] or [np.empty(0, np.int64)])
            wanted = np.sort(ids[np.isin(keys, wanted)])
        place = shape.columns.index(value)
        for rows in self._scan(table, [key, value], wanted) if len(wanted) else ():
            keys = self._column(table, rows, key, "int64", None)
            for row, raw in rows.texts(place, _LONGEST_TEXT):
                found[int(keys[row])] = rows.decode(raw)
        return found

    def rows(self, table: str, columns: list[str], limit: int = 10_000) -> list[tuple[Any, ...]]:
        """The first rows of a small table as tuples of int, float, str; None for anything else or no such column."""
        shape = self._layouts.get(table)
        found: list[tuple[Any, ...]] = []
        for rows in self._scan(table, columns) if shape else ():
            values = [self._objects(table, rows, name) for name in columns]
            found.extend(zip(*values, strict=True))
            if len(found) >= limit:
                break
        return found[:limit]

    def _objects(self, table: str, rows: Rows, name: str) -> list[Any]:
        shape = self._layouts[table]
        values: list[Any] = [None] * len(rows)
        if name not in shape.columns:
            return values
        whole, real = self._column(table, rows, name, "int64", None), self._column(table, rows, name, "real", None)
        for row in np.flatnonzero(~np.isnan(real)).tolist():
            values[row] = float(real[row])
        for row in np.flatnonzero(whole != NULL).tolist():
            values[row] = int(whole[row])
        for row, raw in rows.texts(shape.columns.index(name), _LONGEST_TEXT):
            values[row] = rows.decode(raw)
        return values


def _narrow(values: Array, kind: str) -> Array:
    if kind == "int64":
        return values
    dtype = np.dtype(_TYPES[kind])
    limits = np.iinfo(dtype)
    inside = (values >= max(int(limits.min), int(NULL) + 1)) & (values <= limits.max)
    return (values if inside.all() else np.where(inside, values, -1)).astype(dtype)


def _settled(file: Path) -> Path:
    """The file itself, or a temporary copy that has taken in the write-ahead log beside it: the user's stays as it is."""
    log = Path(f"{file}-wal")
    try:
        if not log.is_file() or not log.stat().st_size:
            return file
        folder = temporary_folder()
        copy = folder / f"{len(os.listdir(folder))}-settled.sqlite"
        if shutil.disk_usage(folder).free < 2 * (file.stat().st_size + log.stat().st_size):
            raise InputError("a write-ahead log lies beside it and there is no room for a copy; close the program that writes it")
        shutil.copyfile(file, copy)
        shutil.copyfile(log, f"{copy}-wal")
        connection = sqlite3.connect(copy)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            connection.close()
        return copy
    except (OSError, sqlite3.Error) as error:
        raise InputError("the write-ahead log beside it cannot be read; close the program that writes it") from error
