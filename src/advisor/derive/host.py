"""The host side of a run: what the thread that drives the GPU did between and inside its CUDA calls, and what of it is real.

All threads that launch kernels are one logical thread: forward and autograd threads hand over to each other and do not run
at once. Its time is cut into the CUDA calls and the segments before each of them. A call's time is split into waiting for
the GPU and its own work.

Recording costs host time that the run without a profiler does not have. `deflated_*` estimates what remains without it:

* recording makes an operator and a launch `strength` times as long: of m, the median time per recorded operator in segments
  that hold operators, the share 1 - 1/strength is the profiler's; calls other than launches carry the same absolute cost;
* a Python frame costs FRAME_NS;
* a segment keeps at least 1/strength of its length, or FLOOR_WITH_FRAMES where every Python call was recorded.

STRENGTH was read from torch 2.11 recordings on one machine whose unprofiled step time is known (median error of the
host-bound step 11 % without and 15 % with stacks); WEAK and STRONG are the range in which single recordings lie. Shares of
host-side changes hardly depend on it; shares of GPU-side changes in nearly balanced loops do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import CallKind, call_kinds, is_kind, links
from advisor.derive.gpus import gpu_work
from advisor.derive.intervals import covered, union
from advisor.derive.nesting import thread_keys
from advisor.model import MemoryKind, Run, Table

WEAK, STRENGTH, STRONG = 1.6, 2.5, 4.0
FRAME_NS = 2000
FLOOR_WITH_FRAMES = 0.25  # recording every Python call costs more than the call itself
_QUEUE_FULL_NS = 60_000  # a launch that takes longer, and 8 medians, waited for room in the launch queue
_BLOCKING_SHARE = 0.9  # of launches that end after their own kernel: launches block (elsewhere at most 0.15 was seen)


@dataclass(frozen=True)
class HostSide:
    """One logical host thread. Arrays have one entry a CUDA call, in order of start; times in ns.

    call: row of `runtime_calls`; kind: CallKind; before: length of the segment that ends where the call begins;
    events, frames: operators and Python frames recorded in that segment; wait: part of the call in which it waited for
    the GPU; own: the rest. launches_block: launches return only after their kernel.
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
    calls = run.table("runtime_calls")
    launching = is_kind(run, CallKind.LAUNCH, CallKind.GRAPH_LAUNCH) & (links(run).count > 0)
    if not launching.any():
        launching = is_kind(run, CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY)
    return np.unique(thread_keys(calls)[launching])


def _host_sides(run: Run) -> dict[tuple[int, int], HostSide]:
    calls, threads = run.table("runtime_calls"), driving_threads(run)
    relevant = np.isin(thread_keys(calls), threads) & (call_kinds(run) != CallKind.TRIVIAL)
    ops, frames = run.table("host_ops"), run.table("python_frames")
    op_rows, frame_rows = np.isin(thread_keys(ops), threads), np.isin(thread_keys(frames), threads)
    waits = _waits(run)
    result: dict[tuple[int, int], HostSide] = {}
    pairs = {(int(r), int(p)) for r, p in zip(calls["rank"][relevant], calls["process"][relevant], strict=True)}
    for rank, process in sorted(pairs):
        rows = np.flatnonzero(relevant & (calls["rank"] == rank) & (calls["process"] == process))
        result[rank, process] = _one(
            run,
            rank,
            process,
            rows,
            _edges(ops, op_rows & (ops["rank"] == rank) & (ops["process"] == process)),
            _edges(frames, frame_rows & (frames["rank"] == rank) & (frames["process"] == process)),
            waits,
        )
    return result


def _edges(table: Table, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Begins and ends of rows, sorted."""
    return np.sort(np.concatenate([table["start"][rows], table["end"][rows]]))


def _one(
    run: Run,
    rank: int,
    process: int,
    rows: npt.NDArray[np.int64],
    op_edges: npt.NDArray[np.int64],
    frame_edges: npt.NDArray[np.int64],
    waits: tuple[npt.NDArray[np.int64], dict[tuple[int, int], bool]],
) -> HostSide:
    calls, kinds = run.table("runtime_calls"), call_kinds(run)
    # A call inside another one (the driver's below the runtime's) is part of it.
    start, end = calls["start"][rows], calls["end"][rows]
    reach = np.maximum.accumulate(end)
    outer = np.concatenate(([True], end[1:] > reach[:-1]))
    rows, start, end = rows[outer], start[outer], end[outer]
    kind = kinds[rows]
    last_end = np.concatenate(([start[0]], np.maximum.accumulate(end)[:-1]))
    before = np.maximum(start - last_end, 0)
    events = (np.searchsorted(op_edges, start) - np.searchsorted(op_edges, last_end)) / 2
    frames = (np.searchsorted(frame_edges, start) - np.searchsorted(frame_edges, last_end)) / 2
    events, frames = np.maximum(events, 0), np.maximum(frames, 0)
    wait = np.minimum(waits[0][rows], end - start)
    own = end - start - wait
    deflated_before, deflated_own = without_profiler(kind, before, events, frames, own, STRENGTH)
    return HostSide(
        rank, process, rows, kind, start, end, before, events, frames, wait, own, deflated_before, deflated_own,
        waits[1].get((rank, process), False),
    )  # fmt: skip


def without_profiler(
    kind: npt.NDArray[np.int8],
    before: npt.NDArray[np.int64],
    events: npt.NDArray[np.float64],
    frames: npt.NDArray[np.float64],
    own: npt.NDArray[np.int64],
    strength: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(segments, own work of calls) as they are without a profiler that makes recorded events `strength` times as long."""
    share = 1 - 1 / strength
    busy = (events >= 2) & (before > 0)
    per_event = float(np.median(before[busy] / events[busy])) if busy.any() else 0.0
    floor = np.where(frames > 0, min(FLOOR_WITH_FRAMES, 1 / strength), 1 / strength)
    segments = np.maximum(floor * before, before - share * per_event * events - FRAME_NS * frames)
    launch = np.isin(kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH))
    overhead = float(np.median(own[launch])) * share if launch.any() else 0.0
    calls = np.where(launch, own / strength, np.maximum(own - overhead, own / strength))
    return segments.astype(np.int64), calls.astype(np.int64)


def _waits(run: Run) -> tuple[npt.NDArray[np.int64], dict[tuple[int, int], bool]]:
    """For each row of `runtime_calls`: how long it waited for the GPU; and which processes have launches that block."""
    calls, kinds, link, work = run.table("runtime_calls"), call_kinds(run), links(run), gpu_work(run)
    start, end = calls["start"], calls["end"]
    length = end - start
    wait = np.zeros(len(calls), np.int64)
    blocking: dict[tuple[int, int], bool] = {}
    launch = np.isin(kinds, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH))
    sync = np.isin(kinds, (CallKind.SYNC_DEVICE, CallKind.SYNC_STREAM, CallKind.SYNC_EVENT, CallKind.FREE))
    pageable = _pageable_calls(run)
    for rank, process in {(int(r), int(p)) for r, p in zip(calls["rank"], calls["process"], strict=True)}:
        mine = (calls["rank"] == rank) & (calls["process"] == process)
        here = (work.rank == rank) & (work.process == process)
        busy = union(work.start[here], work.end[here])
        # Kinds whose waiting shows as the GPU being busy meanwhile.
        waiting = mine & (sync | pageable)
        own_launches = np.flatnonzero(mine & launch & (link.last_work >= 0))
        if len(own_launches):
            ended = work.end[link.last_work[own_launches]]
            blocks = float(np.mean(end[own_launches] >= ended)) >= _BLOCKING_SHARE
            blocking[rank, process] = blocks
            typical = float(np.median(length[own_launches]))
            if blocks:
                waiting[own_launches] = True
            else:
                full = own_launches[length[own_launches] > max(_QUEUE_FULL_NS, 8 * typical)]
                waiting[full] = True
        rows = np.flatnonzero(waiting)
        wait[rows] = covered(busy, start[rows], end[rows])
    return wait, blocking


def _pageable_calls(run: Run) -> npt.NDArray[np.bool_]:
    """Rows of `runtime_calls` that copy from or to pageable memory: such a call returns only when the copy is staged or done."""
    copies, work, link = run.table("copies"), gpu_work(run), links(run)
    result = np.zeros(len(run.table("runtime_calls")), bool)
    is_copy = np.flatnonzero((work.source == 1) & (link.call >= 0))
    rows = work.row[is_copy]
    touches = (copies["source"][rows] == int(MemoryKind.PAGEABLE)) | (copies["target"][rows] == int(MemoryKind.PAGEABLE))
    result[link.call[is_copy[touches]]] = True
    return result
