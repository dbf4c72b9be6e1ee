"""Comparisons as text: functions Comparison -> str, one module a format.

A format is a module with `render(comparison, style, all_findings) -> str`; adding it to `FORMATS` makes it available. Those for
code hosts are the modules that write reports, too: they write a `Review`, which a comparison becomes in `review`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from advisor.report import FORMATS as OF_REPORTS
from advisor.report import HOSTED

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison

# Name of the format -> module that renders it. Modules are imported on first use.
FORMATS: dict[str, str] = {
    "text": "advisor.report.comparison.terminal",
    "json": "advisor.report.comparison.json_document",
    "markdown": "advisor.report.comparison.markdown",
    "html": "advisor.report.comparison.html",
    "comment": "advisor.report.comparison.comment",
    **{name: OF_REPORTS[name] for name in HOSTED},
}


def render(comparison: Comparison, format: str, *, all_findings: bool = False, **style: Any) -> str:
    """The comparison in one of `FORMATS`, ending in a newline. `style`: the arguments of `advisor.report.render`.

    all_findings: formats for programs list all findings; without it new and worse ones only.
    Raises ValueError for a format that does not exist.
    """
    from advisor.report.style import Style

    if format not in FORMATS:
        raise ValueError(f"no format {format!r} of a comparison; there are {', '.join(FORMATS)}")
    look, module = Style(**style), import_module(FORMATS[format])
    if format in HOSTED:
        from advisor.report.comparison.review import review

        text: str = module.written(review(comparison, look, all_findings), look)
    else:
        text = module.render(comparison, look, all_findings)
    return text


__all__ = ["FORMATS", "render"]
