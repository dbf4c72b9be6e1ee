"""Which steps a timeline shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.derive.steps import Steps, step_times, steps
from advisor.model import Run


@dataclass(frozen=True)
class View:
    """A step to show. step: position in `steps(run)`; host, gpu: [begin, end) on each side; low, high: both together."""

    rank: int
    process: int
    step: int
    host: tuple[int, int]
    gpu: tuple[int, int]
    why: str = ""

    @property
    def low(self) -> int:
        return min(self.host[0], self.gpu[0])

    @property
    def high(self) -> int:
        return max(self.host[1], self.gpu[1])


def representative(found: Steps, rank: int, process: int) -> int | None:
    """The steady step nearest to the median of its rank, the first of equals; None where there is none of any length."""
    mine = found.of(rank, process)
    mine = mine[found.steady[mine] & (found.end[mine] > found.start[mine])]
    if not len(mine):
        return None
    taken = found.time()[mine]
    return int(mine[np.abs(taken - np.median(taken)).argmin()])


def view_of(run: Run, step: int, why: str = "") -> View:
    """A step by its position in `steps(run)`."""
    found = steps(run)
    host = (int(found.start[step]), int(found.end[step]))
    gpu = host
    if found.gpu_period[step] > 0:
        gpu = (int(found.gpu_end[step] - found.gpu_period[step]), int(found.gpu_end[step]))
    return View(int(found.rank[step]), int(found.process[step]), step, host, gpu, why)


def shown(run: Run) -> list[View]:
    """The steps to show: of every rank where there are up to three, else of the slowest, the fastest and the first rank."""
    times = step_times(run)
    able = [member for member in times if representative(steps(run), *member) is not None]
    if not able:
        return []
    slowest = max(able, key=lambda member: (times[member].step_ns, [-number for number in member]))
    fastest = min(able, key=lambda member: (times[member].step_ns, member))
    if len(able) == 1:
        reason = {slowest: "the only rank recorded" if slowest[0] >= 0 else "the recorded process"}
    else:
        reason = {slowest: "sets the pace: the slowest rank"}
        reason.setdefault(fastest, "the fastest rank")
        reason.setdefault(min(able), "the first rank")
        if len(able) <= 3:
            for member in able:
                reason.setdefault(member, "between the others")
    return [
        view_of(run, step, why) for member, why in reason.items() if (step := representative(steps(run), *member)) is not None
    ]
