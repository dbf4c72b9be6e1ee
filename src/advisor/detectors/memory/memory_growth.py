"""Memory that grows from step to step until none is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.derive.allocation_sites import Holder, places
from advisor.derive.memory import capacity_of
from advisor.derive.memory_growth import StepGrowth, step_growth
from advisor.derive.steps import steps
from advisor.detectors.words import size_text
from advisor.model import Evidence, MemorySource, Run
from advisor.model.tables import Array
from advisor.rules.contract import Context, Draft, NotApplicable

# A level is what remains at the end of a step; it rises in nearly all steps where something is kept.
_RISING = 0.8
_PARTS = 4


@dataclass(frozen=True)
class Growth:
    """Levels in order of time, bytes; `each`: rise per step or per second; left: until the memory is full, in that unit."""

    device: int
    levels: Array
    each: float
    unit: str
    capacity: int | None

    @property
    def left(self) -> float | None:
        return (self.capacity - float(self.levels[-1])) / self.each if self.capacity else None


def detect(ctx: Context) -> Draft | None:
    kept = _by_snapshot(ctx)
    if kept is not None:
        return kept[0] if kept else None
    judged, found = _by_events(ctx)
    if not judged:
        judged, found = _by_samples(ctx)
    if not judged:
        raise NotApplicable(f"fewer than {ctx.threshold('least_steps'):.0f} steps with allocator events, and no memory samples")
    if not found:
        return None
    worst = max(found, key=lambda one: (one.each / (one.capacity or 1), -one.device))
    left = f"; the GPU is full after {worst.left:.0f} more {worst.unit}s" if worst.left is not None else ""
    gained = int(worst.levels[-1] - worst.levels[0])
    quarter = np.linspace(0, len(worst.levels) - 1, 6).astype(int)
    return Draft(
        title=f"GPU memory grows by {size_text(worst.each)} a {worst.unit}{left}",
        confidence="medium" if worst.unit == "step" else "low",
        severity="high" if worst.left is not None and worst.left < ctx.threshold("soon") * len(worst.levels) else "medium",
        facts={
            "growth_bytes": round(worst.each),
            "per": worst.unit,
            "left": None if worst.left is None else round(worst.left),
            "gained_bytes": gained,
            "device": worst.device,
        },
        evidence=[
            Evidence(
                "In use at step ends" if worst.unit == "step" else "In use while the GPU worked",
                [worst.unit, "used_bytes"],
                [[int(i), int(worst.levels[i])] for i in quarter],
            )
        ],
        scope={"devices": sorted({one.device for one in found})},
        caveats=["Caches that fill once (cuDNN plans, new shapes) look alike at first: look whether the growth goes on."],
        subject=["growth", f"gpu {worst.device}"],
    )


def _by_snapshot(ctx: Context) -> list[Draft] | None:
    """What histories show to stay; None if none holds enough steps to judge."""
    seen = [one for one in step_growth(ctx.run) if len(one.ends) > ctx.threshold("least_kept_steps")]
    if not seen:
        return None
    rising = [one for one in seen if one.kept and _kept_bytes(one) >= ctx.threshold("least_bytes") and one.each > 0]
    if not rising:
        return []
    worst = max(rising, key=lambda one: (_kept_bytes(one), -one.rank, -one.device))
    each, first = _kept_bytes(worst), worst.kept[0]
    capacity = capacity_of(ctx.run, worst.rank, worst.device)
    left = (capacity - int(worst.levels[-1])) / each if capacity else None
    full = f"; the GPU is full after {left:.0f} more steps" if left is not None else ""
    lines = [Holder(one.site, one.blocks, one.bytes) for one in worst.kept]
    quarter = np.linspace(0, len(worst.levels) - 1, 6).astype(int)
    draft = Draft(
        title=f"GPU memory grows by {size_text(each)} with every step, kept by {first.site.text}{full}",
        confidence="high" if first.site.place else "medium",
        severity="high" if left is not None and left < ctx.threshold("soon") * len(worst.levels) else "medium",
        facts={
            "growth_bytes": round(each),
            "per": "step",
            "left": None if left is None else round(left),
            "gained_bytes": int(worst.levels[-1] - worst.levels[0]),
            "steps": len(worst.ends),
            "steps_told_by": worst.told_by,
            "device": worst.device,
        },
        evidence=[
            Evidence(
                "Allocated in nearly every step and never freed",
                ["where", "steps", "blocks", "bytes"],
                [[one.site.text, one.steps, one.blocks, one.bytes] for one in worst.kept[:8]],
            ),
            Evidence("In use at step ends", ["step", "used_bytes"], [[int(i), int(worst.levels[i])] for i in quarter]),
        ],
        locations=places(lines, sum(one.bytes for one in lines)),
        scope={"devices": sorted({one.device for one in rising})},
        fixes=["detach", "collect-on-host"],
        caveats=["A list or cache of bounded length looks alike until it is full."],
        subject=["growth", f"gpu {worst.device}"],
    )
    return [draft]


def _kept_bytes(one: StepGrowth) -> float:
    """Bytes a step that stay."""
    return sum(kept.bytes for kept in one.kept) / max(len(one.ends) - 1, 1)


def _by_events(ctx: Context) -> tuple[bool, list[Growth]]:
    """(whether there was enough to judge, GPUs whose allocated memory at step ends rises)."""
    run, events, found = ctx.run, ctx.run.table("memory_events"), steps(ctx.run)
    if found.source == "none" or not len(events):
        return False, []
    usable = (events["device"] >= 0) & (events["source"] == int(MemorySource.FRAMEWORK)) & events.known("allocated")
    judged, growing = False, []
    for rank, process in found.members:
        ends = found.end[found.of(rank, process)]
        mine = usable & (events["rank"] == rank)
        for device in np.unique(events["device"][mine]):
            rows = np.flatnonzero(mine & (events["device"] == device))
            at = np.searchsorted(events["time"][rows], ends, side="right") - 1
            levels = events["allocated"][rows][at[at >= 0]]
            if len(levels) < ctx.threshold("least_steps"):
                continue
            judged = True
            each = float(np.polyfit(np.arange(len(levels)), levels.astype(float), 1)[0])
            if float((np.diff(levels) > 0).mean()) >= _RISING and each >= ctx.threshold("least_bytes"):
                growing.append(Growth(int(device), levels, each, "step", _capacity(run, int(device))))
    return judged, growing


def _by_samples(ctx: Context) -> tuple[bool, list[Growth]]:
    """The same from samples of the driver: the second half of the busy time, in parts each of which lies above the one before."""
    samples = ctx.run.table("device_samples")
    judged, growing = False, []
    for device in np.unique(samples["device"]):
        rows = np.flatnonzero(
            (samples["device"] == device) & samples.known("memory_used") & (np.nan_to_num(samples["utilization"], nan=0.0) > 5)
        )
        rows = rows[len(rows) // 2 :]
        if len(rows) < ctx.threshold("least_samples"):
            continue
        judged = True
        used, time = samples["memory_used"][rows], (samples["time"][rows] - samples["time"][rows[0]]) * 1e-9
        parts = np.array([part.min() for part in np.array_split(used, _PARTS)])
        total = int(samples["memory_total"][rows].max())
        gained = int(used[-1] - used[0])
        least = ctx.threshold("least_share") * (total if total > 0 else int(used.max()))
        if bool((np.diff(parts) > 0).all()) and gained >= least and float(time[-1]) > 0:
            each = float(np.polyfit(time, used.astype(float), 1)[0])
            growing.append(Growth(int(device), used, each, "second", total if total > 0 else None))
    return judged, growing


def _capacity(run: Run, device: int) -> int | None:
    return next((known.memory_bytes for known in run.devices if known.index == device and known.memory_bytes), None)
