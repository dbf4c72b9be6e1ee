"""The comparison as one comment on a pull request, see `advisor.report.comment`."""

from __future__ import annotations

from advisor.model.comparison import Comparison
from advisor.report.comment import LIMIT, marked
from advisor.report.comparison import markdown
from advisor.report.style import Style


def render(comparison: Comparison, style: Style | None = None, all_findings: bool = False) -> str:
    return marked(markdown.document(comparison, style.note if style else None, LIMIT - 200))
