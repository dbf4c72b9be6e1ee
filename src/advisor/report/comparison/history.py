"""The record of promises against outcomes: a table, and how often promises were kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from advisor.model.history import HistoryEntry
from advisor.report import markdown as md
from advisor.report import text as t
from advisor.report.comparison.words import KEPT
from advisor.report.style import Style
from advisor.report.terminal_page import Page

FORMATS = ("text", "json", "markdown")
_COLUMNS = ["when", "findings that are gone", "promised", "obtained", "outcome", "measured by"]
_SHOWN = 40


def render(entries: Sequence[HistoryEntry], format: str, style: Style) -> str:
    """`format`: text, json or markdown; ValueError for another. The newest come last."""
    if format == "json":
        document: dict[str, Any] = {"schema": "advisor.promises/1", "entries": [one.to_dict() for one in entries]}
        return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    shown = list(entries) if style.full else list(entries)[-_SHOWN:]
    if format == "markdown":
        rows = [[md.escape(cell) for cell in _row(one)] for one in shown]
        return f"{md.escape(summary(entries))}\n\n{md.table(_COLUMNS, rows)}\n"
    if format != "text":
        raise ValueError(f"no format {format!r} of the record")
    page = Page(style)
    if len(shown) < len(entries):
        page.line((f"the last {len(shown)} of {len(entries)} (-v for all)", "dim"))
    page.table(_COLUMNS, [_row(one) for one in shown], [False] * len(_COLUMNS))
    page.blank()
    page.paragraph((summary(entries), "title"))
    return page.text()


def summary(entries: Sequence[HistoryEntry]) -> str:
    if not entries:
        return "The record is empty."
    counts = Counter(one.kept for one in entries)
    words = [f"{counts[kept]} {text}" for kept, text in KEPT.items() if kept != "unclear" and counts[kept]]
    if counts["unclear"]:
        words.append(f"{counts['unclear']} unclear")
    return f"{t.count(len(entries), 'comparison')}: {t.join(words) or 'none judged'}."


def _row(one: HistoryEntry) -> list[str]:
    outcome = {"unclear": "unclear"}.get(one.kept) or KEPT.get(one.kept, one.kept)  # type: ignore[call-overload]
    measured = "repeats" if one.method == "repeats" else "one recording a side"
    return [t.clean(one.when[:10]), t.clean(", ".join(one.rules)), _range(one.promised), _range(one.obtained), outcome, measured]


def _range(triple: tuple[float | None, float | None, float | None]) -> str:
    low, expected, high = triple
    if expected is None:
        return "unknown"
    spread = t.percent_range(low, high) if low is not None and high is not None else ""
    return f"{t.percent(expected)} ({spread})" if spread and spread != t.percent(expected) else t.percent(expected)
