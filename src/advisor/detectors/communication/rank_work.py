"""How much work each rank has in a step, and how long it waits for the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import Activity, activities, loader_ranges, step_windows
from advisor.derive.bounds import TwoSided, all_sides
from advisor.derive.collectives import collectives
from advisor.derive.host import driving_threads
from advisor.derive.intervals import IntervalSet, covered, intersect, length, merge, union, union_length
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.nesting import thread_keys
from advisor.derive.sequence import sequence_of
from advisor.derive.steps import steps
from advisor.detectors.communication.transfers import on_gpu, sm_share
from advisor.model import Run

# A GPU that runs anything of a step is sampled at this utilisation (%) or more; below, its clock says nothing.
_BUSY = 30.0


@dataclass(frozen=True)
class RankWork:
    """One rank's steady steps. ns per step unless said otherwise.

    compute: for each step, GPU compute without what communication kernels beside it cost; kernels: rows of `kernels` of its
    compute; call: the rows of `runtime_calls` that launched them, -1 unknown; beside: whether such a kernel ran beside
    communication; waited_ns: in collectives, before the last rank came; last_frac: share of the collectives to which it came
    last; loading: when the thread that drives the GPU was in a data loader; clock_mhz: median SM clock under load, None unknown.
    """

    activity: Activity
    side: TwoSided
    compute: npt.NDArray[np.float64]
    kernels: npt.NDArray[np.int64]
    call: npt.NDArray[np.int64]
    beside: npt.NDArray[np.bool_]
    waited_ns: int
    last_frac: float
    loading: IntervalSet
    clock_mhz: float | None

    @property
    def steps(self) -> int:
        return len(self.compute)

    @property
    def compute_ns(self) -> int:
        return int(self.compute.mean()) if len(self.compute) else 0

    @property
    def loader_ns(self) -> int:
        return length(self.loading) // max(self.steps, 1)

    @property
    def launches(self) -> float:
        """Compute kernels a step."""
        return len(self.kernels) / max(self.steps, 1)

    @property
    def name(self) -> str:
        """Words for the rank in a title."""
        gpu = self.activity.gpu
        return f"rank {gpu.rank}" if gpu.rank >= 0 else f"process {gpu.process}"


def rank_works(run: Run) -> list[RankWork]:
    """One entry a rank with steady steps and GPU work, by rank and process."""
    return run.derived(_rank_works)


def _rank_works(run: Run) -> list[RankWork]:
    sides = {(side.rank, side.process): side for side in all_sides(run)}
    mine: dict[tuple[int, int], Activity] = {}
    for activity in activities(run):
        key = (activity.gpu.rank, activity.gpu.process)
        if key in sides and (key not in mine or length(activity.compute) > length(mine[key].compute)):
            mine[key] = activity
    clocks = _clocks(run, list(mine.values()))
    works = [_one(run, mine[key], sides[key], clocks[place]) for place, key in enumerate(mine)]
    return sorted((work for work in works if work.steps), key=lambda work: (work.side.rank, work.side.process))


def _one(run: Run, activity: Activity, side: TwoSided, clock: float | None) -> RankWork:
    kernels, found, windows = run.table("kernels"), collectives(run), step_windows(run, activity.gpu)
    own = np.flatnonzero(on_gpu(run, found.kernel, activity.gpu))
    share = float(sm_share(run, activity, found.kernel[own]).mean()) if len(own) else 0.0
    # By launch: a rank that is ahead runs kernels of the next step while its peers are still in this one.
    launched = sequence_of(run, side.rank, side.process)
    mine = on_gpu(run, launched.row, activity.gpu) & (launched.kind != KernelClass.COMMUNICATION)
    rows, launch = launched.row[mine], launched.launch[mine]
    start, end = kernels["start"][rows], kernels["end"][rows]
    with_others = covered(activity.communication, start, end)
    bounds = steps(run)
    own_steps = bounds.of(side.rank, side.process)
    own_steps = own_steps[bounds.steady[own_steps]]
    step = np.searchsorted(bounds.start[own_steps], launch, side="right") - 1
    by_step = np.argsort(step, kind="stable")
    edges = np.searchsorted(step[by_step], np.arange(len(own_steps) + 1))
    compute = np.zeros(len(own_steps))
    for number in range(len(own_steps)):
        inside = by_step[edges[number] : edges[number + 1]]
        # A communication kernel keeps its SMs while it waits: compute beside it has only the others.
        compute[number] = union_length(start[inside], end[inside]) - share * with_others[inside].sum()
    matched = own[found.match[own] >= 0]
    return RankWork(
        activity=activity,
        side=side,
        compute=np.maximum(compute, 0.0),
        kernels=rows,
        call=launched.call[mine],
        beside=with_others > (end - start) // 10,
        waited_ns=length(intersect(activity.peer_wait, merge(windows))) // max(len(windows[0]), 1),
        last_frac=float(found.last[matched].mean()) if len(matched) else 0.0,
        loading=_loading(run, side),
        clock_mhz=clock,
    )


def _loading(run: Run, side: TwoSided) -> IntervalSet:
    """When the thread that drives the GPU was in a data loader during steady steps."""
    ranges, found = run.table("ranges"), steps(run)
    rows = loader_ranges(run)
    rows = rows[(ranges["rank"][rows] == side.rank) & (ranges["process"][rows] == side.process)]
    rows = rows[np.isin(thread_keys(ranges)[rows], driving_threads(run))]
    mine = found.of(side.rank, side.process)
    mine = mine[found.steady[mine]]
    return intersect(union(ranges["start"][rows], ranges["end"][rows]), union(found.start[mine], found.end[mine]))


def _clocks(run: Run, which: list[Activity]) -> list[float | None]:
    """Median SM clock of each GPU under load, MHz; by rank, else by device number where that tells the GPUs apart."""
    samples = run.table("device_samples")
    use = samples.known("sm_clock") & (~samples.known("utilization") | (samples["utilization"] >= _BUSY))
    apart = len({a.gpu.device for a in which}) == len(which)
    result: list[float | None] = []
    for activity in which:
        mine = use & (samples["rank"] == activity.gpu.rank) & samples.known("rank")
        if not mine.any() and apart:
            mine = use & ~samples.known("rank") & (samples["device"] == activity.gpu.device)
        result.append(float(np.median(samples["sm_clock"][mine])) if mine.any() else None)
    return result
