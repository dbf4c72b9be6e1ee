"""Workflow commands of GitHub Actions: one annotation a finding, on its line where that is known.

A step shows at most 10 annotations of a kind (and a job 50), in the order in which they come: the weightiest come first, and
what does not fit is counted in the last one. Nothing else is printed, for the runner reads every line of the log for commands.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model import Report
from advisor.report import text as t
from advisor.report.review import Review, Reviewed, review
from advisor.report.style import Style

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
    return written(review(report, style), style)


def written(found: Review, style: Style | None = None) -> str:
    """Conditions that fail are errors, findings worth an action warnings, the rest notices; the verdict ends it."""
    note = [style.note] if style and style.note else []
    return commands(annotated(found), [found.summary, *note])


def commands(found: list[Annotation], summary: list[str]) -> str:
    """At most `MOST` of each kind, and a last notice with the summary and how many were left out."""
    shown = [one for kind in KINDS for one in [each for each in found if each.kind == kind][: MOST - (kind == "notice")]]
    left_out = len(found) - len(shown)
    more = [f"{t.count(left_out, 'more finding')} not annotated: the report lists all."] if left_out else []
    last = Annotation("notice", "GPU advisor", [*summary, *more])
    return "".join(f"{one.command()}\n" for one in [*shown, last])


def annotated(found: Review) -> list[Annotation]:
    """Of everything, the weightiest of each kind first; what the baseline accepts, and what is gone, is left out."""
    return [
        *(Annotation("error", f"GPU advisor: {name.replace(':', ' ', 1)}", [text]) for name, text in found.missed),
        *(Annotation("warning", "GPU advisor", [text]) for text in found.alarms),
        *(Annotation("warning", f"GPU advisor: {name}", [text]) for name, state, text in found.checks if state == "failed"),
        *(_finding(one) for one in found.findings if not one.accepted and not one.gone),
    ]


def _finding(one: Reviewed) -> Annotation:
    heavy = one.counts and one.finding.severity in ("high", "medium")
    kind = "error" if one.failing else "warning" if heavy else "notice"
    path, line = (one.places[0].path, one.places[0].line) if one.places else (None, None)
    return Annotation(kind, one.headline, [*one.details, f"More: advisor explain {one.finding.rule}"], path, line)


def escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")
