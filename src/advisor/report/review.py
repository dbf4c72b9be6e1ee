"""What formats for code hosts and CI systems are written from: findings with their place in the repository, and what was asked.

A report becomes a `Review` here, a comparison in `report/comparison/review.py`; the formats know neither.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from advisor.model import Finding, Location, Notice, Report, RuleOutcome, Verdict
from advisor.report import text as t
from advisor.report.source import SourceTree
from advisor.report.style import Style
from advisor.report.summary import alerts, verdict

BaselineState = Literal["new", "updated", "unchanged", "absent"]

_LONGEST_PATH = 4096  # characters, of any system
# Files that stand for the repository where a format asks for a file and no line of it is known; the first that exists.
_STAND_INS = ("advisor.toml", "pyproject.toml", "setup.py", "setup.cfg", "README.md")


@dataclass(frozen=True)
class Place:
    """A line of a file of the repository: path relative to its root, with slashes; line from 1, None if not recorded."""

    path: str
    line: int | None
    location: Location


@dataclass(frozen=True)
class Since:
    """What became of a finding since the base: as SARIF has it, in words, and whether it is new or worse."""

    state: BaselineState
    told: str
    worsened: bool


@dataclass(frozen=True)
class Reviewed:
    """A finding as a reviewer meets it.

    key: its fingerprint, made unique within the review. places: those that are files of the repository, the heaviest first.
    failing: a condition of the user fails because of it. accepted: the baseline file holds it. step_ns: what its saving
    refers to. since: of a comparison, what became of it.
    """

    finding: Finding
    key: str
    places: list[Place]
    failing: bool
    accepted: bool
    step_ns: int | None
    since: Since | None = None

    @property
    def headline(self) -> str:
        return t.sentence(self.finding.title)

    @property
    def counts(self) -> bool:
        """Whether `--fail-on low` would count it: worth an action, not only inferred from names, not known before."""
        known = self.accepted or (self.since is not None and not self.since.worsened)
        return not known and self.finding.severity != "info" and self.finding.confidence != "low"

    @property
    def gone(self) -> bool:
        return self.since is not None and self.since.state == "absent"

    @property
    def details(self) -> list[str]:
        """What stands below the headline, as plain lines: what became of it, the saving, how sure that is, where, the fix."""
        finding = self.finding
        since = f"{t.sentence(self.since.told)}. " if self.since else ""
        saved = f"Saves {t.saving_long(finding.saving, self.step_ns)}. " if finding.saving else ""
        lines = [f"{since}{saved}{t.confidence(finding)}."]
        if self.places:
            lines.append(f"In your code: {t.place(self.places[0].path, self.places[0].line, self.places[0].location.function)}")
        elif finding.locations:
            first = finding.locations[0]
            lines.append(f"In your code: {t.place(first.file, first.line, first.function)}")
        if finding.fixes:
            lines.append(f"Fix: {t.sentence(finding.fixes[0].title)}")
        return lines


@dataclass(frozen=True)
class Review:
    """alarms: what a reader must know before anything else, as sentences. summary: the verdict. checks: further questions
    with an answer of their own, (name, outcome, sentence): the step of a comparison.
    """

    version: str
    findings: list[Reviewed]
    summary: str
    rules: list[RuleOutcome]
    gates: Verdict | None = None
    alarms: list[str] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    checks: list[tuple[str, Literal["passed", "failed", "not-judged"], str]] = field(default_factory=list)

    @property
    def asked(self) -> bool:
        """Whether the user set conditions, or said that nothing fails."""
        return bool(self.gates and (self.gates.conditions or self.gates.advisory))

    @property
    def missed(self) -> list[tuple[str, str]]:
        """(name, sentence) of the conditions that fail without naming a finding: budgets, regressions, what nobody can judge."""
        failing = self.gates.failing if self.gates else []
        return [
            (f"{one.kind}:{one.name}", t.sentence(one.text) + (f" ({t.clean(one.reason)})" if one.reason else ""))
            for one in failing
            if not one.findings
        ]


def review(report: Report, style: Style | None) -> Review:
    """All findings in the report's order."""
    tree = style.source if style else None
    return Review(
        version=report.version,
        findings=reviewed([(finding, report.step_ns, None) for finding in report.findings], report.gates, tree),
        summary=verdict(report),
        rules=report.rules,
        gates=report.gates,
        alarms=alerts(report),
        notices=report.notices,
    )


def reviewed(
    findings: list[tuple[Finding, int | None, Since | None]],
    gates: Verdict | None,
    tree: SourceTree | None,
) -> list[Reviewed]:
    """findings: each with the step that its saving refers to and, of a comparison, what became of it."""
    seen, result = Counter[str](), []
    failing = {print for condition in gates.failing for print in condition.findings} if gates else set()
    for finding, step_ns, since in findings:
        name = finding.fingerprint or finding.rule
        seen[name] += 1
        key = name if seen[name] == 1 else f"{name}#{seen[name]}"
        accepted = gates is not None and gates.accepts(finding.fingerprint)
        blamed = finding.fingerprint in failing
        result.append(Reviewed(finding, key, _places(finding, tree), blamed, accepted, step_ns, since))
    return result


def _places(finding: Finding, tree: SourceTree | None) -> list[Place]:
    found: dict[tuple[str, int | None], Place] = {}
    for location in sorted(finding.locations, key=lambda one: -(one.share or 0)):
        path = tree.find(location.file) if tree else _relative(location.file)
        line = location.line if location.line and location.line > 0 else None
        if path is not None:
            found.setdefault((path, line), Place(path, line, location))
    return list(found.values())


def _relative(recorded: str) -> str | None:
    """Without a source root: the path as recorded where it is a relative one."""
    path = recorded.replace("\\", "/")
    parts = PurePosixPath(path).parts
    known = parts and not path.startswith("/") and ":" not in parts[0] and ".." not in parts
    return "/".join(parts) if known and path.isprintable() and len(path) <= _LONGEST_PATH else None


def stand_in(style: Style | None) -> str:
    """The file that a finding without a place is shown at."""
    root = style.source_root if style else None
    there = (name for name in _STAND_INS if root is not None and (root / name).is_file())
    return next(there, _STAND_INS[-1])
