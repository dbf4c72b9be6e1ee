"""Call stacks of a snapshot as one text each: 'file(line): function' and operators, joined by ';', innermost first.

Frames of C++ name the operator (aten::mm) and whether autograd ran it; beyond that they say nothing to a user of Python.
"""

from __future__ import annotations

import re
from typing import Any

from advisor.model import Strings

BACKWARD = "autograd::engine"  # stands for the frames of autograd's threads, which have no Python frames

_OPERATOR = re.compile(r"^at::_ops::(\w+?)(_(?:out|Tensor|Scalar|default|\w+_out))?::(?:call|redispatch)\b")
_ENGINE = "torch::autograd::Engine::"
_PYTHON = re.compile(r"\.pyx?$|\.ipynb$|^<.*>$|^/tmp/ipykernel|\[\d+\]$")
_MOST_FRAMES = 200
_LONGEST = 300  # characters of a frame


class Stacks:
    """Lists of frames -> code of their text, -1 for an empty one. A list that comes again as the same object is looked up."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._lists: dict[int, tuple[list[Any], int]] = {}
        self._frames: dict[int, tuple[Any, str]] = {}

    def code(self, frames: Any) -> int:
        if not isinstance(frames, list) or not frames:
            return -1
        known = self._lists.get(id(frames))
        if known is None:
            if len(self._lists) > 200_000:  # a writer that shares nothing: equal texts still are one
                self._lists.clear()
            known = self._lists[id(frames)] = (frames, self._code(frames))
        return known[1]

    def _code(self, frames: list[Any]) -> int:
        parts: list[str] = []
        for frame in frames[:_MOST_FRAMES]:
            text = self._text(frame)
            if text and (not parts or parts[-1] != text):
                parts.append(text)
        return self._strings.code(";".join(parts)) if parts else -1

    def _text(self, frame: Any) -> str:
        known = self._frames.get(id(frame))
        if known is None:
            if len(self._frames) > 200_000:
                self._frames.clear()
            known = self._frames[id(frame)] = (frame, frame_text(frame))
        return known[1]


def frame_text(frame: Any) -> str:
    """One frame {name, filename, line} as text, empty for what is no place in Python and no operator.

    >>> frame_text({"name": "step", "filename": "/home/ann/train.py", "line": 7})
    '/home/ann/train.py(7): step'
    >>> frame_text({"name": "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "filename": "??", "line": 0})
    'aten::mm'
    """
    if not isinstance(frame, dict):
        return ""
    name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
    if not isinstance(name, str) or not isinstance(file, str):
        return ""
    if _PYTHON.search(file):
        number = line if isinstance(line, int) else 0
        return f"{file[-_LONGEST:]}({number}): {name[:_LONGEST]}".replace(";", ",")
    if found := _OPERATOR.match(name[:_LONGEST]):
        return f"aten::{found[1]}"
    return BACKWARD if name.startswith(_ENGINE) else ""
