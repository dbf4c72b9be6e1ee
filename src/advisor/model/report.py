"""The result: findings with savings and fixes. `Report.to_dict` is the contract of `--format json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from advisor.model import display, frames
from advisor.model.breakdown import Breakdown
from advisor.model.pictures import Pictures
from advisor.model.run import Notice
from advisor.model.verdict import Verdict

Basis = Literal["replay", "bound", "none"]
Severity = Literal["high", "medium", "low", "info"]
Confidence = Literal["high", "medium", "low"]
Outcome = Literal["found", "clean", "not-applicable", "error"]

# How the reasons begin of rules that saw something which stands not as a finding of its own: it is worth too little (outcome
# `clean`), or part of another finding (outcome `found`).
SEEN_BUT_SMALL = "seen, but worth at most"
REPORTED_UNDER = "reported under"

SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


@dataclass(frozen=True)
class Saving:
    """What one steady step would take less, in nanoseconds, and how that was found."""

    low_ns: int
    expected_ns: int
    high_ns: int
    basis: Basis

    def __post_init__(self) -> None:
        if not 0 <= self.low_ns <= self.expected_ns <= self.high_ns:
            raise ValueError(f"a saving needs 0 <= low <= expected <= high, got {self}")

    def to_dict(self, step_ns: int) -> dict[str, Any]:
        return {
            "low_ns": self.low_ns,
            "expected_ns": self.expected_ns,
            "high_ns": self.high_ns,
            "low_frac": fraction(self.low_ns, step_ns),
            "expected_frac": fraction(self.expected_ns, step_ns),
            "high_frac": fraction(self.high_ns, step_ns),
            "basis": self.basis,
        }


NO_SAVING: dict[str, Any] = {
    **dict.fromkeys(("low_ns", "expected_ns", "high_ns", "low_frac", "expected_frac", "high_frac")),
    "basis": "none",
}


def fraction(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole > 0 else None


@dataclass(frozen=True)
class Evidence:
    """A small table that shows what was seen. Column names end in _ns, _bytes, _frac where they carry that unit."""

    caption: str
    columns: list[str]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Location:
    """A place in the user's source. `share`: how much of the finding's evidence comes from here, 0..1."""

    file: str
    line: int | None = None
    function: str | None = None
    share: float | None = None


@dataclass(frozen=True)
class Fix:
    """One way out, with a snippet whose placeholders are filled."""

    id: str
    title: str
    framework: str
    language: str
    snippet: str
    safety: str
    effort: str
    caveats: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)


@dataclass
class Finding:
    """Something that holds the run back. `cost_per_day`: what it costs on the GPUs of the job, where their price was given."""

    rule: str
    family: str
    title: str
    severity: Severity
    confidence: Confidence
    saving: Saving | None = None
    scope: dict[str, list[Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)
    locations: list[Location] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    alternative_to: str | None = None
    cost_per_day: float | None = None
    fingerprint: str = ""


@dataclass(frozen=True)
class RuleOutcome:
    """What became of one selected rule. `capture` is the command that would unlock a rule that could not judge."""

    id: str
    outcome: Outcome
    reason: str | None = None
    capture: str | None = None


@dataclass(repr=False)
class Report:
    """All that is known after the rules ran. `run` is the contract's "run" object, already plain data.

    Printed it is one line a finding, in a notebook a page; `advisor.render` gives the report in full. `extra` holds further
    top-level keys for people and programs (good news, throughput); the contract allows more keys. `pictures`: what a page or
    notebook draws, where it was asked for. `gates`: what the user asked of the run.
    """

    version: str
    run: dict[str, Any]
    step_ns: int | None
    breakdown: list[Breakdown] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    combined: Saving | None = None
    rules: list[RuleOutcome] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    pictures: Pictures | None = None
    gates: Verdict | None = None

    def __repr__(self) -> str:
        judged = sum(rule.outcome in ("found", "clean") for rule in self.rules)
        step = "no step" if self.step_ns is None else f"step {self.step_ns / 1e6:.4g} ms"
        saved = (self.combined and fraction(self.combined.expected_ns, self.step_ns or 0)) or 0
        head = f"<advisor report: {step}, {saved:.0%} could be saved, {judged} of {len(self.rules)} rules judged>"
        lines = []
        for finding in self.findings:
            share = fraction(finding.saving.expected_ns, self.step_ns or 0) if finding.saving else None
            lines.append(f"  {'' if share is None else f'{share:.0%}':>4}  {finding.rule}: {finding.title}")
        return "\n".join([head, *lines])

    def _repr_html_(self) -> str | None:
        return display.page(self)

    def frame(self, name: str = "findings") -> Any:
        """A part of the report as a pandas DataFrame: findings, breakdown, fixes, evidence, locations, rules or notices.

        KeyError for another name.
        """
        return frames.frame(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data exactly as docs/report-json.md says: no NaN, absent values None."""
        step = self.step_ns or 0
        combined = self.combined.to_dict(step) if self.combined else dict(NO_SAVING)
        return {
            "schema": "advisor.report/1",
            "advisor_version": self.version,
            "run": self.run,
            "breakdown": [dict(vars(part)) for part in self.breakdown],
            "findings": [finding_document(finding, step, priced="cost" in self.extra) for finding in self.findings],
            "combined_saving": {key: combined[key] for key in ("low_frac", "expected_frac", "high_frac")},
            "rules": [_outcome(rule) for rule in self.rules],
            "notices": [dict(vars(notice)) for notice in self.notices],
            **self.extra,
            **({"gates": self.gates.to_dict()} if self.gates else {}),
        }


def _outcome(rule: RuleOutcome) -> dict[str, Any]:
    return {key: value for key, value in vars(rule).items() if value is not None}


def finding_document(finding: Finding, step_ns: int, priced: bool = False) -> dict[str, Any]:
    """One entry of the contract's "findings"."""
    document: dict[str, Any] = {
        "rule": finding.rule,
        "family": finding.family,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "title": finding.title,
        "saving": finding.saving.to_dict(step_ns) if finding.saving else dict(NO_SAVING),
        "scope": finding.scope,
        "facts": finding.facts,
        "evidence": [dict(vars(table)) for table in finding.evidence],
        "locations": [dict(vars(place)) for place in finding.locations],
        "fixes": [dict(vars(fix)) for fix in finding.fixes],
        "caveats": finding.caveats,
        "fingerprint": finding.fingerprint,
    }
    if finding.alternative_to:
        document["alternative_to"] = finding.alternative_to
    if priced:
        document["cost_per_day"] = finding.cost_per_day
    return document
