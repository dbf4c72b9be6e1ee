"""Values over time: the allocator's memory, and what was sampled of the GPUs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.derive.detail import fewer, thinned
from advisor.derive.fragmentation import memory_lines
from advisor.derive.intervals import union
from advisor.derive.memory import allocator_use, capacity_of
from advisor.derive.steps import steps
from advisor.model import THROTTLE_WORDS, MemorySource, Run, Table
from advisor.model.pictures import Curve, Intervals, MemoryCurve, SampleCurves, Samples
from advisor.model.schema import TABLES

MEMORY_POINTS = 1000  # of one curve
SAMPLE_POINTS = 400
ALL_POINTS = 16_000  # of all curves of one kind together
MOST_GPUS = 64
MOST_THROTTLED = 200
MOST_STEPS = 300
METRICS = (
    "utilization",
    "memory_utilization",
    "sm_clock",
    "memory_clock",
    "power",
    "power_limit",
    "temperature",
    "memory_temperature",
    "memory_used",
)
# Notices of the reader about samples whose clock is not that of the trace.
_APART = ("samples-not-aligned", "clock-unknown", "samples-outside-trace")


def curve(time: npt.NDArray[np.int64], value: npt.NDArray[np.int64] | npt.NDArray[np.float64], most: int) -> Curve:
    """The values, ordered by time and thinned out to `most` points. Values are finite."""
    kept = thinned(time, value, most)
    values: list[int | float] = value[kept].tolist()
    if value.dtype.kind == "f":
        values = [round(each, 3) for each in values]
    return Curve(time[kept].tolist(), values, len(time))


def memory_curves(run: Run) -> list[MemoryCurve]:
    """The allocator of every GPU over the whole recording; of many GPUs those that use most.

    Of the fuller recording where the light one holds no memory events; of a memory snapshot where no trace holds any.
    """
    return _memory_of(run) or (_memory_of(run.fuller) if run.fuller is not None else []) or _memory_of_snapshots(run)


def _memory_of_snapshots(run: Run) -> list[MemoryCurve]:
    """The allocators whose history a snapshot holds with times; an order alone cannot be drawn over time."""
    lines = [line for line in memory_lines(run) if line.time is not None and len(line.time)][:MOST_GPUS]
    most = max(min(MEMORY_POINTS, ALL_POINTS // max(2 * len(lines), 1)), 40)
    return [
        MemoryCurve(
            rank=line.rank if line.rank >= 0 else None,
            device=line.device,
            allocated=curve(line.time, line.allocated, most),
            reserved=curve(line.time, line.reserved, most),
            capacity=capacity_of(run, line.rank, line.device),
            peak_allocated=int(line.allocated.max()),
            peak_reserved=int(line.reserved.max()),
            step_start_ns=_step_starts(run, line.rank),
        )
        for line in lines
        if line.time is not None
    ]


def _memory_of(run: Run) -> list[MemoryCurve]:
    events = run.table("memory_events")
    of_allocator = (events["device"] >= 0) & (events["source"] == int(MemorySource.FRAMEWORK)) & events.known("allocated")
    uses = {(use.rank, use.device): use for use in allocator_use(run)}
    pairs = np.stack([events["rank"].astype(np.int64), events["device"].astype(np.int64)])
    found, owner = np.unique(pairs[:, of_allocator], axis=1, return_inverse=True)
    rows_of = [np.flatnonzero(of_allocator)[owner.reshape(-1) == i] for i in range(found.shape[1])]
    peaks = [int(events["allocated"][rows].max()) for rows in rows_of]
    order = sorted(range(len(peaks)), key=lambda i: -peaks[i])[:MOST_GPUS]
    most = max(min(MEMORY_POINTS, ALL_POINTS // max(2 * len(order), 1)), 40)
    result = []
    for i in sorted(order):
        rank, device = (int(value) for value in found[:, i])
        rows, time = rows_of[i], events["time"][rows_of[i]]
        known = events.known("reserved")[rows]
        held = events["reserved"][rows[known]]
        use = uses.get((rank, device))
        result.append(
            MemoryCurve(
                rank=rank if rank >= 0 else None,
                device=device,
                allocated=curve(time, events["allocated"][rows], most),
                reserved=curve(time[known], held, most) if known.any() else None,
                capacity=use.capacity if use else None,
                peak_allocated=peaks[i],
                peak_reserved=int(held.max()) if known.any() else None,
                step_start_ns=_step_starts(run, rank),
            )
        )
    return result


def _step_starts(run: Run, rank: int) -> list[int]:
    found = steps(run)
    starts: list[int] = np.sort(found.start[found.rank == rank])[:MOST_STEPS].tolist()
    return [] if found.source == "none" else starts


def samples(run: Run) -> Samples | None:
    """Device samples of every GPU; None without any."""
    table = run.table("device_samples")
    if not len(table):
        return None
    keys = np.stack([table[column].astype(np.int64) for column in ("rank", "device", "uuid")])
    found, owner = np.unique(keys, axis=1, return_inverse=True)
    shown = min(found.shape[1], MOST_GPUS)
    most = max(min(SAMPLE_POINTS, ALL_POINTS // (shown * len(METRICS))), 40)
    gpus = [_of_gpu(run, table.take(np.flatnonzero(owner.reshape(-1) == i)), most) for i in range(shown)]
    reason = _why_apart(run)
    return Samples(gpus, reason is None, reason)


def _why_apart(run: Run) -> str | None:
    if not any(len(run.table(name)) for name in ("kernels", "copies", "runtime_calls", "host_ops", "ranges")):
        return "there is no trace to compare the times with"
    for notice in run.notices:
        if notice.code in _APART:
            return notice.message
    return None


def _of_gpu(run: Run, rows: Table, most: int) -> SampleCurves:
    metrics, time = {}, rows["time"]
    for name in METRICS:
        known = rows.known(name)
        if rows[name].dtype.kind == "f":
            known &= np.isfinite(rows[name])
        if known.any():
            values = rows[name][known]
            metrics[name] = curve(time[known], values.astype(float) if values.dtype.kind == "f" else values, most)
    rank, device = int(rows["rank"][0]), int(rows["device"][0])
    return SampleCurves(
        rank=rank if rank >= 0 else None,
        device=device if device >= 0 else None,
        name=run.strings[int(rows["name"][0])] or None,
        metrics=metrics,
        units={name: TABLES["device_samples"].column(name).unit for name in metrics},
        throttled=_throttled(rows),
        samples=len(rows),
    )


def _throttled(rows: Table) -> list[Intervals]:
    """When each reason held: from a sample that gives it to the next sample, or as long as usual after the last one."""
    known = rows.known("throttle_reasons")
    time, bits = rows["time"][known], rows["throttle_reasons"][known]
    if not len(time):
        return []
    gaps = np.diff(time)
    usual = int(np.median(gaps)) if len(gaps) else 1
    # A pause of the logger is no time that the sample before it speaks for.
    length = np.append(np.minimum(gaps, max(10 * usual, 1)), max(usual, 1))
    result = []
    for reason, label in THROTTLE_WORDS.items():
        given = (bits & int(reason)) != 0
        if given.any():
            start, end = fewer(union(time[given], time[given] + np.maximum(length[given], 1)), MOST_THROTTLED)
            result.append(Intervals(label, start.tolist(), (end - start).tolist()))
    return result
