"""The report for a terminal. What is needed first stands first, and the verdict is repeated where a long text ends."""

from __future__ import annotations

import re

from advisor.model import Finding, Report, RuleOutcome
from advisor.report import gates
from advisor.report import text as t
from advisor.report.gpu_table import COLUMNS, MOST_ROWS, gpu_rows
from advisor.report.style import Style
from advisor.report.summary import alerts, limits, run_facts, unjudged, verdict
from advisor.report.terminal_bar import show_breakdown
from advisor.report.terminal_findings import one_line, show_findings
from advisor.report.terminal_gates import show_gates
from advisor.report.terminal_page import Page

_LONG = 40  # lines from which on the end repeats the verdict
_REASONS, _RULES_NAMED, _NOTICES = 6, 4, 8  # by default: reasons, rules of one reason, notices
_COMMAND = re.compile(r"(nvidia-smi|nsys|torchrun|python3?|export|unset|[A-Z_]+=\S*) ")


def render(report: Report, style: Style) -> str:
    page = Page(style)
    main, also = (gates.standing(report, part) for part in t.sections(report))
    if style.quiet:
        _alerts(page, report)
        page.paragraph((verdict(report), "title"))
        for number, finding in enumerate(main + also, 1):
            one_line(page, number, finding, report.step_ns)
        show_gates(page, report.gates)
        return page.text()
    _header(page, report)
    page.blank()
    _alerts(page, report)
    page.paragraph((verdict(report), "title"))
    show_breakdown(page, report.breakdown, report.step_ns, t.per_step(report))
    _gpus(page, report)
    show_findings(page, main, also, report.step_ns, t.per_step(report))
    _good_news(page, report)
    _limits(page, report)
    _not_judged(page, report.rules)
    _notices(page, report)
    _end(page, report, main + also)
    show_gates(page, report.gates)
    return page.text()


def _header(page: Page, report: Report) -> None:
    page.line((f"advisor {report.version}", "dim"))
    for label, lines in run_facts(report, page.style.full, page.width):
        for i, line in enumerate(lines):
            page.paragraph((f"{label if i == 0 else '':<7}", "dim"), line, hang=9)


def _alerts(page: Page, report: Report) -> None:
    for text in alerts(report):
        page.paragraph((text, "medium"))


def _gpus(page: Page, report: Report) -> None:
    """The samples in short: all that there is without a trace, a detail beside one."""
    rows = gpu_rows(report)
    if not rows or not (report.step_ns is None or page.style.full):
        return
    page.heading("GPUs in the samples", "means and peaks under load")
    page.table(COLUMNS, rows[:MOST_ROWS], [True] * len(COLUMNS), indent=2)
    if len(rows) > MOST_ROWS:
        page.line((f"and {t.count(len(rows) - MOST_ROWS, 'more GPU')}", "dim"), indent=2)


def _good_news(page: Page, report: Report) -> None:
    news = report.extra.get("good_news")
    if not isinstance(news, (list, tuple)) or not news:
        return
    page.heading("Already good")
    for line in news:
        page.paragraph(f"  {t.clean(line)}", hang=4)


def _limits(page: Page, report: Report) -> None:
    """What runs well, and how near the limits of the device."""
    lines = limits(report)
    if not lines:
        return
    page.heading("Against the limits")
    for good, line in lines:
        page.paragraph("  ", ("good  " if good else "      ", "good"), line, hang=8)


def _not_judged(page: Page, rules: list[RuleOutcome]) -> None:
    """Rules that could not judge, by reason, with what would let them."""
    groups = unjudged(rules)
    if not groups:
        return
    judged = len(rules) - sum(len(names) for _, _, names in groups)
    page.heading("Not judged", f"{judged} of {t.count(len(rules), 'rule')} judged")
    shown = groups if page.style.full else groups[:_REASONS]
    for reason, captures, names in shown:
        few = page.style.full or len(names) <= _RULES_NAMED + 1
        words = names if few else [*names[:_RULES_NAMED], f"{len(names) - _RULES_NAMED} more"]
        page.paragraph(f"  {reason}: ", (t.join(words), "dim"), hang=4)
        for capture in captures if page.style.full else captures[:1]:
            if _COMMAND.match(capture):
                page.line("    to judge: ", (capture, "code"))  # one line, to copy
            else:
                page.paragraph("    to judge: ", (capture, "code"), hang=14)
    if len(shown) < len(groups):
        page.line((f"  and {t.count(len(groups) - len(shown), 'more reason')} (-v)", "dim"))


def _notices(page: Page, report: Report) -> None:
    if report.notices:
        page.heading("Notices")
    shown = report.notices if page.style.full else report.notices[:_NOTICES]
    for notice in shown:
        page.paragraph(f"  {t.sentence(notice.message)}", (f" [{notice.code}]", "dim"), hang=4)
    if len(shown) < len(report.notices):
        page.line((f"  and {t.count(len(report.notices) - len(shown), 'more notice')} (-v)", "dim"))


def _end(page: Page, report: Report, findings: list[Finding]) -> None:
    page.blank()
    if findings:
        page.paragraph((f"More: advisor explain {findings[0].rule} (why, and how it is judged)", "dim"), hang=6)
    if findings and page.text().count("\n") > _LONG:
        page.paragraph((verdict(report), "title"))
