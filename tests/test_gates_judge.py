"""Budgets, findings and baselines against a report: just below and just above, and where nobody can tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.gates import baseline as b
from advisor.gates.expression import parse_conditions
from advisor.gates.judge import Asked, Budget, judge
from advisor.gates.measures import MEASURES, Unknown
from advisor.gates.regressions import PARTS
from advisor.model import Condition, Finding, Report, RuleOutcome, Verdict
from advisor.model.report import REPORTED_UNDER
from build.reports import clean, healthy, part, run_facts, samples_only, saving, starved_loader, two_ranks

FAMILIES = ("input", "host", "transfer")


def report_with(**measured: Any) -> Report:
    """One GPU, a step of 100 ms: 60 compute, 10 communication (4 waiting), 5 copies, 25 idle (20 by data loading)."""
    run = run_facts(100) | {"measured": {"memory_peak_bytes": None, "host_syncs_per_step": None, **measured}}
    limits = [{"id": "model-flops-utilisation", "value": 400, "limit": 1000, "text": "", "unit": "FLOP/s"}]
    parts = [part(100, 60, 10, 4, 5, dataloader=20), part(100, 90, device=1)]
    return Report("1", run, 100_000_000, parts, extra={"limits": limits}, combined=saving(5, 12, 20))


def asked(*texts: str, **more: Any) -> Asked:
    names = ["single-process-dataloader", "pageable-copy", "straggler-rank", "gone", *FAMILIES]
    terms = [(text, term, "--fail-on") for text, term in parse_conditions(texts, names, PARTS)]
    return Asked(terms, families=FAMILIES, **more)


def only(verdict: Verdict) -> Condition:
    (condition,) = verdict.conditions
    return condition


VALUES = {
    "step-time": (100_000_000, "run.steps.median_ns"),
    "idle-share": (0.25, "breakdown[0].idle_ns / breakdown[0].step_ns"),
    "idle-dataloader": (0.20, "breakdown[0].idle_by_cause.dataloader / breakdown[0].step_ns"),
    "idle-launch": (0.0, "breakdown[0].idle_by_cause.launch / breakdown[0].step_ns"),
    "exposed-communication": (0.10, "breakdown[0].exposed_communication_ns / breakdown[0].step_ns"),
    "waiting-for-ranks": (0.04, "breakdown[0].exposed_communication_wait_ns / breakdown[0].step_ns"),
    "exposed-copies": (0.05, "breakdown[0].exposed_copy_ns / breakdown[0].step_ns"),
    "possible-saving": (0.12, "combined_saving.expected_frac"),
    "mfu": (0.4, "limits[0].value / limits[0].limit"),
    "memory-peak": (70 << 30, "run.measured.memory_peak_bytes"),
    "host-syncs-per-step": (1.5, "run.measured.host_syncs_per_step"),
}


@pytest.mark.parametrize("name", list(VALUES))
def test_each_budget_just_met_and_just_missed(name: str) -> None:
    report = report_with(memory_peak_bytes=70 << 30, host_syncs_per_step=1.5)
    value, source = VALUES[name]
    worse = 1 if MEASURES[name].least else -1
    met = only(judge(report, Asked(budgets=[Budget(name, value)])))
    missed = only(judge(report, Asked(budgets=[Budget(name, value * (1 + worse * 1e-6) if value else -1e-9)])))
    assert (met.state, met.actual, met.source) == ("passed", value, source)
    assert missed.state == "failed"
    if value:
        assert "just" in missed.text  # the digits hide the difference


def test_every_measure_reads_a_report_or_says_why_not() -> None:
    for report in (starved_loader(), two_ranks(), healthy(), samples_only(), Report("1", {}, None)):
        for measure in MEASURES.values():
            try:
                figure = measure.read(report)
            except Unknown as lack:
                assert str(lack)
            else:
                assert figure.value >= 0 and figure.source


@pytest.mark.parametrize("name", sorted(set(MEASURES) - {"throughput"}))
def test_a_budget_without_its_data_is_not_judged(name: str) -> None:
    verdict = judge(samples_only(), Asked(budgets=[Budget(name, 0.5, "advisor.toml, line 3")]))
    condition = only(verdict)
    assert (condition.state, condition.actual, condition.origin) == ("not-judged", None, "advisor.toml, line 3")
    assert condition.reason and not verdict.failed
    strict = judge(samples_only(), Asked(budgets=[Budget(name, 0.5)], strict=True))
    assert strict.failed and strict.conditions[0].state == "not-judged"


def test_a_recording_without_steps_has_no_step_time() -> None:
    report = report_with()
    report.run["steps"]["source"] = "none"
    condition = only(judge(report, Asked(budgets=[Budget("step-time", 1)])))
    assert condition.state == "not-judged" and "--step-pattern" in (condition.reason or "")


def test_throughput_is_a_minimum() -> None:
    report = report_with()
    assert only(judge(report, asked("throughput<100"))).state == "not-judged"
    report.extra["throughput"] = {"items_per_step": 8, "items_per_second": 80.0}
    assert only(judge(report, asked("throughput<80"))).state == "passed"
    assert only(judge(report, asked("throughput<81"))).state == "failed"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("high", "failed"),
        ("single-process-dataloader", "failed"),
        ("input", "failed"),
        ("host", "passed"),
        ("gone", "not-judged"),
        ("straggler-rank", "not-judged"),
        ("new", "not-judged"),
        ("error", "not-judged"),
        ("budget", "not-judged"),
        ("idle-share>99%", "passed"),
    ],
)
def test_conditions_on_findings(text: str, state: str) -> None:
    report = starved_loader()
    report.rules = [*clean("straggler-rank"), *report.rules]
    report.rules = [
        RuleOutcome("straggler-rank", "not-applicable", "one rank") if one.id == "straggler-rank" else one for one in report.rules
    ]
    assert only(judge(report, asked(text))).state == state


def test_severity_needs_medium_confidence() -> None:
    report = starved_loader()
    report.findings = [replace(report.findings[0], confidence="low")]
    assert only(judge(report, asked("low"))).state == "passed"
    assert only(judge(report, asked("single-process-dataloader"))).state == "failed"


def test_what_failed_names_its_findings() -> None:
    report = starved_loader()
    condition = only(judge(report, asked("high")))
    assert condition.findings == (report.findings[0].fingerprint,)
    assert (condition.actual, condition.limit, condition.source) == (1, 0, "findings")
    assert "single-process-dataloader" in condition.text


def test_rules_set_to_error() -> None:
    report = starved_loader()
    errors = {"pageable-copy": "advisor.toml, line 4", "host-sync-in-step": "advisor.toml, line 5"}
    condition = only(judge(report, Asked(errors=errors)))
    assert (condition.name, condition.state, condition.origin) == ("error", "failed", "advisor.toml, line 4")
    report.findings = []
    assert only(judge(report, Asked(errors=errors))).state == "passed"
    # Asked for twice, it is one condition.
    assert only(judge(report, asked("error", errors=errors))).name == "error"


def test_a_rule_told_under_another_counts() -> None:
    report = starved_loader()
    under = RuleOutcome("dataloader-bound", "found", f"{REPORTED_UNDER}single-process-dataloader")
    report.rules = [*report.rules, under]
    terms = [("dataloader-bound", parse_conditions(["dataloader-bound"], ["dataloader-bound"], PARTS)[0][1], None)]
    assert only(judge(report, Asked(terms))).findings == (report.findings[0].fingerprint,)


def test_never_fails_nothing() -> None:
    verdict = judge(report_with(), asked("never", budgets=[Budget("step-time", 1)]))
    assert verdict.conditions[0].state == "failed" and not verdict.failed


# The baseline


def accepted(report: Report) -> b.Baseline:
    return b.Baseline("1", tuple(b.accept(report.findings, report.step_ns)))


def state_of(report: Report, baseline: b.Baseline, fingerprint: str) -> str:
    return next(e.state for e in b.against(baseline, report, "b.json").entries if e.fingerprint == fingerprint)


def grown(report: Report, factor: float) -> Finding:
    first = report.findings[0]
    assert first.saving
    return replace(first, saving=replace(first.saving, expected_ns=round(first.saving.expected_ns * factor), high_ns=10**9))


def test_what_was_accepted_fails_nothing() -> None:
    report = starved_loader()
    found = b.against(accepted(report), report, "b.json")
    verdict = judge(report, asked("high", "new", "single-process-dataloader", errors={"single-process-dataloader": None}), found)
    assert [one.state for one in verdict.conditions] == ["passed"] * 4
    assert found.new == () and len(found.entries) == len(report.findings)
    assert all(verdict.accepts(finding.fingerprint) for finding in report.findings)


def test_a_new_finding_counts() -> None:
    report = starved_loader()
    found = b.against(b.Baseline("1", accepted(report).entries[1:]), report, "b.json")
    verdict = judge(report, asked("new", "new:high", "new:transfer"), found)
    assert [one.state for one in verdict.conditions] == ["failed", "failed", "passed"]
    assert verdict.conditions[0].findings == (report.findings[0].fingerprint,)


def test_worse_needs_more_than_the_margin_in_time_and_share() -> None:
    report = starved_loader()  # 36.4 of 57.2 ms
    before, print_ = accepted(report), report.findings[0].fingerprint
    report.findings[0] = grown(starved_loader(), 1.07)  # + 2.5 ms, 4.4 % of the step
    assert state_of(report, before, print_) == "accepted"
    report.findings[0] = grown(starved_loader(), 1.09)  # + 3.3 ms, 5.7 % of the step
    assert state_of(report, before, print_) == "worse"
    verdict = judge(report, asked("new"), b.against(before, report, "b.json"))
    assert verdict.failed and not verdict.accepts(print_)
    # Another fix made the step shorter: the share grew, the time did not.
    report = starved_loader()
    report.step_ns = 40_000_000
    assert state_of(report, before, print_) == "accepted"
    # A larger batch: the time grew, the share did not.
    report = starved_loader()
    report.findings[0], report.step_ns = grown(starved_loader(), 2), 114_400_000
    assert state_of(report, before, print_) == "accepted"


def test_a_greater_danger_is_worse() -> None:
    report = Report("1", {}, None, findings=[Finding("m", "memory", "t", "info", "high", fingerprint="m:1")])
    before = accepted(report)
    assert state_of(report, before, "m:1") == "accepted"
    report.findings = [replace(report.findings[0], severity="high")]
    assert state_of(report, before, "m:1") == "worse"


@pytest.mark.parametrize(
    ("outcome", "reason", "state"),
    [
        ("clean", None, "fixed"),
        ("found", None, "fixed"),
        ("found", f"{REPORTED_UNDER}other", "not-judged"),
        ("not-applicable", "no shapes", "not-judged"),
        ("error", "ValueError", "not-judged"),
        (None, None, "not-judged"),
    ],
)
def test_gone_is_fixed_only_if_its_rule_judged(outcome: Any, reason: str | None, state: str) -> None:
    report = starved_loader()
    before, rule = accepted(report), report.findings[0].rule
    print_ = report.findings.pop(0).fingerprint
    report.rules = [one for one in report.rules if one.id != rule] + ([RuleOutcome(rule, outcome, reason)] if outcome else [])
    assert state_of(report, before, print_) == state
    kept = {entry.fingerprint for entry in b.pruned(before, b.against(before, report, "")).entries}
    assert (print_ in kept) is (state != "fixed")
    updated = {entry.fingerprint for entry in b.updated(before, report, "2", None).entries}
    assert (print_ in updated) is (state != "fixed")
