"""Which steps are recorded: a plan that is asked once a step and answers without touching the program."""

from __future__ import annotations

import os
import signal
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["timing", "light", "evidence"]
KINDS: tuple[Kind, ...] = ("timing", "light", "evidence")


@dataclass(frozen=True)
class Schedule:
    """Recordings and their windows, counted in steps.

    A recording is a timing window, which slows the program least, followed by an evidence window with shapes and stacks.

    wait: steps before the first recording and between two of them; compilation and warm-up are best left out.
    warmup: steps at the start of each window during which the profiler runs but keeps nothing.
    active: steps that the timing window keeps. evidence: steps that the evidence window keeps; 0 leaves that window out.
    repeat: recordings at most. at: numbers of the steps at which recordings start instead of after `wait`.
    light: the timing window records operators too (slower: without them the host pays about a tenth, with them a third).
    ValueError for numbers that select nothing.
    """

    wait: int = 20
    warmup: int = 2
    active: int = 8
    evidence: int = 3
    repeat: int = 1
    at: tuple[int, ...] = ()
    light: bool = False

    def __post_init__(self) -> None:
        for name, least in (("wait", 0), ("warmup", 1), ("active", 0), ("evidence", 0), ("repeat", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be a whole number, {least} at least; got {value!r}")
        if not all(isinstance(step, int) and step >= 0 for step in self.at):
            raise ValueError(f"at must hold numbers of steps, 0 at least; got {self.at!r}")

    def windows(self) -> list[tuple[Kind, int]]:
        """Kind and kept steps of each window of one recording, in order."""
        kinds: list[tuple[Kind, int]] = [("light" if self.light else "timing", self.active), ("evidence", self.evidence)]
        return [(kind, steps) for kind, steps in kinds if steps]


@dataclass
class Trigger:
    """Starts a recording when something happens. `due(step, durations)` is asked once a step.

    readings(seconds, utilization): called on another thread for each reading of the GPU, monotonic seconds and percent.
    """

    name: str
    due: Callable[[int, Durations], bool]
    close: Callable[[], None] = lambda: None
    readings: Callable[[float, float | None], None] | None = None


class Durations:
    """The median of the latest steps outside windows, brought up to date every 32 steps: a step costs an addition."""

    _LATEST = 128
    _EVERY = 32

    def __init__(self) -> None:
        self.last = 0
        self.median: float | None = None
        self._kept: list[int] = []
        self._seen = 0

    def add(self, ns: int) -> None:
        self.last = ns
        if len(self._kept) < self._LATEST:
            self._kept.append(ns)
        else:
            self._kept[self._seen % self._LATEST] = ns
        self._seen += 1
        if self._seen % self._EVERY == 0:
            self.median = statistics.median(self._kept)


def on_signal(number: int = getattr(signal, "SIGUSR2", 0)) -> Trigger:
    """A recording after each signal of this number. A handler of the program still runs."""
    asked: list[bool] = []
    before = signal.getsignal(number)

    def handler(received: int, frame: object) -> None:
        asked.append(True)
        if callable(before):
            before(received, frame)  # type: ignore[arg-type]

    signal.signal(number, handler)

    def due(step: int, durations: Durations) -> bool:
        return bool(asked) and asked.pop()

    def close() -> None:
        asked.clear()
        if before != signal.SIG_DFL and before is not None and signal.getsignal(number) is handler:
            signal.signal(number, before)  # else it stays: a signal that comes late must not end the program

    return Trigger(f"signal {number}", due, close)


def on_touch(path: str | os.PathLike[str], every: int = 16) -> Trigger:
    """A recording whenever the file appears or its time changes. It is looked at every `every` steps."""
    place = os.fspath(path)

    def stamp() -> int | None:
        try:
            return os.stat(place).st_mtime_ns
        except OSError:
            return None

    seen = [stamp()]

    def due(step: int, durations: Durations) -> bool:
        if step % every:
            return False
        now = stamp()
        changed = now is not None and now != seen[0]
        seen[0] = now
        return changed

    return Trigger(f"touched {os.path.basename(place)}", due)


def on_slow_step(times: float = 2.0, in_a_row: int = 3) -> Trigger:
    """A recording after `in_a_row` steps that each took `times` the median: one slow step alone is past when it is seen."""
    if not times > 1:
        raise ValueError(f"times must be above 1, got {times!r}")
    slow = [0]

    def due(step: int, durations: Durations) -> bool:
        median = durations.median
        slow[0] = slow[0] + 1 if median is not None and durations.last > times * median else 0
        if slow[0] < in_a_row:
            return False
        slow[0] = 0
        return True

    return Trigger(f"steps slower than {times:g} times the median", due)


@dataclass
class Plan:
    """Says at each step boundary whether a recording starts, and why."""

    schedule: Schedule
    triggers: list[Trigger] = field(default_factory=list)
    most: int = 8  # recordings that triggers may add: each costs time and space
    durations: Durations = field(default_factory=Durations)
    _recordings: int = 0
    _triggered: int = 0
    _quiet_until: int = 0
    _asked: str = ""

    def ask(self, reason: str) -> None:
        """A recording at the next step boundary."""
        self._asked = reason

    def due(self, step: int) -> str | None:
        """The reason to start a recording at this step (the first step is 0), None for most steps."""
        plan = self.schedule
        if self._asked:
            reason, self._asked = self._asked, ""
            return reason
        if plan.at:
            if step in plan.at and self._recordings < len(plan.at):
                return f"step {step}"
        elif self._recordings < plan.repeat and step >= self._quiet_until and step >= plan.wait:
            return "schedule"
        for trigger in self.triggers:
            if trigger.due(step, self.durations) and self._triggered < self.most and step >= self._quiet_until:
                self._triggered += 1
                return trigger.name
        return None

    def recorded(self, step: int, reason: str) -> None:
        """A recording for this reason ended before this step."""
        if reason == "schedule" or reason.startswith("step "):
            self._recordings += 1
        self._quiet_until = step + max(1, self.schedule.wait)

    def close(self) -> None:
        for trigger in self.triggers:
            trigger.close()
