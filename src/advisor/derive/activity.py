"""What each GPU did when: compute, communication, copies; and why it was idle.

Idle time is explained by what the host that drives the GPU was doing in that moment, since an empty GPU waits for its host.
A moment counts for the first cause that applies:

* dataloader: inside a data loader's `__next__`;
* memory-management: inside a CUDA allocation or release;
* host-sync: the host waited for the GPU inside this gap, or the gap began while it did: until the next operation arrives,
  the queue that the wait drained is being refilled;
* launch: the host was inside a framework operator or a CUDA call, issuing work;
* python: the host was recorded and did neither;
* unexplained: nothing of the host was recorded then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import SYNCS, CallKind
from advisor.derive.collectives import KINDS, collectives
from advisor.derive.gpus import COPY, GRAPH, KERNEL, Gpu, gpu_work, work_by_row
from advisor.derive.host import driving_threads, host_sides
from advisor.derive.intervals import EMPTY, IntervalSet, clip, complement, intersect, length, merge, subtract, union
from advisor.derive.kernel_classes import KernelClass, kernel_kinds
from advisor.derive.nesting import thread_keys
from advisor.derive.steps import Steps, steps
from advisor.model import Run

CAUSES = ("dataloader", "host-sync", "launch", "python", "memory-management", "unexplained")
DATALOADER = re.compile(
    r"enumerate\(DataLoader\)|_(Single|Multi)Process(ing)?DataLoaderIter|dataloader_next\W*$|"
    r"^\W*(data[ _]?load(er|ing)?|(next|get|load|fetch)[ _](batch|data))\W*$",
    re.I,
)
# How far after the beginning of a gap a wait may end and still be its cause: the wake-up of the waiting thread.
_WAKE_UP_NS = 100_000
# An eager operator costs 5 to 60 us on the host (forward and backward, torch 1.8 to 2.11); a longer pause is something else.
_DISPATCH_NS = 100_000
_SEND_RECV = KINDS.index("send-recv")


@dataclass(frozen=True)
class Activity:
    """Interval sets of one GPU over the whole recording.

    peer_wait: communication kernels before the last rank arrived; handed_on: kernels that send to or receive from one peer.
    """

    gpu: Gpu
    compute: IntervalSet
    communication: IntervalSet
    peer_wait: IntervalSet
    handed_on: IntervalSet
    copies: IntervalSet
    busy: IntervalSet


def activities(run: Run) -> list[Activity]:
    """One entry a GPU that did work, in the order of `gpu_work(run).gpus`."""
    return run.derived(_activities)


def _activities(run: Run) -> list[Activity]:
    work, kinds, found = gpu_work(run), kernel_kinds(run), collectives(run)
    is_comm = np.zeros(len(work), bool)
    kernel = work.source == KERNEL
    is_comm[kernel] = kinds.of(KernelClass.COMMUNICATION)[work.row[kernel]]
    place = work_by_row(work, KERNEL, len(run.table("kernels")))[found.kernel]
    result = []
    for index, gpu in enumerate(work.gpus):
        mine = work.gpu == index

        def covered_by(mask: npt.NDArray[np.bool_], mine: npt.NDArray[np.bool_] = mine) -> IntervalSet:
            return union(work.start[mine & mask], work.end[mine & mask])

        waits = (found.wait_ns > 0) & mine[place] if len(found) else np.empty(0, bool)
        begun = work.start[place[waits]]
        sent = place[mine[place] & (found.kind == _SEND_RECV)] if len(found) else place[:0]
        compute = covered_by((kernel & ~is_comm) | (work.source == GRAPH))
        communication, copies = covered_by(is_comm), covered_by(work.source == COPY)
        result.append(
            Activity(
                gpu=gpu,
                compute=compute,
                communication=communication,
                peer_wait=union(begun, begun + found.wait_ns[waits]),
                handed_on=union(work.start[sent], work.end[sent]),
                copies=copies,
                busy=merge(compute, communication, copies),
            )
        )
    return result


def loader_ranges(run: Run) -> npt.NDArray[np.int64]:
    """Rows of `ranges` in which a data loader hands out a batch."""
    return run.derived(_loader_ranges)


def _loader_ranges(run: Run) -> npt.NDArray[np.int64]:
    names = run.table("ranges")["name"]
    codes = [c for c in np.unique(names) if c >= 0 and DATALOADER.search(run.strings[int(c)])]
    return np.flatnonzero(np.isin(names, codes))


def host_intervals(run: Run, gpu: Gpu) -> dict[str, IntervalSet]:
    """When the host that drives this GPU was in each state: dataloader, memory-management, sync, issuing, recorded."""
    side = host_sides(run).get((gpu.rank, gpu.process))
    ranges, ops = run.table("ranges"), run.table("host_ops")
    loader = ranges.take(loader_ranges(run))
    # Only a loader range on the thread that drives the GPU can hold it up; without launches take all.
    driving = driving_threads(run)
    on_main = np.isin(thread_keys(loader), driving) | ~np.isin(thread_keys(loader), thread_keys(run.table("runtime_calls")))
    mine = (loader["rank"] == gpu.rank) & (loader["process"] == gpu.process) & on_main
    state = {"dataloader": union(loader["start"][mine], loader["end"][mine])}
    state.update({"memory-management": EMPTY, "sync": EMPTY, "issuing": EMPTY, "recorded": EMPTY})
    own_ops = (ops["rank"] == gpu.rank) & (ops["process"] == gpu.process) & np.isin(thread_keys(ops), driving)
    op_set = union(ops["start"][own_ops], ops["end"][own_ops])
    if side is None or not len(side):
        state["issuing"] = state["recorded"] = op_set
        return state
    memory = np.isin(side.kind, (CallKind.MALLOC, CallKind.FREE))
    waiting = np.isin(side.kind, SYNCS) | (side.wait > 0)
    if side.launches_block:
        waiting &= ~np.isin(side.kind, (CallKind.LAUNCH,))
    state["memory-management"] = union(side.start[memory], side.end[memory])
    state["sync"] = union(side.start[waiting & ~memory], side.end[waiting & ~memory])
    dispatch = EMPTY
    if not len(op_set[0]):
        # Operators were not recorded (Nsight Systems): short pauses between calls are the framework dispatching the next.
        short = side.before <= _DISPATCH_NS
        dispatch = union((side.start - side.before)[short], side.start[short])
    state["issuing"] = merge(op_set, dispatch, union(side.start, side.end))
    of_process = (ranges["rank"] == gpu.rank) & (ranges["process"] == gpu.process)
    recorded = merge(state["issuing"], union(ranges["start"][of_process], ranges["end"][of_process]))
    state["recorded"] = (recorded[0][:1], recorded[1][-1:])
    return state


def idle_causes(run: Run, activity: Activity, windows: IntervalSet) -> dict[str, IntervalSet]:
    """The idle time of a GPU inside the windows, split by cause; the sets are disjoint and cover all of it."""
    if not len(windows[0]):
        return dict.fromkeys(CAUSES, EMPTY)
    idle = intersect(complement(activity.busy, int(windows[0][0]), int(windows[1][-1])), windows)
    state = host_intervals(run, activity.gpu)
    causes: dict[str, IntervalSet] = {}
    left = idle

    def claim(cause: str, claimed: IntervalSet) -> None:
        nonlocal left
        causes[cause] = intersect(left, claimed)
        left = subtract(left, claimed)

    claim("dataloader", state["dataloader"])
    claim("memory-management", state["memory-management"])
    claim("host-sync", _after_waits(idle, state["sync"]))
    claim("launch", state["issuing"])
    claim("python", state["recorded"])
    causes["unexplained"] = left
    return causes


def _after_waits(idle: IntervalSet, sync: IntervalSet) -> IntervalSet:
    """From the end of each wait that drained the queue to the end of the gap, and the part of the gap inside the wait."""
    if not len(idle[0]) or not len(sync[0]):
        return EMPTY
    gap = np.searchsorted(idle[0], sync[1], side="right") - 1
    inside = (gap >= 0) & (sync[1] <= idle[1][np.maximum(gap, 0)])
    gap, ended, begun = gap[inside], sync[1][inside], sync[0][inside]
    drained = begun <= idle[0][gap] + _WAKE_UP_NS
    return merge(intersect(idle, sync), union(ended[drained], idle[1][gap[drained]]))


def step_windows(run: Run, gpu: Gpu) -> IntervalSet:
    """The steady steps on this GPU's time line: from the end of one step's work to the end of the next one's, where known."""
    found = steps(run)
    mine = found.of(gpu.rank, gpu.process)
    if not len(mine):
        mine = np.flatnonzero(found.rank == gpu.rank)
    return step_windows_of(found, mine[found.steady[mine]])


def step_windows_of(found: Steps, chosen: npt.NDArray[np.int64]) -> IntervalSet:
    """The chosen steps on the time line of their GPU: on the host's where the GPU's side is not known."""
    by_gpu = found.gpu_period[chosen] > 0
    end = np.where(by_gpu, found.gpu_end[chosen], found.end[chosen])
    start = np.where(by_gpu, end - found.gpu_period[chosen], found.start[chosen])
    return start.astype(np.int64), end.astype(np.int64)


def window(run: Run) -> tuple[int, int]:
    """First and last moment that the report speaks of: first to last step, else first to last GPU work, else all rows."""
    found = steps(run)
    if len(found):
        return int(found.start.min()), int(found.end.max())
    work = gpu_work(run)
    if len(work):
        return int(work.start.min()), int(work.end.max())
    starts, ends = [], []
    for name in ("runtime_calls", "host_ops", "ranges"):
        table = run.table(name)
        if len(table):
            starts.append(int(table["start"].min()))
            ends.append(int(table["end"].max()))
    return (min(starts), max(ends)) if starts else (0, 0)


def within(activity: Activity, start: int, end: int) -> dict[str, int]:
    """Busy, compute, communication (and what of it compute does not hide) and copy time of a GPU inside a window, ns."""
    compute = clip(activity.compute, start, end)
    communication = clip(activity.communication, start, end)
    return {
        "busy_ns": length(clip(activity.busy, start, end)),
        "compute_ns": length(compute),
        "communication_ns": length(communication),
        "exposed_communication_ns": length(subtract(communication, compute)),
        "copy_ns": length(clip(activity.copies, start, end)),
    }
