"""Which interval lies inside which, per host thread, for millions of rows without a Python loop over them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.model import Table

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def thread_keys(table: Table) -> npt.NDArray[Any]:
    """One int64 per row that is equal for rows of the same (rank, process, thread)."""
    return mixed_key(table["rank"], table["process"], table["thread"])


def mixed_key(*columns: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """A 64-bit key of several integer columns; equal rows give equal keys, others almost surely differ."""
    key = np.zeros(len(columns[0]), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            filled = column if column.strides != (0,) else column[:1]
            key ^= np.asarray(filled, np.int64).view(np.uint64)
            key *= np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
    return key.view(np.int64)


def distinct_rows(*columns: npt.NDArray[Any]) -> tuple[list[tuple[int, ...]], npt.NDArray[np.int32]]:
    """The distinct rows of integer columns in ascending order, and for each row the index of its own among them."""
    n = len(columns[0])
    if not n:
        return [], np.empty(0, np.int32)
    if all(column.strides == (0,) or bool((column == column[0]).all()) for column in columns):
        return [tuple(int(column[0]) for column in columns)], np.zeros(n, np.int32)
    key = mixed_key(*columns)
    distinct = np.unique(key)
    index = np.searchsorted(distinct, key).astype(np.int32)
    sample = np.empty(len(distinct), np.int64)
    sample[index] = np.arange(n)
    rows = [tuple(int(column[i]) for column in columns) for i in sample]
    order = sorted(range(len(rows)), key=rows.__getitem__)
    place = np.empty(len(rows), np.int32)
    place[order] = np.arange(len(rows))
    return [rows[i] for i in order], place[index]


class Nesting:
    """The forest of intervals of a table with start, end, rank, process and thread.

    `parent[i]` is the row of the innermost interval of the same thread that is open when row i starts, else -1. A child
    that ends after its parent (rounding, clock drift) is adopted by its start. Rows need not be ordered.
    """

    def __init__(self, table: Table) -> None:
        self.start: npt.NDArray[np.int64] = table["start"]
        self.end: npt.NDArray[np.int64] = table["end"]
        keys = thread_keys(table)
        # Within a thread by start, the longer first, so that a parent precedes its children.
        self._order: Rows = np.lexsort((-self.end, self.start, keys))
        self._threads, first = np.unique(keys[self._order], return_index=True)
        self._bounds: Rows = np.append(first, len(keys))
        self.parent: Rows = np.full(len(table), -1, np.int64)
        self.depth: npt.NDArray[np.int32] = np.zeros(len(table), np.int32)
        for low, high in pairwise(self._bounds):
            self._link(self._order[low:high])

    def _link(self, rows: Rows) -> None:
        """Fill parent and depth of one thread's rows, given in order."""
        start, end = self.start[rows], self.end[rows]
        n = len(rows)
        opened = np.arange(n)
        closed = np.searchsorted(np.sort(end), start, side="right")
        # A zero-length row at the very moment counts itself as closed; it is not its own child.
        closed = np.minimum(closed, opened)
        depth = (opened - closed).astype(np.int32)
        for level in range(1, int(depth.max(initial=0)) + 1):
            here = np.flatnonzero(depth == level)
            above = np.flatnonzero(depth == level - 1)
            found = np.searchsorted(above, here) - 1
            known = found >= 0
            self.parent[rows[here[known]]] = rows[above[found[known]]]
        self.depth[rows] = depth

    def innermost(self, keys: npt.NDArray[Any], moments: npt.NDArray[Any]) -> Rows:
        """For each (thread key, moment): the row of the innermost interval open then, else -1."""
        result = np.full(len(moments), -1, np.int64)
        slots = np.searchsorted(self._threads, keys)
        for slot in np.unique(slots):
            if slot >= len(self._threads):
                continue
            asked = np.flatnonzero((slots == slot) & (keys == self._threads[slot]))
            rows = self._order[self._bounds[slot] : self._bounds[slot + 1]]
            when = np.asarray(moments)[asked]
            at = np.searchsorted(self.start[rows], when, side="right") - 1
            row = np.where(at >= 0, rows[np.maximum(at, 0)], -1)
            while True:
                over = (row >= 0) & (self.end[row] <= when)
                if not over.any():
                    break
                row = np.where(over, self.parent[row], row)
            result[asked] = row
        return result

    def nearest(self, wanted: Mask) -> Rows:
        """For each row: itself or its nearest ancestor among the wanted ones, else -1."""
        result = np.where(wanted, np.arange(len(wanted)), -1)
        order = np.argsort(self.depth, kind="stable")
        bounds = np.searchsorted(self.depth[order], np.arange(int(self.depth.max(initial=0)) + 2))
        for low, high in pairwise(bounds[1:]):
            rows = order[low:high]
            open_rows = rows[(result[rows] < 0) & (self.parent[rows] >= 0)]
            result[open_rows] = result[self.parent[open_rows]]
        return result

    def roots(self) -> Mask:
        return self.parent < 0
