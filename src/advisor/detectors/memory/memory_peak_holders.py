"""Who holds the GPU's memory when most of it is in use."""

from __future__ import annotations

from advisor.derive.allocation_sites import holders, places
from advisor.derive.allocator import histories
from advisor.detectors.words import size_text
from advisor.model import Evidence
from advisor.rules.contract import Context, Draft, NotApplicable

_SHOWN = 12


def detect(ctx: Context) -> Draft | None:
    seen = [(history, holders(ctx.run, history, history.peak)) for history in histories(ctx.run)]
    seen = [(history, found) for history, found in seen if found]
    if not seen:
        raise NotApplicable("the input holds no memory snapshot with blocks in use")
    history, found = max(seen, key=lambda one: (sum(h.bytes for h in one[1]), -one[0].rank, -one[0].device))
    total = sum(one.bytes for one in found)
    lines = places(found, total)
    if not lines:
        raise NotApplicable("the snapshot holds no call stacks in Python")
    if total < ctx.threshold("least_bytes"):
        return None
    first = lines[0]
    share = first.share or 0.0
    when = "At the peak" if len(history) else "When the snapshot was taken"
    return Draft(
        title=f"{when} {size_text(total)} were in use; the largest part from one line, "
        f"{size_text(share * total)} ({share:.0%}), is allocated at {first.file}:{first.line}",
        confidence="high",
        facts={"peak_bytes": total, "first_bytes": round(share * total), "first_frac": share, "sites": len(found)},
        evidence=[
            Evidence(
                "In use then, by who allocated it",
                ["where", "blocks", "bytes", "share_frac"],
                [[one.site.text, one.blocks, one.bytes, round(one.bytes / total, 4)] for one in found[:_SHOWN]],
            )
        ],
        locations=lines,
        scope={"devices": [history.device]},
        subject=["peak", f"gpu {history.device}"],
    )
