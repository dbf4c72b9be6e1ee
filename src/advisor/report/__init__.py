"""Reports as text: pure functions Report -> str, one module a format.

A format is a module with `render(report, style) -> str`; adding it to `FORMATS` makes it available everywhere.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from advisor.model import Report
from advisor.report.style import Style

# Name of the format -> module that renders it. Modules are imported on first use.
FORMATS: dict[str, str] = {
    "text": "advisor.report.terminal",
    "json": "advisor.report.json_document",
    "markdown": "advisor.report.markdown",
}


def render(
    report: Report,
    format: str,
    *,
    color: bool = False,
    width: int = 80,
    verbosity: int = 0,
    source_root: Path | None = None,
    unicode: bool = True,
) -> str:
    """The report in one of `FORMATS`, ending in a newline.

    color: ANSI colours (text only). width: columns of the terminal, kept within 60..160 (text only).
    verbosity: -1 verdict and one line a finding, 0 details of the first findings, 1 everything (text only).
    source_root: folder of the user's code; locations found below it are quoted with their line (text only).
    unicode: False keeps the output within ASCII, for an output encoding that is not UTF-8.
    Raises ValueError for a format that does not exist.
    """
    if format not in FORMATS:
        raise ValueError(f"no report format {format!r}; there are {', '.join(FORMATS)}")
    style = Style(color=color, width=width, verbosity=verbosity, source_root=source_root, unicode=unicode)
    text: str = import_module(FORMATS[format]).render(report, style)
    return text


__all__ = ["FORMATS", "Style", "render"]
