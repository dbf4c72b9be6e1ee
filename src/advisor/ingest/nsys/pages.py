"""The pages of an SQLite file: which of them hold the rows of a table, and their bytes.

Source of every constant: "Database File Format", sqlite.org/fileformat2.html (sections named below). Reading the pages
directly, instead of by SQL, gives whole columns several times faster, reads what is left of a damaged file, runs nothing
that the file brings along (views, triggers, generated columns), and takes no lock and leaves no file behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from advisor.model.tables import Array

MAGIC = b"SQLite format 3\0"
_INTERIOR, _LEAF = 0x05, 0x0D  # types of the b-tree pages of tables (1.6)
_BLOCK = 1 << 21  # bytes of pages decoded at once: small enough for the processor's cache
PADDING = 32  # bytes behind a block, so that a few numbers of up to 9 bytes can be read at any place in it
_ENCODINGS = {2: "utf-16-le", 3: "utf-16-be"}


class NotDatabase(Exception):
    """The file's header is not that of an SQLite database."""


class Pages:
    """Pages of one open file. `damage` becomes true where the file contradicts itself or ends early."""

    def __init__(self, file: Path) -> None:
        self._file: BinaryIO = open(file, "rb", buffering=0)  # noqa: SIM115 (closed by close)
        header = self._file.read(100)
        size = int.from_bytes(header[16:18], "big")
        self.size = 1 << 16 if size == 1 else size
        if len(header) < 100 or not header.startswith(MAGIC) or self.size < 512 or self.size & (self.size - 1):
            self._file.close()
            raise NotDatabase
        self.usable = self.size - header[20]
        self.encoding = _ENCODINGS.get(header[59], "utf-8")
        self.length = length = os.fstat(self._file.fileno()).st_size
        self.count = -(-length // self.size)
        stated = int.from_bytes(header[28:32], "big")
        in_header_valid = header[24:28] == header[92:96]
        self.damage = bool(in_header_valid and stated * self.size > length)

    def close(self) -> None:
        self._file.close()

    def page(self, number: int) -> bytes:
        """One page (the first is 1), zeros where the file ends before it."""
        if not 0 < number <= self.count:
            self.damage = True
            return bytes(self.size)
        self._file.seek((number - 1) * self.size)
        return self._file.read(self.size).ljust(self.size, b"\0")

    def leaves(self, root: int) -> Array:
        """Numbers of the leaf pages of the table whose b-tree starts at `root`, in row order."""
        if self._kind(root) == _LEAF:
            return np.array([root])
        found: list[Array] = []
        seen, stack = set(), [root]
        while stack:
            number = stack.pop()
            if number in seen or self._kind(number) != _INTERIOR:
                self.damage = True
                continue
            seen.add(number)
            children = self._children(number)
            if len(children) and self._kind(int(children[0])) == _INTERIOR:
                stack.extend(reversed(children.tolist()))  # a b-tree is balanced: all children are of one kind
            else:
                found.append(children)
        if not found:
            return np.empty(0, np.int64)
        leaves = np.concatenate(found)
        ordered = np.sort(leaves)
        again = ordered[1:] == ordered[:-1]
        if again.any():  # a page has one parent
            self.damage = True
            return np.append(ordered[:1], ordered[1:][~again])
        return leaves

    def _kind(self, number: int) -> int:
        return self.page(number)[100 if number == 1 else 0]

    def _children(self, number: int) -> Array:
        """Page numbers in the cells of an interior page, then its right-most pointer (1.6)."""
        page = np.frombuffer(self.page(number), np.uint8)
        head = 100 if number == 1 else 0
        count = min(int.from_bytes(page[head + 3 : head + 5].tobytes(), "big"), (self.size - head - 12) // 2)
        cells = page[head + 12 : head + 12 + 2 * count].view(">u2").astype(np.int64)
        cells = np.append(cells[cells <= self.size - 4], head + 8)
        children = np.zeros(len(cells), np.int64)
        for byte in range(4):
            children = children << 8 | page[cells + byte]
        inside = (children > 0) & (children <= self.count)
        self.damage |= not inside.all()
        return children[inside]

    def blocks(self, leaves: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Bytes of some leaf pages (followed by PADDING), where each cell begins, and where each cell's page ends."""
        step = max(1, _BLOCK // self.size)
        for begin in range(0, len(leaves), step):
            numbers = leaves[begin : begin + step]
            block = self._load(numbers)
            cells, ends = self._cells(block, numbers)
            if len(cells):
                yield block, cells, ends

    def _load(self, numbers: Array) -> Array:
        block = np.zeros(len(numbers) * self.size + PADDING, np.uint8)
        view = block.data
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1  # neighbours in the file are read in one go
        for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(numbers)], strict=True):
            self._file.seek((int(numbers[first]) - 1) * self.size)
            part = view[first * self.size : last * self.size]
            if self._file.readinto(part) != len(part):  # type: ignore[attr-defined]
                self.damage = True
        return block

    def _cells(self, block: Array, numbers: Array) -> tuple[Array, Array]:
        """Positions of all cells of the pages of a block, and the end of the usable part of the page of each."""
        starts = np.arange(len(numbers)) * self.size
        heads = starts + np.where(numbers == 1, 100, 0)
        counts = block[heads + 3].astype(np.int64) << 8 | block[heads + 4]
        leaf = (block[heads] == _LEAF) & (heads - starts + 8 + 2 * counts <= self.usable)
        self.damage |= not leaf.all()
        counts[~leaf] = 0
        page = np.repeat(np.arange(len(numbers)), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        pointers = heads[page] + 8 + 2 * (np.arange(len(page)) - first)
        cells = starts[page] + (block[pointers].astype(np.int64) << 8 | block[pointers + 1])
        held = np.minimum(self.usable, self.length - (numbers - 1) * self.size)  # of the page that the file's end cuts
        ends = starts[page] + held[page]
        inside = (cells > pointers) & (cells < ends)
        if not inside.all():
            self.damage = True
            return cells[inside], ends[inside]
        return cells, ends

    def overflow(self, number: int, length: int) -> bytes:
        """`length` bytes of a chain of overflow pages (1.6), fewer where the chain ends or turns back."""
        parts: list[bytes] = []
        seen: set[int] = set()
        while length > 0 and number and number not in seen:
            seen.add(number)
            page = self.page(number)
            parts.append(page[4 : min(self.usable, 4 + length)])
            length -= self.usable - 4
            number = int.from_bytes(page[:4], "big")
        self.damage |= length > 0
        return b"".join(parts)
