"""Rules that go wrong: the report stays whole, and says which rule failed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import jsonschema
import pytest

from advisor.model import Evidence, Location, Options, Report, Saving
from advisor.report import render
from advisor.report.json_document import schema
from advisor.rules import engine
from advisor.rules.catalogue import Entry
from advisor.rules.contract import Context, Draft
from advisor.rules.findings import MOST_DRAFTS
from advisor.rules.plain import plain
from advisor.rules.rule import Rule, RuleError, load_rule
from build.workload import Workload

RULE = 'id = "my-rule"\nfamily = "custom"\ntitle = "My rule"\nsummary = "s"\n'


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """The report of one rule on three steps; it holds the contract and prints in every format."""

    def run_it(detect: Callable[[Context], Any], **options: Any) -> Report:
        rule = Rule(id="my-rule", family="custom", title="t", summary="s")
        entry = Entry(rule, lambda: cast(ModuleType, SimpleNamespace(detect=detect)))
        monkeypatch.setattr(engine, "catalogue", lambda dirs: ([entry], []))
        w = Workload()
        for _ in w.steps(3):
            with w.op("aten::mm", us=100):
                w.launch("gemm", gpu_us=1000)
        run = w.to_run()
        run.options = Options(**options)
        report = engine.analyze(run)
        jsonschema.validate(json.loads(render(report, "json")), schema())
        for form in ("text", "markdown"):
            assert "\x1b" not in render(report, form)
        return report

    return run_it


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [SystemExit(0), SystemExit(1), SystemExit("bye"), GeneratorExit(), Odd("x"), MemoryError()])
def test_no_exception_of_a_detector_ends_the_program(error: BaseException, judge: Callable[..., Report]) -> None:
    def detect(ctx: Context) -> None:
        raise error

    report = judge(detect)
    assert report.rules[0].outcome == "error" and (report.rules[0].reason or "").startswith(type(error).__name__)


def test_an_interruption_still_ends_it(judge: Callable[..., Report]) -> None:
    def detect(ctx: Context) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(detect)


def test_what_a_detector_prints_is_not_in_the_report(judge: Callable[..., Report], capsys: pytest.CaptureFixture[str]) -> None:
    def detect(ctx: Context) -> Draft:
        print("at work")
        return Draft("t")

    assert judge(detect).rules[0].outcome == "found"
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == "at work\n"


def test_endless_findings(judge: Callable[..., Report]) -> None:
    def detect(ctx: Context) -> Iterator[Draft]:
        while True:
            yield Draft("t")

    report = judge(detect)
    assert report.rules[0].outcome == "error" and f"more than {MOST_DRAFTS} findings" in (report.rules[0].reason or "")
    assert len(judge(lambda ctx: [Draft("t")] * MOST_DRAFTS).findings) == MOST_DRAFTS


@pytest.mark.parametrize(
    "draft",
    [
        Draft("t", saving=Saving(0, 0, 1_000_000, "guess")),  # type: ignore[arg-type]
        Draft("t", scope={"ranks": 5}),  # type: ignore[dict-item]
        Draft("t", scope=5),  # type: ignore[arg-type]
    ],
)
def test_what_no_report_can_hold_is_an_error_of_the_rule(draft: Draft, judge: Callable[..., Report]) -> None:
    report = judge(lambda ctx: draft)
    assert report.rules[0].outcome == "error" and not report.findings


def test_odd_values_are_left_out(judge: Callable[..., Report]) -> None:
    places = [Location("x.py", -5, "f", 7.5), Location("y.py", 3, None, float("nan")), Location("z.py", 1, "g", 0.5)]
    evidence = [Evidence("c\x1b[2J", ["a"], [[float("inf")], [object()], ["\x1b]0;x\x07"]])]
    report = judge(lambda ctx: Draft("a\nb\x1b[31m\u202e", locations=places, evidence=evidence, facts={"f": float("nan")}))
    finding = report.findings[0]
    assert [(place.line, place.share) for place in finding.locations] == [(None, None), (3, None), (1, 0.5)]
    assert finding.title.isprintable() and finding.facts == {"f": None}


def test_no_address_of_an_object_is_shown() -> None:
    """It would differ between two runs on the same input."""
    assert plain({"a": object(), "b": [len]}) == {"a": "<object>", "b": ["<built-in function len>"]}


def test_a_rate_beyond_all_numbers(judge: Callable[..., Report]) -> None:
    assert "throughput" not in judge(lambda ctx: None, items_per_step=1e308).to_dict()
    assert judge(lambda ctx: None, items_per_step=32).to_dict()["throughput"]["items_per_step"] == 32


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RULE + "[thresholds.t]\nvalue = " + "9" * 400 + '\nunit = "ns"\nreason = "r"\n', "finite number"),
        (RULE.replace("My rule", "\\u001b[31mred"), "cannot be printed"),
        (RULE.replace("My rule", "turned\\u202e"), "cannot be printed"),
        (RULE.replace("My rule", "two\\nlines"), "one line"),
    ],
)
def test_rules_that_cannot_be_used(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "my-rule.toml").write_text(text)
    with pytest.raises(RuleError, match=words):
        load_rule(tmp_path / "my-rule.toml")


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
def test_a_pipe_is_no_rule(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "my-rule.toml")
    with pytest.raises(RuleError, match="not a regular file"):
        load_rule(tmp_path / "my-rule.toml")
