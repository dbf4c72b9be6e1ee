"""Interval algebra on int64 nanoseconds.

A *set* of intervals is a pair of arrays (start, end), sorted, disjoint and without empty members: what `union` returns.
Intervals are half open: [start, end).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
IntervalSet = tuple[Times, Times]

EMPTY: IntervalSet = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> IntervalSet:
    """The set covered by any of the intervals, which may overlap, touch, be empty and come in any order."""
    keep = end > start
    start, end = np.asarray(start[keep], np.int64), np.asarray(end[keep], np.int64)
    if not len(start):
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], reach[last]


def length(s: IntervalSet) -> int:
    """Total length of a set, ns."""
    return int((s[1] - s[0]).sum())


def union_length(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> int:
    """Length covered by any of the intervals, ns."""
    return length(union(start, end))


def merge(*sets: IntervalSet) -> IntervalSet:
    """Union of sets."""
    return union(np.concatenate([s[0] for s in sets]), np.concatenate([s[1] for s in sets])) if sets else EMPTY


def intersect(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """What both sets cover."""
    if not len(a[0]) or not len(b[0]):
        return EMPTY
    # For every member of a: the members of b from `low` up to `high` overlap it.
    low = np.searchsorted(b[1], a[0], side="right")
    high = np.searchsorted(b[0], a[1], side="left")
    count = np.maximum(high - low, 0)
    if not count.any():
        return EMPTY
    owner = np.repeat(np.arange(len(a[0])), count)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    other = low[owner] + offset
    return np.maximum(a[0][owner], b[0][other]), np.minimum(a[1][owner], b[1][other])


def complement(s: IntervalSet, start: int, end: int) -> IntervalSet:
    """What the set leaves of [start, end)."""
    if end <= start:
        return EMPTY
    s = clip(s, start, end)
    lows = np.concatenate(([start], s[1])).astype(np.int64)
    highs = np.concatenate((s[0], [end])).astype(np.int64)
    keep = highs > lows
    return lows[keep], highs[keep]


def subtract(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """What a covers and b does not."""
    if not len(a[0]) or not len(b[0]):
        return a
    return intersect(a, complement(b, int(min(a[0][0], b[0][0])) - 1, int(max(a[1][-1], b[1][-1])) + 1))


def clip(s: IntervalSet, start: int, end: int) -> IntervalSet:
    """The part of the set inside [start, end)."""
    low, high = np.maximum(s[0], start), np.minimum(s[1], end)
    keep = high > low
    return low[keep], high[keep]


def covered(s: IntervalSet, start: npt.NDArray[Any], end: npt.NDArray[Any]) -> Times:
    """For each [start[i], end[i]): how much of it the set covers, ns. The queries may overlap."""
    if not len(s[0]):
        return np.zeros(len(start), np.int64)
    return np.asarray(np.maximum(_before(s, np.asarray(end)) - _before(s, np.asarray(start)), 0), np.int64)


def _before(s: IntervalSet, moments: npt.NDArray[Any]) -> Times:
    """For each moment: how much of the set lies before it."""
    total = np.concatenate(([0], np.cumsum(s[1] - s[0])))
    i = np.searchsorted(s[0], moments, side="right")
    inside = np.where(i > 0, np.minimum(moments, s[1][np.maximum(i - 1, 0)]) - s[0][np.maximum(i - 1, 0)], 0)
    return np.asarray(total[np.maximum(i - 1, 0)] + inside, np.int64)


def contains(s: IntervalSet, moments: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """For each moment: whether the set covers it."""
    if not len(s[0]):
        return np.zeros(len(moments), bool)
    i = np.searchsorted(s[0], moments, side="right") - 1
    return np.asarray((i >= 0) & (moments < s[1][np.maximum(i, 0)]), bool)
