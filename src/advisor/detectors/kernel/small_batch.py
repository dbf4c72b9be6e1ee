"""A batch too small for the GPU, with memory left for a larger one."""

from __future__ import annotations

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.health import device_health
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.memory import allocator_use
from advisor.derive.occupancy import blocks
from advisor.derive.sequence import sequence
from advisor.detectors.words import size_text
from advisor.model import Evidence, Run
from advisor.model.device_table import spec_of
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    run, found, pace, device = ctx.run, sequence(ctx.run), two_sided(ctx.run), ctx.device
    if pace is None or not len(found):
        return None
    spec = spec_of(device) if device else None
    use = _memory(run, (device.memory_bytes if device else None) or (spec.memory_bytes if spec else None))
    if use is None:
        raise NotApplicable("neither the peak nor the size of the GPU's memory was recorded", ctx.rule.capture)
    peak, whole = use
    free = 1 - peak / whole
    sm_count = (device.sm_count if device else None) or (spec.sm_count if spec else None)
    empty = 0.0
    if sm_count:
        number = blocks(run, found.row)
        known = (number > 0) & (found.kind != KernelClass.COMMUNICATION)
        time = found.gpu_ns[known].astype(float)
        empty = float((time * np.clip(1 - number[known] / sm_count, 0, 1)).sum() / max(time.sum(), 1.0))
    idle = max(0.0, 1 - pace.gpu_ns / pace.step_ns) if pace.step_ns else 0.0
    if free < ctx.threshold("free_memory") or max(empty, idle) < ctx.threshold("unused_gpu"):
        return None
    gain = 1 - (1 - idle) * (1 - empty)
    return Draft(
        title=f"the GPU is {max(empty, idle):.0%} unused and {free:.0%} of its memory is free: a larger batch fits",
        confidence="medium",
        facts={
            "peak_memory_bytes": peak,
            "memory_bytes": whole,
            "free_frac": round(free, 4),
            "idle_frac": round(idle, 4),
            "empty_sm_time_frac": round(empty, 4),
            "gain_per_item_frac": round(gain, 4),
            "times": max(int(min(1 / max(1 - free, 0.05), 1 / max(1 - gain, 0.05))), 2),
        },
        evidence=[
            Evidence(
                "What a larger batch could use",
                ["peak_bytes", "memory_bytes", "idle_frac", "empty_sm_frac"],
                [[peak, whole, round(idle, 4), round(empty, 4)]],
            )
        ],
        caveats=[
            f"Nothing is promised for this step; the time per item can fall by up to {gain:.0%}. "
            f"{size_text(whole - peak)} are free; activations grow with the batch, parameters do not."
        ],
        subject=["batch"],
    )


def _memory(run: Run, capacity: int | None) -> tuple[int, int] | None:
    """(peak bytes, bytes of the device), of the fullest GPU."""
    found = [(use.peak_reserved, use.capacity or capacity) for use in allocator_use(run)]
    found += [(one.memory_used_max, one.memory_total or capacity) for one in device_health(run) if one.memory_used_max]
    known = [(int(peak), int(whole)) for peak, whole in found if peak and whole]
    return max(known, key=lambda pair: pair[0] / pair[1], default=None)
