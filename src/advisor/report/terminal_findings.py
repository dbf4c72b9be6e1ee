"""Findings on a terminal page: in full, or one line each."""

from __future__ import annotations

from advisor.model import Evidence, Finding, Fix
from advisor.report import text as t
from advisor.report.terminal_page import Page

IN_FULL = 3  # findings shown in full by default ...
IN_FULL_SEVERE = 5  # ... or so many, if they are of high severity
_INDENT = 4
_ROWS, _PLACES, _NOTES = 5, 3, 2  # of one finding, by default
_MOST = 500  # of each with all details: nobody reads more from a terminal
_CONDITIONS = ("Valid for", "Needs torch")


def show_findings(page: Page, main: list[Finding], also: list[Finding], step_ns: int | None, per: str = "a step") -> None:
    """All findings. They are numbered through, in the order in which they stand."""
    full = [finding for i, finding in enumerate(main) if page.style.full or _in_full(i, finding)]
    rest = main[len(full) :]
    if main:
        page.heading("Findings", f"{t.saving_title(per).lower()} if only this one is mended")
        for number, finding in enumerate(full, 1):
            page.blank()
            show_finding(page, number, finding, step_ns, per)
        page.blank()
        for number, finding in enumerate(rest, len(full) + 1):
            one_line(page, number, finding, step_ns)
    if also:
        if main:
            page.heading("Also noticed", "weaker evidence, or no saving to promise")
        else:
            page.heading("Noticed", "no firm saving to promise")
        for i, finding in enumerate(also):
            number = len(main) + i + 1
            if page.style.full or finding.severity == "high" or (not main and _in_full(i, finding)):
                page.blank()
                show_finding(page, number, finding, step_ns, per)
                page.blank()
            else:
                one_line(page, number, finding, step_ns)
                if finding.fixes:
                    page.paragraph((f"Fix: {finding.fixes[0].title}", "dim"), indent=_INDENT, hang=_INDENT + 5)


def _in_full(i: int, finding: Finding) -> bool:
    return i < IN_FULL or (i < IN_FULL_SEVERE and finding.severity == "high")


def one_line(page: Page, number: int, finding: Finding, step_ns: int | None) -> None:
    """Number, severity, share, saving, title; a long title goes on below itself."""
    saving, figures = finding.saving, "no promise"
    if saving is not None:
        shares = saving.to_dict(step_ns or 0)
        figures = f"{t.percent(shares['expected_frac']) if step_ns else '':>5}  {t.duration(saving.expected_ns):>7}"
        if not saving.expected_ns:
            figures = f"up to {t.percent(shares['high_frac']) if step_ns else t.duration(saving.high_ns)}"
    start = f"{number:>2}  "
    figures = f"{figures:>14}  "
    severity = f"{finding.severity:<6}  "
    parts: list[str | tuple[str, str]] = [start, (severity, finding.severity), figures, t.sentence(finding.title)]
    page.paragraph(*parts, hang=len(start + severity + figures))


def show_finding(page: Page, number: int, finding: Finding, step_ns: int | None, per: str = "a step") -> None:
    start = f"{number}. "
    severity = f"{finding.severity.upper()}  "
    page.paragraph((start, "title"), (severity, finding.severity), (t.sentence(finding.title), "title"), hang=_INDENT)
    _promise(page, finding, step_ns, per)
    for table in finding.evidence if page.style.full else finding.evidence[:2]:
        _evidence(page, table)
    _places(page, finding)
    for i, fix in enumerate(finding.fixes):
        _fix(page, fix, first=i == 0)
    for caveat in finding.caveats:
        page.paragraph("Note: ", caveat, indent=_INDENT, hang=_INDENT + 6)


def _promise(page: Page, finding: Finding, step_ns: int | None, per: str) -> None:
    saving = finding.saving
    if saving is not None:
        page.paragraph("Saves ", (t.saving_long(saving, step_ns, per), "good"), indent=_INDENT)
    if finding.cost_per_day:
        page.paragraph("Worth ", (f"{t.money(finding.cost_per_day)} a day", "good"), " on the job's GPUs", indent=_INDENT)
    page.paragraph(t.confidence(finding), indent=_INDENT)
    if finding.alternative_to:
        page.paragraph(f"Competes for the same time as {finding.alternative_to}: mend one of them.", indent=_INDENT)
    if page.style.full:
        page.paragraph((f"Rule {finding.rule}, family {finding.family}", "dim"), indent=_INDENT)


def _evidence(page: Page, evidence: Evidence) -> None:
    table = t.evidence_table(evidence)
    if not table.columns:
        return
    rows = table.rows[: _MOST if page.style.full else _ROWS]
    width = len(table.columns)
    texts = [[t.cell(column, value) for column, value in zip(table.columns, row, strict=False)] for row in rows]
    texts = [row + [""] * (width - len(row)) for row in texts]
    numeric = [all(isinstance(row[i], (int, float)) for row in rows if i < len(row) and row[i] is not None) for i in range(width)]
    page.blank()
    page.paragraph(t.sentence(table.caption), indent=_INDENT)
    page.table([t.heading(column) for column in table.columns], texts, numeric, indent=_INDENT + 2)
    if len(rows) < len(table.rows):
        page.line((f"and {t.count(len(table.rows) - len(rows), 'more row')} {_where(page)}", "dim"), indent=_INDENT + 2)


def _places(page: Page, finding: Finding) -> None:
    places = finding.locations[: _MOST if page.style.full else _PLACES]
    if not places:
        return
    page.blank()
    page.line("In your code", indent=_INDENT)
    for location in places:
        share = "" if location.share is None else f"  {t.percent(location.share)}"
        where = t.place(location.file, location.line, location.function)
        page.paragraph((where, "title"), share, indent=_INDENT + 2, hang=_INDENT + 4)
        quoted = page.style.source.line(location) if page.style.source else None
        if quoted:
            page.line((t.shorten(quoted, page.width - _INDENT - 4), "code"), indent=_INDENT + 4)
    if len(places) < len(finding.locations):
        more = t.count(len(finding.locations) - len(places), "more place")
        page.line((f"and {more} {_where(page)}", "dim"), indent=_INDENT + 2)


def _where(page: Page) -> str:
    """Where the rest of a list is."""
    return "(--format json)" if page.style.full else "(-v)"


def _fix(page: Page, fix: Fix, first: bool) -> None:
    label, kind = "Fix" if first else "Or", t.fix_kind(fix)
    if first:
        page.blank()
    page.paragraph((label, "good"), (f" ({kind})" if kind else "", "dim"), f": {fix.title}", indent=_INDENT, hang=_INDENT + 4)
    if not first and not page.style.full:
        return
    lines = t.clean_block(fix.snippet)
    if lines:
        page.code(lines)
    # Where a fix holds is no detail.
    notes = [note for i, note in enumerate(fix.caveats) if page.style.full or i < _NOTES or note.startswith(_CONDITIONS)]
    for caveat in notes:
        page.paragraph("Note: ", caveat, indent=_INDENT, hang=_INDENT + 6)
    if len(notes) < len(fix.caveats):
        page.line((f"and {t.count(len(fix.caveats) - len(notes), 'more note')} (-v)", "dim"), indent=_INDENT)
    for reference in fix.references if page.style.full else fix.references[:1]:
        page.line("See: ", reference, indent=_INDENT)
