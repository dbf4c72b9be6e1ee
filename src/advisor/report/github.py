"""Workflow commands of GitHub Actions: one annotation a finding, on its line where that is known.

A step shows at most 10 annotations of a kind (and a job 50), in the order in which they come: the weightiest come first, and
what does not fit is counted in the last one. Nothing else is printed, for the runner reads every line of the log for commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.model import Report
from advisor.report import text as t
from advisor.report.review import Reviewed, counts, details, reviewed
from advisor.report.style import Style
from advisor.report.summary import alerts, verdict

MOST = 10  # annotations of each kind that GitHub shows of a step
KINDS = ("error", "warning", "notice")
_TITLE, _MESSAGE = 120, 1000  # characters


@dataclass(frozen=True)
class Annotation:
    """kind: one of `KINDS`. path: relative to the repository's root, None for the run as a whole. message: lines."""

    kind: str
    title: str
    message: list[str]
    path: str | None = None
    line: int | None = None

    def command(self) -> str:
        """One line without a line break, whatever the texts hold."""
        where = {"file": self.path, "line": self.line, "title": t.shorten(t.clean(self.title), _TITLE)}
        given = ",".join(f"{key}={escape_property(str(value))}" for key, value in where.items() if value is not None)
        lines = [t.shorten(t.clean(line), _MESSAGE) for line in self.message]
        return f"::{self.kind} {given}::{escape_data(chr(10).join(lines))}"


def render(report: Report, style: Style | None = None) -> str:
    """Conditions that fail are errors, findings worth an action warnings, the rest notices; the verdict ends it."""
    note = [style.note] if style and style.note else []
    return commands(annotated(report, style), [*alerts(report), verdict(report), *note])


def commands(found: list[Annotation], summary: list[str]) -> str:
    """At most `MOST` of each kind, and a last notice with the summary and how many were left out."""
    shown = [one for kind in KINDS for one in [each for each in found if each.kind == kind][: MOST - (kind == "notice")]]
    left_out = len(found) - len(shown)
    more = [f"{t.count(left_out, 'more finding')} not annotated: the report lists all."] if left_out else []
    last = Annotation("notice", "GPU advisor", [*summary, *more])
    return "".join(f"{one.command()}\n" for one in [*shown, last])


def annotated(report: Report, style: Style | None = None) -> list[Annotation]:
    """Of everything, the weightiest of each kind first; what the baseline accepts is left out."""
    return [*_conditions(report), *(_finding(one, report) for one in reviewed(report, style) if not one.accepted)]


def _conditions(report: Report) -> Iterator[Annotation]:
    """Conditions that fail without naming a finding: budgets, regressions, and what could not be judged."""
    for condition in report.gates.failing if report.gates else ():
        if not condition.findings:
            reason = [t.sentence(condition.reason)] if condition.reason else []
            yield Annotation("error", f"GPU advisor: {condition.name}", [t.sentence(condition.text), *reason])


def _finding(one: Reviewed, report: Report) -> Annotation:
    heavy = counts(one.finding) and one.finding.severity in ("high", "medium")
    kind = "error" if one.failing else "warning" if heavy else "notice"
    path, line = (one.places[0].path, one.places[0].line) if one.places else (None, None)
    message = [*details(one, report.step_ns), f"More: advisor explain {one.finding.rule}"]
    return Annotation(kind, one.headline, message, path, line)


def escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")
