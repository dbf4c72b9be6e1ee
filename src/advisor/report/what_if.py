"""The answer to `advisor analyze --what-if`: text, Markdown, and JSON of the contract "advisor.whatif/1"."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from advisor.model import Report, Saving
from advisor.model.what_if import Mended, WhatIf, after
from advisor.report import markdown as md
from advisor.report import text as t
from advisor.report.json_document import plain
from advisor.report.style import Style
from advisor.report.summary import run_facts
from advisor.report.terminal_page import Page

TOGETHER = "all together"
_OUTCOMES = {"found": "found, but promises nothing", "clean": "nothing found", "error": "the rule failed"}
_COLUMNS = ["with this mended", "saves", "share", "step then", "between"]


def render(answer: WhatIf, format: str, style: Style) -> str:
    """`format`: text, json or markdown; ValueError for another."""
    if format == "json":
        return json.dumps(plain(answer.to_dict()), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    if format == "markdown":
        return _markdown(answer)
    if format == "text":
        return _text(answer, style)
    raise ValueError(f"no format {format!r} of what-if")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the document."""
    document: dict[str, Any] = json.loads(files("advisor.report").joinpath("schemas/whatif-1.json").read_text("utf-8"))
    return document


def _text(answer: WhatIf, style: Style) -> str:
    page = Page(style)
    if not style.quiet:
        page.line((f"advisor {answer.version}", "dim"))
        for label, lines in run_facts(Report(answer.version, answer.run, answer.step_ns), style.full, page.width):
            for i, line in enumerate(lines):
                page.paragraph((f"{label if i == 0 else '':<7}", "dim"), line, hang=9)
    page.heading("What if", f"the step takes {t.duration(answer.step_ns, 3)} now" if answer.step_ns else "")
    rows = _rows(answer)
    page.table(_COLUMNS, rows, [False, True, True, True, True], indent=2)
    page.blank()
    for one in answer.alone:
        for title in one.findings if one.saving else ():
            page.paragraph((f"{one.rule}: ", "title"), t.sentence(title), indent=2, hang=4)
        if not one.saving:
            page.paragraph((f"{one.rule}: ", "title"), _why(one), indent=2, hang=4)
    page.blank()
    page.paragraph((_summary(answer), "title"))
    for notice in answer.notices if not style.quiet else ():
        page.paragraph(("Note: ", "dim"), t.sentence(notice.message), hang=6)
    return page.text()


def _markdown(answer: WhatIf) -> str:
    blocks = [
        f"### {md.escape(_summary(answer))}",
        md.table(_COLUMNS, [[md.escape(cell) for cell in row] for row in _rows(answer)], right=[1, 2, 3, 4]),
        *(f"{md.code(one.rule)}: {md.escape(t.sentence(title))}" for one in answer.alone for title in one.findings if one.saving),
        *(f"{md.code(one.rule)}: {md.escape(_why(one))}" for one in answer.alone if not one.saving),
    ]
    return "\n\n".join(blocks) + "\n"


def _rows(answer: WhatIf) -> list[list[str]]:
    """One row a rule, and one for all of them where there are several."""
    rows = [[t.clean(one.rule), *_figures(one.saving, answer.step_ns)] for one in answer.alone]
    return [*rows, [TOGETHER, *_figures(answer.together, answer.step_ns)]] if len(rows) > 1 else rows


def _figures(saving: Saving | None, step_ns: int | None) -> list[str]:
    if saving is None or not step_ns:
        return ["nothing", "", "" if not step_ns else t.duration(step_ns, 3), ""]
    best, expected, worst = after(saving, step_ns)
    share = t.percent(saving.expected_ns / step_ns)
    return [t.duration(saving.expected_ns), share, t.duration(expected, 3), t.duration_range(best, worst, 3)]


def _why(one: Mended) -> str:
    """Why a rule changes nothing."""
    if one.outcome == "not-applicable":
        return f"cannot judge: {one.reason or 'no reason given'}" + (f"; to judge: {one.capture}" if one.capture else "")
    return _OUTCOMES[one.outcome] + (f": {one.reason}" if one.reason else "")


def _summary(answer: WhatIf) -> str:
    if not answer.step_ns:
        return "There is no step in this input, so nothing can be replayed."
    if answer.together is None:
        return f"Nothing to mend: the step stays at {t.duration(answer.step_ns, 3)}."
    best, expected, worst = after(answer.together, answer.step_ns)
    how = "the recorded steps were replayed" if answer.together.basis == "replay" else "bounded, not replayed"
    return (
        f"{t.duration(answer.step_ns, 3)} → {t.duration(expected, 3)} a step "
        f"({t.duration_range(best, worst, 3)}), {t.percent(answer.together.expected_ns / answer.step_ns)} less: {how}."
    )
