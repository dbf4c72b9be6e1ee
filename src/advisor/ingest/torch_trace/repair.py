"""Events out of text that is not quite JSON."""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from advisor.ingest.torch_trace import events

# Between two events. In valid JSON it cannot match inside a string: the quote would end the string, and what follows a
# string's end is punctuation or white space, never a word. It can match inside an event only between objects of a list.
BETWEEN = re.compile(rb'\}\s*,\s*\{\s*"\w')
# A string, whose group is empty if it does not end, or a bracket.
TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[{}\[\]]', re.DOTALL)
_ARRAY_END = re.compile(rb'\]\s*(?:\}|,\s*"|$)')  # the object ends or has another member, or the text ends
_LIST_END = re.compile(rb"\]\s*(?!\s|,)")  # anything but another value
_LAST_EVENT = re.compile(rb"\}\s*" + _ARRAY_END.pattern)
_GAP = re.compile(rb"[ \t\r\n,\0]++")
_FOLLOWS = re.compile(rb"\s*(?:[,\]]|$)")  # behind an event
# Where events go on behind something that is none: in front of an object, or behind the last event.
_RESUME = re.compile(rb'(,\s*)\{\s*"\w|(\}\s*)(?=' + _ARRAY_END.pattern + rb")")
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_ESCAPED = re.compile(_ESCAPE.pattern.encode())
_REPLACED = re.compile("\ufffd".encode())
# A quote inside a string: punctuation neither precedes nor follows it, as it does a string's ends.
_INNER_QUOTE = re.compile(r'(?<![{\[,:\\])(?<![{\[,:]\s)(?<!\s\s)"(?!\s*[,:}\]])')
_DEEPEST = 500
_LONG_SCAN = 1 << 16  # bytes behind a boundary looked through to find where an event ends
# Damage must not make reading slow: how much is tried in a whole text.
_LONG_SCANS = 1 << 25  # bytes behind boundaries
_VAIN_REPAIRS = 20_000


@dataclass
class Careful:
    """Events of a text, how far it was read, and where the array of events ended, if it did."""

    events: list[Any]
    read: int
    array_end: int | None = None


def object_end(text: bytes, start: int, limit: int) -> tuple[int | None, bool]:
    """Position behind the object or array that begins at `start`, None if it does not end before `limit`; and whether it
    cannot go on there either: `limit` lies in a string, or the nesting is deeper than any event's."""
    depth = 0
    for token in TOKEN.finditer(text, start, limit):
        first = text[token.start()]
        if first == 0x22:
            if not token.group(1):
                return None, True
        elif first in b"{[":
            depth += 1
            if depth > _DEEPEST:
                return None, True
        else:
            depth -= 1
            if depth <= 0:
                return token.end(), False
    return None, False


class Reader:
    """Decodes stretches of an event array, strictly where possible, else event by event."""

    def __init__(self, bare: bool) -> None:
        """`bare`: the array is the whole text, not the member of an object."""
        self.bare = bare
        self.exact = False
        self.dropped: Counter[str] = Counter()  # why -> events
        self.repaired = 0  # events that needed a repair
        self._long_scans, self._vain_repairs = _LONG_SCANS, _VAIN_REPAIRS

    def strict(self, text: bytes) -> list[Any] | None:
        """All events of a stretch of well-formed events, None if it is no such stretch."""
        whole = b"[%b]" % text
        try:
            return (events.MANY_EXACT if self.exact else events.MANY).decode(whole)
        except msgspec.ValidationError:
            pass  # well-formed so far, with a value of another type than usual
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None
        try:
            rows = (events.ANY_EXACT if self.exact else events.ANY).decode(whole)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None
        return self._lenient(rows)

    def mended(self, text: bytes) -> list[Any] | None:
        """All events of a stretch whose only faults are backslashes that escape nothing and bytes that are no UTF-8.

        Some writers make these in every event that names a file, so a stretch is mended at once. None if that is not enough.
        """
        if text.count(b"\\") > len(text) // 8:
            return None
        text = text.decode("utf-8", "replace").encode()
        places = [match.start() for match in _ESCAPED.finditer(text) if not match.group(1)]
        fixed = _ESCAPED.sub(lambda m: m.group() if m.group(1) else b"\\\\", text) if places else text
        rows = self.strict(fixed)
        if rows is not None:
            places += [match.start() for match in _REPLACED.finditer(text)]
            bounds = [match.start() for match in BETWEEN.finditer(text)]
            self.repaired += len({bisect(bounds, place) for place in places})
        return rows

    def careful(self, text: bytes, at_end: bool) -> Careful:
        """Events of a stretch one by one. `at_end`: nothing follows this text, so an unfinished event is lost."""
        found: list[Any] = []
        at = stop = 0  # stop: where the stretch ends that is tried at once, at a boundary or the text's end
        last = False
        while True:
            at = _skip_gap(text, at)
            if at >= len(text):
                return Careful(found, len(text))
            if text[at] == 0x5D and self._closes(text, at):  # ]
                return Careful(found, at, at)
            if text[at] != 0x7B:  # {
                onward = _RESUME.search(text, at)
                if onward is None and not at_end:
                    return Careful(found, at)
                self.dropped["not an event"] += 1
                at = len(text) if onward is None else onward.end(onward.lastindex or 0)
                continue
            if at >= stop:
                between = BETWEEN.search(text, at)
                last = between is None
                stop = between.start() + 1 if between else len(text)
                rows = self.strict(text[at:stop])
                if rows is not None:
                    found += rows
                    at = stop
                    continue
            end, unfinished = self._end(text, at, stop)
            if end is None and not at_end and (unfinished or last):
                return Careful(found, at)
            at = self._mend(text, at, stop, end, last, found)

    def _closes(self, text: bytes, at: int) -> bool:
        """Whether the bracket at `at` ends the array: what follows it is not another event."""
        return (_LIST_END if self.bare else _ARRAY_END).match(text, at) is not None

    def _end(self, text: bytes, at: int, stop: int) -> tuple[int | None, bool]:
        """Where the event at `at` ends, if it does; and whether it is well-formed as far as the text goes."""
        end, broken = object_end(text, at, stop)
        if end is not None or broken:
            return end, False
        limit = min(len(text), stop + _LONG_SCAN)  # it may hold a list of objects, and the boundary was one between those
        if limit - at > self._long_scans:
            return None, False
        self._long_scans -= limit - at
        end, broken = object_end(text, at, limit)
        return end, end is None and not broken and limit == len(text)

    def _mend(self, text: bytes, at: int, stop: int, end: int | None, last: bool, found: list[Any]) -> int:
        """Handle the event at `at` that no decoder took together with what follows; returns where to go on."""
        if end is not None and _FOLLOWS.match(text, end):
            rows = self._one(text[at:end])
            if rows is not None:
                found += rows
                return end
            if end <= stop:
                self.dropped["malformed"] += 1
                return end
        if last:
            closing = _LAST_EVENT.search(text, at)
            if closing is None:
                self.dropped["cut off"] += 1
                return len(text)
            stop = closing.start() + 1
        rows = self._one(text[at:stop])
        if rows is None:
            self.dropped["malformed"] += 1
        else:
            found += rows
        return stop

    def _one(self, text: bytes) -> list[Any] | None:
        """The event of a text, repaired if need be; None if that does not help."""
        rows = self.strict(text)
        if rows is None and self._vain_repairs:
            value = repaired(text, self.exact)
            if isinstance(value, dict):
                rows = self._lenient([value])
                self.repaired += len(rows)
            else:
                self._vain_repairs -= 1
        return rows

    def _lenient(self, rows: Any) -> list[Any]:
        found = [events.event(row, self.exact) for row in rows]
        if lost := found.count(None):
            self.dropped["not an event"] += lost
            found = [row for row in found if row is not None]
        return found


def _skip_gap(text: bytes, at: int) -> int:
    gap = _GAP.match(text, at)
    return at if gap is None else gap.end()


def repaired(raw: bytes, exact: bool = False) -> Any:
    """The value of slightly broken JSON text, None if that does not help. `exact`: decimals stay text.

    Mended: bytes that are no UTF-8, control characters, backslashes that escape nothing, NaN and Infinity, quotes inside
    strings that were not escaped.
    """
    text = _CONTROL.sub(" ", raw.decode("utf-8", "replace"))
    text = _ESCAPE.sub(lambda m: m.group() if m.group(1) else "\\\\", text)
    value = _loads(text, exact)
    return _loads(_INNER_QUOTE.sub(r"\"", text), exact) if value is None else value


def _loads(text: str, exact: bool) -> Any:
    try:
        return (events.ANY_EXACT if exact else events.ANY).decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass  # the standard library takes more: NaN, halves of surrogate pairs
    try:
        value = json.loads(text, parse_float=str if exact else None)
        # With halves of pairs replaced, which no output could print.
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
