"""An allocation that failed, and what it failed for."""

from __future__ import annotations

from collections import Counter

from advisor.derive.allocation_sites import holders
from advisor.derive.allocator import histories
from advisor.derive.out_of_memory import Cause, Failure, failures
from advisor.detectors.memory.allocator_settings import against_holes, allocator_settings
from advisor.detectors.words import size_text
from advisor.model import AllocatorAction, Evidence
from advisor.model.report import Confidence
from advisor.rules.contract import Context, Draft, NotApplicable

_SHOWN = 8
_LESS = ["smaller-micro-batch", "activation-checkpointing", "shard"]


def detect(ctx: Context) -> list[Draft]:
    found = failures(ctx.run)
    if not found:
        if not histories(ctx.run) and not len(ctx.run.table("allocator_summaries")):
            raise NotApplicable("the input holds no error message and no memory snapshot")
        return []
    drafts = []
    for cause in dict.fromkeys(one.cause for one in found):
        drafts.append(_draft(ctx, [one for one in found if one.cause is cause]))
    return drafts


def _draft(ctx: Context, alike: list[Failure]) -> Draft:
    one = max(alike, key=lambda failure: failure.requested)
    settings = allocator_settings(ctx.run)
    holes = against_holes(settings)
    fixes = {
        Cause.FRAGMENTATION: [*holes, *_LESS[:1]],
        Cause.CAPACITY: _LESS,
        Cause.OTHERS: ["who-else", *_LESS[:1]],
        Cause.REQUEST: ["look-at-the-shape"],
        Cause.LIMIT: ["raise-the-limit"],
    }[one.cause]
    times = f" ({len(alike)} times)" if len(alike) > 1 else ""
    return Draft(
        title=f"Out of memory{times}: {_why(one)}",
        confidence=_confidence(one),
        severity="high",
        facts={
            "cause": one.cause.value,
            "failures": len(alike),
            "requested_bytes": one.requested,
            "capacity_bytes": one.capacity,
            "free_bytes": one.free,
            "allocated_bytes": one.allocated,
            "reserved_bytes": one.reserved,
            "unallocated_bytes": one.unallocated,
            "largest_free_bytes": one.usable_gap,
            "others_bytes": one.others,
            **settings.facts,
        },
        evidence=[_numbers(alike), *_sites(ctx, alike), *_holding(ctx, one)],
        locations=[one.site.place] if one.site is not None and one.site.place is not None else [],
        scope={"devices": sorted({failure.device for failure in alike if failure.device >= 0})},
        fixes=fixes,
        caveats=_caveats(one, settings.expandable),
        subject=["out of memory", one.cause.value],
    )


def _why(one: Failure) -> str:
    asked = f"{size_text(one.requested)} asked for"
    if one.cause is Cause.REQUEST:
        whole = one.capacity if one.capacity is not None else (one.reserved or 0) + (one.free or 0)
        return f"{asked} at once, more than the {size_text(whole)} there are"
    if one.cause is Cause.FRAGMENTATION:
        largest = f" whose largest free piece is {size_text(one.usable_gap)}" if one.usable_gap is not None else ""
        return f"{asked}, while {size_text(one.unallocated or 0)} lie unused in the allocator{largest}"
    if one.cause is Cause.OTHERS:
        return f"{asked}, while other processes hold {size_text(one.others or 0)} of {size_text(one.capacity or 0)}"
    if one.cause is Cause.LIMIT:
        return f"{asked} and {size_text(one.free or 0)} free: a limit of the process stopped it"
    rest = f" of {size_text(one.capacity)}" if one.capacity is not None else ""
    return f"{asked}, tensors use {size_text(one.allocated or 0)}{rest}: the program needs more than the GPU has"


def _confidence(one: Failure) -> Confidence:
    if one.allocated is None or one.reserved is None:
        return "low"
    if one.cause is Cause.OTHERS and not one.others_stated:
        return "low"
    if one.cause is Cause.FRAGMENTATION and one.usable_gap is None:
        return "medium"
    return "low" if one.cause is Cause.LIMIT else "high"


def _numbers(alike: list[Failure]) -> Evidence:
    rows = [
        [
            one.rank if one.rank >= 0 else None, one.device if one.device >= 0 else None, one.requested, one.free, one.allocated,
            one.unallocated, one.usable_gap, one.others, one.capacity,
        ]
        for one in alike[:_SHOWN]
    ]  # fmt: skip
    names = ["requested", "free", "allocated", "unallocated", "largest_free_piece", "others", "capacity"]
    return Evidence("The failed allocations", ["rank", "device", *(f"{name}_bytes" for name in names)], rows)


def _sites(ctx: Context, alike: list[Failure]) -> list[Evidence]:
    counts = Counter(one.site.text for one in alike if one.site is not None)
    rows = [[text, count] for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]]
    return [Evidence("Who asked", ["where", "failures"], rows)] if rows else []


def _holding(ctx: Context, one: Failure) -> list[Evidence]:
    """Who held the memory when the allocation failed, where a snapshot tells."""
    for history in histories(ctx.run):
        if (history.rank, history.device) == (one.rank, one.device):
            places = (history.action == int(AllocatorAction.OUT_OF_MEMORY)).nonzero()[0]
            position = int(places[-1]) if len(places) else history.last
            rows = [[each.site.text, each.blocks, each.bytes] for each in holders(ctx.run, history, position)[:_SHOWN]]
            return [Evidence("Who held memory then", ["where", "blocks", "bytes"], rows)] if rows else []
    return []


def _caveats(one: Failure, expandable: bool | None) -> list[str]:
    said = []
    if one.cause is Cause.CAPACITY and one.unallocated and one.unallocated >= one.requested:
        said.append("The error message suggests fragmentation; the part that lies unused is what any loop has, and small.")
    if one.cause is Cause.FRAGMENTATION and one.usable_gap is None:
        said.append("A message tells the sum that lies unused and not its pieces; a snapshot taken at the error tells them.")
    if one.cause is Cause.FRAGMENTATION and expandable:
        said.append("expandable_segments is on already: private pools and blocks in use on other streams are left as causes.")
    if one.cause is Cause.OTHERS and not one.others_stated:
        said.append("What others use is what this process's allocator leaves over: CUDA's context and libraries are in it.")
    return said
