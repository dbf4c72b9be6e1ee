"""Runs the rules on a run and makes the report: one outcome a rule, findings with savings, fixes and a stable order."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from advisor.derive.bounds import TwoSided
from advisor.derive.breakdown import breakdown
from advisor.model import Notice, Report, RuleOutcome, Run
from advisor.model.report import REPORTED_UNDER, SEEN_BUT_SMALL
from advisor.replay.changes import Edit
from advisor.rules.catalogue import Entry, adjusted, catalogue, chosen
from advisor.rules.contract import Context, Draft, NotApplicable
from advisor.rules.cost import priced
from advisor.rules.findings import Candidate, Judged, candidates, checked, claims, fingerprint, listed, retimed, saving_of
from advisor.rules.gpu_samples import gpu_samples
from advisor.rules.health import good_news
from advisor.rules.kernel_times import kernel_times
from advisor.rules.needs import COMMUNICATION, alone, missing, unlocks
from advisor.rules.pace import Pace, pace
from advisor.rules.plain import plain_text
from advisor.rules.ranking import LEAST_SHARE, folded, ranked
from advisor.rules.rule import Rule
from advisor.rules.runinfo import run_info, run_notices
from advisor.rules.saving import combined_saving, scaled, scaled_change
from advisor.rules.told import check_options, check_steps, told_notices
from advisor.rules.validity import torch_version


def analyze(
    run: Run,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    rule_dirs: Sequence[str | Path] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    version: str | None = None,
    redact: bool = False,
    pictures: bool = False,
) -> Report:
    """Judge a run by the selected rules (names of rules or families; none: all).

    `thresholds`: rule -> threshold -> value in place of the one of the rule's file. `version` is the program's, printed in the
    report; `redact` leaves source locations out; `pictures` fills `Report.pictures`. The same run gives the same report, byte
    for byte. InputError for an unknown name in `select`, `ignore` or `thresholds`, for rules that cannot be loaded, and for
    options of the run that cannot be: an unknown GPU, no version, steps that select none.
    """
    report, changes = analyze_with_changes(
        run, select=select, ignore=ignore, rule_dirs=rule_dirs, thresholds=thresholds, version=version, redact=redact
    )
    if pictures:
        from advisor.pictures.gather import gather

        report.pictures = gather(run, report, changes, partial(plain_text, redact=redact))
    return report


def analyze_with_changes(
    run: Run,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    rule_dirs: Sequence[str | Path] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    version: str | None = None,
    redact: bool = False,
) -> tuple[Report, dict[str, tuple[Edit, ...]]]:
    """`analyze`, and by fingerprint what the fix of each finding changes in the recorded steps, as far as its rule says."""
    from advisor import __version__

    entries, notices = catalogue(rule_dirs)
    entries = chosen(adjusted(entries, thresholds or {}), select, ignore)
    notices += _changed(thresholds or {})
    check_options(run.options)
    check_steps(run)
    paced = pace(run)
    step = paced.step
    judged, more = outcomes(run, entries, step)
    standing, rules = _standing(run, judged, paced, redact)
    findings = [one.finding for one in standing]
    combined = combined_saving(claims(standing), step, paced.replay) if step else None
    report = Report(
        version=version or __version__,
        run=run_info(run, paced),
        step_ns=step.step_ns if step else None,
        breakdown=breakdown(run),
        findings=findings,
        combined=combined,
        rules=rules,
        notices=list(dict.fromkeys([*run.notices, *notices, *told_notices(run), *run_notices(run, paced), *more])),
        extra={
            **({"selected": True} if [*select, *ignore] else {}),
            **_throughput(run, step),
            **priced(run, findings, combined, step.step_ns if step else 0),
            **_limits(run, paced),
            **({"kernels": times} if (times := kernel_times(run)) else {}),
            **({"gpu_samples": samples} if (samples := gpu_samples(run)) else {}),
        },
    )
    return report, {one.finding.fingerprint: one.shows for one in standing if one.shows}


def _changed(thresholds: Mapping[str, Mapping[str, float]]) -> list[Notice]:
    """A report by other thresholds says so: it is not to be compared with one by the usual ones."""
    names = [f"{rule}.{name} = {value:g}" for rule in sorted(thresholds) for name, value in sorted(thresholds[rule].items())]
    return [Notice("thresholds-changed", f"judged by other thresholds than usual: {', '.join(names)}")] if names else []


def outcomes(run: Run, entries: Sequence[Entry], step: TwoSided | None) -> tuple[list[Judged], list[Notice]]:
    """What each rule says, in the order given, using the fuller recording where the light one cannot tell."""
    judged = [judge(run, entry) for entry in entries]
    if run.fuller is None:
        return judged, []
    fuller_step = pace(run.fuller).step
    ratio = step.step_ns / fuller_step.step_ns if step and fuller_step and fuller_step.step_ns else None
    helped = []
    for place, (entry, first) in enumerate(zip(entries, judged, strict=True)):
        lacks_places = first.outcome == "found" and not any(draft.locations for draft in first.drafts)
        if first.outcome != "not-applicable" and not lacks_places:
            continue
        second = judge(run.fuller, entry)
        if first.outcome == "not-applicable" and second.outcome in ("found", "clean"):
            judged[place] = replace(second, drafts=[_rescaled(entry.rule, draft, run.fuller, ratio) for draft in second.drafts])
            helped.append(entry.rule.id)
        elif lacks_places and _take_evidence(first, second):
            helped.append(entry.rule.id)
    if not helped:
        return judged, []
    text = f"the evidence of {', '.join(helped)} comes from the fuller recording; a saving that only it shows is scaled"
    return judged, [Notice("evidence-from-fuller-recording", text)]


def judge(run: Run, entry: Entry) -> Judged:
    """One rule on one run. Never raises: a rule that fails has the outcome `error`, and the others still run."""
    rule = entry.rule
    try:
        ctx = Context(run, rule)
        if lacking := missing(run, rule):
            return _unjudged(run, rule, lacking, rule.capture if unlocks(run, rule) else None)
        if failing := rule.valid.judge(ctx.device, torch_version(run))[0]:
            return Judged(rule, "not-applicable", "; ".join(failing))
        # Standard output is the report's: what a detector prints goes to standard error.
        with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            drafts = [checked(rule, draft) for draft in listed(entry.detector()(ctx))]
    except NotApplicable as lack:
        return _unjudged(run, rule, plain_text(lack.reason), rule.capture if lack.capture is None else lack.capture or None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in a detector too
        return Judged(rule, "error", _fault(error))
    return Judged(rule, "found" if drafts else "clean", drafts=drafts, run=run)


def _unjudged(run: Run, rule: Rule, reason: str, capture: str | None) -> Judged:
    if rule.family == COMMUNICATION and alone(run):
        return Judged(rule, "not-applicable", "the recording shows one rank and no peers")
    return Judged(rule, "not-applicable", reason, capture)


def _fault(error: BaseException) -> str:
    """One line for the report; with ADVISOR_DEBUG set the traceback goes to standard error."""
    if os.environ.get("ADVISOR_DEBUG"):
        traceback.print_exception(error, file=sys.stderr)
    return plain_text(f"{type(error).__name__}: {error}")


def _rescaled(rule: Rule, draft: Draft, fuller: Run, ratio: float | None) -> Draft:
    """The draft of the slower recording in the time of the faster one; without a ratio it promises nothing.

    Its edits speak of the slower recording's rows, so they are replayed there.
    """
    if ratio is None:
        return replace(draft, edits=[], change=None, saving=None)
    paced = pace(fuller)
    saving = saving_of(rule, draft, paced) if draft.edits else draft.saving
    caveats = list(draft.caveats)
    if saving or draft.change:
        step = paced.step.step_ns if paced.step else 0
        caveats.append(
            f"Title and table are as the fuller recording has it, where a step takes {step / 1e6:.1f} ms without the profiler; "
            "the saving refers to the step of this report."
        )
    return replace(
        draft,
        caveats=caveats,
        edits=[],
        change=scaled_change(draft.change, ratio) if draft.change else None,
        saving=scaled(saving, ratio) if saving else None,
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


def _standing(run: Run, judged: list[Judged], paced: Pace, redact: bool) -> tuple[list[Candidate], list[RuleOutcome]]:
    """The findings that stand, in their order, and the outcome of every rule."""
    step = paced.step
    least = LEAST_SHARE * step.step_ns if step else 0
    all_kept: list[Candidate] = []
    outcome: dict[str, RuleOutcome] = {}
    for one in judged:
        state, reason = one.outcome, one.reason
        try:
            made = candidates(one, run, paced, redact)
        except Exception as error:
            made, state, reason = [], "error", _fault(error)
        kept = [each for each in made if each.finding.saving is None or each.finding.saving.high_ns >= least]
        if made and not kept:
            most = max(each.finding.saving.high_ns for each in made if each.finding.saving)
            state, reason = "clean", f"{SEEN_BUT_SMALL} {most / step.step_ns if step else 0:.1%} of the step"
        all_kept += kept
        outcome[one.rule.id] = RuleOutcome(one.rule.id, state, reason, one.capture)
    lent = {each.finding.rule for each in all_kept if each.lent}
    under = folded([each.finding for each in all_kept], {one.rule.id: one.rule for one in judged}, lent)
    all_kept = retimed(all_kept, under, step.step_ns if step else 0)
    for name, top in under.items():
        outcome[name] = RuleOutcome(name, "found", f"{REPORTED_UNDER} {top}")
    by_print = {each.finding.fingerprint: each for each in all_kept if each.finding.rule not in under}
    order = ranked([each.finding for each in by_print.values()])
    return [by_print[finding.fingerprint] for finding in order], list(outcome.values())


def _throughput(run: Run, step: TwoSided | None) -> dict[str, object]:
    items = run.options.items_per_step
    if not items or step is None or step.step_ns <= 0:
        return {}
    rate = items * 1e9 / step.step_ns
    return {"throughput": {"items_per_step": items, "items_per_second": round(rate, 3)}} if math.isfinite(rate) else {}


def _limits(run: Run, paced: Pace) -> dict[str, object]:
    """Good news is worth no failure: a fault here leaves it out, and the findings stand."""
    try:
        news = good_news(run, paced)
    except Exception as error:
        _fault(error)
        return {}
    return {"limits": news} if news else {}
