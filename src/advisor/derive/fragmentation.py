"""Free memory inside what the allocator holds: holes beside blocks in use, whole free segments (cache), private pools."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.derive.allocator import BEFORE, History, Ints, histories
from advisor.model import Run


@dataclass(frozen=True)
class Held:
    """What one allocator held after one event, bytes.

    holes: free in segments that also hold blocks in use, which only fits what is small enough; cached: what else is free, which
    the allocator gives back to the driver when it has to: whole segments, and pages of expandable ones; private: free in
    private pools, which other allocations cannot use; largest: the largest free piece that any allocation could use.
    hole_sizes: every hole, the largest first.
    """

    position: int
    allocated: int
    reserved: int
    holes: int
    cached: int
    private: int
    largest: int
    largest_hole: int
    segments: int
    hole_sizes: Ints


def held(history: History, position: int) -> Held:
    """The state after the event of that position; `history.last` is the state at the end."""
    blocks, segments = history.blocks, history.segments
    here = segments.at(position) if len(history) else np.ones(len(segments), bool)
    order = np.argsort(segments.address[here], kind="stable")
    start, length = segments.address[here][order], segments.bytes[here][order].copy()
    private, expandable = segments.private[here][order], segments.expandable[here][order]
    _resize(history, position, start, length)
    live = blocks.at(position) if len(history) else np.ones(len(blocks), bool)
    by_address = np.argsort(blocks.address[live], kind="stable")
    address, size = blocks.address[live][by_address], blocks.bytes[live][by_address]
    owner = np.searchsorted(start, address, side="right") - 1
    inside = (owner >= 0) & (address < (start + length)[np.maximum(owner, 0)]) if len(start) else np.zeros(len(address), bool)
    address, size, owner = address[inside], size[inside], owner[inside]
    # Free pieces lie between the ends of blocks, and the bounds, of one segment.
    every = np.concatenate((np.arange(len(start)), owner, np.arange(len(start))))
    low = np.concatenate((start, address, start + length))
    high = np.concatenate((start, address + size, start + length))
    line = np.lexsort((high, low, every))
    every, low, high = every[line], low[line], high[line]
    pair = every[1:] == every[:-1]
    free = np.where(pair, np.maximum(low[1:] - np.maximum.accumulate(high)[:-1], 0), 0) if len(every) else np.zeros(0, np.int64)
    of = every[:-1] if len(every) else np.zeros(0, np.int64)
    used = np.bincount(owner, weights=None, minlength=len(start)) > 0
    in_hole = (used & ~private & ~expandable)[of]
    holes = np.sort(free[in_hole & (free > 0)])[::-1]
    open_to_all = free[~private[of]]
    return Held(
        position=position,
        allocated=int(blocks.bytes[live].sum()),
        reserved=int(length.sum()),
        holes=int(holes.sum()),
        cached=int(free[~in_hole & ~private[of]].sum()),
        private=int(free[private[of]].sum()),
        largest=int(open_to_all.max()) if len(open_to_all) else 0,
        largest_hole=int(holes[0]) if len(holes) else 0,
        segments=len(start),
        hole_sizes=holes,
    )


def _resize(history: History, position: int, start: Ints, length: Ints) -> None:
    """Give expandable segments, which stand there as they are at the end, the length that they had."""
    later = np.flatnonzero(history.grown[position + 1 :]) + position + 1 if len(history) else np.zeros(0, np.int64)
    if not len(later) or not len(start):
        return
    owner = np.searchsorted(start, history.addresses[later], side="right") - 1
    owned = owner >= 0
    np.subtract.at(length, owner[owned], history.grown[later[owned]])
    np.maximum(length, 0, out=length)


@dataclass(frozen=True)
class MemoryLine:
    """The memory of one allocator over its history: arrays with one value after each event, bytes.

    time: ns, None where the events carry none (their order is all that is known). allocated: in use; reserved: held;
    holes: as in `Held`. peak: position of the highest allocated.
    """

    rank: int
    process: int
    device: int
    time: Ints | None
    allocated: Ints
    reserved: Ints
    holes: Ints
    peak: int


def memory_lines(run: Run) -> list[MemoryLine]:
    """One entry a device of a process whose snapshot holds a history."""
    return run.derived(_memory_lines)


def _memory_lines(run: Run) -> list[MemoryLine]:
    return [
        MemoryLine(
            one.rank, one.process, one.device, one.time, one.allocated(), one.reserved(), _holes(one), one.peak
        )
        for one in histories(run)
        if len(one)
    ]  # fmt: skip


def _holes(history: History) -> Ints:
    """Bytes of holes after each event, segment by segment."""
    blocks, segments, n = history.blocks, history.segments, len(history)
    change = np.zeros(n + 1, np.int64)
    order = np.argsort(blocks.address, kind="stable")
    address = blocks.address[order]
    for row in np.flatnonzero(~segments.private & ~segments.expandable).tolist():
        first, size = int(segments.address[row]), int(segments.bytes[row])
        low, high = np.searchsorted(address, (first, first + size))
        mine = order[low:high]
        mine = mine[(blocks.begin[mine] >= segments.begin[row]) & (blocks.begin[mine] < segments.end[row])]
        if not len(mine):
            continue
        _add_segment(change, n, blocks.begin[mine], blocks.end[mine], blocks.bytes[mine], size)
    return np.maximum(np.cumsum(change[:n]), 0)


def _add_segment(change: Ints, n: int, begin: Ints, end: Ints, size: Ints, length: int) -> None:
    """Adds to `change` by how much the holes of one segment change at each event."""
    position, used = np.concatenate((begin, end)), np.concatenate((size, -size))
    order = np.argsort(position, kind="stable")
    position, used = position[order], np.cumsum(used[order])
    free = np.where(used > 0, np.maximum(length - used, 0), 0)
    last = np.append(position[1:] != position[:-1], True)  # of rows at one event the state after all of them
    position, free = position[last], free[last]
    step, inside = np.diff(free, prepend=0), position < n
    np.add.at(change, np.where(position[inside] == BEFORE, 0, position[inside]), step[inside])
