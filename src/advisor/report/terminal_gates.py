"""Conditions and the baseline on a terminal page. They stand last, since they decide the exit status."""

from __future__ import annotations

from advisor.model import Verdict
from advisor.report import gates
from advisor.report import text as t
from advisor.report.terminal_page import Page

_COLORS = {"passed": "good", "not judged": "medium", "failed": "high"}
_ENTRIES = 8  # of the baseline, by default


def show_gates(page: Page, verdict: Verdict | None) -> None:
    """Nothing where nothing was asked; where the page is to be quiet, what fails or was not judged."""
    if not verdict:
        return
    if not page.style.quiet:
        _baseline(page, verdict)
    rows = [row for row in gates.rows(verdict) if row.fails or row.state == gates.WORDS["not-judged"] or not page.style.quiet]
    if rows:
        page.heading("Conditions", gates.headline(verdict))
    for row in rows:
        state, color = f"{row.state:<10}", "high" if row.fails else _COLORS[row.state]
        told = f" ({row.origin})" if row.origin and page.style.full else ""
        page.paragraph("  ", (state, color), f"  {row.text}", (told, "dim"), hang=14)


def _baseline(page: Page, verdict: Verdict) -> None:
    """Accepted findings stand apart; what got worse counts again."""
    entries = gates.entries(verdict)
    if not verdict.baseline or not entries:
        return
    page.heading("Baseline", f"{t.count(len(entries), 'accepted finding')} in {t.file_name(verdict.baseline.path)}")
    shown = entries if page.style.full else entries[:_ENTRIES]
    for row in shown:
        page.paragraph("  ", (row.state, "high" if row.fails else "dim"), f"  {row.text}", hang=4)
    if len(shown) < len(entries):
        page.line((f"  and {t.count(len(entries) - len(shown), 'more entry', 'more entries')} (-v)", "dim"))
    if told := gates.advice(verdict):
        page.paragraph((f"  {t.sentence(told)}", "dim"), hang=4)
