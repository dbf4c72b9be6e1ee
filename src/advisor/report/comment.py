"""Markdown for one comment that is updated in place: the marker, a short first screen, everything else folded."""

from __future__ import annotations

import re

from advisor.model import Report
from advisor.report import markdown
from advisor.report.style import Style

MARKER = "<!-- gpu-advisor: {key} -->"  # the first line: who updates the comment finds it by this
DEFAULT_KEY = "report"
LIMIT = 65_000  # characters with the marker; GitHub takes up to 65,536
_FIRST_ROWS = 5


def render(report: Report, style: Style | None = None) -> str:
    return marked(markdown.document(report, style.note if style else None, LIMIT - 200, _FIRST_ROWS))


def marked(text: str, key: str = DEFAULT_KEY) -> str:
    """The text below the marker line; a marker that it begins with already is replaced."""
    return f"{marker(key)}\n{unmarked(text)}"


def unmarked(text: str) -> str:
    return re.sub(rf"\A{MARKER.format(key='.*')}\n", "", text)


def marker(key: str = DEFAULT_KEY) -> str:
    """The marker line of the comment `key`, which tells several comments on one pull request apart. ValueError if unfit."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", key):
        raise ValueError(f"{key!r} is no key: letters, digits, '.', '_' and '-', at most 64 of them")
    return MARKER.format(key=key)
