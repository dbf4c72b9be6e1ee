"""Steps: their host ranges, when the GPU was done with each, which are steady, and how long a steady step takes.

The host runs ahead of the GPU and catches up at waits, so neither side alone tells the time of a step. A step takes what
the slower side needs: the distance between starts on the host, or the distance between the moments at which the GPU
finished the last operation launched in consecutive steps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import CallKind, is_kind, links
from advisor.derive.gpus import gpu_work
from advisor.derive.intervals import IntervalSet, covered, subtract, union
from advisor.derive.marks import Marks, marked_steps
from advisor.derive.periods import inferred_steps
from advisor.model import Run

# A step in which the profiler itself held the host for more than this share of a median step says nothing about the run.
HITCH_SHARE = 0.2
# Mean over median above which stalls belong to the run and the mean is what a step costs.
UNEVEN = 1.3
# A step with less than this share of the recorded GPU work per launch that the best step has lost records.
COMPLETE_SHARE = 0.9
CUT_SHORT = "input-cut-short"  # the notice of a reader about a file that ends early
HITCHES = ("Command Buffer Full", "Activity Buffer Request", "CUPTI Buffer flush", "CUPTI Buffer Flush", "Buffer Flush")


@dataclass(frozen=True)
class Steps:
    """Arrays with one entry a step of a rank, in time order within the rank.

    start, end: bounds on the host, start to start; the last step of a rank ends where its own range ends.
    gpu_end: when the GPU finished the last operation launched before `end`; 0 where the step launched nothing.
    gpu_period: gpu_end minus that of the step before; -1 for the first step of a rank or where a side is missing.
    steady: neither the first of its rank, nor held up by the profiler, nor incomplete.
    hitch: held up by the profiler.
    incomplete: fewer of its launches have a recorded GPU operation than in the best step, so records were lost.
    """

    source: str
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int32]
    process: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    gpu_end: npt.NDArray[np.int64]
    gpu_period: npt.NDArray[np.int64]
    steady: npt.NDArray[np.bool_]
    hitch: npt.NDArray[np.bool_]
    incomplete: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)

    def of(self, rank: int, process: int) -> npt.NDArray[np.int64]:
        """Positions of one rank's steps."""
        return np.flatnonzero((self.rank == rank) & (self.process == process))

    @property
    def members(self) -> list[tuple[int, int]]:
        """(rank, process) pairs that have steps, in order."""
        pairs = np.unique(np.stack([self.rank.astype(np.int64), self.process]), axis=1)
        return [(int(r), int(p)) for r, p in pairs.T]

    def time(self) -> npt.NDArray[np.int64]:
        """What each step took: the longer of the host's distance and the GPU's."""
        return np.maximum(self.end - self.start, self.gpu_period)


@dataclass(frozen=True)
class StepTime:
    """The steady step of the slowest rank as recorded, ns. `count` steady steps; mean_used: stalls made the median wrong."""

    rank: int
    process: int
    count: int
    median_ns: int
    p10_ns: int
    p90_ns: int
    mean_ns: int
    mean_used: bool

    @property
    def step_ns(self) -> int:
        """What a step costs the run."""
        return self.mean_ns if self.mean_used else self.median_ns


def steps(run: Run) -> Steps:
    """The steps of every rank: marked, else inferred, else all GPU work as one step (source "none")."""
    return run.derived(_steps)


def _steps(run: Run) -> Steps:
    return _selected(run, every_step(run))


def every_step(run: Run) -> Steps:
    """The steps whether the user asked for them or not."""
    return run.derived(_every_step)


def _every_step(run: Run) -> Steps:
    marks = marked_steps(run)
    if not len(marks):
        marks = inferred_steps(run)
    if not len(marks):
        marks = _whole_window(run)
    return _measure(run, marks)


def _whole_window(run: Run) -> Marks:
    """All of each process's GPU work as one step. Its launches, also those before, count as made inside."""
    work = gpu_work(run)
    members = sorted({(int(r), int(p)) for r, p in zip(work.rank, work.process, strict=True)})
    mine = [(work.rank == r) & (work.process == p) for r, p in members]
    return Marks(
        "none",
        np.array([int(work.start[m].min()) for m in mine], np.int64),
        np.array([int(work.end[m].max()) for m in mine], np.int64),
        np.array([r for r, _ in members], np.int32),
        np.array([p for _, p in members], np.int64),
        np.zeros(len(members), np.int64),
    )


def _selected(run: Run, found: Steps) -> Steps:
    """The steps at the positions that the user asked for. They were measured among all, so the first has one before it."""
    if not run.options.steps or not len(found):
        return found
    low, high = run.options.steps
    keep = np.sort(np.concatenate([found.of(*member)[slice(low, high)] for member in found.members]))
    columns = {f.name: getattr(found, f.name)[keep] for f in fields(found) if f.name != "source"}
    columns["steady"] = _at_least_some(columns["steady"], columns["hitch"], columns["rank"], columns["process"])
    return Steps(found.source, **columns)


def _at_least_some(
    steady: npt.NDArray[np.bool_], hitch: npt.NDArray[np.bool_], rank: npt.NDArray[np.int32], process: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """For a rank without any steady step: those that the profiler did not hold up, else all."""
    steady = steady.copy()
    for mine in _members(rank, process):
        if not steady[mine].any():
            steady[mine] = ~hitch[mine] if (~hitch[mine]).any() else True
    return steady


def _members(rank: npt.NDArray[np.int32], process: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Positions of each (rank, process)."""
    pairs = sorted({(int(r), int(p)) for r, p in zip(rank, process, strict=True)})
    return [np.flatnonzero((rank == r) & (process == p)) for r, p in pairs]


def _measure(run: Run, marks: Marks) -> Steps:
    n = len(marks)
    order = np.lexsort((marks.start, marks.process, marks.rank))
    start, rank, process = marks.start[order], marks.rank[order], marks.process[order]
    own_end = np.maximum(marks.end[order], start)
    end, first = own_end.copy(), np.ones(n, bool)
    if n > 1:
        same = (rank[1:] == rank[:-1]) & (process[1:] == process[:-1])
        end[:-1][same] = start[1:][same]
        first[1:] = ~same
        _close_open_ends(end, own_end, start, same)
    gpu_end = _gpu_ends(run, start, end, rank, process)
    if marks.source == "none":
        gpu_end = end.copy()
    incomplete = _incomplete(run, start, end, rank, process)
    period = np.full(n, -1, np.int64)
    if n > 1:
        known = ~first[1:] & (gpu_end[1:] > 0) & (gpu_end[:-1] > 0) & ~incomplete[:-1]
        period[1:][known] = np.maximum(gpu_end[1:] - gpu_end[:-1], 0)[known]
    taken = np.maximum(end - start, period)
    number, typical = marks.number[order], float(np.median(taken)) if n else 0.0
    # A pause after the last launch of a step delays the end of the next one's work.
    hitch = _hitches(run, rank, number, [(start, end), (gpu_end - np.maximum(period, 0), gpu_end)], typical)
    # The first step of a rank starts with an empty queue; leave it out where others remain.
    steady = _at_least_some(~hitch & ~first & ~incomplete, hitch, rank, process)
    return Steps(marks.source, start, end, rank, process, number, gpu_end, period, steady, hitch, incomplete)


def _close_open_ends(
    end: npt.NDArray[np.int64], own_end: npt.NDArray[np.int64], start: npt.NDArray[np.int64], same: npt.NDArray[np.bool_]
) -> None:
    """A last step that ends at the very moment its predecessor ends was never popped: give it the usual length."""
    for last in np.flatnonzero(np.append(~same, True)):
        if last and same[last - 1] and own_end[last] == own_end[last - 1]:
            first = last - int(np.argmin(same[:last][::-1])) if not same[:last].all() else 0
            end[last] = min(int(own_end[last]), int(start[last] + np.median(end[first:last] - start[first:last])))


def _gpu_ends(
    run: Run,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    rank: npt.NDArray[np.int32],
    process: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """For each step: end of the latest operation whose launch call began inside it."""
    result = np.zeros(len(start), np.int64)
    work, calls, link = gpu_work(run), run.table("runtime_calls"), links(run)
    launched = np.flatnonzero(link.call >= 0)
    if not len(launched) or not len(start):
        return result
    when = calls["start"][link.call[launched]]
    work_rank, work_process = work.rank[launched], calls["process"][link.call[launched]]
    for mine in _members(rank, process):
        r, p = rank[mine[0]], process[mine[0]]
        here = np.flatnonzero((work_rank == r) & (work_process == p))
        at = np.searchsorted(start[mine], when[here], side="right") - 1
        inside = (at >= 0) & (when[here] < end[mine][np.maximum(at, 0)])
        latest = np.zeros(len(mine), np.int64)
        np.maximum.at(latest, at[inside], work.end[launched[here[inside]]])
        result[mine] = latest
    return result


def _incomplete(
    run: Run,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    rank: npt.NDArray[np.int32],
    process: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Steps in which clearly fewer launches have GPU work than in the best step of their rank.

    Of a file that is cut short, also those with clearly fewer launches that have any: both halves are gone there.
    """
    calls, launches = run.table("runtime_calls"), np.flatnonzero(is_kind(run, CallKind.LAUNCH))
    linked = links(run).count[launches] > 0
    cut = any(notice.code == CUT_SHORT for notice in run.notices)
    result = np.zeros(len(start), bool)
    for mine in _members(rank, process):
        r, p = rank[mine[0]], process[mine[0]]
        here = (calls["rank"][launches] == r) & (calls["process"][launches] == p)
        when, has_work = calls["start"][launches[here]], linked[here]
        total = np.concatenate(([0], np.cumsum(has_work)))
        low, high = np.searchsorted(when, start[mine]), np.searchsorted(when, end[mine])
        share = (total[high] - total[low]) / np.maximum(high - low, 1)
        result[mine] = (high > low) & (share < COMPLETE_SHARE * share.max(initial=0.0))
        if cut:
            whole = total[high] - total[low]
            result[mine] |= whole < COMPLETE_SHARE * whole.max(initial=0)
    return result


def _hitches(
    run: Run, rank: npt.NDArray[np.int32], number: npt.NDArray[np.int64], windows: list[IntervalSet], median: float
) -> npt.NDArray[np.bool_]:
    """Steps in which the profiler's own buffer work left a GPU idle: on one rank it delays the collectives of all.

    While the host runs ahead, a pause of it costs nothing: only the part of it that finds the GPU idle counts. `windows`: of
    each step on the host and on the GPU.
    """
    overheads = run.table("overheads")
    hit = np.zeros(len(rank), bool)
    names = [code for code in np.unique(overheads["name"]) if run.strings[int(code)].startswith(HITCHES)]
    rows = np.flatnonzero(np.isin(overheads["name"], names))
    if not len(rows):
        return hit
    work = gpu_work(run)
    for r in np.unique(rank):
        own = rows[(overheads["rank"][rows] == r) | (overheads["rank"][rows] < 0)]
        here = work.rank == r
        busy = union(work.start[here], work.end[here])
        held = subtract(union(overheads["start"][own], overheads["end"][own]), busy)
        for start, end in windows:
            hit |= (rank == r) & (covered(held, start, end) > HITCH_SHARE * median)
    spread = hit.copy()
    for r in np.unique(rank):  # within a rank a number may come back in the next epoch
        spread |= (rank == r) & np.isin(number, number[hit & (rank != r)])
    return spread


def step_time(run: Run) -> StepTime | None:
    """The steady step of the slowest rank, as recorded; None without steps. See `bounds` for the unprofiled estimate."""
    return max(step_times(run).values(), key=lambda one: one.step_ns, default=None)


def step_times(run: Run) -> dict[tuple[int, int], StepTime]:
    """The steady step of each (rank, process) that has steps, as recorded."""
    return run.derived(_step_times)


def _step_times(run: Run) -> dict[tuple[int, int], StepTime]:
    found = steps(run)
    return {(rank, process): _time_of(found, rank, process) for rank, process in found.members}


def paced_times(found: Steps, rank: int, process: int) -> npt.NDArray[np.int64]:
    """What each steady step of a rank took on the side that sets its pace, in time order, ns; empty without steps.

    The side with the larger median, not the longer one a step: the sides overshoot in different steps.
    """
    mine = found.of(rank, process)
    chosen = mine[found.steady[mine]]
    host, gpu = (found.end - found.start)[chosen], found.gpu_period[chosen]
    gpu = gpu[gpu > 0]
    return gpu if len(gpu) and np.median(gpu) >= np.median(host) else host


def _time_of(found: Steps, rank: int, process: int) -> StepTime:
    mine = found.of(rank, process)
    chosen = mine[found.steady[mine]]
    host, gpu = (found.end - found.start)[chosen], found.gpu_period[chosen]
    gpu = gpu[gpu > 0]
    side = paced_times(found, rank, process)
    mean = max(float(host.mean()), float(gpu.mean()) if len(gpu) else 0.0)
    middle = float(np.median(side))
    uneven = mean > UNEVEN * middle and len(chosen) > 2
    low, high = (int(np.quantile(side, share)) for share in (0.1, 0.9))
    return StepTime(rank, process, len(chosen), int(middle), low, high, int(mean), uneven)
