"""A trace's text in pieces: the members around the event array, and the array in blocks that any process can find alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import BinaryIO

from advisor.ingest.torch_trace.repair import BETWEEN, TOKEN

BLOCK = 1 << 18  # bytes of a block: what is decoded at once
_READ = 1 << 18
_LONGEST_VALUE = 1 << 24  # bytes of a member's value that is kept
_LOOKAHEAD = 1 << 22  # bytes without an event boundary after which a block is given out as it is
_SPACE = re.compile(rb"[ \t\r\n\0]++")
_SCALAR_END = re.compile(rb"[,\]}\s]")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
BOM = b"\xef\xbb\xbf"


class Window:
    """The part of a stream that is being looked at. `at` is the position in `data`."""

    def __init__(self, stream: BinaryIO, data: bytes = b"", at: int = 0) -> None:
        self.stream, self.data, self.at = stream, data, at
        self.ended = False

    def more(self) -> bool:
        """Read on; False at the end. Drops what lies before `at`."""
        part = self.stream.read(_READ)
        self.data = self.data[self.at :] + part
        self.at = 0
        self.ended = not part
        return not self.ended

    def peek(self) -> int:
        """Next byte that is no white space, -1 at the end."""
        while True:
            if space := _SPACE.match(self.data, self.at):
                self.at = space.end()
            if self.at < len(self.data):
                return self.data[self.at]
            if not self.more():
                return -1

    def string(self) -> bytes | None:
        """The string token at `at`, None if it does not end."""
        while True:
            match = TOKEN.match(self.data, self.at)
            if match is None:
                return None
            if match.group(1):
                self.at = match.end()
                return match.group()
            if len(match.group()) > _LONGEST_VALUE or not self.more():
                return None

    def value(self) -> bytes | None:
        """The text of the value at `at`, None if it is too long to keep. Raises EOFError if it does not end."""
        first = self.peek()
        if first == 0x22:
            text = self.string()
            if text is None:
                raise EOFError
            return text
        if first in (0x7B, 0x5B):
            return self._nested()
        while (end := _SCALAR_END.search(self.data, self.at)) is None:
            if len(self.data) - self.at > 4096 or not self.more():
                raise EOFError
        text = self.data[self.at : end.start()]
        self.at = end.start()
        return text

    def _nested(self) -> bytes | None:
        kept: list[bytes] | None = []
        size = depth = 0
        while True:
            stop = self.at
            for token in TOKEN.finditer(self.data, self.at):
                first = self.data[token.start()]
                if first == 0x22:
                    if not token.group(1):
                        break
                elif first in b"{[":
                    depth += 1
                else:
                    depth -= 1
                stop = token.end()
                if depth == 0:
                    break
            else:
                stop = len(self.data)
            size += stop - self.at
            kept = kept if kept is not None and size <= _LONGEST_VALUE else None
            if kept is not None:
                kept.append(self.data[self.at : stop])
            self.at = stop
            if depth == 0:
                return None if kept is None else b"".join(kept)
            if len(self.data) - self.at > _LONGEST_VALUE or not self.more():
                raise EOFError

    def find_events(self) -> bool:
        """Go behind the next `"traceEvents": [`; False if there is none."""
        while True:
            match = _EVENTS.search(self.data, self.at)
            if match:
                self.at = match.end()
                return True
            self.at = max(self.at, len(self.data) - 64)
            if not self.more():
                return False


@dataclass
class Block:
    """A stretch of the event array. `last`: the text ends here; `open`: cut at no boundary although more text follows."""

    text: bytes
    last: bool = False
    open: bool = False


class EventText:
    """The event array that begins at a window's position, in blocks.

    Block k lies between two boundaries: the first whose brace is at or behind byte k * BLOCK of the array (for k = 0, the
    array's begin) and the first whose brace is at or behind byte (k + 1) * BLOCK. So processes that read the same text agree
    on every block, whichever of them each looks at. Blocks are asked for in rising order.
    """

    def __init__(self, window: Window, bare: bool) -> None:
        """`bare`: the array is the whole text, not the member of an object."""
        self.bare = bare
        self._window = window
        self._base = -window.at  # position in the array of the window's first byte
        self._cut = self._next = 0  # where the last block ended and where the next event begins, as positions in the array
        self._next_index = 0

    def block(self, index: int) -> Block | None:
        """Block `index`, None behind the last one. Its text is empty when no event begins in it."""
        low, high = index * BLOCK, (index + 1) * BLOCK
        window = self._window
        if index != self._next_index:
            found = self._boundary(low) if self._skip_to(low) else None
            if found is None:
                return None
            self._cut, self._next = found
        self._next_index = index + 1
        if self._cut > high:
            return Block(b"")
        begin = self._next
        window.at = begin - self._base
        found = self._boundary(max(high, begin))
        self._cut, self._next = found or (self._base + len(window.data),) * 2
        text = window.data[begin - self._base : self._cut - self._base]
        return Block(text, last=found is None and window.ended, open=found is None and not window.ended)

    def rest(self, text: bytes) -> Window:
        """What follows the array, which ended inside the last block; `text` is that block behind the end."""
        return Window(self._window.stream, text + self._window.data[self._cut - self._base :])

    def _skip_to(self, position: int) -> bool:
        """Drop what lies before `position`; False if the text ends before."""
        while self._base + len(self._window.data) <= position:
            self._window.at = len(self._window.data)
            if not self._more():
                return False
        self._window.at = max(self._window.at, position - self._base)
        return True

    def _boundary(self, position: int) -> tuple[int, int] | None:
        """End of the first event that ends at or behind `position` with another following, and that one's begin.

        None if the text ends before, or if there is none in a long stretch.
        """
        window, resume = self._window, position
        while True:
            match = BETWEEN.search(window.data, max(0, resume - self._base))
            if match:
                return match.start() + 1 + self._base, window.data.index(b"{", match.start()) + self._base
            end = self._base + len(window.data)
            if end - position > _LOOKAHEAD:
                return None
            brace = window.data.rfind(b"}", max(0, resume - self._base))
            resume = max(resume, end) if brace < 0 else brace + self._base
            if not self._more():
                return None

    def _more(self) -> bool:
        self._base += self._window.at
        return self._window.more()
