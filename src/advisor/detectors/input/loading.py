"""What the two data loader rules look at: how long a step waits for its batch, and what the GPU does meanwhile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import loader_ranges
from advisor.derive.calls import LAUNCHES, CallKind
from advisor.derive.host import driving_threads
from advisor.derive.intervals import IntervalSet, covered, union
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import Steady, steadies
from advisor.model import Evidence, Run
from advisor.replay.changes import GONE, Edit
from advisor.rules.contract import Change, NotApplicable

SINGLE = "_SingleProcessDataLoaderIter"


@dataclass(frozen=True)
class Loading:
    """Per ordinary step, ns: `wait_ns` in the loader as the run has it without a profiler; `recorded_ns` as recorded, of
    which the GPU was idle for `idle_ns`. rows: the rows of `ranges`; single: the loader works in the training process.
    """

    rows: npt.NDArray[np.int64]
    when: IntervalSet
    wait_ns: int
    recorded_ns: int
    idle_ns: int
    single: bool

    def gone(self, steady: Steady, handover_ns: float) -> Change:
        return change(steady, self.wait_ns, self.idle_ns, handover_ns)


def edits(run: Run) -> list[Edit]:
    """On all ranks the loader's time leaves the thread that drives the GPU."""
    return edits_of(run, [(steady, one.when) for steady, one in run.derived(_of_all) if one is not None])


def edits_of(run: Run, loading: Sequence[tuple[Steady, IntervalSet]]) -> list[Edit]:
    """The same for intervals in which batches are made: they vanish, and so do the waits for a batch's copy to the GPU.

    Batches of worker processes come in pinned memory, and their copy need not be waited for.
    """
    waits = np.zeros(len(run.table("runtime_calls")), bool)
    for steady, when in loading:
        waits[steady.side.call[_copied_waiting(steady, when)]] = True
    gone = [Edit(intervals=when, of=(steady.step.rank, steady.step.process)) for steady, when in loading]
    return [*gone, Edit(calls=waits, own=GONE, waits=False)] if waits.any() else gone


def _copied_waiting(steady: Steady, when: IntervalSet) -> list[int]:
    """Positions in `Steady.side` of the waits for copies between the making of a batch and the first launch after it."""
    side, found = steady.side, []
    for first in np.flatnonzero(covered(when, side.start - side.before, side.start) > 0).tolist():
        at = first
        while at < len(side) and side.kind[at] not in LAUNCHES:
            if at > first and side.kind[at] == CallKind.SYNC_STREAM and side.kind[at - 1] == CallKind.COPY:
                found.append(at)
            at += 1
    return found


def loading(run: Run, steady: Steady) -> Loading | None:
    """The time in loader ranges of the rank that sets the pace; None if nothing marks a loader."""
    return next((found for one, found in run.derived(_of_all) if one is steady), None)


def _of_all(run: Run) -> list[tuple[Steady, Loading | None]]:
    return [(one, _loading(run, one)) for one in steadies(run)]


def _loading(run: Run, steady: Steady) -> Loading | None:
    table = run.table("ranges")
    rows = loader_ranges(run)
    # A loader range on a thread of its own (prefetching) holds nobody up.
    own = (table["rank"] == steady.step.rank) & (table["process"] == steady.step.process)
    rows = rows[own[rows] & np.isin(thread_keys(table)[rows], driving_threads(run))]
    if not len(rows):
        return None
    when = union(table["start"][rows], table["end"][rows])
    idle = steady.idle
    return Loading(
        rows=rows,
        when=when,
        wait_ns=steady.host_within(when),
        recorded_ns=steady.within(when),
        idle_ns=int(covered(idle, *when).sum()) // max(steady.count, 1),
        single=any(SINGLE in run.strings[int(code)] for code in np.unique(table["name"][rows])),
    )


def unmarked(run: Run) -> NotApplicable:
    """Nothing marks a loader. A trace of torch.profiler would, had the program used torch.utils.data.DataLoader."""
    if run.capture.tool == "torch.profiler":
        return NotApplicable("no range marks a data loader", 'mark it: with torch.profiler.record_function("dataloader")')
    return NotApplicable("no range marks a data loader", "record with torch.profiler, which marks torch.utils.data.DataLoader")


def change(steady: Steady, wait_ns: int, idle_ns: int, handover_ns: float) -> Change:
    """The loader's work leaves the thread that drives the GPU; handing over a finished batch stays.

    Where the GPU sets the pace nevertheless, what it was idle meanwhile goes.
    """
    step, gone = steady.step, max(wait_ns - int(handover_ns), 0)
    return Change(host_ns=gone, wait_ns=min(step.wait_ns, idle_ns, gone) if step.gpu_bound else 0, limit_ns=gone)


def gain(steady: Steady, gone: Change) -> float:
    """By which share of itself the step gets shorter: nothing where the GPU hides the loader."""
    after = steady.step.after(host_ns=gone.host_ns, wait_ns=gone.wait_ns)
    return (steady.step.step_ns - after) / max(steady.step.step_ns, 1)


def workers_needed(steady: Steady, wait_ns: int, gone: Change) -> int:
    """Worker processes that deliver a batch as often as the rest of the loop asks for one, if one takes `wait_ns` a batch."""
    rest = max(steady.step.after(host_ns=gone.host_ns), 1)
    return max(math.ceil(wait_ns / rest), 1)


def evidence(steady: Steady, when: IntervalSet, caption: str) -> Evidence:
    """The first steps, each with its wait and the GPU's idle time in it."""
    waits = covered(when, steady.start, steady.end)
    idle = steady.idle
    rows = []
    for i in range(min(steady.count, 8)):
        inside = (np.maximum(when[0], steady.start[i]), np.minimum(when[1], steady.end[i]))
        keep = inside[1] > inside[0]
        nothing = int(covered(idle, inside[0][keep], inside[1][keep]).sum())
        rows.append([int(steady.start[i]), int(steady.end[i] - steady.start[i]), int(waits[i]), nothing])
    return Evidence(caption, ["step_start_ns", "step_ns", "wait_ns", "gpu_idle_ns"], rows)
