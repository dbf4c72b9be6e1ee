"""Comparisons in the formats for code hosts: new and worse findings, what became of the others, and the step as a check."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest

from advisor.comparing import compare
from advisor.model import Condition, Verdict
from advisor.model.comparison import Comparison, Difference, FindingChange
from advisor.report import HOSTED
from advisor.report.comment import unmarked
from advisor.report.comparison import FORMATS, render
from build.comparisons import finding, repeats
from test_report_any import assert_contained
from test_report_hosted import JUNIT, SARIF, cases, commands

GOLDEN = Path(__file__).parent / "golden" / "hosted"


@pytest.fixture
def slower() -> Comparison:
    """30 % slower: one finding new, one worse, one as before, one gone, and one that the head cannot judge."""
    base, head = 20_000_000, 26_000_000
    gone, blind = finding("small-batch", 3.0), finding("unfused-elementwise", 1.0)
    return replace(
        compare(repeats(20.0), repeats(26.0, seed=2), version="0.1.0"),
        findings=[
            FindingChange("new", None, finding("host-sync-in-step", 4.0), base, head),
            FindingChange("worse", finding("launch-bound", 1.0), finding("launch-bound", 6.0), base, head, 4, 4, "fingerprint"),
            FindingChange("gone", gone, None, base, head),
            FindingChange("not-judged", blind, None, base, head, reason="no shapes were recorded"),
            FindingChange("same", finding("pageable-copy", 2.0), finding("pageable-copy", 2.0), base, head, 4, 4, "fingerprint"),
        ],
    )


def sarif(comparison: Comparison, all_findings: bool = False) -> dict[str, Any]:
    document = json.loads(render(comparison, "sarif", all_findings=all_findings), parse_constant=pytest.fail)
    SARIF.validate(document)
    run: dict[str, Any] = document["runs"][0]
    return run


def junit(comparison: Comparison, all_findings: bool = False) -> xml.Element:
    text = render(comparison, "junit", all_findings=all_findings)
    JUNIT.validate(text)
    return xml.fromstring(text)


def test_golden(slower: Comparison) -> None:
    path, text = GOLDEN / "comparison.github.txt", render(slower, "github", note="Base: main, recorded 2 days ago.")
    if os.environ.get("ADVISOR_UPDATE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def test_github_annotates_what_got_worse(slower: Comparison) -> None:
    found = commands(render(slower, "github"))
    assert [kind for kind, _, _ in found] == ["warning", "warning", "warning", "notice"]
    assert slower.step.verdict == "slower"
    step, new, worse, verdict = (text for _, _, text in found)
    assert step.startswith("Slower: ") and verdict.startswith("Slower: ") and "1 new, 1 worse, 1 gone" in verdict
    assert new.startswith("New since the base. Saves 4 ms a step") and worse.startswith("Worse than in the base (1 ms → 6 ms). ")
    assert len(commands(render(slower, "github", all_findings=True))) == 5  # and the one that is as before


def test_sarif_says_what_became_of_each(slower: Comparison) -> None:
    assert [(one["ruleId"], one["baselineState"]) for one in sarif(slower)["results"]] == [
        ("host-sync-in-step", "new"),
        ("launch-bound", "updated"),
    ]
    everything = {one["ruleId"]: one["baselineState"] for one in sarif(slower, all_findings=True)["results"]}
    assert everything == {
        "host-sync-in-step": "new",
        "launch-bound": "updated",
        "pageable-copy": "unchanged",
        "small-batch": "absent",
    }


def test_gitlab_lists_what_the_head_has(slower: Comparison) -> None:
    listed = [[one["check_name"] for one in json.loads(render(slower, "gitlab", all_findings=every))] for every in (False, True)]
    assert listed == [["host-sync-in-step", "launch-bound"], ["host-sync-in-step", "launch-bound", "pageable-copy"]]


def test_junit_fails_for_what_got_worse(slower: Comparison) -> None:
    for every in (False, True):
        assert set(cases(junit(slower, every), "failure")) == {"host-sync-in-step", "launch-bound", "step time"}
    same = compare(repeats(20.0), repeats(20.0, seed=3))
    assert same.step.verdict == "no-measurable-change" and cases(junit(same), "failure") == {}


def test_conditions_decide_where_there_are_any(slower: Comparison) -> None:
    new = slower.worsened[0].finding.fingerprint
    gates = Verdict(
        (
            Condition("regression>50%", "regression", "passed", "the step takes 30 % more, at most 50 % more are allowed"),
            Condition("idle-launch", "regression", "failed", "kernel launches take 12 % more, at most 3 % more are allowed"),
            Condition("new:high", "finding", "failed", "1 new finding", findings=(new,)),
        )
    )
    gated = replace(slower, gates=gates)
    assert set(cases(junit(gated), "failure")) == {"host-sync-in-step", "regression: idle-launch", "finding: new:high"}
    found = commands(render(gated, "github"))
    assert [(kind, at["title"]) for kind, at, _ in found if kind == "error"] == [
        ("error", "GPU advisor: regression idle-launch"),
        ("error", "host-sync-in-step costs time"),
    ]


def test_unfairness_comes_first(slower: Comparison) -> None:
    other = Difference("gpu", "NVIDIA H200", "NVIDIA A100", "the sides ran on other GPUs", ("step", "findings"))
    unfair = replace(slower, unfair=[other])
    kind, _, text = commands(render(unfair, "github"))[0]
    assert kind == "warning" and text.startswith("Unfair comparison: ") and "NVIDIA A100" in text
    told = sarif(unfair)["invocations"][0]["toolExecutionNotifications"][0]
    assert told["level"] == "warning" and "NVIDIA A100" in told["message"]["text"]


def test_a_step_that_nobody_can_judge_is_skipped(slower: Comparison) -> None:
    blind = replace(slower, step=replace(slower.step, verdict="cannot-tell", reason="the head has no step"))
    assert set(cases(junit(blind), "skipped")) == {"step time"}


def test_the_comment_is_marked_and_contained(slower: Comparison) -> None:
    text = render(slower, "comment", note="@all <b>")
    assert text.startswith("<!-- gpu-advisor: report -->\n") and len(text) < 65_536
    assert_contained(unmarked(text))


def test_every_hosted_format_is_there() -> None:
    assert set(HOSTED) | {"comment"} <= set(FORMATS)
