"""Allowed regressions against a comparison: the interval decides, and where it cannot, nobody does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.gates.expression import parse_conditions
from advisor.gates.judge import Asked
from advisor.gates.regressions import PARTS, judge, limits
from advisor.model import Condition, Finding
from advisor.model.comparison import CategoryChange, Comparison, Difference, FindingChange, Side, StepChange
from build.reports import run_facts

GIB = 1 << 30


def side(step_ms: float, memory: int | None = None, source: str | None = "allocator") -> Side:
    run = run_facts(step_ms) | {"measured": {"memory_peak_bytes": memory, "memory_peak_source": source if memory else None}}
    return Side(["x"], 1, round(step_ms * 1e6), round(step_ms * 1e6), run, 0)


def compared(ratio: float = 1.05, low: float = 1.02, high: float = 1.08, **changes: Any) -> Comparison:
    verdict = "slower" if low > 1 else "faster" if high < 1 else "no-measurable-change"
    step = StepChange(verdict, "why", 100_000_000, round(ratio * 1e8), ratio, low, high, method="repeats")  # type: ignore[arg-type]
    found = Comparison("1", side(100, 10 * GIB), side(100 * ratio, 10 * GIB), step)
    return replace(found, **changes)


def asked(*texts: str, **more: Any) -> Asked:
    names = ["host-sync-in-step", "pageable-copy", "host"]
    return Asked([(text, term, "--fail-on") for text, term in parse_conditions(texts, names, PARTS)], **more)


def only(comparison: Comparison, *texts: str, allowed: dict[str, float] | None = None, **more: Any) -> Condition:
    limit = {name: (share, "advisor.toml, line 9") for name, share in (allowed or {}).items()}
    (condition,) = judge(comparison, asked(*texts, **more), limit).conditions
    return condition


@pytest.mark.parametrize(
    ("limit", "state"),
    [(0.0199, "failed"), (0.02, "not-judged"), (0.05, "not-judged"), (0.0799, "not-judged"), (0.08, "passed")],
)
def test_the_interval_decides(limit: float, state: str) -> None:
    condition = only(compared(), allowed={"step-time": limit})
    assert (condition.state, condition.origin) == (state, "advisor.toml, line 9")
    assert condition.actual == pytest.approx(0.05) and condition.source == "step.change_frac"
    assert "+5 %" in condition.text and "+2 % to +8 %" in condition.text
    assert bool(condition.reason) is (state == "not-judged")
    assert only(compared(), f"regression>{limit}").state == state


def test_no_measurable_change_is_no_regression() -> None:
    same = compared(1.01, 0.98, 1.04)
    assert only(same, "regression").state == "passed"
    assert only(same, "regression").text.endswith(", no measurable increase is allowed")
    assert only(same, "regression>5%").state == "passed"
    assert only(same, "regression>3%").state == "not-judged"  # up to 4 % cannot be excluded
    assert only(compared(0.9, 0.88, 0.92), "regression>0%").state == "passed"


def test_without_a_limit_any_change_to_the_worse_counts() -> None:
    assert only(compared(1.02, 1.001, 1.04), "regression").state == "failed"
    # With one in the configuration that one holds, once.
    assert only(compared(1.02, 1.001, 1.04), "regression", allowed={"step-time": 0.05}).state == "passed"


def test_where_nobody_can_tell() -> None:
    found = compared(step=StepChange("cannot-tell", "the base has no step time"))
    condition = only(found, "regression>3%")
    assert (condition.state, condition.reason) == ("not-judged", "the base has no step time")
    assert not judge(found, asked("regression>3%"), {}).failed
    assert judge(found, asked("regression>3%", strict=True), {}).failed


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        (10 * GIB, 10 * GIB, "passed"),
        (100 * GIB, 103 * GIB, "passed"),
        (100 * GIB, 103 * GIB + 1, "failed"),
        (10 * GIB, 5 * GIB, "passed"),
        (None, 10 * GIB, "not-judged"),
        (10 * GIB, None, "not-judged"),
    ],
)
def test_memory(before: int | None, after: int | None, state: str) -> None:
    found = compared(base=side(100, before), head=side(100, after))
    assert only(found, "regression:memory-peak>3%").state == state


def test_memory_by_other_means_is_not_compared() -> None:
    found = compared(base=side(100, GIB), head=side(100, 9 * GIB, "device-samples"))
    assert only(found, "regression:memory-peak>3%").state == "not-judged"


def categories(**parts: tuple[int, int, bool]) -> list[CategoryChange]:
    return [CategoryChange(name.replace("-", "_"), "busy", *amounts) for name, amounts in parts.items()]


@pytest.mark.parametrize(
    ("changed", "limit", "state"),
    [
        (True, "4%", "failed"),
        (True, "5%", "passed"),
        (False, "4%", "not-judged"),
        (False, "0%", "passed"),
        (True, "0%", "failed"),
    ],
)
def test_parts_of_the_step(changed: bool, limit: str, state: str) -> None:
    parts = categories(compute=(90, 90, False), communication=(8, 10, changed), communication_wait=(2, 5, changed))
    condition = only(compared(categories=parts), f"regression:exposed-communication>{limit}")
    assert (condition.state, condition.actual) == (state, 0.05)  # of the step of 100, waiting included


def test_parts_that_are_not_there() -> None:
    assert only(compared(), "regression:compute>3%").state == "not-judged"
    parts = categories(compute=(90, 90, False))
    assert only(compared(categories=parts), "regression:exposed-copies>3%").state == "passed"
    void = [Difference("ranks", "1", "2", "other ranks", ("step", "categories", "findings"))]
    for what in ("compute", "memory-peak"):
        condition = only(compared(categories=parts, unfair=void), f"regression:{what}>3%")
        assert (condition.state, condition.reason) == ("not-judged", "other ranks")
    assert only(compared(unfair=void), "high").reason == "other ranks"


def change(status: Any, rule: str = "host-sync-in-step", severity: Any = "high", confidence: Any = "high") -> FindingChange:
    finding = Finding(rule, "host", "t", severity, confidence, fingerprint=f"{rule}:{status}")
    return FindingChange(status, None, finding)


@pytest.mark.parametrize(
    ("text", "prints"),
    [
        ("high", ["host-sync-in-step:new"]),
        ("medium", ["host-sync-in-step:new", "pageable-copy:worse"]),
        ("new", ["host-sync-in-step:new", "pageable-copy:worse"]),
        ("new:high", ["host-sync-in-step:new"]),
        ("pageable-copy", ["pageable-copy:worse"]),
        ("host", ["host-sync-in-step:new", "pageable-copy:worse", "python-gap:new"]),
        ("error", ["python-gap:new"]),
    ],
)
def test_findings_are_new_and_worse_ones(text: str, prints: list[str]) -> None:
    found = compared(
        findings=[
            change("new"),
            change("worse", "pageable-copy", "medium"),
            change("new", "python-gap", confidence="low"),
            change("same", "launch-bound"),
            change("gone", "idle-gpu"),
        ]
    )
    condition = only(found, text, errors={"python-gap": None} if text == "error" else {})
    assert list(condition.findings) == prints and condition.state == "failed"


def test_error_without_such_a_rule_is_not_judged() -> None:
    assert only(compared(), "error").state == "not-judged"


@pytest.mark.parametrize("text", ["step-time>1ms", "budget"])
def test_figures_of_one_run_are_for_analyze(text: str) -> None:
    assert only(compared(), text).state == "not-judged"
    # Those of a configuration are left to the other command.
    terms = [(text, term, "advisor.toml, line 1") for text, term, _ in asked(text).terms]
    assert judge(compared(), Asked(terms), {}).conditions == ()


def test_limits_are_named_once() -> None:
    found = limits(asked("regression", "regression:memory-peak", "regression>1%"), {"step-time": (0.03, None)})
    assert [(one.name, one.part, one.share) for one in found] == [
        ("step-time", "step-time", 0.03),
        ("regression:memory-peak", "memory-peak", 0.0),
        ("regression>1%", "step-time", 0.01),
    ]


def test_the_verdict_is_part_of_the_document() -> None:
    found = compared()
    assert "gates" not in found.to_dict()
    found = replace(found, gates=judge(found, asked("regression>1%"), {}))
    assert found.to_dict()["gates"]["failed"] is True
