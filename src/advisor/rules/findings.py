"""From what a rule said to findings of the report."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import get_args

from advisor.derive.bounds import TwoSided
from advisor.derive.steps import CUT_SHORT, steps
from advisor.model import Evidence, Finding, Run, Saving
from advisor.model.report import CONFIDENCES, SEVERITIES, Basis, Outcome
from advisor.replay.changes import Edit
from advisor.rules.contract import Change, Context, Draft
from advisor.rules.fixes import fixes_for, no_fix
from advisor.rules.pace import Pace
from advisor.rules.plain import plain, plain_location, plain_text, stepless
from advisor.rules.ranking import confidence, expected, severity
from advisor.rules.rule import Rule
from advisor.rules.saving import Claim, bound_saving, clipped, replayed_saving, spares_gpu
from advisor.rules.validity import newest_torch, torch_version

MOST_DRAFTS = 200  # of one rule: more come from a detector that never ends, and nobody reads them


@dataclass
class Judged:
    """What one rule said about one run. `drafts` is not empty only if the outcome is `found`; `run` is where it looked."""

    rule: Rule
    outcome: Outcome
    reason: str | None = None
    capture: str | None = None
    drafts: list[Draft] = field(default_factory=list)
    run: Run | None = None


@dataclass(frozen=True)
class Candidate:
    """A finding and the change its saving came from, if it came from one.

    lent: it was judged in the fuller recording, and its saving brought to the step of the light one. shows: what the fix
    changes in the recorded steps, whether or not the saving came from a replay.
    """

    finding: Finding
    change: Change | None
    edits: tuple[Edit, ...] = ()
    spares_gpu: bool = True
    lent: bool = False
    shows: tuple[Edit, ...] = ()


def listed(found: object) -> list[Draft]:
    """What detect() gave as a list of drafts, which `checked` looks at one by one.

    TypeError for anything else, ValueError for more than any reader would look at.
    """
    if found is None:
        return []
    if isinstance(found, Draft):
        return [found]
    if not isinstance(found, Iterable) or isinstance(found, (str, bytes, dict)):
        raise TypeError(f"detect() must return a Draft, a list of Drafts or None, not {type(found).__name__}")
    drafts = list(islice(found, MOST_DRAFTS + 1))
    if len(drafts) > MOST_DRAFTS:
        raise ValueError(f"detect() gave more than {MOST_DRAFTS} findings")
    return drafts


def checked(rule: Rule, draft: Draft) -> Draft:
    """The draft with whole numbers. TypeError, ValueError or KeyError for one that no report can hold.

    Checked as soon as the detector is done, so that the fault is told at its rule.
    """
    if not isinstance(draft, Draft):
        raise TypeError(f"detect() must return a Draft, a list of Drafts or None, not a list that holds {type(draft).__name__}")
    if draft.confidence not in CONFIDENCES or draft.severity not in (None, *SEVERITIES):
        raise ValueError(f"confidence {draft.confidence!r} or severity {draft.severity!r} is no such word")
    for table in draft.evidence:
        if any(len(row) != len(table.columns) for row in table.rows):
            raise ValueError(f"evidence {table.caption!r} has rows of another length than its columns")
    if not all(isinstance(values, list) for values in draft.scope.values()):
        raise ValueError("the scope holds something that is no list")
    for name in draft.fixes or ():
        rule.fix(name)
    change, saving = draft.change, draft.saving
    if change is not None:
        limit = None if change.limit_ns is None else _whole(change.limit_ns)
        change = Change(_whole(change.host_ns), _whole(change.gpu_ns), _whole(change.wait_ns), limit)
    if saving is not None:
        if saving.basis not in get_args(Basis):
            raise ValueError(f"basis {saving.basis!r} of a saving is no such word")
        saving = Saving(_whole(saving.low_ns), _whole(saving.expected_ns), _whole(saving.high_ns), saving.basis)
    return replace(draft, change=change, saving=saving)


def _whole(value: float) -> int:
    if not math.isfinite(value):
        raise ValueError(f"a change or saving holds {value}")
    return int(value)


def candidates(one: Judged, run: Run, pace: Pace, redact: bool) -> list[Candidate]:
    """All findings of a rule, also those too small to stand; savings refer to the step of `run`."""
    made = []
    seen: dict[str, int] = {}
    for draft in one.drafts:
        finding = _finding(one, draft, saving_of(one.rule, draft, pace), run, pace.step, redact)
        # Findings of one rule that named no subject of their own get a number.
        seen[finding.fingerprint] = count = seen.get(finding.fingerprint, 0) + 1
        if count > 1:
            finding.fingerprint += f"-{count}"
        replayed = finding.saving is not None and finding.saving.basis == "replay" and draft.saving is None
        own = draft.change if draft.saving is None else None
        edits = tuple(draft.edits) if replayed else ()
        spares = spares_gpu(draft.change, draft.edits)
        lent = one.run is not None and one.run is run.fuller
        made.append(Candidate(finding, own, edits, spares, lent, tuple(draft.edits)))
    return made


def fingerprint(rule: Rule, draft: Draft) -> str:
    """Stable over re-runs of the same program: made of the rule and the subject's words, never of times."""
    words = "\0".join([rule.id, *map(plain_text, draft.subject)])
    return f"{rule.id}:{hashlib.sha256(words.encode(errors='replace')).hexdigest()[:8]}"


def retimed(kept: list[Candidate], under: dict[str, str], step_ns: int) -> list[Candidate]:
    """A finding lent by the fuller recording takes the saving of the one it takes in: the light recording measured that."""
    result = list(kept)
    for place, outer in enumerate(kept):
        finding = outer.finding
        own = [one for one in kept if under.get(one.finding.rule) == finding.rule and not one.lent]
        inner = max(own, key=lambda one: expected(one.finding), default=None)
        if not outer.lent or inner is None or finding.saving is None or expected(inner.finding) <= expected(finding):
            continue
        saving, other = finding.saving, inner.finding.saving
        assert other is not None
        # Of both lows the one of the finding that saw the cause: the other's is 0 where it only guessed.
        both = Saving(min(saving.low_ns, other.expected_ns), other.expected_ns, max(saving.high_ns, other.high_ns), other.basis)
        told = replace(finding, saving=both, severity=severity(both, step_ns), confidence=confidence(finding.confidence, both))
        result[place] = replace(inner, finding=told, lent=True)
    return result


def claims(standing: list[Candidate]) -> list[Claim]:
    """What the findings claim together: of a finding and its alternatives only the one that saves most counts."""
    contested = {one.finding.alternative_to for one in standing} - {None}
    best: dict[str, Candidate] = {}
    for one in standing:
        finding = one.finding
        key = finding.alternative_to or (finding.rule if finding.rule in contested else finding.fingerprint)
        if finding.saving is not None and (key not in best or expected(finding) > expected(best[key].finding)):
            best[key] = one
    return [
        Claim(one.finding.saving, one.change, one.edits, one.spares_gpu)
        for one in best.values()
        if one.finding.saving is not None
    ]


def saving_of(rule: Rule, draft: Draft, pace: Pace) -> Saving | None:
    """By replay where the draft says what changes and the steps can be replayed, else by the bound from both sides."""
    step = pace.step
    if step is None or step.step_ns <= 0 or rule.informs:
        return None
    if draft.saving is not None:
        return clipped(draft.saving, step.step_ns) if draft.saving.basis != "none" else None
    if draft.edits and pace.replay is not None:
        return replayed_saving(draft.edits, pace.replay, step.step_ns, draft.at_best_ns)
    return bound_saving(draft.change, step) if draft.change is not None else None


def _finding(one: Judged, draft: Draft, saving: Saving | None, run: Run, step: TwoSided | None, redact: bool) -> Finding:
    rule, seen = one.rule, one.run or run
    device, torch = Context(seen, rule).device, torch_version(run) or torch_version(seen)
    facts = plain(draft.facts, redact)
    fixes = fixes_for(rule, draft.fixes, facts, device, torch, run.options.framework, newest_torch(run))
    caveats = [*draft.caveats, *rule.valid.judge(device, torch)[1]]
    if not fixes:
        caveats += no_fix(rule, draft.fixes, device, torch)
    partial = any(notice.code == CUT_SHORT for notice in seen.notices)  # nobody knows which records are gone
    sure = "low" if partial else confidence(draft.confidence, saving)
    if saving is not None and sure == "low":
        saving = replace(saving, low_ns=0)  # the cause may be another one
    said = stepless if steps(seen).source == "none" else str
    return Finding(
        rule=rule.id,
        family=rule.family,
        title=plain_text(said(draft.title), redact),
        severity=severity(saving, step.step_ns if step else 0, draft.severity),
        confidence=sure,
        saving=saving,
        scope=plain(draft.scope),
        facts=facts,
        evidence=[
            Evidence(plain_text(said(table.caption), redact), plain(table.columns), plain(table.rows, redact))
            for table in draft.evidence
        ],
        locations=[] if redact else [plain_location(place) for place in draft.locations],
        fixes=fixes,
        caveats=[plain_text(text, redact) for text in caveats],
        alternative_to=draft.alternative_to,
        fingerprint=fingerprint(rule, draft),
    )
