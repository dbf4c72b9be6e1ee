"""From a run to the dependency graph of its steady steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import LAUNCHES, CallKind, links
from advisor.derive.collectives import collectives
from advisor.derive.gpus import COPY, KERNEL, GpuWork, gpu_work, work_by_row
from advisor.derive.host import HostSide, host_sides
from advisor.derive.nesting import mixed_key
from advisor.derive.profiler_cost import ProfilerCost, profiler_cost
from advisor.derive.steps import Steps, steps
from advisor.model import CopyKind, MemoryKind, Run
from advisor.replay.graph import WAIT_END, WAIT_START, Graph

Ints = npt.NDArray[np.int64]

# A gap up to STREAM_GAP is the stream's own; a kernel that waited for its launch would start QUEUE_GAP after the one before.
STREAM_GAP, QUEUE_GAP = 3500, 1000
# In a GPU-bound window every latency is queueing, so the trace's own minimum is only believed up to here.
MOST_LATENCY = 8000
# An operation that starts later than this after its launch (or 8 smallest latencies) did not wait for the launch.
PROMPT = 50_000
# An event of another stream passes on within this time.
EVENT_GAP = 10_000
# A gap that nothing explains is cut here; the rest of it is left to the host.
UNEXPLAINED = 1_000_000
# Launches that CUDA lets run ahead of the GPU; the recording's own figure is used where it shows one.
QUEUE = 1022
_QUEUE_SEEN = 600
_QUEUE_CALL_NS = 60_000
# Launch calls of two ranks on one machine took up to 1.33 times as long on one as on the other (1.15 from their mean).
MOST_UNLIKE = 1.25
# A rule may ask for several replays. Beyond so many calls the steps nearest to the median stand for the others.
MOST_CALLS = 6000
FEWEST_STEPS = 3


def graphs(run: Run) -> list[Graph]:
    """One graph a rank that has steps, launches and GPU work; empty where that is not recorded."""
    return run.derived(_graphs)


def _graphs(run: Run) -> list[Graph]:
    found = steps(run)
    sides = {member: host_sides(run).get(member) for member in found.members}
    recorded = [side for side in sides.values() if side is not None and len(side)]
    if not recorded:
        return []
    chosen = _chosen_steps(found, recorded)
    built = [_build(run, found, side, chosen) for side in recorded]
    return _on_like_hosts([graph for graph in built if graph is not None])


def _on_like_hosts(built: list[Graph]) -> list[Graph]:
    """The graphs with the speed of each host against all: what recording costs differs between ranks of one machine.

    The launch call tells a host's speed (see `profiler_cost`). A host that is slower by more than MOST_UNLIKE is a slow host.
    """
    if len(built) < 2:
        return built
    launch = np.log([max(graph.cost.launch_ns, 1.0) for graph in built])
    speed = np.exp(np.clip(launch.mean() - launch, -math.log(MOST_UNLIKE), math.log(MOST_UNLIKE)))
    return [replace(graph, speed=float(one)) for graph, one in zip(built, speed, strict=True)]


def _chosen_steps(found: Steps, sides: list[HostSide]) -> Ints:
    """Numbers of the steps to replay: steady on every rank, the ones nearest to the median first, until there are enough.

    All ranks replay the same steps, or their collectives would not be the same ones.
    """
    steady = [
        {int(n) for n in found.number[found.of(s.rank, s.process)][found.steady[found.of(s.rank, s.process)]]} for s in sides
    ]
    common = sorted(set.intersection(*steady))
    if not common:
        return np.empty(0, np.int64)
    taken, calls = np.zeros(len(common), np.int64), np.zeros(len(common), np.int64)
    for side in sides:
        mine = found.of(side.rank, side.process)
        rows = mine[np.searchsorted(found.number[mine], common)]
        taken = np.maximum(taken, found.time()[rows])
        parts = [side.between(int(found.start[i]), int(found.end[i])) for i in rows]
        calls = np.maximum(calls, [part.stop - part.start for part in parts])
    order = np.argsort(np.abs(taken - np.median(taken)), kind="stable")
    count = max(int(np.searchsorted(np.cumsum(calls[order]), MOST_CALLS, side="right")), FEWEST_STEPS)
    return np.sort(np.array(common, np.int64)[order[:count]])


@dataclass(frozen=True)
class _Issued:
    """Operations in issue order. work: position in gpu_work; call: position among the chosen calls; issued: launch known."""

    work: Ints
    call: Ints
    issued: npt.NDArray[np.bool_]


def _build(run: Run, found: Steps, side: HostSide, numbers: Ints) -> Graph | None:
    mine = found.of(side.rank, side.process)
    chosen = mine[np.isin(found.number[mine], numbers) & found.steady[mine]]
    if not len(chosen):
        return None
    parts = [side.between(int(found.start[i]), int(found.end[i])) for i in chosen]
    at = np.concatenate([np.arange(part.start, part.stop) for part in parts])
    if not len(at):
        return None
    work = gpu_work(run)
    issued = _operations(run, side, at, work)
    if not len(issued.work):
        return None
    start, end = work.start[issued.work], work.end[issued.work]
    begin = side.start[at]
    stream_keys = mixed_key(work.gpu[issued.work], work.stream[issued.work])
    distinct, stream = np.unique(stream_keys, return_inverse=True)
    gap_seen = _gaps(work)[issued.work]
    latency_seen = np.where(issued.issued, start - begin[issued.call], 0)
    least = int(min(np.quantile(latency_seen[issued.issued], 0.1), MOST_LATENCY)) if issued.issued.any() else 0
    least = max(least, 0)
    # An operation that starts long after its launch was held up by something else than the launch.
    prompt = issued.issued & (latency_seen >= 0) & (latency_seen <= max(PROMPT, 8 * least))
    by_stream = gap_seen < STREAM_GAP
    after, after_gap = _event_waits(side, at, issued, stream, start, end, ~by_stream & ~prompt)
    by_event = (after >= 0) & (after_gap < EVENT_GAP) & ~by_stream
    by_launch = prompt & ~by_stream & ~by_event
    held = ~by_stream & ~by_event & ~by_launch & (gap_seen <= UNEXPLAINED)
    latency = np.where(by_launch, latency_seen, np.clip(latency_seen, 0, least))
    gap = np.where(by_stream | held, np.maximum(gap_seen, 0), QUEUE_GAP)
    after_gap = np.where(by_event, np.maximum(after_gap, 0), QUEUE_GAP)
    collective, transfer = _collectives(run, issued.work)
    wait_kind, wait_on, wait_extra, own, queue = _waits(run, side, at, issued, work, start, end)
    first = np.searchsorted(issued.call, np.arange(len(at) + 1))
    host_total = int((found.end - found.start)[chosen].sum())
    period = found.gpu_period[chosen]
    recorded = max(host_total, int(period.sum()) if (period > 0).all() else 0) // len(chosen)
    return Graph(
        rank=side.rank,
        process=side.process,
        call=side.call[at],
        kind=side.kind[at],
        begin=begin,
        before=side.before[at],
        own=own,
        wait_kind=wait_kind,
        wait_on=wait_on,
        wait_extra=wait_extra,
        first=first.astype(np.int64),
        work=issued.work,
        length=np.where(transfer >= 0, transfer, end - start),
        stream=stream.astype(np.int32),
        streams=len(distinct),
        latency=latency,
        gap=gap,
        after=after,
        after_gap=after_gap,
        collective=collective,
        issued=issued.issued,
        steps=len(chosen),
        recorded_ns=recorded,
        queue=queue,
        events=side.events[at],
        frames=side.frames[at],
        cost=_cost(side, at),
    )


def _cost(side: HostSide, at: Ints) -> ProfilerCost:
    """What recording cost in the replayed steps; the first of a recording is often slower, and is not among them."""
    if side.launches_block:
        return side.cost
    return profiler_cost(side.kind[at], side.before[at], side.events[at], side.frames[at], side.own[at])


def _operations(run: Run, side: HostSide, at: Ints, work: GpuWork) -> _Issued:
    """Operations of the chosen calls, and operations without a launch between them, in issue order."""
    call = links(run).call
    position = np.full(len(run.table("runtime_calls")), -1, np.int64)
    position[side.call[at]] = np.arange(len(at))
    # A nested driver call is part of its outer call: find the outer one by time.
    mine = (work.rank == side.rank) & (work.process == side.process)
    own = np.where(call >= 0, position[np.maximum(call, 0)], -1)
    starts = run.table("runtime_calls")["start"]
    nested = np.flatnonzero(mine & (call >= 0) & (own < 0))
    if len(nested):
        slot = np.searchsorted(side.start[at], starts[call[nested]], side="right") - 1
        inside = (slot >= 0) & (starts[call[nested]] < side.end[at][np.maximum(slot, 0)])
        own[nested[inside]] = slot[inside]
    lost = np.flatnonzero(mine & (call < 0))
    if len(lost) and (mine & (own >= 0)).any():
        known = np.flatnonzero(mine & (own >= 0))
        low, high = work.start[known].min(), work.start[known].max()
        lost = lost[(work.start[lost] > low) & (work.start[lost] < high)]
        slot = np.searchsorted(side.start[at], work.start[lost], side="right") - 1
        own[lost[slot >= 0]] = slot[slot >= 0]
    rows = np.flatnonzero(mine & (own >= 0))
    order = np.lexsort((work.start[rows], own[rows]))
    rows = rows[order]
    return _Issued(rows, own[rows], call[rows] >= 0)


def _gaps(work: GpuWork) -> Ints:
    """For each operation of the recording: its start minus the end of the one before it on its stream; large for the first."""
    order = np.lexsort((work.start, work.stream, work.gpu))
    gap = np.full(len(work), 2 * UNEXPLAINED, np.int64)
    same = (work.stream[order][1:] == work.stream[order][:-1]) & (work.gpu[order][1:] == work.gpu[order][:-1])
    gap[order[1:][same]] = (work.start[order][1:] - work.end[order][:-1])[same]
    return gap


def _event_waits(
    side: HostSide,
    at: Ints,
    issued: _Issued,
    stream: npt.NDArray[np.int64],
    start: Ints,
    end: Ints,
    held: npt.NDArray[np.bool_],
) -> tuple[Ints, Ints]:
    """Which operation's event an operation waits for, and how long after it it starts.

    The first operation issued after a cudaStreamWaitEvent depends on the work of another stream that ended last before it;
    the call names neither stream nor event in most recordings, so the one that fits the times is taken. So it is for `held`
    operations, which neither their stream nor their launch held up: their call may have been lost.
    """
    after, gap = np.full(len(issued.work), -1, np.int64), np.full(len(issued.work), QUEUE_GAP, np.int64)
    calls = np.flatnonzero(side.kind[at] == CallKind.WAIT_EVENT)
    ops = np.searchsorted(issued.call, calls, side="right")
    ops = np.unique(np.concatenate([ops[ops < len(issued.work)], np.flatnonzero(held)]))
    by_end = np.argsort(end, kind="stable")
    ends = end[by_end]
    for op in ops.tolist():
        place = int(np.searchsorted(ends, start[op], side="right")) - 1
        for back in range(place, max(place - 64, -1), -1):
            other = int(by_end[back])
            if other < op and stream[other] != stream[op]:
                after[op], gap[op] = other, start[op] - end[other]
                break
    return after, gap


def _collectives(run: Run, ops: Ints) -> tuple[Ints, Ints]:
    """For each operation: the number it shares with the other ranks' part of its collective, and the time of its transfer."""
    found = collectives(run)
    numbers, transfer = (np.full(len(gpu_work(run)), -1, np.int64) for _ in range(2))
    place = work_by_row(gpu_work(run), KERNEL, len(run.table("kernels")))[found.kernel]
    numbers[place], transfer[place] = found.match, np.where(found.match >= 0, found.transfer_ns, -1)
    return numbers[ops], transfer[ops]


def _waits(
    run: Run, side: HostSide, at: Ints, issued: _Issued, work: GpuWork, start: Ints, end: Ints
) -> tuple[npt.NDArray[np.int8], Ints, Ints, Ints, int]:
    """For each call: what it waits for. Returns (kind, target, extra, own work, room in the launch queue)."""
    n = len(at)
    kind, begin, finish, length = side.kind[at], side.start[at], side.end[at], (side.end - side.start)[at]
    wait_kind, wait_on = np.zeros(n, np.int8), np.full(n, -1, np.int64)
    extra, own = np.zeros(n, np.int64), length.copy()
    reach = np.maximum.accumulate(end)  # end of the latest operation up to each one
    latest = np.maximum.accumulate(np.where(end == reach, np.arange(len(end)), 0))
    upto = np.searchsorted(issued.call, np.arange(n), side="right") - 1  # last operation issued by or before each call
    before = np.searchsorted(issued.call, np.arange(n), side="left") - 1

    def wait_for(calls: Ints, target: Ints, at_start: bool = False) -> None:
        moment = (start if at_start else end)[np.maximum(target, 0)]
        real = (target >= 0) & (moment > begin[calls]) & (moment <= finish[calls] + 1000)
        calls, target, moment = calls[real], target[real], moment[real]
        wait_kind[calls] = WAIT_START if at_start else WAIT_END
        wait_on[calls], extra[calls] = target, np.maximum(finish[calls] - moment, 0)
        own[calls] = np.minimum(side.own[at][calls], length[calls])

    for sync in (CallKind.SYNC_STREAM, CallKind.SYNC_EVENT):
        calls = np.flatnonzero((kind == sync) & (before >= 0))
        target = before[calls]
        # Ends after the return: it was another stream's; take the latest operation that had ended by then.
        wrong = np.flatnonzero(end[target] > finish[calls] + 1000)
        for i in wrong.tolist():
            row = int(target[i])
            while row >= 0 and end[row] > finish[calls[i]]:
                row -= 1
            target[i] = row
        wait_for(calls, target)
    for sync in (CallKind.SYNC_DEVICE, CallKind.FREE):
        calls = np.flatnonzero((kind == sync) & (before >= 0))
        wait_for(calls, latest[before[calls]])
    wait_for(*_pageable(run, side, at, issued, work))
    queue = QUEUE
    launches = np.flatnonzero(np.isin(kind, LAUNCHES) & (upto > before))
    if side.launches_block:
        wait_for(launches, upto[launches])
        own[launches] = np.minimum(own[launches], int(side.cost.launch_ns))
    elif len(launches):
        typical = float(np.median(length[launches]))
        outstanding = _outstanding(run, side, begin[launches], finish[launches])
        full = (length[launches] > max(_QUEUE_CALL_NS, 8 * typical)) & (outstanding > _QUEUE_SEEN)
        if full.any():
            queue = int(np.median(outstanding[full]))
            calls = launches[full]
            own[calls] = int(typical)
    return wait_kind, wait_on, extra, own, queue


def _outstanding(run: Run, side: HostSide, begin: Ints, end: Ints) -> Ints:
    """For each call: operations of its process, of this step or of one before it, that were launched and had not started."""
    work, call = gpu_work(run), links(run).call
    mine = (work.rank == side.rank) & (work.process == side.process) & (call >= 0)
    launched = np.sort(run.table("runtime_calls")["start"][call[mine]])
    return np.searchsorted(launched, begin, side="right") - np.searchsorted(np.sort(work.start[mine]), end, side="right")


def _pageable(run: Run, side: HostSide, at: Ints, issued: _Issued, work: GpuWork) -> tuple[Ints, Ints]:
    """Calls that copy from or to pageable memory, and the copy each returns after."""
    copies = run.table("copies")
    is_copy = np.flatnonzero((work.source[issued.work] == COPY) & issued.issued)
    rows = work.row[issued.work[is_copy]]
    pageable = (copies["source"][rows] == int(MemoryKind.PAGEABLE)) | (copies["target"][rows] == int(MemoryKind.PAGEABLE))
    pageable &= copies["kind"][rows] != int(CopyKind.MEMSET)
    chosen = is_copy[pageable]
    return issued.call[chosen], chosen
