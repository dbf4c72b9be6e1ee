"""What formats for code hosts and CI systems share: findings with their place in the repository and what was asked of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

from advisor.model import Finding, Location, Report
from advisor.report import text as t
from advisor.report.source import SourceTree
from advisor.report.style import Style

# Files that stand for the repository where a format asks for a file and no line of it is known; the first that exists.
_STAND_INS = ("advisor.toml", "pyproject.toml", "setup.py", "setup.cfg", "README.md")


@dataclass(frozen=True)
class Place:
    """A line of a file of the repository: path relative to its root, with slashes; line from 1, None if not recorded."""

    path: str
    line: int | None
    location: Location


@dataclass(frozen=True)
class Reviewed:
    """A finding as a reviewer meets it.

    key: its fingerprint, made unique within the report. places: those that are files of the repository, the heaviest first.
    failing: a condition of the user fails because of it. accepted: the baseline holds it.
    """

    finding: Finding
    key: str
    places: list[Place]
    failing: bool
    accepted: bool

    @property
    def headline(self) -> str:
        return t.sentence(self.finding.title)


def reviewed(report: Report, style: Style | None) -> list[Reviewed]:
    """All findings in the report's order."""
    gates, seen = report.gates, Counter[str]()
    failing = {print for condition in gates.failing for print in condition.findings} if gates else set()
    result = []
    for finding in report.findings:
        name = finding.fingerprint or finding.rule
        seen[name] += 1
        key = name if seen[name] == 1 else f"{name}#{seen[name]}"
        places = _places(finding, style.source if style else None)
        accepted = gates is not None and gates.accepts(finding.fingerprint)
        result.append(Reviewed(finding, key, places, finding.fingerprint in failing, accepted))
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
    return "/".join(parts) if known and path.isprintable() else None


def stand_in(style: Style | None) -> str:
    """The file that a finding without a place is shown at."""
    root = style.source_root if style else None
    there = (name for name in _STAND_INS if root is not None and (root / name).is_file())
    return next(there, _STAND_INS[-1])


def details(one: Reviewed, step_ns: int | None) -> list[str]:
    """What stands below the headline, as plain lines: the saving, how sure that is, where, the first fix."""
    finding = one.finding
    saved = f"Saves {t.saving_long(finding.saving, step_ns)}. " if finding.saving else ""
    lines = [f"{saved}{t.confidence(finding)}."]
    if one.places:
        lines.append(f"In your code: {t.place(one.places[0].path, one.places[0].line, one.places[0].location.function)}")
    elif finding.locations:
        first = finding.locations[0]
        lines.append(f"In your code: {t.place(first.file, first.line, first.function)}")
    if finding.fixes:
        lines.append(f"Fix: {t.sentence(finding.fixes[0].title)}")
    return lines


def counts(finding: Finding) -> bool:
    """Whether `--fail-on low` would count it: it is worth an action, and not only inferred from names."""
    return finding.severity != "info" and finding.confidence != "low"
