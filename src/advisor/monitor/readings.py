"""The GPUs read at even intervals, and what is kept: the latest for the eye, rows of nvidia-smi's CSV for the verdict."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TextIO

from advisor.hook.nvml import Nvml, Reading, csv_header, csv_row
from advisor.monitor.gpus import Choice

_LATEST = 512  # readings a GPU, more than a terminal is wide
_MOST_BEATS = 50_000  # for the verdict of a watch that writes no file; beyond it every other one goes


@dataclass(frozen=True)
class Beat:
    """All watched GPUs at one moment."""

    at: datetime
    readings: list[Reading]


def beats(
    library: Nvml, choice: Choice, interval: float, count: int | None = None, duration: float | None = None
) -> Iterator[Beat]:
    """A beat every `interval` seconds until there were `count`, `duration` seconds are over, or the choice has ended.

    A beat that comes late delays no other: missed ones are left out.
    """
    start = time.monotonic()
    due, seen = start, 0
    while (indices := choice()) is not None:
        if indices:
            yield Beat(datetime.now(), [library.read(index) for index in indices])
            seen += 1
        due = max(due + interval, time.monotonic())
        if (count is not None and seen >= count) or (duration is not None and due - start >= duration):
            return
        time.sleep(max(0.0, due - time.monotonic()))


@dataclass
class Histories:
    """The latest readings of each GPU, oldest first."""

    of: dict[int, deque[Reading]] = field(default_factory=dict)
    beats: int = 0

    def add(self, beat: Beat) -> None:
        self.beats += 1
        for reading in beat.readings:
            self.of.setdefault(reading.index, deque(maxlen=_LATEST)).append(reading)


class Rows:
    """Rows of CSV in memory, thinned out when there are many, so that a watch of weeks costs no more than one of hours."""

    def __init__(self, most: int = _MOST_BEATS) -> None:
        self._most, self._every, self._seen = most, 1, 0
        self._kept: list[list[str]] = []

    def add(self, beat: Beat) -> None:
        if self._seen % self._every == 0:
            self._kept.append(rows(beat))
            if len(self._kept) >= self._most:
                self._kept = self._kept[::2]
                self._every *= 2
        self._seen += 1

    def write(self, file: TextIO) -> None:
        print(csv_header(), *(row for beat in self._kept for row in beat), sep="\n", file=file)

    def __len__(self) -> int:
        return len(self._kept)


def rows(beat: Beat) -> list[str]:
    """A line of CSV for each GPU."""
    return [csv_row(beat.at, reading) for reading in beat.readings]
