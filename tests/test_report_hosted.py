"""Formats for code hosts and CI systems: what they look like, what their readers demand, and what no trace can make them do.

The golden files are to be read by people: ADVISOR_UPDATE_GOLDEN=1 rewrites them, then look at the difference.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as xml

import jsonschema
import pytest
import xmlschema
from hypothesis import given

from advisor import api
from advisor.model import Accepted, BaselineVerdict, Condition, Finding, Location, Report, RuleOutcome, RulePage, Verdict
from advisor.report import FORMATS, HOSTED, render
from advisor.report.comment import LIMIT, marked, marker, unmarked
from advisor.report.github import KINDS, MOST, escape_data, escape_property
from advisor.report.markdown import length
from build.any_report import HOSTILE, REPORTS
from build.reports import ALL, healthy, starved_loader, two_ranks
from test_report_any import SOME, assert_contained, hostile_report

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden" / "hosted"
SARIF = jsonschema.Draft4Validator(json.loads((TESTS / "vendor/sarif/sarif-schema-2.1.0.json").read_text("utf-8")))
JUNIT = xmlschema.XMLSchema(str(TESTS / "vendor/junit/junit-10.xsd"))
FILES = {"github": "github.txt", "sarif": "sarif.json", "junit": "junit.xml", "gitlab": "gitlab.json", "comment": "comment.md"}
PAGE = RulePage("pageable-copy", "transfer", "Copies from pageable memory", "What it\nmeasures.\n\nMore.", "# Page\n\n`{x}`\n")


def gated() -> Report:
    """A report with a condition that fails on its first finding, one on the run, one that holds, and an accepted finding."""
    report = starved_loader()
    report.gates = Verdict(
        (
            Condition("high", "finding", "failed", "1 finding of severity high", findings=(report.findings[0].fingerprint,)),
            Condition("step-time", "budget", "failed", "step time is 57.2 ms, at most 50 ms are allowed", 50e6, 57.2e6, "ns"),
            Condition("mfu", "budget", "not-judged", "MFU is to be at least 40 %", 0.4, reason="no shapes were recorded"),
            Condition("idle-share", "budget", "passed", "idle share is 68 %, at most 80 % are allowed", 0.8, 0.68, "fraction"),
        ),
        baseline=BaselineVerdict(
            "advisor-baseline.json",
            0.01,
            (Accepted("unfused-optimizer:11aa22bb", "unfused-optimizer", "412 small kernels", "accepted", 800_000, 800_000),),
        ),
    )
    return report


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A source tree that holds train.py twice and data/collate.py below a folder."""
    for name in ("pyproject.toml", "app/train.py", "app/data/collate.py", "other/main.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n" * 200)
    return tmp_path


@pytest.mark.parametrize("format", sorted(FILES))
def test_golden(format: str, repository: Path) -> None:
    text = render(gated(), format, source_root=repository, rule_pages={PAGE.id: PAGE}, note="Base: main, recorded 2 days ago.")
    path = GOLDEN / FILES[format]
    if os.environ.get("ADVISOR_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """(kind, properties, message) of each line, as the runner of GitHub Actions takes them apart. Every line has to be one."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line)
        assert match, line
        given = dict(pair.split("=", 1) for pair in match[2].split(","))
        plain = {key: unescaped(value.replace("%3A", ":").replace("%2C", ",")) for key, value in given.items()}
        found.append((match[1], plain, unescaped(match[3])))
    return found


def unescaped(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def sarif(report: Report, **style: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render(report, "sarif", **style), parse_constant=pytest.fail)
    SARIF.validate(document)
    return document["runs"][0]


def junit(report: Report) -> xml.Element:
    text = render(report, "junit")
    JUNIT.validate(text)
    return xml.fromstring(text)


def cases(top: xml.Element, tag: str) -> dict[str, str]:
    """Name of the test case -> message, of those that hold such a child."""
    found = {case.get("name", ""): case.find(tag) for case in top.iter("testcase")}
    return {name: child.get("message", "") for name, child in found.items() if child is not None}


class TestGithub:
    def test_places_and_kinds(self, repository: Path) -> None:
        found = commands(render(gated(), "github", source_root=repository))
        assert [(kind, at.get("file"), at.get("line")) for kind, at, _ in found] == [
            ("error", None, None),  # the budget
            ("error", "app/train.py", "148"),
            ("warning", "app/train.py", "152"),
            ("notice", None, None),
            ("notice", None, None),
            ("notice", None, None),  # the verdict; the accepted finding is not among them
        ]
        assert "at most 50 ms are allowed" in found[0][2]
        assert "Saves 36.4 ms a step, 64 %" in found[1][2] and found[1][2].count("\n") == 3
        assert "68 % of each step could be saved" in found[-1][2]

    @pytest.mark.parametrize("text", ["100 %", "a\nb\r\nc", "x:y,z::w", "%0A%3A", "::error::gotcha", "##[add-mask]x"])
    def test_escapes_are_undone_by_the_runner(self, text: str) -> None:
        assert unescaped(escape_data(text)) == text and not set(escape_data(text)) & set("\r\n")
        escaped = escape_property(text)
        assert unescaped(escaped.replace("%3A", ":").replace("%2C", ",")) == text and not set(escaped) & set("\r\n:,")

    def test_no_more_than_a_step_shows(self) -> None:
        report = starved_loader()
        first, low = report.findings[0], report.findings[3]
        report.findings = [replace(first, title=f"title {i}", fingerprint=f"f:{i}") for i in range(30)]
        report.findings += [replace(low, fingerprint=f"g:{i}") for i in range(30)]
        names = tuple(finding.fingerprint for finding in report.findings[12:24])
        report.gates = Verdict((Condition("x", "finding", "failed", "12 findings", findings=names),))
        found = commands(render(report, "github"))
        kinds = [kind for kind, _, _ in found]
        assert [kinds.count(kind) for kind in KINDS] == [MOST] * 3 and sorted(kinds, key=KINDS.index) == kinds
        assert [at["title"] for _, at, _ in found[:MOST]] == [f"Title {i}" for i in range(12, 22)]
        assert "31 more findings not annotated" in found[-1][2]

    @given(REPORTS)
    @SOME
    def test_any_report(self, report: Report) -> None:
        found = commands(render(report, "github"))
        assert all([kind for kind, _, _ in found].count(name) <= MOST for name in KINDS)
        assert {key for _, at, _ in found for key in at} <= {"file", "line", "title"}


class TestSarif:
    def test_results(self, repository: Path) -> None:
        run = sarif(gated(), source_root=repository, rule_pages={PAGE.id: PAGE})
        first, second, third, *_ = run["results"]
        place = first["locations"][0]["physicalLocation"]
        assert place == {"artifactLocation": {"uri": "app/train.py", "uriBaseId": "SRCROOT"}, "region": {"startLine": 148}}
        assert [one["level"] for one in run["results"]] == ["error", "warning", "note", "note", "note"]
        assert [one["partialFingerprints"]["gpuAdvisor/v1"] for one in run["results"]] == [
            finding.fingerprint for finding in gated().findings
        ]
        also = second["relatedLocations"]
        assert [one["physicalLocation"]["artifactLocation"]["uri"] for one in also] == ["app/data/collate.py"]
        assert [("suppressions" in one) for one in run["results"]] == [False, False, True, False, False]
        assert third["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "pyproject.toml"  # no place is known
        assert "concerns the run" in third["locations"][0]["message"]["text"]
        for result in run["results"]:
            assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]

    def test_rules_carry_their_pages(self) -> None:
        rules = {rule["id"]: rule for rule in sarif(gated(), rule_pages={PAGE.id: PAGE})["tool"]["driver"]["rules"]}
        page = rules["pageable-copy"]
        assert page["help"] == {"text": PAGE.summary, "markdown": PAGE.markdown}
        assert page["fullDescription"]["text"] == "What it measures." and page["properties"]["tags"][-1] == "transfer"
        assert set(rules) == {rule.id for rule in gated().rules}

    def test_from_python_built_in_rules_are_explained(self) -> None:
        document = json.loads(api.render(starved_loader(), "sarif"))
        SARIF.validate(document)
        helped = [rule["id"] for rule in document["runs"][0]["tool"]["driver"]["rules"] if "help" in rule]
        assert "single-process-dataloader" in helped and "pageable-copy" in helped

    def test_failed_rules_and_notices_are_notifications(self) -> None:
        told = sarif(gated())["invocations"][0]["toolExecutionNotifications"]
        assert [(one["level"], one["message"]["text"]) for one in told[:1]] == [("error", "division by zero")]
        assert [one["descriptor"]["id"] for one in told[1:]] == ["profiler-slows-host", "first-step-left-out"]

    def test_messages_hold_no_placeholders_and_no_links(self) -> None:
        report = starved_loader()
        report.findings = [replace(report.findings[0], title="wait {0} of [here](https://x.example)")]
        text = sarif(report)["results"][0]["message"]["text"]
        assert text.startswith(r"Wait {{0}} of \[here\](https://x.example).")

    @given(REPORTS)
    @SOME
    def test_any_report(self, report: Report) -> None:
        run = sarif(report)
        assert len(run["results"]) == len(report.findings)
        keys = [one["partialFingerprints"]["gpuAdvisor/v1"] for one in run["results"]]
        assert len(set(keys)) == len(keys)
        for result in run["results"]:
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            assert re.fullmatch(r"[A-Za-z0-9._~%/-]+", uri) and not uri.startswith("/") and ".." not in unquote(uri).split("/")


class TestJunit:
    def test_with_conditions_only_what_they_ask_fails(self) -> None:
        top = junit(gated())
        assert cases(top, "failure") == {
            "single-process-dataloader": "The GPU waits 38.2 ms in each step for data that one process loads",
            "finding: high": "1 finding of severity high",
            "budget: step-time": "step time is 57.2 ms, at most 50 ms are allowed",
        }
        assert cases(top, "error") == {"graph-breaks": "division by zero"}
        assert set(cases(top, "skipped")) == {
            "straggler-rank",
            "waiting-in-collective",
            "python-gap",
            "memory-growth",
            "budget: mfu",
        }
        assert (top.get("tests"), top.get("failures"), top.get("errors")) == ("19", "3", "1")
        assert [suite.get("skipped") for suite in top] == ["4", "1"]

    def test_without_conditions_what_is_worth_an_action_fails(self) -> None:
        assert set(cases(junit(starved_loader()), "failure")) == {
            "single-process-dataloader",
            "pageable-copy",
            "unfused-optimizer",
        }
        assert cases(junit(healthy()), "failure") == {}

    def test_advisory_conditions_fail_nothing(self) -> None:
        report = gated()
        assert report.gates is not None
        report.gates = replace(report.gates, advisory=True)
        assert cases(junit(report), "failure") == {}

    def test_an_accepted_finding_fails_nothing(self) -> None:
        report = gated()
        assert report.gates is not None
        report.gates = replace(report.gates, conditions=())
        assert "unfused-optimizer" not in cases(junit(report), "failure")

    @given(REPORTS)
    @SOME
    def test_any_report(self, report: Report) -> None:
        top = junit(report)
        assert len(list(top.iter("testcase"))) == int(top.get("tests", "-1"))


class TestGitlab:
    def test_entries(self, repository: Path) -> None:
        entries = json.loads(render(gated(), "gitlab", source_root=repository))
        assert [(one["check_name"], one["severity"], one["location"]) for one in entries] == [
            ("single-process-dataloader", "blocker", {"path": "app/train.py", "lines": {"begin": 148}}),
            ("pageable-copy", "major", {"path": "app/train.py", "lines": {"begin": 152}}),
            ("tf32-instead-of-16bit", "info", {"path": "pyproject.toml", "lines": {"begin": 1}}),
            ("memory-headroom", "info", {"path": "pyproject.toml", "lines": {"begin": 1}}),
            ("budget:step-time", "blocker", {"path": "pyproject.toml", "lines": {"begin": 1}}),
        ]

    def test_fingerprints_are_stable_and_hold_no_times(self) -> None:
        report = starved_loader()
        slower = starved_loader()
        slower.findings = [replace(one, title=f"{one.title}, now 99 ms") for one in slower.findings]
        prints = [[one["fingerprint"] for one in json.loads(render(each, "gitlab"))] for each in (report, slower)]
        assert prints[0] == prints[1] and len(set(prints[0])) == 5

    @given(REPORTS)
    @SOME
    def test_any_report(self, report: Report) -> None:
        entries = json.loads(render(report, "gitlab"), parse_constant=pytest.fail)
        prints = [one["fingerprint"] for one in entries]
        assert len(set(prints)) == len(prints)
        for one in entries:
            assert set(one) == {"description", "check_name", "fingerprint", "severity", "location"}
            assert one["severity"] in ("info", "minor", "major", "critical", "blocker")
            assert isinstance(one["location"]["lines"]["begin"], int) and one["location"]["lines"]["begin"] >= 1
            assert one["location"]["path"] and not one["location"]["path"].startswith(("/", "./"))


class TestComment:
    def test_the_marker_comes_first_and_only_once(self) -> None:
        text = render(two_ranks(), "comment")
        assert text.startswith(f"{marker()}\n### ")
        again = marked(text, "nightly")
        assert again.startswith(f"{marker('nightly')}\n### ") and again.count("<!-- gpu-advisor") == 1
        assert unmarked(again) == unmarked(text)

    @pytest.mark.parametrize("key", ["", "a b", "--> <b>", "x" * 65, "-x", "a\nb"])
    def test_a_key_cannot_leave_the_marker(self, key: str) -> None:
        with pytest.raises(ValueError, match="no key"):
            marker(key)

    def test_the_first_screen_is_short(self) -> None:
        report = starved_loader()
        report.findings = [replace(report.findings[0], fingerprint=f"x:{i}") for i in range(40)]
        first = render(report, "comment").split("<details>")[0]
        assert len(first.splitlines()) < 20 and "and 35 more findings below" in first

    @pytest.mark.parametrize("title", ["plain", "\N{FIRE}" * 60])
    def test_it_is_cut_at_whole_findings_and_says_so(self, title: str) -> None:
        report = starved_loader()
        report.findings = [replace(report.findings[0], title=title, fingerprint=f"x:{i}") for i in range(2000)]
        text = render(report, "comment")
        assert 50_000 < length(text) < LIMIT < 65_536 and length(text) == len(text.encode("utf-16-le")) // 2
        assert re.search(r"\d+ parts left out", text)
        assert text.count("<details>") == text.count("</details>")
        assert_contained(unmarked(text))

    def test_a_note_cannot_break_out(self) -> None:
        text = render(two_ranks(), "comment", note="@all <b>#1</b> ```\n# big")
        assert_contained(unmarked(text))
        assert "\\<b\\>" in text

    @given(REPORTS)
    @SOME
    def test_any_report(self, report: Report) -> None:
        text = render(report, "comment")
        assert length(text) < LIMIT
        assert_contained(unmarked(text))


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: name.encode("ascii", "backslashreplace").decode()[:20])
def test_hostile_names_stay_text(name: str) -> None:
    report = hostile_report(name)
    commands(render(report, "github"))
    sarif(report)
    junit(report)
    json.loads(render(report, "gitlab"))
    assert_contained(unmarked(render(report, "comment")))


def test_a_rule_that_only_a_finding_names_is_a_case_and_a_rule_too() -> None:
    report = healthy()
    report.findings = [Finding("own-rule", "custom", "t", "high", "high", fingerprint="own-rule:1")]
    report.rules = [RuleOutcome("other", "clean")]
    assert set(cases(junit(report), "failure")) == {"own-rule"}
    assert [rule["id"] for rule in sarif(report)["tool"]["driver"]["rules"]] == ["other", "own-rule"]


def test_locations_without_a_root_are_those_recorded_as_relative() -> None:
    report = healthy()
    files = ["/abs/train.py", "C:\\x\\train.py", "../up.py", "src\\train.py", "a\nb.py"]
    report.findings = [
        Finding("r", "custom", "t", "low", "high", locations=[Location(file, 3)], fingerprint=f"r:{file}") for file in files
    ]
    paths = [one["location"]["path"] for one in json.loads(render(report, "gitlab"))]
    assert paths == ["README.md", "README.md", "README.md", "src/train.py", "README.md"]


def test_every_hosted_format_is_one_of_all() -> None:
    assert set(HOSTED) < set(FORMATS) and set(FILES) <= set(FORMATS)
    for name in ALL:
        sarif(ALL[name]())
        junit(ALL[name]())
