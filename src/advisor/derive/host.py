"""The host side of a run: what the thread that drives the GPU did between and inside its CUDA calls, and what of it is real.

All threads that launch kernels are one logical thread: forward and autograd threads hand over to each other and do not run
at once. Its time is cut into the CUDA calls and the segments before each of them. A call's time is split into waiting for
the GPU and its own work.

`deflated_*` is what remains of host time without the profiler (see `profiler_cost`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import SYNCS, CallKind, call_kinds, is_kind, links
from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.intervals import covered, union
from advisor.derive.nesting import distinct_rows, thread_keys
from advisor.derive.profiler_cost import ProfilerCost, profiler_cost, without_profiler
from advisor.model import MemoryKind, Run, Table

_QUEUE_FULL_NS = 60_000  # a launch that takes longer, and 8 medians, waited for room in the launch queue
# From the end of a launch call to the begin of its kernel on an idle GPU (1.4 to 1.8 us in recordings of an H200): where launches
# block, the call itself ended that much before its kernel began.
SUBMISSION_NS = 1600
_BLOCKING_SHARE = 0.9  # of launches that end after their own kernel: launches block (elsewhere at most 0.15 was seen)


@dataclass(frozen=True)
class HostSide:
    """One logical host thread. Arrays have one entry a CUDA call, in order of start; times in ns.

    call: row of `runtime_calls`; kind: CallKind; before: length of the segment that ends where the call begins;
    events, frames: operators and Python frames recorded in that segment; wait: part of the call in which it waited for
    the GPU; own: the rest. cost: what recording an event cost. launches_block: launches return only after their kernel. Where
    two threads call at once, the time they share counts for the call that began first.
    """

    rank: int
    process: int
    call: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]
    events: npt.NDArray[np.float64]
    frames: npt.NDArray[np.float64]
    wait: npt.NDArray[np.int64]
    own: npt.NDArray[np.int64]
    deflated_before: npt.NDArray[np.int64]
    deflated_own: npt.NDArray[np.int64]
    cost: ProfilerCost
    launches_block: bool

    def __len__(self) -> int:
        return len(self.call)

    def between(self, start: int, end: int) -> slice:
        """The calls that begin inside [start, end)."""
        return slice(int(np.searchsorted(self.start, start)), int(np.searchsorted(self.start, end)))


def host_sides(run: Run) -> dict[tuple[int, int], HostSide]:
    """The host side of each (rank, process) that launched anything."""
    return run.derived(_host_sides)


def driving_threads(run: Run) -> npt.NDArray[np.int64]:
    """Thread keys (see `nesting.thread_keys`) of the threads that launch kernels."""
    return run.derived(_driving_threads)


def _driving_threads(run: Run) -> npt.NDArray[np.int64]:
    calls = run.table("runtime_calls")
    launching = is_kind(run, CallKind.LAUNCH, CallKind.GRAPH_LAUNCH) & (links(run).count > 0)
    if not launching.any():
        launching = is_kind(run, CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY)
    return np.unique(thread_keys(calls)[launching])


def _host_sides(run: Run) -> dict[tuple[int, int], HostSide]:
    calls, threads = run.table("runtime_calls"), driving_threads(run)
    keys = thread_keys(calls)
    relevant = np.flatnonzero(np.isin(keys, threads) & (call_kinds(run) != CallKind.TRIVIAL))
    members, index = distinct_rows(calls["rank"][relevant], calls["process"][relevant])
    ops, frames_of = _edges(run.table("host_ops"), threads), _edges(run.table("python_frames"), threads)
    wait, blocking = _waits(run)
    result: dict[tuple[int, int], HostSide] = {}
    for number, (rank, process) in enumerate(members):
        rows = relevant[index == number]
        rows = rows[_outermost(keys[rows], calls["start"][rows], calls["end"][rows])]
        start, end, kind = calls["start"][rows], calls["end"][rows], call_kinds(run)[rows]
        reach = np.concatenate((start[:1], np.maximum.accumulate(end)[:-1]))
        before = np.maximum(start - reach, 0)
        # Where threads call at once, each moment counts for the call that began first.
        seen = np.maximum(end - np.maximum(start, reach), 0)
        waited = np.minimum(wait[rows], seen)
        events, frames = _between(ops, (rank, process), reach, start), _between(frames_of, (rank, process), reach, start)
        own, blocks = seen - waited, (rank, process) in blocking
        launch_ns = np.minimum(own, _to_begin(run, rows) - SUBMISSION_NS) if blocks else own
        cost = profiler_cost(kind, before, events, frames, launch_ns)
        deflated_before, deflated_own = without_profiler(kind, before, events, frames, own, cost)
        result[rank, process] = HostSide(
            rank, process, rows, kind, start, end, before, events, frames, waited, own,
            deflated_before, deflated_own, cost, blocks,
        )  # fmt: skip
    return result


def _to_begin(run: Run, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each of these calls: from its begin to that of what it launched, which is after its work where launches block, ns."""
    last = links(run).last_work[rows]
    begun = gpu_work(run).start[np.maximum(last, 0)] - run.table("runtime_calls")["start"][rows]
    return np.where(last >= 0, np.maximum(begun, 0), np.iinfo(np.int64).max)


def _outermost(threads: npt.NDArray[np.int64], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Of calls in order of start: those that begin inside no other call of their thread (the driver's below the runtime's)."""
    outer = np.ones(len(threads), bool)
    for thread in np.unique(threads):
        mine = np.flatnonzero(threads == thread)
        outer[mine[1:]] = start[mine[1:]] >= np.maximum.accumulate(end[mine])[:-1]
    return outer


_Edges = dict[tuple[int, ...], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]


def _edges(table: Table, threads: npt.NDArray[np.int64]) -> _Edges:
    """For each (rank, process): begins and ends, each in order, of the rows on the driving threads."""
    rows = np.flatnonzero(np.isin(thread_keys(table), threads)) if len(table) else np.empty(0, np.int64)
    members, index = distinct_rows(table["rank"][rows], table["process"][rows])
    own = [rows[index == number] for number in range(len(members))]
    return {
        member: (np.sort(table["start"][mine]), np.sort(table["end"][mine])) for member, mine in zip(members, own, strict=True)
    }


def _between(
    edges: _Edges, member: tuple[int, ...], low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """For each [low, high): half the begins and ends in it, which is the number of rows where all lie inside."""
    count = np.zeros(len(low), np.int64)
    for side in edges.get(member, ()):
        count += np.searchsorted(side, high) - np.searchsorted(side, low)
    return np.maximum(count / 2, 0)


def _waits(run: Run) -> tuple[npt.NDArray[np.int64], set[tuple[int, int]]]:
    """For each row of `runtime_calls`: how long it waited for the GPU; and the processes whose launches block."""
    calls, link, work = run.table("runtime_calls"), links(run), gpu_work(run)
    start, end = calls["start"], calls["end"]
    wait = np.zeros(len(calls), np.int64)
    blocking: set[tuple[int, int]] = set()
    launches = np.flatnonzero(is_kind(run, CallKind.LAUNCH, CallKind.GRAPH_LAUNCH) & (link.last_work >= 0))
    # Kinds whose waiting shows as the GPU being busy meanwhile.
    syncs = np.flatnonzero(is_kind(run, *SYNCS) | _waiting_releases(run) | _pageable_calls(run))
    members, index = distinct_rows(calls["rank"], calls["process"])
    for number, (rank, process) in enumerate(members):
        here = (work.rank == rank) & (work.process == process)
        busy = union(work.start[here], work.end[here])
        waiting, own = syncs[index[syncs] == number], launches[index[launches] == number]
        if len(own):
            length = end[own] - start[own]
            if float(np.mean(end[own] >= work.end[link.last_work[own]])) >= _BLOCKING_SHARE:
                blocking.add((rank, process))
                waiting = np.append(waiting, own)
            else:
                waiting = np.append(waiting, own[length > max(_QUEUE_FULL_NS, 8 * float(np.median(length)))])
        wait[waiting] = covered(busy, start[waiting], end[waiting])
    return wait, blocking


def _waiting_releases(run: Run) -> npt.NDArray[np.bool_]:
    """Rows of `runtime_calls` that release memory at once: the driver waits for the GPU first. Stream-ordered ones do not."""
    names = run.table("runtime_calls")["name"]
    ordered = [code for code in np.unique(names) if run.strings[int(code)].endswith("Async")]
    return is_kind(run, CallKind.FREE) & ~np.isin(names, ordered)


def _pageable_calls(run: Run) -> npt.NDArray[np.bool_]:
    """Rows of `runtime_calls` that copy from or to pageable memory: such a call returns only when the copy is staged or done."""
    copies, work, link = run.table("copies"), gpu_work(run), links(run)
    result = np.zeros(len(run.table("runtime_calls")), bool)
    is_copy = np.flatnonzero((work.source == COPY) & (link.call >= 0))
    rows = work.row[is_copy]
    touches = (copies["source"][rows] == int(MemoryKind.PAGEABLE)) | (copies["target"][rows] == int(MemoryKind.PAGEABLE))
    result[link.call[is_copy[touches]]] = True
    return result
