"""Bytes of a log -> lines of text, whatever wrote them: UTF-8, UTF-16, byte order marks, runs of NUL, CRLF, terminal escapes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

_BLOCK = 1 << 20
_LONGEST = 1 << 20  # a longer line is handed on in pieces, so that no file can fill the memory with one line

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_FORWARD = re.compile(r"\x1b\[(\d{0,3})C")
_MOVES = re.compile(r"\x1b\[[0-9;]*[ABEFHfd]|\x1b[EDM]")  # the cursor goes to another line
_ESCAPES = re.compile(r"\x1b\[[0-9;?<=>]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[()*+][0-9A-Za-z]|\x1b.?")


def encoding(head: bytes) -> str:
    """Name of the encoding, by the byte order mark or, without one, by where the NUL bytes of UTF-16 stand."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    sample = head[:512]
    even, odd = sample[0::2], sample[1::2]
    if odd and odd.count(0) > 0.8 * len(odd) and even.count(0) < 0.2 * len(even):
        return "utf-16-le"
    if even and even.count(0) > 0.8 * len(even) and odd.count(0) < 0.2 * len(odd):
        return "utf-16-be"
    return "utf-8"


def plain(text: str) -> str:
    """`text` without NUL, byte order marks and terminal escapes; every line end is a newline.

    An escape that moves the cursor to another line ends the line, as `watch` draws its screen with such.
    """
    if "\0" in text:
        text = text.replace("\0", "")
    if "\ufeff" in text:
        text = text.replace("\ufeff", "")
    if "\x1b" in text:
        text = _FORWARD.sub(lambda move: " " * min(int(move[1] or 1), 200), text)
        text = _ESCAPES.sub("", _MOVES.sub("\n", text))
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def head_lines(head: bytes) -> list[str]:
    """The whole lines that the first bytes of a file hold (its only line, if it has no end)."""
    text = plain(head.decode(encoding(head), errors="replace"))
    lines = text.split("\n")
    return lines[:-1] if len(lines) > 1 and len(head) >= 4096 else lines


class LineReader:
    """Iterates over lists of whole lines. After the end `terminated` tells whether the last line had its end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.terminated = True

    def __iter__(self) -> Iterator[list[str]]:
        decoder = None
        rest = ""
        while block := self._stream.read(_BLOCK):
            if decoder is None:
                decoder = codecs.getincrementaldecoder(encoding(block))(errors="replace")
            text = rest + decoder.decode(block)
            cut = text.rfind("\n") + 1
            if not cut and len(text) >= _LONGEST:
                cut = text.rfind("\r", 0, len(text) - 1) + 1 or len(text)
            rest = text[cut:]
            if cut:
                yield plain(text[:cut]).removesuffix("\n").split("\n")
        if decoder is not None:
            rest += decoder.decode(b"", True)
        rest = plain(rest)
        if rest:
            self.terminated = rest.endswith("\n")
            yield rest.removesuffix("\n").split("\n")
