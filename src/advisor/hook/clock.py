"""When each step of the run began: the step times outside the windows are those that no profiler changed."""

from __future__ import annotations

import time
from array import array
from typing import Any

from advisor.model.schema import StepState

OUTSIDE, TOUCHED, RECORDED = (int(state) for state in StepState)


class StepClock:
    """The ends of the latest `size` steps, in a ring that is allocated once: a long run costs no more memory than a short one."""

    def __init__(self, size: int = 1 << 16) -> None:
        self._size = size
        self._ends = array("q", bytes(8 * size))
        self._states = bytearray(size)
        self.count = 0
        self.start_ns = 0
        self.start_epoch_ns = 0
        self._disturbed = 0
        self._disturbed_until = 0

    def begin(self) -> None:
        """The first step begins now."""
        self.start_ns = time.perf_counter_ns()
        self.start_epoch_ns = time.time_ns()

    def end(self, now: int, state: int) -> int:
        """A step ended at `now` (perf_counter_ns). Returns how long it took, ns."""
        before = self._ends[(self.count - 1) % self._size] if self.count else self.start_ns
        place = self.count % self._size
        self._ends[place] = now
        if self._disturbed or now < self._disturbed_until:
            self._disturbed = max(self._disturbed - 1, 0)
            state = max(state, TOUCHED)
        self._states[place] = state
        self.count += 1
        return now - before

    def disturb(self, steps: int = 2, seconds: float = 0.0) -> None:
        """So many steps from now on, and those that end within so many seconds, are not what they are without us.

        They carry work of ours (a window's end, files), refill the queue that it drained, or a profiler still lets go.
        """
        self._disturbed = max(self._disturbed, steps)
        if seconds:
            self._disturbed_until = max(self._disturbed_until, time.perf_counter_ns() + int(min(seconds, 1e9) * 1e9))

    def kept(self) -> dict[str, Any]:
        """The latest steps, oldest first: the number of the first, when it began (ns from the start), durations, states."""
        kept = min(self.count, self._size)
        first = self.count - kept
        places = [(first + i) % self._size for i in range(kept)]
        ends = [self._ends[place] for place in places]
        states = [self._states[place] for place in places]
        if first == 0:
            begin = self.start_ns
        else:  # the end of the step before was overwritten
            begin, first, ends, states = ends[0], first + 1, ends[1:], states[1:]
        durations = [end - start for start, end in zip([begin, *ends], ends, strict=False)]
        return {
            "count": self.count,
            "first": first,
            "begin_ns": begin - self.start_ns,
            "durations_ns": durations,
            "states": states,
        }
