"""Which interval lies inside which, per host thread, for millions of rows without a Python loop over them."""

from __future__ import annotations

from functools import cached_property
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


def _unordered(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> bool:
    """Whether rows are out of the order of start, the longer first."""
    return bool(((start[1:] < start[:-1]) | ((start[1:] == start[:-1]) & (end[1:] > end[:-1]))).any())


class Nesting:
    """The forest of intervals of a table with start, end, rank, process and thread.

    `parent[i]` is the row of the innermost interval of the same thread that is open when row i starts, else -1. A child
    that ends after its parent (rounding, clock drift) is adopted by its start. Rows need not be ordered.
    """

    def __init__(self, table: Table) -> None:
        self.start: npt.NDArray[np.int64] = table["start"]
        self.end: npt.NDArray[np.int64] = table["end"]
        self.parent: npt.NDArray[np.int32] = np.full(len(table), -1, np.int32)
        self.depth: npt.NDArray[np.int32] = np.zeros(len(table), np.int32)
        threads, index = distinct_rows(table["rank"], table["process"], table["thread"])
        columns = (np.array([thread[i] for thread in threads], np.int64) for i in range(3))
        self._threads: dict[int, int] = {key: number for number, key in enumerate(mixed_key(*columns).tolist())}
        self._rows: list[npt.NDArray[np.int32]] = []
        for number in range(len(threads)):
            rows = np.flatnonzero(index == number) if len(threads) > 1 else np.arange(len(table))
            start, end = self.start[rows], self.end[rows]
            # By start, the longer first, so that a parent precedes its children.
            order = np.lexsort((-end, start)) if _unordered(start, end) else slice(None)
            self._rows.append(rows[order].astype(np.int32))
            self._link(self._rows[-1], start[order], end[order])

    def _link(self, rows: npt.NDArray[np.int32], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> None:
        """Fill parent and depth of one thread's rows, given in order."""
        # How many opened before less how many closed. A row without length counts itself as closed: it is not its own child.
        closed = np.searchsorted(np.sort(end), start, side="right")
        depth = np.maximum(np.arange(len(rows)) - closed, 0).astype(np.int32)
        del closed
        by_depth = np.argsort(depth, kind="stable")
        bounds = np.searchsorted(depth[by_depth], np.arange(int(depth.max(initial=0)) + 2))
        above = by_depth[: bounds[1]]
        for low, high in pairwise(bounds[1:]):
            here = by_depth[low:high]
            found = np.searchsorted(above, here) - 1
            known = found >= 0
            self.parent[rows[here[known]]] = rows[above[found[known]]]
            above = here
        self.depth[rows] = depth

    def innermost(self, keys: npt.NDArray[Any], moments: npt.NDArray[Any]) -> Rows:
        """For each (thread key, moment): the row of the innermost interval open then, else -1."""
        result = np.full(len(moments), -1, np.int64)
        moments = np.asarray(moments)
        for key in np.unique(keys).tolist():
            if key not in self._threads:
                continue
            rows = self._rows[self._threads[key]]
            asked = np.flatnonzero(keys == key)
            when = moments[asked]
            at = np.searchsorted(self.start[rows], when, side="right") - 1
            row = np.where(at >= 0, rows[np.maximum(at, 0)], np.int32(-1))
            while True:
                over = np.flatnonzero((row >= 0) & (self.end[row] <= when))
                if not len(over):
                    break
                row[over] = self.parent[row[over]]
            result[asked] = row
        return result

    @cached_property
    def _levels(self) -> list[npt.NDArray[np.int32]]:
        """Rows by depth."""
        by_depth = np.argsort(self.depth, kind="stable").astype(np.int32)
        return np.split(by_depth, np.searchsorted(self.depth[by_depth], np.arange(1, int(self.depth.max(initial=0)) + 1)))

    def nearest(self, wanted: Mask) -> Rows:
        """For each row: itself or its nearest ancestor among the wanted ones, else -1."""
        result = np.full(len(wanted), -1, np.int32)
        result[wanted] = np.flatnonzero(wanted)
        for level in self._levels[1:]:
            rows = level[(result[level] < 0) & (self.parent[level] >= 0)]
            result[rows] = result[self.parent[rows]]
        return result.astype(np.int64)

    def roots(self) -> Mask:
        return self.parent < 0
