"""Runs the rules on a run and makes the report: one outcome a rule, findings with savings, fixes and a stable order."""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from advisor.derive.bounds import TwoSided, two_sided
from advisor.derive.breakdown import breakdown
from advisor.model import Evidence, Finding, Notice, Report, RuleOutcome, Run, Saving
from advisor.model.report import CONFIDENCES, SEVERITIES, Outcome
from advisor.rules.catalogue import Entry, catalogue, chosen
from advisor.rules.contract import Change, Context, Draft, NotApplicable
from advisor.rules.fixes import fixes_for
from advisor.rules.plain import plain, plain_location, plain_text
from advisor.rules.ranking import LEAST_SHARE, confidence, expected, folded, ranked, severity
from advisor.rules.rule import ENVIRONMENT, Rule
from advisor.rules.runinfo import run_info, run_notices
from advisor.rules.saving import Claim, bound_saving, clipped, combined_saving, scaled, scaled_change
from advisor.rules.validity import torch_version


@dataclass
class Judged:
    """What one rule said about one run. `drafts` is not empty only if the outcome is `found`."""

    rule: Rule
    outcome: Outcome
    reason: str | None = None
    capture: str | None = None
    drafts: list[Draft] = field(default_factory=list)
    run: Run | None = None


def analyze(
    run: Run,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    rule_dirs: Sequence[str | Path] = (),
    version: str | None = None,
    redact: bool = False,
) -> Report:
    """Judge a run by the selected rules (names of rules or families; none: all).

    `version` is the program's, printed in the report; `redact` leaves source locations out. The same run gives the same
    report, byte for byte. InputError for an unknown name in `select` or `ignore`, or for rules that cannot be loaded.
    """
    from advisor import __version__

    entries, notices = catalogue(rule_dirs)
    entries = chosen(entries, select, ignore)
    step = two_sided(run)
    judged, more = outcomes(run, entries, step)
    findings, claims, rules = _findings(run, judged, step, redact)
    return Report(
        version=version or __version__,
        run=run_info(run, step),
        step_ns=step.step_ns if step else None,
        breakdown=breakdown(run),
        findings=findings,
        combined=combined_saving(claims, step) if step else None,
        rules=rules,
        notices=list(dict.fromkeys([*run.notices, *notices, *run_notices(run, step), *more])),
        extra=_throughput(run, step),
    )


def outcomes(run: Run, entries: Sequence[Entry], step: TwoSided | None) -> tuple[list[Judged], list[Notice]]:
    """What each rule says, in the order given, using the fuller recording where the light one cannot tell."""
    judged = [judge(run, entry) for entry in entries]
    if run.fuller is None:
        return judged, []
    fuller_step = two_sided(run.fuller)
    ratio = step.step_ns / fuller_step.step_ns if step and fuller_step and fuller_step.step_ns else None
    helped = []
    for place, (entry, first) in enumerate(zip(entries, judged, strict=True)):
        lacks_places = first.outcome == "found" and not any(draft.locations for draft in first.drafts)
        if first.outcome != "not-applicable" and not lacks_places:
            continue
        second = judge(run.fuller, entry)
        if first.outcome == "not-applicable" and second.outcome in ("found", "clean"):
            judged[place] = replace(second, drafts=[_rescaled(draft, ratio) for draft in second.drafts])
            helped.append(entry.rule.id)
        elif lacks_places and _take_evidence(first, second):
            helped.append(entry.rule.id)
    if not helped:
        return judged, []
    text = f"the evidence of {', '.join(helped)} comes from the fuller recording, scaled to the step of the lighter one"
    return judged, [Notice("evidence-from-fuller-recording", text)]


def judge(run: Run, entry: Entry) -> Judged:
    """One rule on one run. Never raises: a rule that fails has the outcome `error`, and the others still run."""
    rule = entry.rule
    try:
        ctx = Context(run, rule)
        if lacking := missing(run, rule):
            return Judged(rule, "not-applicable", lacking, rule.capture)
        if failing := rule.valid.judge(ctx.device, torch_version(run))[0]:
            return Judged(rule, "not-applicable", "; ".join(failing))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = entry.detector()(ctx)
        drafts = [found] if isinstance(found, Draft) else list(found or [])
        for draft in drafts:
            _check(rule, draft)
    except NotApplicable as lack:
        return Judged(rule, "not-applicable", plain_text(lack.reason), lack.capture or rule.capture)
    except Exception as error:
        if os.environ.get("ADVISOR_DEBUG"):
            traceback.print_exception(error, file=sys.stderr)
        return Judged(rule, "error", plain_text(f"{type(error).__name__}: {error}"))
    return Judged(rule, "found" if drafts else "clean", drafts=drafts, run=run)


def missing(run: Run, rule: Rule) -> str | None:
    """Why the input is not enough for the rule's `needs`; None if it is."""
    for group in rule.needs:
        if not any(_recorded(run, name) for name in group):
            words = [_in_words(name) for name in group]
            if len(words) == 1:
                return f"the input holds no {words[0]}"
            return f"the input holds neither {' nor '.join(words)}"
    return None


def _recorded(run: Run, name: str) -> bool:
    if name == ENVIRONMENT:
        return bool(run.environment)
    table, _, column = name.partition(".")
    return run.table(table).has(column) if column else len(run.table(table)) > 0


def _in_words(name: str) -> str:
    if name == ENVIRONMENT:
        return "environment variables"
    table, _, column = name.partition(".")
    return table.replace("_", " ") + (f" with {column.replace('_', ' ')}" if column else "")


def _check(rule: Rule, draft: Draft) -> None:
    """TypeError or ValueError for a draft that no report can hold, so that the fault is found at its rule."""
    if not isinstance(draft, Draft):
        raise TypeError(f"detect() gave a {type(draft).__name__}, not a Draft")
    if draft.confidence not in CONFIDENCES or draft.severity not in (None, *SEVERITIES):
        raise ValueError(f"confidence {draft.confidence!r} or severity {draft.severity!r} is no such word")
    for table in draft.evidence:
        if any(len(row) != len(table.columns) for row in table.rows):
            raise ValueError(f"evidence {table.caption!r} has rows of another length than its columns")
    for name in draft.fixes or ():
        rule.fix(name)


def _rescaled(draft: Draft, ratio: float | None) -> Draft:
    """The draft of the slower recording in the time of the faster one; without a ratio it promises nothing."""
    if ratio is None:
        return replace(draft, change=None, saving=None)
    return replace(
        draft,
        change=scaled_change(draft.change, ratio) if draft.change else None,
        saving=scaled(draft.saving, ratio) if draft.saving else None,
    )


def _take_evidence(first: Judged, second: Judged) -> bool:
    """Give the drafts of the light run the places and evidence of their twins; True if any had some."""
    twins = {fingerprint(first.rule, draft): draft for draft in second.drafts}
    only = second.drafts[0] if len(second.drafts) == len(first.drafts) == 1 else None
    took = False
    for place, draft in enumerate(first.drafts):
        twin = twins.get(fingerprint(first.rule, draft), only)
        if twin is not None and twin.locations:
            first.drafts[place] = replace(draft, locations=twin.locations, evidence=twin.evidence or draft.evidence)
            took = True
    return took


def fingerprint(rule: Rule, draft: Draft) -> str:
    """Stable over re-runs of the same program: made of the rule and the subject's words, never of times."""
    words = "\0".join([rule.id, *map(plain_text, draft.subject)])
    return f"{rule.id}:{hashlib.sha256(words.encode(errors='replace')).hexdigest()[:8]}"


def _findings(
    run: Run, judged: list[Judged], step: TwoSided | None, redact: bool
) -> tuple[list[Finding], list[Claim], list[RuleOutcome]]:
    """Findings in their order, what they claim together, and the outcome of every rule."""
    changes: dict[int, Change | None] = {}
    findings: list[Finding] = []
    outcome: dict[str, RuleOutcome] = {}
    for one in judged:
        kept, small = [], None
        for draft in one.drafts:
            saving = _saving(one.rule, draft, step)
            if saving is not None and step and saving.high_ns < LEAST_SHARE * step.step_ns:
                small = max(small or 0.0, saving.high_ns / step.step_ns)
                continue
            finding = _finding(one, draft, saving, run, step, redact)
            changes[id(finding)] = draft.change if draft.saving is None else None
            kept.append(finding)
        _tell_apart(kept)
        findings += kept
        state, reason = one.outcome, one.reason
        if state == "found" and not kept:
            state, reason = "clean", f"seen, but worth at most {small or 0.0:.1%} of the step"
        outcome[one.rule.id] = RuleOutcome(one.rule.id, state, reason, one.capture)
    under = folded(findings, {one.rule.id: one.rule for one in judged})
    for name, top in under.items():
        outcome[name] = RuleOutcome(name, "found", f"reported under {top}")
    findings = ranked([finding for finding in findings if finding.rule not in under])
    return findings, _claims(findings, changes), list(outcome.values())


def _saving(rule: Rule, draft: Draft, step: TwoSided | None) -> Saving | None:
    if step is None or step.step_ns <= 0 or rule.informs:
        return None
    if draft.saving is not None:
        return clipped(draft.saving, step.step_ns) if draft.saving.basis != "none" else None
    return bound_saving(draft.change, step) if draft.change is not None else None


def _finding(one: Judged, draft: Draft, saving: Saving | None, run: Run, step: TwoSided | None, redact: bool) -> Finding:
    rule, seen = one.rule, one.run or run
    ctx = Context(seen, rule)
    torch = torch_version(seen)
    facts = plain(draft.facts, redact)
    caveats = [*draft.caveats, *rule.valid.judge(ctx.device, torch)[1]]
    evidence = [Evidence(plain_text(t.caption), list(t.columns), plain(t.rows, redact)) for t in draft.evidence]
    return Finding(
        rule=rule.id,
        family=rule.family,
        title=plain_text(draft.title, redact),
        severity=severity(saving, step.step_ns if step else 0, draft.severity),
        confidence=confidence(draft.confidence, saving),
        saving=saving,
        scope=plain(draft.scope),
        facts=facts,
        evidence=evidence,
        locations=[] if redact else [plain_location(place) for place in draft.locations],
        fixes=fixes_for(rule, draft.fixes, facts, ctx.device, torch, run.options.framework),
        caveats=[plain_text(text, redact) for text in caveats],
        alternative_to=draft.alternative_to,
        fingerprint=fingerprint(rule, draft),
    )


def _tell_apart(findings: list[Finding]) -> None:
    """Findings of one rule that named no subject of their own get a number."""
    seen: dict[str, int] = {}
    for finding in findings:
        seen[finding.fingerprint] = count = seen.get(finding.fingerprint, 0) + 1
        if count > 1:
            finding.fingerprint += f"-{count}"


def _claims(findings: list[Finding], changes: dict[int, Change | None]) -> list[Claim]:
    """One claim a finding; of a finding and its alternatives only the one that saves most."""
    best: dict[str, Finding] = {}
    for finding in findings:
        group = finding.alternative_to or finding.rule
        key = group if finding.alternative_to or any(f.alternative_to == group for f in findings) else finding.fingerprint
        if finding.saving is not None and (key not in best or expected(finding) > expected(best[key])):
            best[key] = finding
    return [Claim(finding.saving, changes[id(finding)]) for finding in best.values() if finding.saving is not None]


def _throughput(run: Run, step: TwoSided | None) -> dict[str, object]:
    items = run.options.items_per_step
    if not items or step is None or step.step_ns <= 0:
        return {}
    return {"throughput": {"items_per_step": items, "items_per_second": round(items * 1e9 / step.step_ns, 3)}}
