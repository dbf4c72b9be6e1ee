"""Allocations that succeeded only after the whole cache was given back to the driver."""

from __future__ import annotations

from advisor.detectors.memory.allocator_settings import against_holes, allocator_settings
from advisor.detectors.words import count_text, size_text
from advisor.model import Evidence
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    table = ctx.run.table("allocator_summaries")
    known = table.known("retries")
    if not known.any():
        raise NotApplicable("the input does not state how often the allocator had to retry")
    rows = [row for row in range(len(table)) if known[row] and table["retries"][row] >= ctx.threshold("least_retries")]
    if not rows:
        return None
    worst = max(rows, key=lambda row: (int(table["retries"][row]), -row))
    value = {name: int(table[name][worst]) for name in table.column_names if table.known(name)[worst]}
    loose = value.get("non_releasable_peak")
    settings = allocator_settings(ctx.run)
    holes = f", with up to {size_text(loose)} in holes" if loose else ""
    names = ["retries", "ooms", "allocated_peak", "reserved_peak", "non_releasable_peak", "segments_freed"]
    return Draft(
        title=f"{count_text(value['retries'], 'allocation')} succeeded only after the whole cache was given back{holes}",
        confidence="medium",
        severity="medium" if value.get("ooms") else None,
        facts={
            "retries": value["retries"],
            "ooms": value.get("ooms"),
            "reserved_peak_bytes": value.get("reserved_peak"),
            "allocated_peak_bytes": value.get("allocated_peak"),
            "non_releasable_peak_bytes": loose,
            **settings.facts,
        },
        evidence=[
            Evidence(
                "The allocator's own account",
                ["device", *(name if name in ("retries", "ooms", "segments_freed") else f"{name}_bytes" for name in names)],
                [
                    [int(table["device"][row]), *(int(table[n][row]) if table.known(n)[row] else None for n in names)]
                    for row in rows[:8]
                ],
            )
        ],
        scope={"devices": sorted({int(table["device"][row]) for row in rows})},
        fixes=[*against_holes(settings), "smaller-peak"],
        caveats=["The numbers are of the whole process, its start included."],
        subject=["retries"],
    )
