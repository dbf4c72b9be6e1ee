"""Microseconds as a trace writes them -> exact integer nanoseconds."""

from __future__ import annotations

import re
from array import array
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt

NO_TIME = -(1 << 63)
_COARSE = float(1 << 43)  # microseconds from which a double no longer tells three decimals apart
_MOST = (1 << 62) // 1000  # microseconds from which nanoseconds come near the end of 64 bits
_PLAIN = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,3}))?")

Times = npt.NDArray[np.int64]


class NeedsText(Exception):
    """A number was decoded as a double that is too coarse for nanoseconds; decode the raw text instead."""


def from_text(text: str) -> int:
    """Nanoseconds of decimal microseconds, NO_TIME if it is no number or out of range."""
    plain = _PLAIN.fullmatch(text)
    if plain and int(plain[1]) <= _MOST:
        return int(plain[1]) * 1000 + int((plain[2] or "").ljust(3, "0"))
    try:
        value = Decimal(text)
    except InvalidOperation:
        return NO_TIME
    if not value.is_finite() or abs(value) > _MOST:
        return NO_TIME
    return int((value * 1000).to_integral_value())


def _one(value: Any, missing: int) -> int:
    if isinstance(value, bool) or value is None or value == "" or value != value:  # NaN
        return missing
    if isinstance(value, int):
        return value * 1000 if abs(value) <= _MOST else NO_TIME
    if isinstance(value, float):
        if abs(value) >= _COARSE:
            raise NeedsText
        return round(value * 1000)
    if isinstance(value, str):
        return from_text(value)
    text = bytes(value).decode("ascii", "replace").strip('"')  # msgspec.Raw
    return missing if text in ("", "null") else from_text(text)


def nanoseconds(values: list[Any], missing: int = NO_TIME) -> Times:
    """Nanoseconds of many decoded values; NO_TIME where there is none, `missing` for null and absent ones.

    Raises NeedsText if doubles among the values are too coarse.
    """
    try:
        whole = np.frombuffer(array("q", values), np.int64)
    except (TypeError, OverflowError):
        pass
    else:
        if not len(whole) or max(abs(int(whole.max())), abs(int(whole.min()))) <= _MOST:
            return whole * 1000
        return np.array([_one(v, missing) for v in values], np.int64)
    try:
        real = np.frombuffer(array("d", values), np.float64)
    except (TypeError, OverflowError):
        return np.array([_one(v, missing) for v in values], np.int64)
    if bool((np.abs(real) < _COARSE).all()):
        return np.rint(real * 1000).astype(np.int64)
    return np.array([_one(v, missing) for v in values], np.int64)


def nanoseconds_of_texts(values: list[Any], missing: int = NO_TIME) -> Times:
    """As `nanoseconds`, for raw JSON text."""
    text = b" ".join(values).replace(b'"', b"")
    if text.count(b".") == len(values) and _all_three_decimals(text, len(values)):
        found = np.array(text.replace(b".", b"").split(b" "), np.uint64)
        if int(found.max()) <= _MOST * 1000:
            return found.astype(np.int64)
    return np.array([_one(v, missing) for v in values], np.int64)


def _all_three_decimals(text: bytes, n: int) -> bool:
    raw = np.frombuffer(text + b" ", np.uint8)
    points, gaps = np.flatnonzero(raw == ord(".")), np.flatnonzero(raw == ord(" "))
    digits = (raw >= ord("0")) & (raw <= ord("9"))
    return (
        len(points) == len(gaps) == n
        and bool((gaps - points == 4).all())
        and int(digits.sum()) == len(raw) - 2 * n
        and int(np.diff(points, prepend=-4).max()) <= 20
    )
