"""Memory that the caching allocator holds and nobody uses, at the moment it holds most."""

from __future__ import annotations

from advisor.derive.memory import AllocatorUse, allocator_use
from advisor.detectors.words import size_text
from advisor.model import Evidence
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    uses = allocator_use(ctx.run)
    if not uses:
        raise NotApplicable("the input has no allocator events with totals")
    loose = [use for use in uses if _loose(ctx, use)]
    if not loose:
        return None
    worst = max(loose, key=lambda use: (use.unused_at_peak, -use.rank, -use.device))
    share = worst.unused_at_peak / worst.peak_reserved
    full = worst.capacity is not None and worst.peak_reserved >= ctx.threshold("nearly_full") * worst.capacity
    return Draft(
        title=f"{size_text(worst.unused_at_peak)} of {size_text(worst.peak_reserved)} reserved memory was unused at the peak",
        confidence="low",
        severity="medium" if full else None,
        facts={
            "unused_bytes": worst.unused_at_peak,
            "reserved_bytes": worst.peak_reserved,
            "allocated_bytes": worst.peak_allocated,
            "unused_frac": round(share, 4),
        },
        evidence=[
            Evidence(
                "Allocator at its peak",
                ["rank", "device", "reserved_bytes", "unused_bytes", "most_allocated_bytes", "capacity_bytes"],
                [
                    [u.rank if u.rank >= 0 else None, u.device, u.peak_reserved, u.unused_at_peak, u.peak_allocated, u.capacity]
                    for u in loose[:8]
                ],
            )
        ],
        scope={"devices": sorted({use.device for use in loose})},
        caveats=["Reserved minus allocated is cache and fragmentation together; only a memory snapshot tells them apart."],
        subject=["reserved", "unused"],
    )


def _loose(ctx: Context, use: AllocatorUse) -> bool:
    """A large part of the reserved memory is unused, and it is enough to matter on this GPU."""
    if use.unused_at_peak < ctx.threshold("min_share") * max(use.peak_reserved, 1):
        return False
    if use.capacity is not None:
        nearly_full = use.peak_reserved >= ctx.threshold("nearly_full") * use.capacity
        return nearly_full or use.unused_at_peak >= ctx.threshold("min_share") * use.capacity
    return use.unused_at_peak >= ctx.threshold("min_bytes")
