"""Amounts with units as people write them: '120 ms', '70 GiB', '20 %'. The only place where they are read and printed."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, Literal

from advisor.model.verdict import Unit

Quantity = Literal["duration", "bytes", "share", "count"]

_DURATIONS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_SIZES = {"B": 1, **{f"{p}B": 1000**i for i, p in enumerate("kMGT", 1)}, **{f"{p}iB": 1024**i for i, p in enumerate("KMGT", 1)}}
_SCALES: dict[Quantity, dict[str, int]] = {"duration": _DURATIONS, "bytes": _SIZES}
_AMOUNT = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})\s*([A-Za-zµ%]{0,4})\s*")
_LARGEST = 10**18

UNITS: dict[Quantity, Unit] = {"duration": "ns", "bytes": "bytes", "share": "fraction", "count": "count"}
EXAMPLES: dict[Quantity, str] = {"duration": '"120 ms"', "bytes": '"70 GiB"', "share": '"20 %" or 0.2', "count": "4"}
# The same as a JSON Schema: patterns are wider than what is read, for they are for editors.
SCHEMAS: dict[Quantity, dict[str, Any]] = {
    "duration": {"type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+\s*(ns|us|µs|ms|s|min|h)\s*$"},
    "bytes": {"type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+\s*([kMGT]?B|[KMGT]iB)\s*$"},
    "share": {
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": 1},
            {"type": "string", "pattern": r"^\s*([0-9]*\.?[0-9]+\s*%|0?\.[0-9]+|[01](\.0*)?)\s*$"},
        ]
    },
    "count": {"type": "number", "minimum": 0},
}


def parse(quantity: Quantity, value: object) -> int | float:
    """The amount in the base unit: ns and bytes as integers, shares as fractions. ValueError, in words, for anything else.

    Text carries its unit; a number alone is a share (0..1) or a count, since nobody knows the unit of a bare 120.
    """
    if isinstance(value, str):
        return _text(quantity, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"must be {EXAMPLES[quantity]}, not {_shown(value)}")
    if quantity in _SCALES:
        raise ValueError(f"{_shown(value)} has no unit; write for example {EXAMPLES[quantity]}")
    return _plain(quantity, float(value) if abs(value) <= _LARGEST else math.inf)


def _text(quantity: Quantity, text: str) -> int | float:
    found = _AMOUNT.fullmatch(text)
    if not found:
        raise ValueError(f"{_shown(text)} is no amount; write for example {EXAMPLES[quantity]}")
    number, unit = Decimal(found[1]), found[2]
    if quantity in _SCALES:
        scale = _SCALES[quantity].get(unit)
        if scale is None:
            said = f"has the unit {unit!r}" if unit else "has no unit"
            raise ValueError(f"{_shown(text)} {said}; known are {', '.join(_SCALES[quantity])}")
        amount = number * scale
        if amount > _LARGEST:
            raise ValueError(f"{_shown(text)} is out of range")
        return round(amount)
    if unit == "%" and quantity == "share":
        return float(number / 100)
    if unit:
        raise ValueError(f"{_shown(text)} has the unit {unit!r}; write for example {EXAMPLES[quantity]}")
    return _plain(quantity, float(number))


def _plain(quantity: Quantity, number: float) -> float:
    if not 0 <= number <= _LARGEST:
        raise ValueError("must be a finite number from 0 on")
    if quantity == "share" and number > 1:
        raise ValueError(f"{number:g} is no share; write '{number:g} %', or a number from 0 to 1")
    return number


def _shown(value: object) -> str:
    """Text of a configuration or command line, short and on one line."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def told(quantity: Quantity, amount: float) -> str:
    """For people, with enough digits to tell the amount from a limit that it just misses: '120.5 ms', '70 GiB', '3.1 %'."""
    if quantity == "share":
        return f"{_digits(amount * 100)} %"
    if quantity == "count":
        return _digits(amount)
    names = ["ns", "µs", "ms", "s"] if quantity == "duration" else ["B", "KiB", "MiB", "GiB", "TiB"]
    scales = _SCALES[quantity]
    unit = next((name for name in reversed(names) if amount >= scales[name]), names[0])
    return f"{_digits(amount / scales[unit])} {unit}"


def _digits(number: float) -> str:
    """Four significant digits, all of the integer part, no zeros at the end."""
    if number == 0:
        return "0"
    decimals = max(3 - math.floor(math.log10(abs(number))), 0)
    text = f"{number:.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
