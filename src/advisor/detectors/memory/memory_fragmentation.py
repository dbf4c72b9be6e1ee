"""Memory that the caching allocator holds and cannot use, at the moment it uses most."""

from __future__ import annotations

from advisor.derive.allocation_sites import holders
from advisor.derive.allocator import History, histories
from advisor.derive.fragmentation import Held, held
from advisor.derive.memory import AllocatorUse, allocator_use, capacity_of
from advisor.derive.out_of_memory import failures, pressed
from advisor.detectors.memory.allocator_settings import against_holes, allocator_settings
from advisor.detectors.words import size_text
from advisor.model import Evidence
from advisor.rules.contract import Context, Draft, NotApplicable

_SNAPSHOT_FIX = "snapshot"
_SHOWN = 8


def detect(ctx: Context) -> Draft | None:
    snapshots = [(history, held(history, history.peak)) for history in histories(ctx.run)]
    if snapshots:
        return _by_snapshot(ctx, snapshots)
    uses = allocator_use(ctx.run)
    if not uses:
        raise NotApplicable("the input has no allocator events with totals")
    loose = [use for use in uses if _loose(ctx, use.unused_at_peak, use.peak_reserved, use.capacity)]
    return _warning(ctx, loose) if loose else None


def _by_snapshot(ctx: Context, snapshots: list[tuple[History, Held]]) -> Draft | None:
    """Holes are known one by one."""
    failed = {(one.rank, one.device) for one in failures(ctx.run)}
    tight = pressed(ctx.run)
    found = [
        (history, state)
        for history, state in snapshots
        if _loose(
            ctx, state.holes, state.reserved, capacity_of(ctx.run, history.rank, history.device),
            tight=tight,
        )
    ]  # fmt: skip
    if not found:
        return None
    history, state = max(found, key=lambda one: (one[1].holes, -one[0].rank, -one[0].device))
    capacity = capacity_of(ctx.run, history.rank, history.device)
    full = capacity is not None and state.reserved >= ctx.threshold("nearly_full") * capacity
    settings = allocator_settings(ctx.run)
    when = "at the peak" if len(history) else "when the snapshot was taken"
    return Draft(
        title=f"{size_text(state.holes)} of {size_text(state.reserved)} reserved memory lay in holes {when}",
        confidence="high" if len(history) else "medium",
        severity="medium" if full or (history.rank, history.device) in failed else None,
        facts={
            "holes_bytes": state.holes,
            "holes": len(state.hole_sizes),
            "largest_hole_bytes": state.largest_hole,
            "largest_free_bytes": state.largest,
            "cached_bytes": state.cached,
            "private_pool_bytes": state.private,
            "reserved_bytes": state.reserved,
            "allocated_bytes": state.allocated,
            "holes_frac": round(state.holes / max(state.reserved, 1), 4),
            **settings.facts,
        },
        evidence=[_allocators(ctx, found), _holes(state), _beside(ctx, history, state)],
        scope={"devices": sorted({one.device for one, _ in found})},
        fixes=[*against_holes(settings), *([] if len(history) else [_SNAPSHOT_FIX])],
        subject=["reserved", "unused"],
    )


def _allocators(ctx: Context, found: list[tuple[History, Held]]) -> Evidence:
    rows = [
        [h.rank if h.rank >= 0 else None, h.device, s.reserved, s.allocated, s.holes, s.cached, s.private, s.segments]
        for h, s in found[:_SHOWN]
    ]
    names = ["reserved_bytes", "allocated_bytes", "holes_bytes", "cached_bytes", "private_pool_bytes", "segments"]
    return Evidence("Allocator when most was in use", ["rank", "device", *names], rows)


def _holes(state: Held) -> Evidence:
    """How many holes of which size: a request needs one of its own size."""
    bounds = (1 << 20, 10 << 20, 100 << 20, 1 << 30)
    sizes, rows, low = state.hole_sizes, [], 0
    for high in (*bounds, None):
        inside = sizes[(sizes >= low) & (sizes < high)] if high is not None else sizes[sizes >= low]
        if len(inside):
            rows.append([low, len(inside), int(inside.sum())])
        low = high or 0
    return Evidence("Holes by size", ["from_bytes", "holes", "together_bytes"], rows)


def _beside(ctx: Context, history: History, state: Held) -> Evidence:
    rows = [[one.site.text, one.blocks, one.bytes] for one in holders(ctx.run, history, state.position)[:_SHOWN]]
    return Evidence("Who held memory then", ["where", "blocks", "bytes"], rows)


def _warning(ctx: Context, loose: list[AllocatorUse]) -> Draft:
    """Totals alone: cache and holes look the same in them."""
    worst = max(loose, key=lambda use: (use.unused_at_peak, -use.rank, -use.device))
    share = worst.unused_at_peak / worst.peak_reserved
    full = worst.capacity is not None and worst.peak_reserved >= ctx.threshold("nearly_full") * worst.capacity
    settings = allocator_settings(ctx.run)
    return Draft(
        title=f"{size_text(worst.unused_at_peak)} of {size_text(worst.peak_reserved)} reserved memory was unused at the peak",
        confidence="low",
        severity="medium" if full else None,
        facts={
            "unused_bytes": worst.unused_at_peak,
            "reserved_bytes": worst.peak_reserved,
            "allocated_bytes": worst.peak_allocated,
            "unused_frac": round(share, 4),
            **settings.facts,
        },
        evidence=[
            Evidence(
                "Allocator at its peak",
                ["rank", "device", "reserved_bytes", "unused_bytes", "most_allocated_bytes", "capacity_bytes"],
                [
                    [u.rank if u.rank >= 0 else None, u.device, u.peak_reserved, u.unused_at_peak, u.peak_allocated, u.capacity]
                    for u in loose[:_SHOWN]
                ],
            )
        ],
        scope={"devices": sorted({use.device for use in loose})},
        caveats=["Reserved minus allocated is cache and fragmentation together; only a memory snapshot tells them apart."],
        fixes=[*against_holes(settings)[:1], _SNAPSHOT_FIX],
        subject=["reserved", "unused"],
    )


def _loose(ctx: Context, unused: int, reserved: int, capacity: int | None, tight: bool = False) -> bool:
    """A large part of the reserved memory is unused, and it matters on this GPU. tight: allocations failed or were retried."""
    if unused < ctx.threshold("min_share") * max(reserved, 1):
        return False
    if tight:
        return True
    if capacity is not None:
        return reserved >= ctx.threshold("nearly_full") * capacity or unused >= ctx.threshold("min_share") * capacity
    return unused >= ctx.threshold("min_bytes")
