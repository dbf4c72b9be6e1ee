"""What the base promised for findings that are gone, against what the head's step takes less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from advisor.comparing.recordings import Repeats
from advisor.model import Saving
from advisor.model.comparison import Difference, FindingChange, Kept, Promise, Promises, StepChange
from advisor.model.report import SEEN_BUT_SMALL, Basis


def promises(
    base: Repeats, findings: Sequence[FindingChange], step: StepChange, unfair: Sequence[Difference] = ()
) -> Promises | None:
    """None unless a finding that promised something is gone."""
    before = base.middle.step_ns
    gone = mended(findings, step)
    if not gone or not before:
        return None
    replayed = next((one.combined for one in (base.middle, *base.recordings) if one.combined is not None), None)
    alternatives = {one.base.rule: one.base.alternative_to for one in findings if one.base}
    told = [one for one in gone if alternatives.get(one.rule) not in {other.rule for other in gone}]
    by: Literal["single", "replay", "sum"]
    if len(gone) == 1:
        together, by = gone[0].saving, "single"
    elif replayed is not None:
        together, by = replayed, "replay"
    else:
        together, by = _sum([one.saving for one in told], base.middle.report.combined, before), "sum"
    obtained = low = high = None
    if step.ratio is not None and step.low is not None and step.high is not None:
        obtained, low, high = (round(before * (1 - ratio)) for ratio in (step.ratio, step.high, step.low))
    return Promises(
        step_ns=before,
        findings=gone,
        together=together,
        together_by=by,
        obtained_ns=obtained,
        obtained_low_ns=low,
        obtained_high_ns=high,
        kept="unclear" if any("promises" in one.voids for one in unfair) else _kept(together, low, high, step),
        new_findings=sum(one.status == "new" for one in findings),
    )


def mended(findings: Sequence[FindingChange], step: StepChange) -> list[Promise]:
    """Promises of the findings that are gone. Without any, of those that are still seen and worth little in a faster step:
    beside others that are gone they may have faded by that alone.
    """

    def of(status: str, reason: str = "") -> list[Promise]:
        return [
            Promise(one.base.rule, one.base.title, one.base.fingerprint, one.base.saving)
            for one in findings
            if one.status == status and one.base and one.base.saving and (one.reason or "").startswith(reason)
        ]

    return of("gone") or (of("faded", SEEN_BUT_SMALL) if step.verdict == "faster" else [])


def _sum(savings: Sequence[Saving], combined: Saving | None, step_ns: int) -> Saving:
    """At least the largest one; at most all of them, and no more than everything together saves."""
    limit = (combined.low_ns, combined.expected_ns, combined.high_ns) if combined else (step_ns, step_ns, step_ns)
    low = max(one.low_ns for one in savings)
    expected = max(min(sum(one.expected_ns for one in savings), limit[1]), max(one.expected_ns for one in savings))
    high = max(min(sum(one.high_ns for one in savings), limit[2]), max(one.high_ns for one in savings))
    basis: Basis = "replay" if all(one.basis == "replay" for one in savings) else "bound"
    return Saving(min(low, expected), expected, max(high, expected), basis)


def _kept(together: Saving, low: int | None, high: int | None, step: StepChange) -> Kept:
    if step.verdict == "cannot-tell" or low is None or high is None:
        return "unclear"
    if high < together.low_ns:
        return "less"
    if low > together.high_ns:
        return "more"
    return "kept" if low > 0 else "unclear"  # an outcome that may be nothing confirms nothing
