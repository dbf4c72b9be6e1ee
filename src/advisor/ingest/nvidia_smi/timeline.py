"""Stamps as the rows hold them -> times: one clock, day order settled, clock changes mended, gaps filled by order."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from advisor.ingest.nvidia_smi.stamps import DAY, SECOND, Clock, swap_day_and_month
from advisor.model import Notice

Ints = npt.NDArray[np.int64]

INTERVAL = SECOND  # what nvidia-smi waits between samples, unless told otherwise: the step of samples without stamps
_HOUR = 3600 * SECOND


@dataclass
class Clocked:
    """`times` of the asked rows in ns from `epoch_ns` (None: unknown moment), the earliest at 0."""

    times: Ints
    epoch_ns: int | None = None
    local: bool = False
    stamped: bool = True
    notices: list[Notice] = field(default_factory=list)


def resolve(order: Ints, beat: Ints, ns: Ints, clock: npt.NDArray[np.uint8], marks: list[tuple[int, int, int, int]]) -> Clocked:
    """Times of rows.

    `order` is the place of each row in the file, `beat` the number of its sample (rows of several GPUs of one sample share it),
    `ns` and `clock` its stamp. `marks` are stamps between rows (date lines), each (order, beat of the next row, ns, clock).
    """
    notices: list[Notice] = []
    extra = np.array(marks, np.int64).reshape(-1, 4)
    places = np.concatenate([extra[:, 0], order])
    by_place = np.argsort(places, kind="stable")
    all_beats = np.concatenate([extra[:, 1], beat])[by_place]
    all_ns = np.concatenate([extra[:, 2], ns])[by_place]
    all_clocks = np.concatenate([extra[:, 3].astype(np.uint8), clock])[by_place]
    rows = by_place >= len(extra)

    all_ns, all_clocks = _settle_day_order(all_ns, all_clocks, notices)
    main = _main_clock(all_clocks)
    known = np.flatnonzero(all_clocks == main) if main else np.zeros(0, np.int64)
    if not len(known):
        times = all_beats * INTERVAL
        text = "the log has no time stamps: its samples are taken as 1 s apart, nvidia-smi's default"
        notices.append(Notice("no-time-stamps", text))
    else:
        times, counted = _fill(all_beats, _mend(all_ns[known], main, notices), known)
        guessed = int((rows & (all_clocks != main) & (counted != 0)).sum())
        if guessed:
            text = f"{guessed} rows without a usable time stamp are placed by their order, 1 s a sample"
            notices.append(Notice("time-stamps-missing", text))
    result = np.empty(len(order), np.int64)
    result[by_place[rows] - len(extra)] = times[rows]
    zero = int(result.min()) if len(result) else 0
    dated = main in (Clock.LOCAL, Clock.UTC)
    if len(known) and not dated:
        text = (
            "the time stamps have no date: the log cannot be placed beside other recordings (dmon and pmon write it with -o DT)"
        )
        notices.append(Notice("no-date", text))
    return Clocked(result - zero, zero if dated else None, main == Clock.LOCAL, bool(len(known)), notices)


def _main_clock(clocks: npt.NDArray[np.uint8]) -> Clock:
    """The clock of most stamps; the others cannot be compared with it."""
    counts = np.bincount(clocks, minlength=len(Clock))
    counts[Clock.NONE] = 0
    return Clock(int(counts.argmax())) if counts.any() else Clock.NONE


def _settle_day_order(ns: Ints, clocks: npt.NDArray[np.uint8], notices: list[Notice]) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Dates like 03-11-2026: month first, unless the day first makes the log shorter."""
    open_rows = clocks == Clock.YEAR_LAST
    if not open_rows.any():
        return ns, clocks
    swapped = ns.copy()
    swapped[open_rows] = swap_day_and_month(ns[open_rows])
    dated = open_rows | (clocks == Clock.LOCAL)
    month_first, day_first = (int(np.abs(np.diff(values[dated])).sum()) for values in (ns, swapped))
    if month_first == day_first and (swapped != ns).any():
        text = "dates such as 03-11-2026 are read with the month first; nothing in the log tells which comes first"
        notices.append(Notice("day-month-order", text))
    return swapped if day_first < month_first else ns, np.where(open_rows, np.uint8(Clock.LOCAL), clocks)


def _mend(ns: Ints, clock: Clock, notices: list[Notice]) -> Ints:
    """Stamps in file order, without the jumps that no time makes: midnight, and the end of summer time."""
    step = np.diff(ns)
    shift = np.zeros(len(ns), np.int64)
    back = np.flatnonzero(step < -SECOND)
    if clock == Clock.TIME_OF_DAY:
        midnight = back[step[back] < -DAY // 2]
        shift[midnight + 1] = DAY
    elif clock == Clock.LOCAL:
        forward = step[step > 0]
        usual = int(np.median(forward)) if len(forward) else SECOND
        real = step[back] + _HOUR  # how long the step was, if the clock went back by one hour
        hour = back[(real >= -SECOND) & (real <= max(5 * usual, 120 * SECOND))]
        shift[hour + 1] = _HOUR
        if len(hour):
            text = (
                "the local clock goes back by one hour inside the log (end of summer time): later samples are moved by that hour"
            )
            notices.append(Notice("clock-changed", text))
    mended = ns + np.cumsum(shift)
    left = int((np.diff(mended) < -SECOND).sum())
    if left:
        text = f"the time stamps go back {left} times inside the log: samples are ordered by their stamps"
        notices.append(Notice("clock-went-back", text))
    return mended


def _fill(beats: Ints, stamps: Ints, known: Ints) -> tuple[Ints, Ints]:
    """Times of all rows: their own, else counted in beats from the stamp before them, else from the first one; and the counts."""
    if len(known) == len(beats):
        return stamps, np.zeros_like(beats)
    before = np.maximum(np.searchsorted(known, np.arange(len(beats)), side="right") - 1, 0)
    counted = beats - beats[known][before]
    counted[known[0] :] = np.maximum(counted[known[0] :], 0)
    return stamps[before] + counted * INTERVAL, counted
