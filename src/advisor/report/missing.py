"""What stands in place of a report where there is no recording: neither praise nor blame."""

from __future__ import annotations

from advisor.report import html
from advisor.report import markdown as md
from advisor.report import text as t
from advisor.report.comment import marked
from advisor.report.github import commands

SENTENCE = "No recording was found, so nothing was judged."
NO_REPORT = "There is no report: the recording could not be judged."
_NAMED = 5


def render(paths: list[str], form: str, note: str | None = None) -> str | None:
    """In the formats for people; None in those for machines."""
    named = [t.clean(path) for path in paths[:_NAMED]] + (["..."] if len(paths) > _NAMED else [])
    if form == "text":
        return f"{SENTENCE} Looked for: {', '.join(named)}\n"
    if form == "github":
        return commands([], [SENTENCE, f"Looked for: {', '.join(named)}", *([note] if note else [])])
    if form == "html":
        return html.message(SENTENCE, [f"Looked for: {', '.join(named)}", *([note] if note else [])])
    if form in ("markdown", "comment"):
        looked = "Looked for: " + ", ".join(map(md.code, named))
        text = md.joined([f"### {md.escape(SENTENCE)}", *([md.escape(note)] if note else []), looked])
        return marked(text) if form == "comment" else text
    return None


def failed(job: str) -> str:
    """Markdown that takes the place of a report that could not be made: an older one must not be taken for this one."""
    where = f" of {md.code(job)}" if job else ""
    return md.joined([f"### {md.escape(NO_REPORT)}", f"What went wrong stands in the log{where}."])
