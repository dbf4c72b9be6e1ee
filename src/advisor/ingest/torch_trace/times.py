"""Microseconds as a trace writes them -> exact integer nanoseconds."""

from __future__ import annotations

import re
from array import array
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt

NO_TIME = -(1 << 63)
EARLIEST = -(1 << 58)  # ns: below lies no time; the others are as far from it as 64 bits reach
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


def _one(value: Any, missing: int, coarse: bool) -> int:
    if isinstance(value, bool) or value is None or value == "" or value != value:  # NaN
        return missing
    if isinstance(value, int):
        return value * 1000 if abs(value) <= _MOST else NO_TIME
    if isinstance(value, float):
        if abs(value) >= _COARSE and not coarse:
            raise NeedsText
        return round(value * 1000) if abs(value) <= _MOST else NO_TIME
    if isinstance(value, str):
        return from_text(value)
    text = bytes(value).decode("ascii", "replace").strip('"')  # msgspec.Raw
    return missing if text in ("", "null") else from_text(text)


def nanoseconds(values: list[Any], missing: int = NO_TIME, *, coarse: bool = False) -> Times:
    """Nanoseconds of many decoded values; NO_TIME where there is none, `missing` for null and absent ones.

    Raises NeedsText if doubles among the values are too coarse, unless `coarse` takes them as they are.
    """
    try:
        whole = np.frombuffer(array("q", values), np.int64)
    except (TypeError, OverflowError):
        pass
    else:
        if not len(whole) or max(abs(int(whole.max())), abs(int(whole.min()))) <= _MOST:
            return whole * 1000
        return _one_by_one(values, missing, coarse)
    try:
        real = np.frombuffer(array("d", values), np.float64)
    except (TypeError, OverflowError):
        return _nanoseconds_of_strings(values, missing, coarse)
    if bool((np.abs(real) < (_MOST if coarse else _COARSE)).all()):
        return np.rint(real * 1000).astype(np.int64)
    return _one_by_one(values, missing, coarse)


def nanoseconds_of_texts(values: list[Any], missing: int = NO_TIME) -> Times:
    """As `nanoseconds`, for raw JSON text."""
    found = _by_columns(b" ".join(values).replace(b'"', b""), len(values))
    return _one_by_one(values, missing) if found is None else found


def _nanoseconds_of_strings(values: list[Any], missing: int, coarse: bool) -> Times:
    try:
        found = _by_columns(" ".join(values).encode(), len(values))
    except TypeError:
        found = None
    return _one_by_one(values, missing, coarse) if found is None else found


def _by_columns(text: bytes, n: int) -> Times | None:
    """`n` texts of equal width, joined by blanks; None if they are of another form."""
    width, rest = divmod(len(text) + 1, max(n, 1))
    if width < 6 or rest:
        return None
    return _of_equal_width(np.frombuffer(text + b" ", np.uint8).reshape(n, width))


def _of_equal_width(grid: npt.NDArray[np.uint8]) -> Times | None:
    """Rows of characters like b"1704161511420306.491 ", None if any is of another form or too large."""
    digits = np.delete(grid, [-5, -1], axis=1)
    if not (
        bool((grid[:, -1] == ord(" ")).all())
        and bool((grid[:, -5] == ord(".")).all())
        and digits.shape[1] <= 19
        and bool(((digits >= ord("0")) & (digits <= ord("9"))).all())
    ):
        return None
    found: Times = (digits - np.uint8(ord("0"))).astype(np.int64) @ 10 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)
    return found if bool(((found >= 0) & (found <= _MOST * 1000)).all()) else None


def _one_by_one(values: list[Any], missing: int, coarse: bool = False) -> Times:
    return np.array([_one(v, missing, coarse) for v in values], np.int64)
