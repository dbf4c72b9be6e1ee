"""Which findings stand, in which order, and which are told under another."""

from __future__ import annotations

from collections.abc import Collection

from advisor.model import Finding, Saving
from advisor.model.report import CONFIDENCES, SEVERITIES, Confidence, Severity
from advisor.rules.rule import Rule

# docs/report-json.md: severity by expected share of the step. Below the last a finding is not worth an action.
_SEVERITY_FROM: tuple[tuple[float, Severity], ...] = ((0.10, "high"), (0.03, "medium"), (0.01, "low"))
LEAST_SHARE = 0.01
SAME_TIME = 0.75  # share of a saving seen in one recording that another recording must show to mean the same time


def severity(saving: Saving | None, step_ns: int, danger: Severity | None = None) -> Severity:
    """By expected share of the step. Without a saving: the danger that the detector states, else `info`."""
    if saving is None or step_ns <= 0:
        return danger or "info"
    share = saving.expected_ns / step_ns
    return next((name for least, name in _SEVERITY_FROM if share >= least), "info")


def confidence(said: Confidence, saving: Saving | None) -> Confidence:
    """`high` needs a replay: a bound is at most `medium`."""
    return "medium" if said == "high" and saving is not None and saving.basis == "bound" else said


def expected(finding: Finding) -> int:
    return finding.saving.expected_ns if finding.saving else 0


def ranked(findings: list[Finding]) -> list[Finding]:
    """By expected saving, confidence, rule id; findings without a saving last, dangers first among them.

    A finding that is an alternative to another stands below it; `alternative_to` is cleared where the other is absent.
    """
    order = sorted(findings, key=_key)
    present = {finding.rule for finding in order}
    for finding in order:
        if finding.alternative_to not in present or finding.alternative_to == finding.rule:
            finding.alternative_to = None
    moved: set[int] = set()
    for finding in list(order):
        if finding.alternative_to is None or id(finding) in moved:
            continue
        last = max(place for place, other in enumerate(order) if other.rule == finding.alternative_to)
        here = next(place for place, other in enumerate(order) if other is finding)
        if here < last:
            order.insert(last, order.pop(here))
        moved.add(id(finding))
    return order


def _key(finding: Finding) -> tuple[object, ...]:
    return (
        finding.saving is None,
        -expected(finding),
        SEVERITIES.index(finding.severity) if finding.saving is None else 0,
        CONFIDENCES.index(finding.confidence),
        finding.rule,
        finding.fingerprint,
    )


def folded(findings: list[Finding], rules: dict[str, Rule], lent: Collection[str] = ()) -> dict[str, str]:
    """Rule ids whose findings are told under another rule that explains them -> that rule.

    A rule takes in those it `subsumes` if its own best finding is expected to save at least as much. A rule in `lent` was
    judged in another recording of the run, so that two measures of one time differ: most of it is enough.
    """
    best: dict[str, int] = {}
    for finding in findings:
        best[finding.rule] = max(best.get(finding.rule, 0), expected(finding))
    under: dict[str, str] = {}

    def root(name: str) -> str:
        return root(under[name]) if name in under else name

    for name in sorted(best, key=lambda rule: (-best[rule], rule)):
        for inner in rules[name].subsumes:
            enough = best[name] >= best.get(inner, 0) * (SAME_TIME if name in lent and inner not in lent else 1.0)
            if inner in best and inner not in under and enough and root(name) != inner:
                under[inner] = name
    return {name: root(name) for name in sorted(under)}
