"""Conditions and baselines in the model, and how the formats for people show them."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from advisor.model import Accepted, BaselineVerdict, Condition, Verdict
from advisor.report import render
from advisor.report.gates import advice, headline, rows
from advisor.report.json_document import schema
from build.reports import starved_loader

PASSED = Condition("idle-share", "budget", "passed", "idle share is 10 %, at most 20 % are allowed", 0.2, 0.1, "fraction")
FAILED = Condition(
    "step-time",
    "budget",
    "failed",
    "step time is 131 ms, at most 120 ms are allowed",
    120e6,
    131e6,
    "ns",
    source="run.steps.median_ns",
    origin="advisor.toml, line 3",
)
BLIND = Condition("mfu", "budget", "not-judged", "MFU is to be at least 40 %", 0.4, None, "fraction", reason="no shapes recorded")


@pytest.mark.parametrize(
    ("conditions", "strict", "advisory", "failing"),
    [
        ([PASSED], False, False, []),
        ([PASSED, FAILED], False, False, ["step-time"]),
        ([PASSED, BLIND], False, False, []),
        ([PASSED, BLIND], True, False, ["mfu"]),
        ([BLIND, FAILED], True, False, ["mfu", "step-time"]),
        ([BLIND, FAILED], True, True, []),
        ([], True, False, []),
    ],
)
def test_what_fails(conditions: list[Condition], strict: bool, advisory: bool, failing: list[str]) -> None:
    verdict = Verdict(tuple(conditions), strict, advisory)
    assert [one.name for one in verdict.failing] == failing
    assert verdict.failed is bool(failing)


def test_a_verdict_without_conditions_is_not_mentioned() -> None:
    report = starved_loader()
    report.gates = Verdict()
    assert "gates" not in report.to_dict()
    assert render(report, "text") == render(starved_loader(), "text")
    assert render(report, "markdown") == render(starved_loader(), "markdown")


def test_headlines() -> None:
    assert headline(Verdict((PASSED, FAILED))) == "1 of 2 conditions failed"
    assert headline(Verdict((PASSED, BLIND))) == "1 of 2 conditions could not be judged, the others hold"
    assert headline(Verdict((PASSED,))) == "the condition holds"
    assert headline(Verdict((PASSED, replace(PASSED, name="b")))) == "all 2 conditions hold"
    assert headline(Verdict((FAILED, BLIND), advisory=True)).startswith("1 of 2 conditions not met")


def test_what_fails_stands_first() -> None:
    verdict = Verdict((PASSED, BLIND, FAILED))
    assert [row.state for row in rows(verdict)] == ["failed", "not judged", "passed"]
    assert rows(verdict)[1].text == "MFU is to be at least 40 %: no shapes recorded"


@pytest.mark.parametrize("format", ["text", "markdown"])
def test_conditions_and_baseline_are_printed(format: str) -> None:
    report = starved_loader()
    first = report.findings[0]
    accepted = Accepted(first.fingerprint, first.rule, first.title, "accepted", 1, 2)
    gone = Accepted("x:1", "pageable-copy", "Copies were slow", "fixed", 5, None)
    report.gates = Verdict((PASSED, FAILED, BLIND), baseline=BaselineVerdict("b.json", 0.02, (accepted, gone)))
    text = render(report, format, width=120)
    unescaped = text.replace("\\", "")
    for expected in ("1 of 3 conditions failed", FAILED.text, PASSED.text, "no shapes recorded", "Copies were slow", "--prune"):
        assert expected in unescaped
    assert advice(report.gates) in unescaped
    # Accepted: told in the baseline alone, with no fixes.
    assert first.fixes[0].title in render(starved_loader(), format, width=120)
    assert first.fixes[0].title not in text


def test_quiet_tells_what_fails() -> None:
    report = starved_loader()
    report.gates = Verdict((PASSED, FAILED))
    text = render(report, "text", verbosity=-1)
    assert FAILED.text in text and PASSED.text not in text


def test_json_follows_the_schema() -> None:
    report = starved_loader()
    entry = Accepted("x:1", "pageable-copy", "Copies", "fixed", 5, None)
    report.gates = Verdict((PASSED, FAILED, BLIND), baseline=BaselineVerdict("b.json", 0.02, (entry,), ("y:2",)))
    document = json.loads(render(report, "json"))
    jsonschema.Draft202012Validator(schema()).validate(document)
    assert document["gates"]["failed"] is True
    assert document["gates"]["conditions"][1]["actual"] == 131e6
    assert document["gates"]["baseline"]["entries"][0]["state"] == "fixed"
