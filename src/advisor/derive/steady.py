"""The steady steps of the rank that sets the pace: what its host and its GPU did in each, for rules that judge one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import Activity, activities
from advisor.derive.bounds import TwoSided, all_sides, two_sided
from advisor.derive.calls import CallKind
from advisor.derive.host import HostSide, host_sides
from advisor.derive.intervals import IntervalSet, complement, contains, covered, intersect, length
from advisor.derive.steps import steps
from advisor.model import Run

# A step that takes this many medians is held up by something that happens now and then (a checkpoint, an evaluation): what
# happens in every step is judged without it.
STALLED = 3.0


@dataclass(frozen=True)
class Steady:
    """step: the two-sided step; side, activity: the host side and the busiest GPU of its rank.

    start, end: bounds of the ordinary steady steps on the host, ns; count: how many. at: for each CUDA call of `side`, the
    ordinary step it begins in, else -1.
    """

    step: TwoSided
    side: HostSide
    activity: Activity
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    source: str

    @property
    def count(self) -> int:
        return len(self.start)

    @property
    def unmarked(self) -> bool:
        """No steps were found: the whole recording, with whatever starts it up, stands as one."""
        return self.source == "none"

    @property
    def per(self) -> str:
        """What counts refer to, in words."""
        return "in the recording" if self.unmarked else "a step"

    def each(self, values: npt.NDArray[np.int64], calls: npt.NDArray[np.bool_]) -> int:
        """Sum of values (one a call of `side`) over those calls in ordinary steps, per step."""
        return int(values[calls & (self.at >= 0)].sum()) // max(self.count, 1)

    def within(self, intervals: IntervalSet) -> int:
        """Length of the intervals inside ordinary steps, per step, ns."""
        return length(intersect(intervals, (self.start, self.end))) // max(self.count, 1)

    def host_within(self, intervals: IntervalSet) -> int:
        """Host work inside the intervals per ordinary step, without waits and without what the profiler added, ns."""
        side = self.side
        # A segment that begins in one step can end in the next: what counts is where the interval lies, not the call after it.
        inside = intersect(intervals, (self.start, self.end))
        part = covered(inside, side.start - side.before, side.start) / np.maximum(side.before, 1)
        work = part * side.deflated_before + contains(inside, side.start) * side.deflated_own
        return int(work.sum()) // max(self.count, 1)

    def turns(self, waited_ns: int) -> int:
        """What of the step's `wait_ns` is due to waits of this length in total: their share of all waiting for the GPU.

        Waiting for room in the launch queue is no turn-taking: the GPU is busy then.
        """
        side = self.side
        queue = np.isin(side.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)) & (not side.launches_block)
        total = int(side.wait[(self.at >= 0) & ~queue].sum())
        return int(self.step.wait_ns * min(waited_ns / total, 1.0)) if total else 0

    @property
    def idle(self) -> IntervalSet:
        """When the GPU had nothing to do inside ordinary steps."""
        steps = (self.start, self.end)
        return intersect(complement(self.activity.busy, int(self.start[0]), int(self.end[-1])), steps)


def steady(run: Run) -> Steady | None:
    """None where the rank that sets the pace lacks steps, CUDA calls or GPU work."""
    return run.derived(_steady)


def steadies(run: Run) -> list[Steady]:
    """The same of every rank, the one that sets the pace first: what a change of the program changes on all of them."""
    return run.derived(_steadies)


def _steadies(run: Run) -> list[Steady]:
    first = steady(run)
    if first is None:
        return []
    mine = (first.step.rank, first.step.process)
    others = [_steady_of(run, side) for side in all_sides(run) if (side.rank, side.process) != mine]
    return [first, *(other for other in others if other is not None)]


def _steady(run: Run) -> Steady | None:
    step = two_sided(run)
    return None if step is None else _steady_of(run, step)


def _steady_of(run: Run, step: TwoSided) -> Steady | None:
    side = host_sides(run).get((step.rank, step.process))
    mine = [a for a in activities(run) if (a.gpu.rank, a.gpu.process) == (step.rank, step.process)]
    if side is None or not len(side) or not mine:
        return None
    found = steps(run)
    own = found.of(step.rank, step.process)
    own = own[found.steady[own]]
    if not len(own):
        return None
    taken = found.time()[own]
    ordinary = taken <= STALLED * float(np.median(taken))
    own = own[ordinary]
    start, end = found.start[own], found.end[own]
    at = np.searchsorted(start, side.start, side="right") - 1
    at = np.where((at >= 0) & (side.start < end[np.maximum(at, 0)]), at, -1)
    return Steady(
        step=step,
        side=side,
        activity=max(mine, key=lambda a: length(a.busy)),
        start=start,
        end=end,
        at=at,
        source=found.source,
    )
