"""The trigger that looks at the GPU: a recording when it idles."""

from __future__ import annotations

import math
from collections import deque

from advisor.hook.plan import Durations, Trigger

_LEAST = 3  # readings; fewer tell nothing


def on_idle_gpu(share: float = 0.5, seconds: float = 10.0) -> Trigger:
    """A recording when the GPU ran no kernel for more than `share` (0 to 1) of the last `seconds`, as NVML's utilisation says.

    It needs the readings that `samples` asks for, and an NVIDIA driver; without them it never fires. Between two firings
    lie `seconds` at least. ValueError for a share that is none, or no time.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must be above 0 and below 1, got {share!r}")
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"seconds must be a finite number above 0, got {seconds!r}")
    watch = IdleWatch(share, seconds)

    def due(step: int, durations: Durations) -> bool:
        fired = watch.fired
        if fired:
            watch.fired = False
        return fired

    return Trigger(f"GPU idle above {share:.0%}", due, readings=watch.add)


class IdleWatch:
    """Takes readings on the sampler's thread; the training thread looks at `fired` alone."""

    def __init__(self, share: float, seconds: float) -> None:
        self.fired = False
        self._share, self._seconds = share, seconds
        self._kept: deque[tuple[float, float]] = deque()  # (seconds, share of idle time) of the readings that count
        self._began: float | None = None
        self._last = 0.0

    def add(self, at: float, utilization: float | None) -> None:
        """A reading at that moment (monotonic seconds), in %; None where the GPU does not tell."""
        if utilization is None:
            return
        if self._began is None or not 0 <= at - self._last <= self._seconds:  # the machine slept, or the clock is another one
            self._restart(at)
        self._last = at
        self._kept.append((at, 1 - min(max(utilization, 0.0), 100.0) / 100))
        while self._kept[0][0] < at - self._seconds:
            self._kept.popleft()
        covered = self._began is not None and at - self._began >= self._seconds
        if covered and len(self._kept) >= _LEAST and self._mean() > self._share:
            self.fired = True
            self._restart(at)

    def _mean(self) -> float:
        return math.fsum(idle for _, idle in self._kept) / len(self._kept)

    def _restart(self, at: float) -> None:
        self._kept.clear()
        self._began = at
