"""Level of detail: a bounded number of rectangles for any number of events, and of points for any curve.

Pictures of a million events are not drawn from a million rectangles. Events that would be too narrow to tell apart are merged
with their neighbours into one rectangle that knows how many it stands for; long ones stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.intervals import IntervalSet

Ints = npt.NDArray[np.int64]


def lanes(start: Ints, end: Ints, most: int) -> Ints:
    """For each interval (ordered by start, the longer first; none empty) a lane on which it overlaps no other.

    What nests gets its depth. `most` stands for every interval that found no room on the lanes before.
    """
    if not len(start):
        return np.empty(0, np.int64)
    # How many are open when one starts: its depth, if all that is open encloses it.
    depth = np.arange(len(start)) - np.searchsorted(np.sort(end), start, side="right")
    order = np.argsort(depth, kind="stable")
    same = depth[order][1:] == depth[order][:-1]
    if not (same & (start[order][1:] < end[order][:-1])).any():
        return np.minimum(depth, most)
    return _first_fit(start, end, most)


def _first_fit(start: Ints, end: Ints, most: int) -> Ints:
    """The first lane that is free again, for intervals that overlap without one holding the other."""
    free: list[int] = []
    result = []
    for begins, ends in zip(start.tolist(), end.tolist(), strict=True):
        for lane, until in enumerate(free):
            if until <= begins:
                free[lane] = ends
                break
        else:
            lane = len(free)
            if lane < most:
                free.append(ends)
        result.append(lane)
    return np.array(result, np.int64)


@dataclass(frozen=True)
class Rectangles:
    """One entry a rectangle, ordered by depth and start; on one depth none overlaps another.

    count: events behind it; covered: how much of it they cover, ns; longest: position (in what was given) of the longest of
    them; category: of which most of its time is. merged_below: events shorter than that may be merged, 0 if none was.
    of_event: for each event given, the rectangle that stands for it.
    """

    start: Ints
    end: Ints
    depth: Ints
    category: Ints
    count: Ints
    covered: Ints
    longest: Ints
    merged_below: int
    of_event: Ints

    def __len__(self) -> int:
        return len(self.start)


def rectangles(start: Ints, end: Ints, depth: Ints, category: Ints, most: int, narrow: int) -> Rectangles:
    """At most `most` rectangles (at least one a depth) for events that do not overlap on a depth and are not empty.

    narrow: what is too short to tell apart, ns; half as much again, and again, where that leaves too many.
    """
    order = np.lexsort((start, depth))
    s, e, d = start[order], end[order], depth[order]
    first, below = np.ones(len(s), bool), 0
    limit = max(narrow, 1)
    while len(s) and int(first.sum()) > most:
        below = limit
        short = e - s < limit
        first[1:] = ~(short[1:] & short[:-1]) | (d[1:] != d[:-1]) | (s[1:] - e[:-1] >= limit)
        if int(first.sum()) == int((np.diff(d) > 0).sum()) + 1:
            break  # one a depth is the least
        limit += (limit + 1) // 2
    group = np.cumsum(first) - 1
    at = np.flatnonzero(first)
    length = e - s
    groups = len(at)
    by_length = np.lexsort((-np.arange(len(s)), length))  # of equally long ones the first
    longest = np.zeros(groups, np.int64)
    longest[group[by_length]] = order[by_length]
    of_event = np.empty(len(s), np.int64)
    of_event[order] = group
    return Rectangles(
        start=s[at],
        end=e[np.append(at[1:], len(s)) - 1] if groups else e,
        depth=d[at],
        category=_heaviest(group, groups, category[order], length),
        count=np.bincount(group, minlength=groups),
        covered=np.add.reduceat(length, at) if groups else length,
        longest=longest,
        merged_below=below,
        of_event=of_event,
    )


def _heaviest(group: Ints, groups: int, category: Ints, weight: Ints) -> Ints:
    """For each group the category with most weight, the lowest of equals."""
    kinds = int(category.max(initial=0)) + 1
    key, place = np.unique(group * kinds + category, return_inverse=True)
    total = np.bincount(place, weights=weight, minlength=len(key))
    result = np.zeros(groups, np.int64)
    order = np.lexsort((-key, total))
    result[key[order] // kinds] = key[order] % kinds
    return result


def fewer(intervals: IntervalSet, most: int) -> IntervalSet:
    """At most `most` (1 or more) intervals that cover the set: those with the smallest gaps between them are joined."""
    start, end = intervals
    if len(start) <= most:
        return intervals
    gaps = start[1:] - end[:-1]
    kept = np.sort(np.argsort(-gaps, kind="stable")[: most - 1])
    return start[np.append(0, kept + 1)], end[np.append(kept, len(end) - 1)]


def thinned(time: Ints, value: npt.NDArray[np.float64] | Ints, most: int) -> Ints:
    """Positions of at most `most` (4 or more) points of a curve, ordered by time, that keep its lows and highs.

    Of every slice of time the first, the last, the lowest and the highest point are kept (Jugel et al., "M4", VLDB 2014).
    """
    if len(time) <= most:
        return np.arange(len(time))
    slices = most // 4
    span = max(int(time[-1]) - int(time[0]), 1)
    place = np.minimum(((time - time[0]).astype(float) / span * slices).astype(np.int64), slices - 1)
    first = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1])))
    order = np.lexsort((value, place))
    last = np.append(first[1:], len(time)) - 1
    return np.unique(np.concatenate([first, last, order[first], order[last]]))
