"""Reading the event array, or one process's share of its blocks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from advisor.ingest.torch_trace.columns import Builder
from advisor.ingest.torch_trace.repair import Careful, Mended, Reader
from advisor.ingest.torch_trace.scan import EventText, Window
from advisor.ingest.torch_trace.times import NeedsText

_LONGEST_EVENT = 1 << 26


class NeedsOneProcess(Exception):
    """The text cannot be split: an event lies across two blocks in a way that a boundary does not show."""


@dataclass
class Share:
    """What came of some blocks of the array. `rest` is the text behind the array's end, if that lay in one of the blocks."""

    builder: Builder = field(default_factory=Builder)
    mended: Mended = field(default_factory=Mended)
    rest: Window | None = None


def read_alone(text: EventText) -> Share:
    """All blocks."""
    share, reader, carry, index = Share(), Reader(), b"", 0
    with _no_collection():
        while (block := text.block(index)) is not None:
            index += 1
            whole = carry + block.text
            taken = _take(whole, block.last or len(whole) > _LONGEST_EVENT, reader, share.builder)
            if taken.array_end is not None:
                share.rest = text.rest(whole[taken.array_end + 1 :])
                break
            carry = whole[taken.read :]
            if carry and not block.open:
                carry += b","
            if block.last:
                break
    share.mended = reader.mended
    return share


def _take(text: bytes, at_end: bool, reader: Reader, builder: Builder) -> Careful:
    while True:
        rows = reader.strict(text)
        taken = Careful(rows, len(text)) if rows is not None else reader.careful(text, at_end)
        try:
            builder.add(taken.events, reader.exact)
        except NeedsText:
            reader.exact = True
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
