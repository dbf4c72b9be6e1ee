"""Reading the event array, or one process's share of its blocks."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from advisor.ingest.torch_trace.columns import Builder
from advisor.ingest.torch_trace.events import is_begin
from advisor.ingest.torch_trace.metadata import Members, read_tail
from advisor.ingest.torch_trace.repair import Careful, Reader
from advisor.ingest.torch_trace.scan import EventText
from advisor.ingest.torch_trace.times import NeedsText

UNIT = 8  # blocks that a process takes at a time
_LONGEST_EVENT = 1 << 24


class NeedsOneProcess(Exception):
    """The text cannot be shared out: an event lies across blocks in a way no boundary shows, or rows belong in pairs."""


@dataclass
class Share:
    """What came of some units of the array.

    `marks`: (unit, rows of each table after it), in rising order. `tail`: the members behind the array, if it ended in the
    share's last unit.
    """

    builder: Builder = field(default_factory=Builder)
    marks: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    dropped: list[tuple[int, Counter[str]]] = field(default_factory=list)
    repaired: int = 0
    tail: Members | None = None

    def mark(self, unit: int, reader: Reader) -> None:
        self.marks.append((unit, self.builder.rows()))
        self.builder.dropped, seen = Counter(), self.builder.dropped
        reader.dropped, lost = Counter(), reader.dropped
        if seen or lost:
            self.dropped.append((unit, seen + lost))
        self.repaired = reader.repaired

    def pair_halves(self) -> None:
        """Turn begin and end rows into complete events: an end closes the innermost open begin of its thread."""
        builder, alone = self.builder, 0
        stacks: dict[Any, list[Any]] = {}
        for time, event in sorted(builder.halves, key=itemgetter(0)):
            stack = stacks.setdefault((event.pid, event.tid), [])
            if is_begin(event):
                stack.append((time, event))
            elif stack:
                start, opening = stack.pop()
                builder.add_complete(opening, start, time)
            else:
                alone += 1
        alone += sum(map(len, stacks.values()))
        builder.halves.clear()
        self.marks.append((0, builder.rows()))
        if alone:
            self.dropped.append((0, Counter({"begin or end without the other": alone})))


def read_alone(text: EventText) -> Share:
    """All blocks, as one unit."""
    share, reader, carry, index = Share(), Reader(text.bare), b"", 0
    with _no_collection():
        while (block := text.block(index)) is not None:
            index += 1
            if not block.text and not block.last:
                continue
            whole = carry + block.text
            taken = _take(whole, block.last or len(whole) > _LONGEST_EVENT, reader, share.builder)
            if taken.array_end is not None:
                share.tail = read_tail(text.rest(whole[taken.array_end + 1 :]), text.bare)
                break
            carry = whole[taken.read :]
            if carry and not block.open:
                carry += b","
            if block.last:
                break
    share.mark(0, reader)
    return share


def read_units(text: EventText, units: Iterable[int]) -> Share:
    """The given units, in rising order, until the text or the array ends. Raises NeedsOneProcess."""
    share, reader = Share(), Reader(text.bare)
    with _no_collection():
        for unit in units:
            done = _read_unit(text, unit, share, reader)
            share.mark(unit, reader)
            if share.builder.halves:
                raise NeedsOneProcess
            if done:
                break
    return share


def _read_unit(text: EventText, unit: int, share: Share, reader: Reader) -> bool:
    """True if nothing follows."""
    for index in range(unit * UNIT, (unit + 1) * UNIT):
        block = text.block(index)
        if block is None:
            return True
        taken = _take(block.text, block.last, reader, share.builder)
        if taken.array_end is not None:
            share.tail = read_tail(text.rest(block.text[taken.array_end + 1 :]), text.bare)
            return True
        if block.open or taken.read < len(block.text):
            raise NeedsOneProcess
        if block.last:
            return True
    return False


def _take(text: bytes, at_end: bool, reader: Reader, builder: Builder) -> Careful:
    while True:
        before = reader.dropped.copy(), reader.repaired
        rows = reader.strict(text)
        rows = reader.mended(text) if rows is None else rows
        taken = Careful(rows, len(text)) if rows is not None else reader.careful(text, at_end)
        try:
            builder.add(taken.events, reader.exact)
        except NeedsText:
            reader.exact = True
            reader.dropped, reader.repaired = before
            continue
        return taken


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without garbage collection: decoded events hold no cycles, and looking for some costs a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
