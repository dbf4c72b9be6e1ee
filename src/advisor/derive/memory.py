"""Allocator activity: peaks, what is reserved but not used, and driver allocations inside steady steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.derive.allocator import histories
from advisor.derive.calls import CallKind
from advisor.derive.host import HostSide, host_sides
from advisor.derive.nesting import distinct_rows
from advisor.derive.steps import steps
from advisor.model import MemorySource, Run
from advisor.model.tables import Array


@dataclass(frozen=True)
class AllocatorUse:
    """The caching allocator of one device, bytes.

    peak_allocated and peak_reserved: highest totals recorded; unused_at_peak: reserved minus allocated at the moment of
    the highest reserved total, which is cache and fragmentation together; capacity: memory of the device, None if unknown;
    growth_per_step: slope of the allocated total over step ends, None with fewer than three steps.
    """

    rank: int
    device: int
    events: int
    peak_allocated: int
    peak_reserved: int
    unused_at_peak: int
    capacity: int | None
    growth_per_step: float | None


def allocator_use(run: Run) -> list[AllocatorUse]:
    """One entry a GPU of a process whose allocator events carry totals, or of which there is a snapshot."""
    return run.derived(_allocator_use)


def _allocator_use(run: Run) -> list[AllocatorUse]:
    events = run.table("memory_events")
    of_allocator = (events["device"] >= 0) & (events["source"] == int(MemorySource.FRAMEWORK))
    usable = np.flatnonzero(of_allocator & events.known("reserved") & events.known("allocated"))
    owners, index = distinct_rows(*(events[name][usable] for name in ("rank", "device", "process")))
    result = []
    for number, (rank, device, process) in enumerate(owners):
        rows = usable[index == number]
        allocated, reserved = events["allocated"][rows], events["reserved"][rows]
        peak = int(reserved.max())
        result.append(
            AllocatorUse(
                rank=rank,
                device=device,
                events=len(rows),
                peak_allocated=int(allocated.max()),
                peak_reserved=peak,
                # Of the moments at the peak, the fullest: what stays unused even then.
                unused_at_peak=int((reserved - allocated)[reserved == peak].min()),
                capacity=capacity_of(run, rank, device),
                growth_per_step=_growth(run, rank, process, events["time"][rows], allocated),
            )
        )
    return result + _by_snapshots(run, {(use.rank, use.device) for use in result})


def _by_snapshots(run: Run, told: set[tuple[int, int]]) -> list[AllocatorUse]:
    """Of devices without allocator events in a trace, what a memory snapshot tells; it holds no steps of its own."""
    result = []
    for history in histories(run):
        if (history.rank, history.device) in told:
            continue
        allocated, reserved = history.allocated(), history.reserved()
        peak = int(reserved.max())
        result.append(
            AllocatorUse(
                rank=history.rank,
                device=history.device,
                events=len(history),
                peak_allocated=int(allocated.max()),
                peak_reserved=peak,
                unused_at_peak=int((reserved - allocated)[reserved == peak].min()),
                capacity=capacity_of(run, history.rank, history.device),
                growth_per_step=None,
            )
        )
    return result


def capacity_of(run: Run, rank: int, device: int) -> int | None:
    """Memory of a device as the rank numbers it, bytes; None if the input does not tell."""
    for known in run.devices:
        if known.index == device and known.rank in (None, rank if rank >= 0 else None):
            return known.memory_bytes
    return None


def _growth(run: Run, rank: int, process: int, time: Array, allocated: Array) -> float | None:
    found = steps(run)
    ends = found.end[found.of(rank, process)]
    at = np.searchsorted(time, ends, side="right") - 1
    levels = allocated[at[at >= 0]]
    if len(levels) < 3 or found.source == "none":
        return None
    return float(np.polyfit(np.arange(len(levels)), levels.astype(float), 1)[0])


@dataclass(frozen=True)
class DriverAllocations:
    """cudaMalloc, cudaFree and kin inside the steady steps of one host thread, per step; times in ns without waits.

    wait_ns: time in which a release waited for the GPU. calls: rows of `runtime_calls`.
    """

    rank: int
    process: int
    mallocs: float
    frees: float
    own_ns: int
    wait_ns: int
    calls: Array


def driver_allocations(run: Run) -> list[DriverAllocations]:
    """One entry a rank that allocates or releases driver memory in its steady steps."""
    return run.derived(_driver_allocations)


def _driver_allocations(run: Run) -> list[DriverAllocations]:
    found, result = steps(run), []
    for (rank, process), side in host_sides(run).items():
        mine = found.of(rank, process)
        chosen = mine[found.steady[mine]]
        if not len(chosen):
            continue
        inside = _inside(side, found.start[chosen], found.end[chosen])
        malloc, free = inside & (side.kind == CallKind.MALLOC), inside & (side.kind == CallKind.FREE)
        if not (malloc | free).any():
            continue
        both, n = malloc | free, len(chosen)
        result.append(
            DriverAllocations(
                rank,
                process,
                float(malloc.sum()) / n,
                float(free.sum()) / n,
                int(side.deflated_own[both].sum()) // n,
                int(side.wait[both].sum()) // n,
                side.call[both],
            )
        )
    return result


def _inside(side: HostSide, start: Array, end: Array) -> Array:
    mask = np.zeros(len(side), bool)
    for low, high in zip(start.tolist(), end.tolist(), strict=True):
        mask[side.between(low, high)] = True
    return mask
