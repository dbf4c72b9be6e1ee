"""Memory of the GPU that the run never used."""

from __future__ import annotations

from advisor.derive.out_of_memory import pressed
from advisor.detectors.memory.room import room
from advisor.detectors.words import size_text
from advisor.model import Evidence
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    used = room(ctx.run)
    if used is None:
        raise NotApplicable("the input does not tell how much of the GPU's memory was in use")
    if used.share > ctx.threshold("most_used") or pressed(ctx.run):
        return None
    free = used.capacity - used.peak
    return Draft(
        title=f"At its peak the run used {size_text(used.peak)} of {size_text(used.capacity)} GPU memory ({used.share:.0%})",
        confidence="medium",
        facts={
            "peak_bytes": used.peak,
            "capacity_bytes": used.capacity,
            "free_bytes": free,
            "used_frac": round(used.share, 4),
            "times": round(ctx.threshold("fill") / max(used.share, 0.01), 1),
        },
        evidence=[
            Evidence(
                "The fullest GPU", ["device", "peak_bytes", "capacity_bytes", "free_bytes", "measured_by"],
                [[used.device, used.peak, used.capacity, free, used.by]],
            )
        ],
        scope={"devices": [used.device]},
        caveats=[
            "The recording is part of the run: longer batches, evaluation or a checkpoint may need more."
            if used.by == "allocator"
            else "Samples miss peaks between them."
        ],
        subject=["headroom"],
    )  # fmt: skip
