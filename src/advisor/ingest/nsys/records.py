"""Rows of SQLite table pages, decoded a block at a time into columns.

Source: "Database File Format", sqlite.org/fileformat2.html: 1.6 (cells, overflow) and 2.1 (records, serial types).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.ingest.nsys.pages import PADDING, Pages
from advisor.model.tables import Array

NULL = np.iinfo(np.int64).min  # stands for "no integer" in columns of integers
_LONGEST_ROW = 1 << 20  # bytes; rows above are left out
_CELL = 4  # bytes a row takes at least beside its record: a pointer, its length, its row id
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], np.int64)  # bytes of serial types 0 to 11
_SHIFTS = np.array([0, 56, 48, 40, 32, 16, 0], np.int64)  # from 8 bytes read to those of serial types 1 to 6
_REAL, _ZERO, _ONE, _FIRST_TEXT = 7, 8, 9, 13


class Rows:
    """Some rows of a table: `ids` are their row ids; columns are asked for by their place in the table.

    A column of a row holds its serial type and where its bytes begin.
    """

    def __init__(self, data: Array, ids: Array, types: list[Array | None], begins: list[Array | None], encoding: str) -> None:
        self.ids = ids
        self._data, self._types, self._begins, self._encoding = data, types, begins, encoding

    def __len__(self) -> int:
        return len(self.ids)

    def _column(self, place: int) -> tuple[Array, Array]:
        types, begins = self._types[place], self._begins[place]
        assert types is not None and begins is not None, "column was not asked for"
        return types, begins

    def integers(self, place: int) -> Array:
        """int64, NULL where the value is no integer."""
        types, begins = self._column(place)
        words = np.ndarray((len(self._data) - 7,), ">i8", self._data, strides=(1,))
        small = np.minimum(types, 6)
        values = words[begins].astype(np.int64) >> _SHIFTS[small]
        if int(types.max()) > 6 or int(types.min()) == 0:
            values[types == _ZERO] = 0
            values[types == _ONE] = 1
            values[(types == 0) | (types == _REAL) | (types > _ONE)] = NULL
        return values

    def reals(self, place: int) -> Array:
        """float64, NaN where the value is no number. A column of reals stores whole numbers as integers."""
        types, begins = self._column(place)
        whole = self.integers(place)
        values = np.where(whole == NULL, np.nan, whole)
        real = types == _REAL
        if real.any():
            values[real] = np.ndarray((len(self._data) - 7,), ">f8", self._data, strides=(1,))[begins[real]]
        return values

    def texts(self, place: int, longest: int) -> Iterator[tuple[int, bytes]]:
        """(row, encoded text of at most `longest` bytes) of the rows that hold text."""
        types, begins = self._column(place)
        rows = np.flatnonzero((types >= _FIRST_TEXT) & (types & 1 == 1))
        sizes = np.minimum((types[rows] - _FIRST_TEXT) >> 1, longest)
        data = self._data.data
        for row, begin, size in zip(rows.tolist(), begins[rows].tolist(), sizes.tolist(), strict=True):
            yield row, data[begin : begin + size].tobytes()

    def decode(self, raw: bytes) -> str:
        return raw.decode(self._encoding, "replace")


def scan(pages: Pages, leaves: Array, wanted: list[int], among: Array | None = None) -> Iterator[Rows]:
    """Blocks of rows with the columns at the places `wanted`; `among`: only the rows with these (sorted) row ids."""
    last = max(wanted, default=-1)
    budget = 4 * pages.count * pages.size  # overflow pages that many rows share would be read for ever
    for data, cells, ends in pages.blocks(leaves):
        lengths, cells = _varints(data, cells)
        ids, cells = _varints(data, cells)
        if among is not None:
            place = np.minimum(np.searchsorted(among, ids), len(among) - 1)
            keep = among[place] == ids
            lengths, ids, cells, ends = lengths[keep], ids[keep], cells[keep], ends[keep]
        long = lengths > pages.usable - 35  # the rest of a long record lies on overflow pages
        held = lengths.copy()
        if long.any():
            held[long] = _local(pages, lengths[long]) + 4
        good = (lengths > 0) & (held <= ends - cells)
        pages.damage |= not good.all()
        if int(held[good].sum()) + _CELL * len(held) > len(data):  # rows that lie over one another would multiply without end
            pages.damage = True
            continue
        if last < 0:
            yield Rows(data, ids[good], [], [], pages.encoding)
            continue
        good &= lengths <= _LONGEST_ROW
        ends = np.where(good, cells + lengths, cells)
        if (long & good).any():
            budget -= int(lengths[long & good].sum())
            if budget < 0:
                pages.damage = True
                return
            data = _assemble(pages, data, np.flatnonzero(long & good), lengths, cells, ends)
        if not good.all():
            ids, cells, ends = ids[good], cells[good], ends[good]
        if len(ids):
            rows = _records(pages, data, ids, cells, ends, set(wanted), last)
            if len(rows):
                yield rows


def _varints(data: Array, at: Array) -> tuple[Array, Array]:
    """Variable-length integers (1 to 9 bytes) at the positions, and the positions behind them."""
    byte = data[at]
    value = (byte & 0x7F).astype(np.int64)
    at = at + 1
    more = np.flatnonzero(byte & 0x80)
    for n in range(2, 10):
        if not len(more):
            break
        byte = data[at[more]]
        value[more] = value[more] << 8 | byte if n == 9 else value[more] << 7 | byte & 0x7F
        at[more] += 1
        more = more[byte & 0x80 != 0]
    return value, at


def _local(pages: Pages, lengths: Array) -> Array:
    """How many bytes of a record with overflow pages lie on its own page."""
    least = (pages.usable - 12) * 32 // 255 - 23
    local = least + (lengths - least) % (pages.usable - 4)
    return np.where(local <= pages.usable - 35, local, least)


def _assemble(pages: Pages, data: Array, rows: Array, lengths: Array, cells: Array, ends: Array) -> Array:
    """Appends the whole records of rows with overflow pages to the data, and points `cells` and `ends` to them."""
    parts, size = [data[:-PADDING].tobytes()], len(data) - PADDING
    for row, local in zip(rows.tolist(), _local(pages, lengths[rows]).tolist(), strict=True):
        begin = int(cells[row])
        first = int.from_bytes(data[begin + local : begin + local + 4].tobytes(), "big")
        record = data[begin : begin + local].tobytes() + pages.overflow(first, int(lengths[row]) - local)
        parts.append(record)
        cells[row], ends[row] = size, size + len(record)
        size += len(record)
    return np.frombuffer(bytearray(b"".join(parts) + bytes(PADDING)), np.uint8)


def _records(pages: Pages, data: Array, ids: Array, cells: Array, ends: Array, wanted: set[int], last: int) -> Rows:
    """Walks through the headers of all records at once, one column a turn."""
    size, head = _varints(data, cells)
    head_end = cells + size
    good = (size > 0) & (head_end <= ends) & (head <= head_end)
    head_end = np.where(good, head_end, cells)
    begin = head_end
    types: list[Array | None] = []
    begins: list[Array | None] = []
    for place in range(last + 1):
        beyond = head >= head_end  # a record written before ALTER TABLE ADD COLUMN is shorter than its table
        kind, head = _varints(data, np.minimum(head, head_end))
        if beyond.any():
            kind[beyond] = 0
        width = _SIZES[np.clip(kind, 0, 11)]
        if int(kind.max()) > 11:
            width = np.where(kind > 11, (kind - 12) >> 1, width)
        inside = (kind >= 0) & (width <= ends - begin)
        if not inside.all():
            good &= inside
            kind, width = np.where(inside, kind, 0), np.where(inside, width, 0)
            begin = np.minimum(begin, ends)
        types.append(kind if place in wanted else None)
        begins.append(begin if place in wanted else None)
        begin = begin + width
    if not good.all():
        pages.damage = True
        ids = ids[good]
        types = [None if kind is None else kind[good] for kind in types]
        begins = [None if place is None else place[good] for place in begins]
    return Rows(data, ids, types, begins, pages.encoding)
