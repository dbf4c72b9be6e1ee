"""Values of detectors as plain data for a report: no NumPy, no NaN, no control characters, no private folders."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from advisor.derive.paths import short_path
from advisor.model import Location

REDACTED = "(redacted)"

_PATH = r"(?:[A-Za-z]:)?[\\/](?:[^\s\\/:;,'\"()<>|]+[\\/])+[^\s\\/:;,'\"()<>|]*"
_SCRIPT = r"[^\s:;,'\"()<>|]+\.(?:pyx?|ipynb)\b"
# An absolute path of at least two parts, or anything that ends like a Python file; not the inside of a URL.
_PLACE = re.compile(rf"(?<![\w:/\\.])(?:{_PATH}|{_SCRIPT})")
_PLACE_AND_LINE = re.compile(rf"(?<![\w:/\\.])(?:{_PATH}|{_SCRIPT})(?:\(\d+\)|:\d+)?(?::\s*[\w.<>]+)?")
_LONGEST = 4000  # characters of a text; longer ones come from damaged or hostile files


# Words of detectors that speak of steps -> the same of a recording without any.
_STEPLESS = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r"\b(?:in|at the begin of) (?:all )?steady steps\b", "in the recording"),
        (r"\b(?:in a|per|a) (?:steady )?step\b", "in the recording"),
        (r"\b(of|in) (?:each|the|every) step\b", r"\1 the recording"),
        (r"\bEach step\b", "The recording"),
    )
]


def stepless(text: str) -> str:
    """A text for a recording in which no step was found: what it says of a step is said of the whole.

    >>> stepless("27 copies a step, 11% of the step")
    '27 copies in the recording, 11% of the recording'
    """
    for pattern, words in _STEPLESS:
        text = pattern.sub(words, text)
    return text


def plain(value: Any, redact: bool = False) -> Any:
    """`value` as JSON knows it. With `redact`, what looks like a source location is taken out of texts."""
    if isinstance(value, str):
        return plain_text(value, redact)
    if isinstance(value, dict):
        return {str(key): plain(item, redact) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [plain(item, redact) for item in value.tolist()]
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [plain(item, redact) for item in items]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)  # an IntEnum is its number
    text = str(value)
    # A default repr holds an address, which differs from run to run.
    return f"<{type(value).__name__}>" if " at 0x" in text else plain_text(text, redact)


def plain_text(text: str, redact: bool = False, longest: int | None = _LONGEST) -> str:
    """`text` on one line, printable, with places shortened or taken out; at most `longest` characters of it."""
    cut = longest is not None and len(text) > longest
    text = "".join(c if c.isprintable() else " " for c in text[:longest]).strip() + ("..." if cut else "")
    if redact:
        return _PLACE_AND_LINE.sub(REDACTED, text)
    return _PLACE.sub(lambda match: short_path(match[0]), text)


def plain_location(place: Location) -> Location:
    share = None if place.share is None else float(place.share)
    return Location(
        file=short_path(plain_text(place.file)),
        line=None if place.line is None or place.line < 0 else int(place.line),
        function=None if place.function is None else plain_text(place.function),
        share=round(share, 4) if share is not None and 0 <= share <= 1 else None,
    )
