"""Where the host waits for the GPU inside steps: synchronising calls after which the GPU has nothing left to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import op_forest, op_of_call
from advisor.derive.calls import SYNCS, links
from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.intervals import covered
from advisor.derive.steady import Steady, steadies
from advisor.model import CopyKind, MemoryKind, Run

# Times of the host and of the GPU agree to some ten microseconds in recordings.
_CLOCK_ERROR_NS = 20_000


@dataclass(frozen=True)
class Waits:
    """One entry a wait in an ordinary step, in order of time.

    side: position in the arrays of `Steady.side`; kind: CallKind; op: row of `host_ops` of the outermost operator around it,
    else -1. wait_ns: how long it waited as recorded; idle_ns: idle time of the GPU from its end to the next work, -1 where
    none follows. cost_ns: host work of the call, and of the copy to the host that it waits for, without the profiler's.
    """

    side: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    wait_ns: npt.NDArray[np.int64]
    idle_ns: npt.NDArray[np.int64]
    cost_ns: npt.NDArray[np.int64]
    op: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.side)

    @property
    def total_idle_ns(self) -> int:
        """All idle time after the waits; one that nothing follows counts as the others on average."""
        known = self.idle_ns[self.idle_ns >= 0]
        return int(known.mean() * len(self)) if len(known) else 0

    def take(self, chosen: npt.NDArray[np.bool_]) -> Waits:
        return Waits(
            self.side[chosen],
            self.kind[chosen],
            self.wait_ns[chosen],
            self.idle_ns[chosen],
            self.cost_ns[chosen],
            self.op[chosen],
        )


def waits(run: Run, steady: Steady) -> Waits:
    """Synchronising calls and copies to the host that block, after which the GPU ran dry.

    Left out: waits for copies from pageable host memory (the copy is the cause), waits beside which the GPU stayed busy, and,
    where nothing tells a closing wait from one that recurs, a wait after which nothing is launched (the profiler's closing one).
    Computed once for each of `steadies(run)`.
    """
    for one, found in run.derived(_of_all):
        if one is steady:
            return found
    return _found(run, steady)


def _of_all(run: Run) -> list[tuple[Steady, Waits]]:
    return [(one, _found(run, one)) for one in steadies(run)]


def _found(run: Run, steady: Steady) -> Waits:
    side, copied = steady.side, _copies(run, steady)
    synchronises = np.isin(side.kind, SYNCS)
    reads = copied == int(CopyKind.DEVICE_TO_HOST)
    last = len(side)
    if steady.source in ("none", "inferred") or steady.count == 1:
        launches = np.flatnonzero(links(run).count[side.call] > 0)
        last = int(launches[-1]) if len(launches) else -1
    before, after = np.roll(copied, 1), np.roll(synchronises, -1)
    before[0], after[-1] = -1, False
    dry = _finished(run, steady) <= side.end + _CLOCK_ERROR_NS
    # A read-back is a copy and a wait for it: one wait, told at its last call.
    waiting = (synchronises & (before != int(CopyKind.HOST_TO_DEVICE))) | (reads & (side.wait > 0) & ~after)
    rows = np.flatnonzero(waiting & dry & (steady.at >= 0) & (np.arange(len(side)) < last))
    after_read = synchronises[rows] & (before[rows] == int(CopyKind.DEVICE_TO_HOST))
    before = np.maximum(rows - 1, 0)
    wait = side.wait[rows] + np.where(after_read, side.wait[before], 0)
    cost = side.deflated_own[rows] + np.where(after_read, side.deflated_own[before] + side.deflated_before[rows], 0)
    return Waits(rows, side.kind[rows], wait, _idle_after(steady, side.end[rows]), cost, _outermost(run, side.call[rows]))


def _copies(run: Run, steady: Steady) -> npt.NDArray[np.int64]:
    """For each CUDA call of the side: CopyKind of the copy it made, -1 for other calls; copies from pinned memory count as
    none where the host does not wait for them."""
    work, link, copies = gpu_work(run), links(run), run.table("copies")
    last = link.last_work[steady.side.call]
    is_copy = (last >= 0) & (work.source[np.maximum(last, 0)] == COPY) if len(work) else np.zeros(len(last), bool)
    kind = np.full(len(last), -1, np.int64)
    rows = work.row[last[is_copy]]
    kind[is_copy] = np.where(
        (copies["kind"][rows] == int(CopyKind.HOST_TO_DEVICE)) & (copies["source"][rows] == int(MemoryKind.PINNED)),
        -1,
        copies["kind"][rows],
    )
    return kind


def _finished(run: Run, steady: Steady) -> npt.NDArray[np.int64]:
    """For each CUDA call of the side: when the last of the work launched before it ended."""
    work, call, calls = gpu_work(run), links(run).call, run.table("runtime_calls")
    mine = np.flatnonzero((work.rank == steady.side.rank) & (work.process == steady.side.process) & (call >= 0))
    launched = calls["start"][call[mine]]
    order = np.argsort(launched, kind="stable")
    until = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(work.end[mine][order])))
    return until[np.searchsorted(launched[order], steady.side.start)]


def _idle_after(steady: Steady, moments: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Idle time inside ordinary steps from each moment to the next GPU work; -1 where none follows."""
    starts = steady.activity.busy[0]
    following = np.searchsorted(starts, moments)
    known = following < len(starts)
    result = np.full(len(moments), -1, np.int64)
    result[known] = covered(steady.idle, moments[known], starts[following[known]])
    return result


def _outermost(run: Run, calls: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each row of `runtime_calls`: the row of the outermost operator around it, else -1."""
    if not len(run.table("host_ops")):
        return np.full(len(calls), -1, np.int64)
    forest, op = op_forest(run), op_of_call(run)[calls]
    root = forest.nearest(forest.roots())
    return np.where(op >= 0, root[np.maximum(op, 0)], -1)
