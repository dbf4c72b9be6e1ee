"""Time stamps of a log -> nanoseconds, with what is known about the clock that wrote them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
_EPOCH = date(1970, 1, 1)


class Clock(IntEnum):
    """What a stamp counts from."""

    NONE = 0  # no stamp
    LOCAL = 1  # the wall clock of an unknown time zone, as if it were UTC
    UTC = 2
    YEAR_LAST = 3  # as LOCAL, read as month-day-year, but day-month-year is possible too
    TIME_OF_DAY = 4  # midnight
    ELAPSED = 5  # some start


class Stamp(NamedTuple):
    ns: int
    clock: Clock


NO_STAMP = Stamp(0, Clock.NONE)

_TIME = r"(?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2})(?:[.,](?P<f>\d{1,9})\d*)?)?(?:\s?(?P<half>[AaPp]\.?[Mm]\.?))?"
_ZONE = r"(?:\s?(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
_NUMERIC = re.compile(rf"(?P<Y>\d{{4}})(?P<sep>[-/.])(?P<M>\d{{1,2}})(?P=sep)(?P<D>\d{{1,2}})(?:[ T_,]+{_TIME}{_ZONE})?")
_COMPACT = re.compile(rf"(?P<Y>\d{{4}})(?P<M>\d{{2}})(?P<D>\d{{2}})(?:[ T_]+{_TIME}{_ZONE})?")
_LAST = re.compile(rf"(?P<M>\d{{1,2}})(?P<sep>[-/.])(?P<D>\d{{1,2}})(?P=sep)(?P<Y>\d{{4}})[ T_,]+{_TIME}{_ZONE}")
_CLOCK = re.compile(_TIME)
_NUMBER = re.compile(r"(\d{1,19})(?:\.(\d{1,9})\d*)?\s?(s|ms|us|ns)?")
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# As asctime and `date` print it: Fri Jan  7 10:21:49 2022, Fri Jan  7 10:21:49 AM CET 2022, Fri 07 Jan 2022 10:21:49 AM CET
_WORDS = re.compile(
    rf"(?:{_DAYS}),?\s+(?:(?P<M>{_MONTHS})\s+(?P<D>\d{{1,2}})|(?P<D2>\d{{1,2}})\s+(?P<M2>{_MONTHS})\s+(?P<Y2>\d{{4}}))\s+{_TIME}"
    r"(?:\s+(?P<zone>[A-Z]{1,5}|[+-]\d{2,4}))?(?:\s+(?P<Y>\d{4}))?"
)
# Seconds, ms, us and ns since 1970, told apart by size: each range is 2001 to 2100.
_EPOCH_UNITS = ((10**9, 4_102_444_800, 10**9), (10**12, 4_102_444_800_000, 10**6), (10**15, 4_102_444_800_000_000, 10**3))
_SCALES = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _nanoseconds(part: re.Match[str]) -> int | None:
    """Time of day of a match with the groups of _TIME."""
    if part["h"] is None:
        return 0
    hour, minute, second = int(part["h"]), int(part["m"]), int(part["s"] or 0)
    if part["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if part["half"][0] in "Pp" else 0)
    if hour > 23 or minute > 59 or second > 60:
        return None
    return ((hour * 60 + minute) * 60 + second) * SECOND + int((part["f"] or "0").ljust(9, "0"))


def _day(year: int, month: int, day: int) -> int | None:
    """Nanoseconds from 1970 to that day."""
    if not 1980 <= year <= 2200:
        return None
    try:
        return (date(year, month, day) - _EPOCH).days * DAY
    except ValueError:
        return None


def _offset(zone: str | None) -> int | None:
    """Offset of a zone text from UTC, None for a zone that is not known by its text."""
    if zone in ("Z", "UTC", "GMT"):
        return 0
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        return (int(digits[:2]) * 60 + int(digits[2:])) * 60 * SECOND * (-1 if zone[0] == "-" else 1)
    return None


def _dated(day: int | None, part: re.Match[str], clock: Clock = Clock.LOCAL) -> Stamp:
    time = _nanoseconds(part)
    if day is None or time is None:
        return NO_STAMP
    offset = _offset(part["zone"])
    return Stamp(day + time, clock) if offset is None else Stamp(day + time - offset, Clock.UTC)


def words(text: str) -> Stamp:
    """The first stamp in words (Fri Jan  7 10:21:49 2022) anywhere in `text`."""
    part = _WORDS.search(text)
    if part is None:
        return NO_STAMP
    month, day, year = part["M"] or part["M2"], part["D"] or part["D2"], part["Y"] or part["Y2"]
    if year is None:
        return NO_STAMP
    return _dated(_day(int(year), _MONTHS.split("|").index(month) + 1, int(day)), part)


def parse(text: str) -> Stamp:
    """One stamp of any known writing; NO_STAMP for anything else."""
    text = text.strip().strip('"').strip()
    if not text or len(text) > 64:
        return NO_STAMP
    if part := _NUMERIC.fullmatch(text) or _COMPACT.fullmatch(text):
        return _dated(_day(int(part["Y"]), int(part["M"]), int(part["D"])), part)
    if part := _LAST.fullmatch(text):
        year, first, second = int(part["Y"]), int(part["M"]), int(part["D"])
        if first > 12:
            return _dated(_day(year, second, first), part)
        return _dated(_day(year, first, second), part, Clock.LOCAL if second > 12 else Clock.YEAR_LAST)
    if part := _CLOCK.fullmatch(text):
        time = _nanoseconds(part)
        return NO_STAMP if time is None else Stamp(time, Clock.TIME_OF_DAY)
    if part := _NUMBER.fullmatch(text):
        return _number(int(part[1]), part[2] or "", part[3])
    return words(text)


def _number(whole: int, fraction: str, unit: str | None) -> Stamp:
    for low, high, scale in _EPOCH_UNITS:
        if low <= whole < high and unit in (None, "s"):
            return Stamp(whole * scale + int(fraction.ljust(9, "0") or 0) * scale // 10**9, Clock.UTC)
    if 10**18 <= whole < 4_102_444_800 * 10**9:
        return Stamp(whole, Clock.UTC)
    scale = _SCALES[unit or "s"]
    if whole * scale > 10**18:
        return NO_STAMP
    return Stamp(whole * scale + int(fraction.ljust(9, "0")) * scale // 10**9, Clock.ELAPSED)


def swap_day_and_month(ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Stamps of Clock.YEAR_LAST read as day-month-year instead."""
    days, back = np.unique(ns // DAY, return_inverse=True)
    dates = [_EPOCH + timedelta(days=d) for d in days.tolist()]
    swapped = np.array([(date(d.year, d.day, d.month) - _EPOCH).days for d in dates], np.int64)
    return swapped[back] * DAY + ns % DAY


class StampCache(dict[str, Stamp]):
    """text -> Stamp; forgets everything when it has grown large."""

    def __missing__(self, text: str) -> Stamp:
        if len(self) > 100_000:
            self.clear()
        stamp = self[text] = parse(text)
        return stamp


def parse_many(cells: Sequence[str], cache: StampCache) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Nanoseconds and Clock of each cell. nvidia-smi's own writing is read for all rows at once."""
    n = len(cells)
    ns, clock = np.zeros(n, np.int64), np.zeros(n, np.uint8)
    left = np.arange(n)
    width = len(cells[0]) if n else 0
    if n > 16 and width in (19, 20, 23, 24):
        lengths = np.fromiter(map(len, cells), np.int64, n)
        rows = np.flatnonzero(lengths == width)
        text = "\n".join(cells) if len(rows) == n else "\n".join([cells[i] for i in rows.tolist()])
        if text.isascii():
            letters = np.frombuffer(text.encode() + b"\n", np.uint8).reshape(len(rows), width + 1)[:, :-1]
            good, values = _regular(letters)
            ns[rows[good]], clock[rows[good]] = values[good], Clock.LOCAL
            left = np.flatnonzero(clock == Clock.NONE)
    for i in left.tolist():
        ns[i], clock[i] = cache[cells[i]]
    return ns, clock


def _regular(letters: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """(n, width) bytes of 'YYYY/MM/DD HH:MM:SS[.mmm]', one blank before it allowed -> which rows are such, and their ns."""
    skip = letters.shape[1] in (20, 24)
    good = letters[:, 0] == ord(" ") if skip else np.ones(len(letters), bool)
    if skip:
        letters = letters[:, 1:]
    milliseconds = letters.shape[1] == 23
    places = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18] + ([20, 21, 22] if milliseconds else [])
    digits = letters[:, places].astype(np.int64) - ord("0")
    good &= ((digits >= 0) & (digits <= 9)).all(axis=1)
    good &= np.isin(letters[:, 4], (ord("/"), ord("-"))) & (letters[:, 7] == letters[:, 4])
    good &= np.isin(letters[:, 10], (ord(" "), ord("T"))) & (letters[:, 13] == ord(":")) & (letters[:, 16] == ord(":"))
    if milliseconds:
        good &= letters[:, 19] == ord(".")
    digits[~good] = 0
    hour, minute, second = (digits[:, i] * 10 + digits[:, i + 1] for i in (8, 10, 12))
    good &= (hour < 24) & (minute < 60) & (second < 60)
    dates, back = np.unique(digits[:, :8] @ 10 ** np.arange(7, -1, -1), return_inverse=True)
    days = [_day(d // 10_000, d // 100 % 100, d % 100) for d in dates.tolist()]
    good &= np.array([d is not None for d in days])[back]
    fraction = digits[:, 14:] @ np.array([100, 10, 1]) if milliseconds else 0
    time = ((hour * 60 + minute) * 60 + second) * SECOND + fraction * 1_000_000
    return good, np.array([d or 0 for d in days], np.int64)[back] + time
