"""A JUnit report: every rule is a test case, and so is every condition that the user gave.

A rule fails where one of its findings makes a condition fail. Where no condition was given it fails where `--fail-on low`
would: a test report is read by people in place of the exit status, and without failures it says that all is well.
"""

from __future__ import annotations

from xml.etree import ElementTree as xml

from advisor.model import Condition, Report, RuleOutcome
from advisor.report import text as t
from advisor.report.review import Review, Reviewed, review
from advisor.report.style import Style

_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def render(report: Report, style: Style | None = None) -> str:
    return written(review(report, style), style)


def written(review: Review, style: Style | None = None) -> str:
    found: dict[str, list[Reviewed]] = {}
    for one in review.findings:
        found.setdefault(one.finding.rule, []).append(one)
    names = {rule.id for rule in review.rules}
    rules = [*review.rules, *(RuleOutcome(name, "found") for name in found if name not in names)]
    cases = [_rule(rule, found.get(rule.id, []), review.asked) for rule in rules]
    suites = [_suite("rules", cases, [*review.alarms, review.summary])]
    if review.checks:
        suites.append(_suite("checks", [_check(*check, review.asked) for check in review.checks]))
    if review.gates and review.gates.conditions:
        failing = review.gates.failing
        suites.append(_suite("conditions", [_condition(one, one in failing) for one in review.gates.conditions]))
    top = xml.Element("testsuites", name="gpu-advisor")
    top.extend(suites)
    for key in ("tests", "failures", "errors"):
        top.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    xml.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(top, encoding="us-ascii").decode() + "\n"


def _suite(name: str, cases: list[xml.Element], output: list[str] | None = None) -> xml.Element:
    suite = xml.Element("testsuite", name=f"advisor {name}", tests=str(len(cases)))
    for tag, key in _COUNTED.items():
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.extend(cases)
    if output:
        xml.SubElement(suite, "system-out").text = "\n".join(map(t.clean, output))
    return suite


def _case(group: str, name: str) -> xml.Element:
    return xml.Element("testcase", classname=f"advisor.{group}", name=t.clean(name), time="0")


def _told(case: xml.Element, tag: str, kind: str, message: str, lines: list[str]) -> None:
    """A child with the message and all details; characters that XML cannot hold are shown as escapes."""
    child = xml.SubElement(case, tag, type=kind, message=t.clean(message))
    child.text = "\n".join(map(t.clean, lines)) or None


def _rule(rule: RuleOutcome, found: list[Reviewed], asked: bool) -> xml.Element:
    case = _case("rules", rule.id)
    if rule.outcome == "error":
        _told(case, "error", "error", rule.reason or "the rule failed", [])
    elif rule.outcome == "not-applicable":
        hint = [f"To judge: {rule.capture}"] if rule.capture else []
        _told(case, "skipped", "not-applicable", rule.reason or "the input lacks what the rule needs", hint)
    failing = [one for one in found if one.failing or (not asked and one.counts)]
    lines = [line for one in found for line in (one.headline, *(f"  {line}" for line in one.details))]
    if failing:
        _told(case, "failure", failing[0].finding.severity, failing[0].headline, lines)
    elif lines:
        xml.SubElement(case, "system-out").text = "\n".join(map(t.clean, lines))
    return case


def _check(name: str, state: str, text: str, asked: bool) -> xml.Element:
    """Where conditions were given they decide, not the check."""
    case = _case("checks", name)
    if state == "failed" and not asked:
        _told(case, "failure", state, text, [])
    elif state == "not-judged":
        _told(case, "skipped", state, text, [])
    else:
        xml.SubElement(case, "system-out").text = t.clean(text)
    return case


def _condition(condition: Condition, failing: bool) -> xml.Element:
    case = _case("conditions", f"{condition.kind}: {condition.name}")
    lines = [condition.reason] if condition.reason else []
    if failing:
        _told(case, "failure", condition.state, condition.text, lines)
    elif condition.state == "not-judged":
        _told(case, "skipped", condition.state, condition.text, lines)
    else:
        xml.SubElement(case, "system-out").text = t.clean(condition.text)
    return case
