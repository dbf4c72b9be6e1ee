"""The caching allocator as a memory snapshot tells it: how long each block and segment lived, and what was held when.

A history is a ring: its beginning may be lost, so that nothing can be summed up from zero. What is known for certain is the
state at the end; block by block it is followed backwards from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from advisor.derive.nesting import distinct_rows
from advisor.model import AllocatorAction, BlockState, Run, Table

Ints = npt.NDArray[np.int64]

BEFORE = -1  # begin of what was there when the history begins
_GRAIN = 512  # bytes: every block is a multiple of it
_PRIVATE, _EXPANDABLE = 1, 2


@dataclass(frozen=True)
class Pieces:
    """Blocks or segments through time. Positions count the events of one history, n of them.

    begin: the event that made it, BEFORE if it was there when the history begins; end: the event that ended it, n if it is
    there at the end; stack: code of who made it, -1 unknown; private: of a private pool, expandable: grows in place, both as
    far as the end tells.
    """

    begin: Ints
    end: Ints
    address: Ints
    bytes: Ints
    stack: npt.NDArray[np.int32]
    private: npt.NDArray[np.bool_]
    expandable: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.begin)

    def at(self, position: int) -> npt.NDArray[np.bool_]:
        """Which exist after the event of that position."""
        return (self.begin <= position) & (self.end > position)


@dataclass(frozen=True)
class History:
    """The allocator of one device of one process. `rows`: its rows of allocator_events in order; time is None if unknown.

    grown: of each event, the bytes by which expandable segments grew (segment_map) or shrank.
    """

    rank: int
    process: int
    device: int
    rows: Ints
    action: npt.NDArray[np.int8]
    addresses: Ints
    time: Ints | None
    blocks: Pieces
    segments: Pieces
    grown: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last(self) -> int:
        """The position of the state at the end."""
        return len(self) - 1

    def totals(self, pieces: Pieces) -> Ints:
        """Bytes of the pieces after each event; one value for the state where there is no event."""
        n = max(len(self), 1)
        change = np.zeros(n + 1, np.int64)
        np.add.at(change, np.maximum(pieces.begin, 0), pieces.bytes)
        np.add.at(change, np.where(pieces.end < len(self), pieces.end, n), -pieces.bytes)
        return np.cumsum(change)[:n]

    def allocated(self) -> Ints:
        """Bytes in use after each event."""
        return self.totals(self.blocks)

    def reserved(self) -> Ints:
        """Bytes held after each event. Expandable segments stand in `segments` as they are at the end."""
        held = self.totals(self.segments)
        return held + (np.cumsum(self.grown) - int(self.grown.sum())) if len(self) else held

    @property
    def peak(self) -> int:
        """Position of the highest allocated total."""
        return int(self.allocated().argmax()) if len(self) else self.last


def histories(run: Run) -> list[History]:
    """One entry a device of a process of which a snapshot tells segments or events, in order."""
    return run.derived(_histories)


def _histories(run: Run) -> list[History]:
    tables = [run.table(name) for name in ("allocator_events", "memory_segments", "memory_blocks")]
    keys = [np.concatenate([table[name] for table in tables]) for name in ("rank", "process", "device")]
    owners, index = distinct_rows(*keys)
    bounds = np.cumsum([0, *map(len, tables)])
    result = []
    for number, (rank, process, device) in enumerate(owners):
        events, segments, blocks = (np.flatnonzero(index[low:high] == number) for low, high in pairwise(bounds.tolist()))
        result.append(_history((rank, process, device), tables, events, segments, blocks))
    return result


def _history(key: tuple[int, int, int], tables: list[Table], rows: Ints, segments: Ints, blocks: Ints) -> History:
    events, state, ends = tables[0].take(rows), tables[1].take(segments), tables[2].take(blocks)
    action, known = events["action"], events.known("time")
    live = ends.take(ends["state"] == int(BlockState.ALLOCATED))
    grows = np.isin(action, (int(AllocatorAction.SEGMENT_MAP), int(AllocatorAction.SEGMENT_UNMAP)))
    sign = np.where(action == int(AllocatorAction.SEGMENT_MAP), 1, -1)
    kind = (state["private"] == 1) * _PRIVATE + (state["expandable"] == 1) * _EXPANDABLE
    of_segment = dict(zip(state["address"].tolist(), kind.tolist(), strict=True))
    of_block = np.array([of_segment.get(address, 0) for address in live["segment"].tolist()], np.int64)
    return History(
        *key,
        rows=rows,
        action=action,
        addresses=events["address"],
        time=_times(events["time"], known) if known.any() else None,
        blocks=_pieces(events, AllocatorAction.ALLOC, AllocatorAction.FREE_REQUESTED, live, of_block),
        segments=_pieces(events, AllocatorAction.SEGMENT_ALLOC, AllocatorAction.SEGMENT_FREE, state, kind),
        grown=np.where(grows, sign * np.maximum(events["bytes"], 0), 0),
    )


def _times(time: Ints, known: npt.NDArray[np.bool_]) -> Ints:
    """Times in the order of events: an event without one happened when the last one before it did."""
    place = np.maximum.accumulate(np.where(known, np.arange(len(time)), -1))
    return np.where(place >= 0, time[np.maximum(place, 0)], time[known][0])


def _pieces(events: Table, begins: AllocatorAction, ends: AllocatorAction, state: Table, kind: Ints) -> Pieces:
    """Pairs of begin and end at one address, and what is there at the end."""
    n = len(events)
    usable = np.isin(events["action"], (int(begins), int(ends))) & events.known("address") & events.known("bytes")
    rows = np.flatnonzero(usable)
    position = np.concatenate((rows, np.full(len(state), n)))
    address = np.concatenate((events["address"][rows], state["address"]))
    size = np.concatenate((events["bytes"][rows], state["bytes"]))
    stack = np.concatenate((events["stack"][rows], state["stack"]))
    begin = np.concatenate((events["action"][rows] == int(begins), np.zeros(len(state), bool)))
    kept = np.concatenate((np.zeros(len(rows), np.int64), np.asarray(kind, np.int64)))
    if begins == AllocatorAction.ALLOC:  # events state what was asked for
        size[: len(rows)] = -(-size[: len(rows)] // _GRAIN) * _GRAIN
    order = np.lexsort((position, address))
    position, address, size, stack, begin, kept = (part[order] for part in (position, address, size, stack, begin, kept))
    same = np.append(address[1:] == address[:-1], False)  # the next row is of the same address
    after = np.append(np.arange(1, len(order)), 0)
    # From a begin to whatever comes next at its address.
    left = np.flatnonzero(begin)
    closed = same[left]
    close = after[left]
    final = closed & (position[close] == n)
    made = (
        position[left], np.where(closed, position[close], n), address[left], np.where(final, size[close], size[left]),
        np.where(stack[left] >= 0, stack[left], np.where(final, stack[close], -1)), np.where(final, kept[close], 0),
    )  # fmt: skip
    # An end, or a state, before which no begin was seen at its address.
    follows_begin = np.zeros(len(order), bool)
    follows_begin[close[closed]] = True
    lone = np.flatnonzero(~begin & ~follows_begin)
    previous = lone - 1
    again = (previous >= 0) & same[np.maximum(previous, 0)]
    there = position[lone] == n
    found = (
        np.where(again, position[np.maximum(previous, 0)], BEFORE), position[lone], address[lone], size[lone],
        np.where(there, stack[lone], -1), kept[lone],
    )  # fmt: skip
    columns = [np.concatenate(pair) for pair in zip(made, found, strict=True)]
    begin_at, end_at, where, length, who, flags = columns
    return Pieces(
        begin=begin_at.astype(np.int64),
        end=end_at.astype(np.int64),
        address=where.astype(np.int64),
        bytes=length.astype(np.int64),
        stack=who.astype(np.int32),
        private=(flags & _PRIVATE) > 0,
        expandable=(flags & _EXPANDABLE) > 0,
    )
