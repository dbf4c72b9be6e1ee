"""Text -> code, for the texts that repeat in a trace: names, shapes, stacks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Raw, json

from advisor.ingest.torch_trace.events import ANY
from advisor.model import Strings

_CACHE_SIZE = 1 << 17  # raw texts remembered; a text beyond that only costs a second look-up
_TEXT_BUDGET = 48 << 20  # bytes of distinct argument text kept
_TEXT_MOST = 1 << 15  # bytes of one argument text
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_HOME = re.compile(r"(?:^|(?<=;))(?:/root|(?:/home|/Users|[A-Za-z]:\\Users)[/\\][^/\\;(]+)[/\\]")
_VERSION = re.compile(r"(?:_v\d+)?(?:_pt[sd][sz])?$")


class Names(dict[str, int]):
    """Code of a name after `clean`; new names are added to `strings`. `numbered`: codes of names with a '#'."""

    def __init__(self, strings: Strings, clean: Callable[[str], str] | None = None) -> None:
        super().__init__()
        self._strings, self._clean = strings, clean
        self.numbered: set[int] = set()

    def __missing__(self, name: str) -> int:
        if len(self) >= _CACHE_SIZE:
            self.clear()
        code = self[name] = self._strings.code(self._clean(name) if self._clean else name)
        if "#" in name:
            self.numbered.add(code)
        return code


class Texts(dict[bytes, int]):
    """Code of an argument's JSON text, -1 for an absent one. Text beyond the budget is left out and counted."""

    def __init__(self, strings: Strings, clean: Callable[[str], str] | None = None) -> None:
        super().__init__({b"": -1, b"null": -1, b'""': -1})
        self._strings, self._clean = strings, clean
        self._left = _TEXT_BUDGET
        self.left_out = 0

    def codes(self, raws: list[Raw]) -> list[int]:
        """Codes of many raw texts."""
        # Joined and split they become bytes in half the time of one by one; no JSON text holds a NUL.
        return list(map(self.__getitem__, b"\0".join(raws).split(b"\0"))) if raws else []

    def __missing__(self, raw: bytes) -> int:
        if len(raw) > _TEXT_MOST or len(raw) > self._left:
            self.left_out += 1
            return -1
        self._left -= len(raw) + 100  # the dictionary's own share
        try:
            text = json.format(raw, indent=0).decode()  # the same in every layout
        except ValueError:
            text = raw.decode("utf-8", "replace")
        code = self[raw] = self._strings.code(self._clean(text) if self._clean else text)
        return code


def api_name(name: str) -> str:
    """cuMemcpyHtoDAsync_v2 -> cuMemcpyHtoDAsync."""
    return _VERSION.sub("", name)


def frame_name(name: str) -> str:
    """Without object addresses (each call would be a name of its own) and without the user's home directory."""
    return _HOME.sub("~/", _ADDRESS.sub("", name))


def plain(text: str) -> str:
    """A JSON string's content; any other JSON text as it is."""
    value: Any = None
    if text.startswith('"'):
        try:
            value = ANY.decode(text.encode())
        except ValueError:
            return text.strip('"')
    return value if isinstance(value, str) else text


def stack_text(text: str) -> str:
    return _HOME.sub("~/", plain(text))
