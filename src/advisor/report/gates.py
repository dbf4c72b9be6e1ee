"""Conditions and baseline in words, for all formats that people read."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model import Accepted, Condition, Finding, Report, Verdict
from advisor.report import text as t

WORDS = {"failed": "failed", "not-judged": "not judged", "passed": "passed"}
_ORDER = ("failed", "not-judged", "passed")
_ENTRY_WORDS = {
    "accepted": "accepted",
    "worse": "worse than accepted",
    "fixed": "fixed",
    "not-judged": "not judged here",
}
_ENTRY_ORDER = ("worse", "accepted", "not-judged", "fixed")


@dataclass(frozen=True)
class Row:
    """One line of the list: its state in words, whether it fails the command, and the sentence."""

    state: str
    fails: bool
    text: str
    origin: str | None = None


def standing(report: Report, findings: list[Finding]) -> list[Finding]:
    """The findings that the baseline does not accept as they stand; the others are listed apart."""
    return [finding for finding in findings if not (report.gates and report.gates.accepts(finding.fingerprint))]


def headline(verdict: Verdict) -> str:
    """'1 of 4 conditions failed', 'all 4 conditions hold'; empty without conditions."""
    if not verdict.conditions:
        return ""
    whole, failing = len(verdict.conditions), len(verdict.failing)
    blind = sum(one.state == "not-judged" for one in verdict.conditions)
    if verdict.advisory:
        missed = sum(one.state == "failed" for one in verdict.conditions)
        return f"{missed} of {t.count(whole, 'condition')} not met; nothing fails the command (never)"
    if failing:
        return f"{failing} of {t.count(whole, 'condition')} failed"
    if blind == whole:
        return f"none of {whole} conditions could be judged" if whole > 1 else "the condition could not be judged"
    if blind:
        return f"{blind} of {t.count(whole, 'condition')} could not be judged, the others hold"
    return f"all {whole} conditions hold" if whole > 1 else "the condition holds"


def rows(verdict: Verdict) -> list[Row]:
    """The conditions, those that fail first, each group in the order given."""
    failing = {id(one) for one in verdict.failing}
    order = sorted(verdict.conditions, key=lambda one: (id(one) not in failing, _ORDER.index(one.state)))
    return [Row(WORDS[one.state], id(one) in failing, _sentence(one), one.origin and t.clean(one.origin)) for one in order]


def _sentence(one: Condition) -> str:
    text = t.clean(one.text)
    return f"{text}: {t.clean(one.reason)}" if one.state == "not-judged" and one.reason else text


def entries(verdict: Verdict) -> list[Row]:
    """The entries of the baseline: what got worse first, then what stands, then what is gone."""
    if verdict.baseline is None:
        return []
    order = sorted(verdict.baseline.entries, key=lambda entry: (_ENTRY_ORDER.index(entry.state), entry.rule, entry.fingerprint))
    return [Row(_ENTRY_WORDS[entry.state], entry.state == "worse", _entry(entry)) for entry in order]


def _entry(entry: Accepted) -> str:
    then, now = t.duration(entry.then_ns), t.duration(entry.now_ns)
    change = ""
    if entry.state == "worse":
        change = f" ({then} a step when accepted, {now} now)"
    elif entry.state == "accepted" and entry.now_ns is not None:
        change = f" ({now} a step)"
    return f"{t.clean(entry.rule)}: {t.clean(entry.title).rstrip('.')}{change}"


def advice(verdict: Verdict) -> str | None:
    """What to do about entries that are gone."""
    if verdict.baseline is None:
        return None
    gone = len(verdict.baseline.of("fixed"))
    if not gone:
        return None
    them = "it" if gone == 1 else "them"
    return f"{t.count(gone, 'accepted finding')} fixed: advisor baseline --prune takes {them} out of the file"
