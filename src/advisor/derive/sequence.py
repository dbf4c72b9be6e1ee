"""The kernels of the steady steps of the rank that sets the pace, in the order in which the host launched them.

Rules about kernels work on this: what stands next to what, how long it takes, and what launching it costs the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import locations, op_of_work
from advisor.derive.bounds import two_sided
from advisor.derive.calls import links
from advisor.derive.gpus import KERNEL, gpu_work
from advisor.derive.host import HostSide, host_sides
from advisor.derive.kernel_classes import kernel_kinds
from advisor.derive.nesting import thread_keys
from advisor.derive.steps import steps
from advisor.model import Location, Run


@dataclass(frozen=True)
class Sequence:
    """Arrays with one entry a kernel, by stream and then in launch order; divide sums by `steps` for one step.

    row: row of `kernels`; work: position in `gpu_work`; stream; kind: KernelClass; precision: Precision; gpu_ns: duration;
    call: row of `runtime_calls` (-1: lost); op: row of `host_ops` (-1: unknown); host_ns: what the launch and the segment
    before it cost the host without the profiler; launch: begin of the launch call; where that was lost, of the one before it
    on the stream; step: number of the steady step. step_ns: the slowest rank's step, the most that kernels can take of one;
    0: unknown.
    """

    steps: int
    row: npt.NDArray[np.int64]
    work: npt.NDArray[np.int64]
    stream: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    precision: npt.NDArray[np.int8]
    gpu_ns: npt.NDArray[np.int64]
    call: npt.NDArray[np.int64]
    op: npt.NDArray[np.int64]
    host_ns: npt.NDArray[np.int64]
    launch: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    step_ns: int = 0

    def __len__(self) -> int:
        return len(self.row)

    def per_step(self, amounts: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]) -> int:
        """Sum of the chosen amounts, for one step: no more than the step, also where kernels run side by side."""
        amount = int(amounts[mask].sum()) // max(self.steps, 1)
        return min(amount, self.step_ns) if self.step_ns else amount

    def count(self, chosen: npt.NDArray[np.bool_] | int) -> float:
        """How many of the chosen there are in a step: a whole number from ten on, else to one decimal."""
        each = int(np.sum(chosen)) / max(self.steps, 1)
        return round(each) if each >= 10 or each == int(each) else max(round(each, 1), 0.1)


def sequence(run: Run) -> Sequence:
    """Empty without steps or kernels."""
    return run.derived(_sequence)


def host_cost(run: Run) -> npt.NDArray[np.int64]:
    """For each row of `runtime_calls`: its own time and the segment before it, without waits and profiler, ns."""
    return run.derived(_host_cost)


def _host_cost(run: Run) -> npt.NDArray[np.int64]:
    cost = np.zeros(len(run.table("runtime_calls")), np.int64)
    for side in host_sides(run).values():
        cost[side.call] = side.deflated_before + side.deflated_own
    return cost


def steady_calls(run: Run, side: HostSide) -> npt.NDArray[np.bool_]:
    """For each call of a host side: whether it begins in a steady step."""
    found = steps(run)
    mine = found.of(side.rank, side.process)
    inside = np.zeros(len(side), bool)
    for step in mine[found.steady[mine]]:
        inside[side.between(int(found.start[step]), int(found.end[step]))] = True
    return inside


def _sequence(run: Run) -> Sequence:
    pace = two_sided(run)
    if pace is None or not len(run.table("kernels")):
        empty, small = np.empty(0, np.int64), np.empty(0, np.int8)
        return Sequence(0, empty, empty, empty, small, small, empty, empty, empty, empty, empty, empty)
    return sequence_of(run, pace.rank, pace.process)


def sequences(run: Run) -> list[Sequence]:
    """The same of every rank: what a change of the program changes on all of them."""
    return run.derived(_sequences)


def _sequences(run: Run) -> list[Sequence]:
    members = steps(run).members
    if len(members) == 1:
        return [sequence(run)]
    return [sequence_of(run, rank, process) for rank, process in members] if len(run.table("kernels")) else []


def sequence_of(run: Run, rank: int, process: int) -> Sequence:
    """The same of any rank. Not kept: ask once."""
    found, work = steps(run), gpu_work(run)
    mine = found.of(rank, process)
    mine = mine[found.steady[mine]]
    call, calls = links(run).call, run.table("runtime_calls")
    here = np.flatnonzero((work.source == KERNEL) & (work.rank == rank) & (work.process == process))
    here = here[_recorded(call[here], work.gpu[here])]
    launch = _launched(work.stream[here], call[here], work.start[here], calls["start"])
    if found.source == "none":  # the one step begins with the first work, which was launched before
        launch = np.maximum(launch, found.start[mine].min())
    at = np.searchsorted(found.start[mine], launch, side="right") - 1
    inside = (at >= 0) & (launch < found.end[mine][np.maximum(at, 0)])
    here, launch, at = here[inside], launch[inside], at[inside]
    order = np.lexsort((work.start[here], launch, work.stream[here]))
    here, launch, at = here[order], launch[order], at[order]
    rows, kinds = work.row[here], kernel_kinds(run)
    cost = np.zeros(len(here), np.int64)
    linked = call[here] >= 0
    cost[linked] = host_cost(run)[call[here][linked]]
    # One graph launch stands for many kernels, on several streams even: its cost belongs to the first of them.
    first = np.zeros(len(here), bool)
    first[np.unique(call[here], return_index=True)[1]] = True
    return Sequence(
        steps=len(mine),
        row=rows,
        work=here,
        stream=work.stream[here],
        kind=kinds.kind[rows],
        precision=kinds.precision[rows],
        gpu_ns=work.end[here] - work.start[here],
        call=call[here],
        op=op_of_work(run)[here],
        host_ns=np.where(first, cost, 0),
        launch=launch,
        step=at.astype(np.int64),
        step_ns=pace.step_ns if (pace := two_sided(run)) else 0,
    )


def _recorded(call: npt.NDArray[np.int64], gpu: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Of operations ordered by start: False for those of a GPU before its first one with a launch.

    They were launched before the recording began and belong to no recorded step.
    """
    keep = np.zeros(len(call), bool)
    for one in np.unique(gpu):
        rows = np.flatnonzero(gpu == one)
        linked = np.flatnonzero(call[rows] >= 0)
        keep[rows[linked[0] if len(linked) else 0 :]] = True
    return keep


def _launched(
    stream: npt.NDArray[np.int64], call: npt.NDArray[np.int64], start: npt.NDArray[np.int64], call_start: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """When each operation (ordered by start) was launched.

    Where the call was lost: when the one before it on its stream was, since a stream runs in the order of launching; else its
    own start.
    """
    launch = start.copy()
    launch[call >= 0] = call_start[call[call >= 0]]
    order = np.lexsort((np.arange(len(stream)), stream))
    known = np.where(call[order] >= 0, np.arange(len(order)), -1)
    before = np.maximum.accumulate(known) if len(known) else known
    fill = (call[order] < 0) & (before >= 0) & (stream[order][np.maximum(before, 0)] == stream[order])
    launch[order[fill]] = launch[order[before[fill]]]
    return launch


def on_gpu(run: Run, found: Sequence, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The chosen kernels as a mask over `gpu_work`."""
    work = gpu_work(run)
    chosen = np.zeros(len(work), bool)
    chosen[found.work[mask]] = True
    return chosen


def source_lines(run: Run, found: Sequence, mask: npt.NDArray[np.bool_]) -> list[Location]:
    """The user's lines that launched the chosen kernels, by GPU time."""
    calls = run.table("runtime_calls")
    rows = np.flatnonzero(mask & (found.call >= 0))
    call = found.call[rows]
    return locations(run, thread_keys(calls)[call], calls["start"][call], found.gpu_ns[rows].astype(float))


def costliest(run: Run, found: Sequence, mask: npt.NDArray[np.bool_], most: int = 6) -> list[tuple[str, float, int]]:
    """(kernel name, executions a step, GPU ns a step) of the chosen kernels, the costliest first."""
    names = run.table("kernels")["name"][found.row[mask]]
    codes, inverse = np.unique(names, return_inverse=True)
    spent = np.bincount(inverse, weights=found.gpu_ns[mask], minlength=len(codes))
    count = np.bincount(inverse, minlength=len(codes))
    ranked = sorted(range(len(codes)), key=lambda i: (-spent[i], run.strings[int(codes[i])]))[:most]
    steps = max(found.steps, 1)
    return [(run.strings[int(codes[i])], round(float(count[i]) / steps, 1), int(spent[i]) // steps) for i in ranked]


def runs_of(mask: npt.NDArray[np.bool_], *groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each entry: the number of the maximal run of True it belongs to, -1 where False. A new value in a group ends a run."""
    if not len(mask):
        return np.empty(0, np.int64)
    begins = mask.copy()
    changed = np.any([group[1:] != group[:-1] for group in groups], axis=0)
    begins[1:] &= ~mask[:-1] | changed
    return np.where(mask, np.cumsum(begins) - 1, -1)
