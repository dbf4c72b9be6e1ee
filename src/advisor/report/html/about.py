"""The end of the page: what limits the run, what no rule could judge, notices, and what the report was made from."""

from __future__ import annotations

from collections import Counter

from advisor.model import Report
from advisor.model.report import Outcome
from advisor.report import text as t
from advisor.report.gpu_table import COLUMNS, MOST_ROWS, gpu_rows
from advisor.report.html.findings import snippet
from advisor.report.html.markup import Html, folded, section, table, tag
from advisor.report.summary import limits, run_facts, unjudged

_NOTICES, _GROUPS = 100, 100
_OUTCOMES: dict[Outcome, str] = {"found": "found", "clean": "clean", "not-applicable": "not judged", "error": "failed"}


def about_sections(report: Report) -> list[Html | None]:
    return [_limits(report), _notices(report), _rules(report), _run(report)]


def _limits(report: Report) -> Html | None:
    lines = [(good, line) for good, line in limits(report)[:50] if not good]
    if not lines:
        return None
    items = (tag("li", t.shorten(line, 1000)) for _, line in lines)
    return section("limits", "Against the limits of the GPU", tag("ul", items))


def _notices(report: Report) -> Html | None:
    if not report.notices:
        return None
    items = [
        tag("li", t.sentence(t.shorten(notice.message, 1500)), Html(" "), tag("code", notice.code, class_="quiet"))
        for notice in report.notices[:_NOTICES]
    ]
    more = len(report.notices) - _NOTICES
    return section(
        "notices",
        "Notices",
        tag("ul", items, class_="plain"),
        tag("p", f"and {t.count(more, 'more notice')}", class_="quiet") if more > 0 else None,
        lead="What to keep in mind about this recording.",
    )


def _rules(report: Report) -> Html | None:
    if not report.rules:
        return None
    counted = Counter(rule.outcome for rule in report.rules)
    words = t.join([f"{counted[outcome]} {name}" for outcome, name in _OUTCOMES.items() if counted[outcome]])
    groups = unjudged(report.rules)
    cards = [
        tag(
            "li",
            tag("p", t.sentence(t.shorten(reason, 600))),
            tag("p", [[tag("code", name), Html(" ")] for name in names], class_="names"),
            [snippet(f"capture-{i}-{j}", capture, "Copy how to record it") for j, capture in enumerate(captures[:4])],
        )
        for i, (reason, captures, names) in enumerate(groups[:_GROUPS])
    ]
    every = table(
        ["Rule", "Outcome", "Why"],
        ([tag("code", rule.id), _OUTCOMES[rule.outcome], t.shorten(rule.reason or "", 300)] for rule in report.rules[:500]),
        caption="Every rule and its outcome",
        hidden_caption=True,
    )
    return section(
        "rules",
        "Rules",
        [tag("h3", "Could not judge, and what would let them"), tag("ul", cards, class_="unjudged")] if cards else None,
        folded(f"All {len(report.rules)} rules", every),
        lead=f"{len(report.rules)} rules ran: {words}. A rule that could not judge says nothing about health.",
    )


def _run(report: Report) -> Html:
    facts = [(name, lines) for name, lines in run_facts(report, full=True)] + [("advisor", [report.version])]
    shown = [[tag("dt", name), [tag("dd", t.shorten(line, 400)) for line in lines[:200]]] for name, lines in facts]
    samples = [[t.shorten(cell, 60) for cell in row] for row in gpu_rows(report)[:MOST_ROWS]]
    return section(
        "about",
        "What this was made from",
        tag("dl", shown, class_="facts"),
        table(COLUMNS, samples, right=range(1, len(COLUMNS)), caption="GPUs in the samples") if samples else None,
    )
