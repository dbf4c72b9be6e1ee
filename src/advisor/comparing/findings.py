"""Findings of the two sides paired, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from advisor.comparing.recordings import Repeats
from advisor.model import Finding, RuleOutcome
from advisor.model.comparison import STATUSES, CategoryChange, FindingChange, Status, StepChange
from advisor.model.report import REPORTED_UNDER, SEEN_BUT_SMALL, SEVERITIES

LEAST_SHARE = 0.01  # of the base step: a saving that changed by less is the same
SLIGHT_SHARE = 0.02  # of the step: a report tells savings from 1 % on, which the other side may just have missed
_DEFAULT_NOISE = 0.1
_VARIES = 0.03  # of the time that a finding speaks of, between recordings of one program
_CAPTURE = "capture"  # the family of rules about the recording itself
# The parts of the step that findings of a family speak of; idle time for the others.
_TIME_OF: dict[str, tuple[str, ...]] = {
    "kernel": ("compute",),
    "precision": ("compute",),
    "communication": ("communication", "communication_wait"),
    "transfer": ("copy", "host-sync"),
}

Seen = list[Finding]  # the same finding in every repeat that has it


def finding_changes(
    base: Repeats, head: Repeats, step: StepChange, parts: Sequence[CategoryChange] = (), per_item: float = 1.0
) -> list[FindingChange]:
    """Every finding of either side once, ordered by status and then by what is at stake.

    parts: what of the step grew or shrank, empty where nobody knows. per_item: items of a head step over items of a base
    step, for savings per item.
    """
    noise = _DEFAULT_NOISE if step.noise_frac is None else step.noise_frac
    before, after = base.findings(), head.findings()
    pairs: list[tuple[Seen, Seen, str]] = [(before[key], after[key], "fingerprint") for key in before if key in after]
    left = [seen for key, seen in before.items() if key not in after]
    right = [seen for key, seen in after.items() if key not in before]
    for seen in list(left):
        twin = next((other for other in right if other[0].rule == seen[0].rule), None)
        if twin is not None:
            pairs.append((seen, twin, "rule"))
            left.remove(seen)
            right.remove(twin)
    found = [_paired(one, other, by, base, head, noise, per_item) for one, other, by in pairs]
    found += [_left(seen, base, head) for seen in left]
    found += [_arrived(seen, base, head) for seen in right]
    return sorted((_hidden(one, step, parts) for one in found), key=_order)


def _hidden(one: FindingChange, step: StepChange, parts: Sequence[CategoryChange]) -> FindingChange:
    """A finding that is new only because something else no longer hides it is none of the new program, and the other way
    round. So is one whose saving hardly passes the least that a report tells.
    """
    if one.status not in ("new", "gone"):
        return one
    new = one.status == "new"
    status: Status = "uncovered" if new else "faded"
    family = one.finding.family
    if family == _CAPTURE:
        return replace(one, status=status, reason="it speaks of the recording, not of the program")
    if parts and step.verdict == ("faster" if new else "slower"):
        where = _TIME_OF.get(family)
        mine = [part for part in parts if (part.name in where if where else part.group == "idle")]
        grown = sum(part.head_ns - part.base_ns for part in mine) * (1 if new else -1)
        least = max(LEAST_SHARE * (one.base_step_ns or 0), _VARIES * sum(max(part.base_ns, part.head_ns) for part in mine))
        if grown <= least:
            reason = (
                "the time it speaks of did not grow: something else hid it" if new else "its time is there: something hides it"
            )
            return replace(one, status=status, reason=reason)
    saving, whole = one.finding.saving, one.head_step_ns if new else one.base_step_ns
    if saving and whole and saving.expected_ns <= SLIGHT_SHARE * whole:
        return replace(one, status=status, reason=f"worth less than {SLIGHT_SHARE:.0%} of the step, near the least that is told")
    return one


def _order(one: FindingChange) -> tuple[int, int, str]:
    amount = abs(one.change_ns) if one.change_ns is not None else -1
    return STATUSES.index(one.status), -amount, one.finding.fingerprint


def _middle(seen: Seen) -> Finding:
    """The repeat whose expected saving is in the middle."""
    ordered = sorted(seen, key=lambda one: one.saving.expected_ns if one.saving else -1)
    return ordered[len(ordered) // 2]


def _change(status: Status, base: Seen, head: Seen, sides: tuple[Repeats, Repeats], **more: object) -> FindingChange:
    return FindingChange(
        status,
        _middle(base) if base else None,
        _middle(head) if head else None,
        sides[0].middle.step_ns,
        sides[1].middle.step_ns,
        len(base),
        len(head),
        **more,  # type: ignore[arg-type]
    )


def _paired(before: Seen, after: Seen, by: str, base: Repeats, head: Repeats, noise: float, per_item: float) -> FindingChange:
    one, other = _middle(before), _middle(after)
    status: Status = "same"
    step = base.middle.step_ns
    savings = [0 if each.saving is None else each.saving.expected_ns for each in (one, other)]
    if step and (one.saving or other.saving):
        now = savings[1] / per_item
        least = max(LEAST_SHARE * step, noise * max(savings[0], now))
        if abs(now - savings[0]) > least:
            status = "worse" if now > savings[0] else "better"
    elif one.severity != other.severity:
        status = "worse" if SEVERITIES.index(other.severity) < SEVERITIES.index(one.severity) else "better"
    return _change(status, before, after, (base, head), paired_by=by)


def _left(seen: Seen, base: Repeats, head: Repeats) -> FindingChange:
    """A finding of the base without a counterpart."""
    rule = seen[0].rule
    if 2 * len(seen) <= len(base) and len(base) > 1:
        reason = f"found in {len(seen)} of {len(base)} repeats of the base"
        return _change("same", seen, [], (base, head), reason=reason)
    outcomes = head.rules(rule)
    if under := _reason(outcomes, REPORTED_UNDER):
        return _change("folded", seen, [], (base, head), reason=under)
    if small := _reason(outcomes, SEEN_BUT_SMALL):
        return _change("faded", seen, [], (base, head), reason=small)
    if head.judged(rule):
        return _change("gone", seen, [], (base, head))
    reasons = [one.reason for one in outcomes if one.reason]
    return _change("not-judged", seen, [], (base, head), reason=reasons[0] if reasons else "the rule was not selected")


def _arrived(seen: Seen, base: Repeats, head: Repeats) -> FindingChange:
    """A finding of the head without a counterpart."""
    rule = seen[0].rule
    if 2 * len(seen) <= len(head) and len(head) > 1:
        reason = f"found in {len(seen)} of {len(head)} repeats of the head"
        return _change("same", [], seen, (base, head), reason=reason)
    outcomes = base.rules(rule)
    if under := _reason(outcomes, REPORTED_UNDER):
        return _change("same", [], seen, (base, head), reason=f"in the base {under}")
    if small := _reason(outcomes, SEEN_BUT_SMALL):
        return _change("uncovered", [], seen, (base, head), reason=f"in the base {small}")
    if base.judged(rule):
        return _change("new", [], seen, (base, head))
    reasons = [one.reason for one in outcomes if one.reason]
    return _change("first-judged", [], seen, (base, head), reason=reasons[0] if reasons else "the rule was not selected")


def _reason(outcomes: Iterable[RuleOutcome], begin: str) -> str | None:
    return next((one.reason for one in outcomes if one.reason and one.reason.startswith(begin)), None)
