"""Reports as text: functions Report -> str, one module a format; the only files they look at lie below the source root.

A format is a module with `render(report, style) -> str`; adding it to `FORMATS` makes it available everywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from advisor.model import Report, RulePage

# Name of the format -> module that renders it. Modules are imported on first use.
FORMATS: dict[str, str] = {
    "text": "advisor.report.terminal",
    "json": "advisor.report.json_document",
    "markdown": "advisor.report.markdown",
    "html": "advisor.report.html",
    "comment": "advisor.report.comment",
    "github": "advisor.report.github",
    "sarif": "advisor.report.sarif",
    "junit": "advisor.report.junit",
    "gitlab": "advisor.report.gitlab",
}
# Formats that name files relative to the root of a repository.
HOSTED = ("github", "sarif", "junit", "gitlab")


def render(
    report: Report,
    format: str,
    *,
    color: bool = False,
    width: int = 80,
    verbosity: int = 0,
    source_root: Path | None = None,
    unicode: bool = True,
    rule_pages: Mapping[str, RulePage] | None = None,
    note: str | None = None,
) -> str:
    """The report in one of `FORMATS`, ending in a newline.

    color: ANSI colours (text only). width: columns of the terminal, kept within 60..160 (text only).
    verbosity: -1 verdict and one line a finding, 0 details of the first findings, 1 everything (text only).
    source_root: folder of the user's code. Formats for code hosts name files relative to it; text quotes the lines.
    unicode: False keeps the output within ASCII, for an output encoding that is not UTF-8.
    rule_pages: by id, what the rules say about themselves (sarif only).
    note: a line below the verdict (html, markdown, comment and github only).
    Raises ValueError for a format that does not exist.
    """
    from advisor.report.style import Style

    if format not in FORMATS:
        raise ValueError(f"no report format {format!r}; there are {', '.join(FORMATS)}")
    style = Style(color, width, verbosity, source_root, unicode, rule_pages or {}, note)
    text: str = import_module(FORMATS[format]).render(report, style)
    return text


__all__ = ["FORMATS", "HOSTED", "render"]
