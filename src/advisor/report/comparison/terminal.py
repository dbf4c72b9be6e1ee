"""The comparison for a terminal: what makes it unfair, the verdict, promise against outcome, then what changed."""

from __future__ import annotations

from advisor.model.comparison import Comparison, FindingChange
from advisor.report import text as t
from advisor.report.comparison import words as w
from advisor.report.style import Style
from advisor.report.terminal_gates import show_gates
from advisor.report.terminal_page import Page

_KERNELS, _FINDINGS, _NOTICES = 8, 6, 6  # lines of each kind by default
_QUIETER = ("first-judged", "not-judged", "folded", "same")
_STYLES = {"new": "high", "worse": "medium", "gone": "good", "better": "good"}
_VERDICTS = {"faster": "good", "slower": "high"}


def render(comparison: Comparison, style: Style, all_findings: bool = False) -> str:
    page = Page(style)
    full = style.full or all_findings
    if not style.quiet:
        _header(page, comparison)
    _unfair(page, comparison)
    page.paragraph((w.headline(comparison), _VERDICTS.get(comparison.step.verdict, "title")))
    if not style.quiet and comparison.step.verdict != "cannot-tell":
        page.paragraph((t.sentence(comparison.step.reason) + ".", "dim"))
    _promises(page, comparison)
    if style.quiet:
        for one in comparison.worsened:
            _finding(page, one, False)
        show_gates(page, comparison.gates)
        return page.text()
    _parts(page, comparison)
    _kernels(page, comparison, full)
    _findings(page, comparison, full)
    _notices(page, comparison, full)
    show_gates(page, comparison.gates)
    return page.text()


def _header(page: Page, comparison: Comparison) -> None:
    page.line((f"advisor {comparison.version}", "dim"))
    for label, side in (("base", comparison.base), ("head", comparison.head)):
        page.paragraph((f"{label:<7}", "dim"), w.side(side), hang=7)
    page.blank()


def _unfair(page: Page, comparison: Comparison) -> None:
    for voids, text in w.differences(comparison):
        if voids:
            page.paragraph(("Unfair: ", "medium"), (text, "medium"), hang=2)
        elif not page.style.quiet:
            page.paragraph(("Note: ", "dim"), text, hang=2)
    if comparison.unfair:
        page.blank()


def _promises(page: Page, comparison: Comparison) -> None:
    promises = comparison.promises
    if promises is None:
        return
    if page.style.quiet:
        page.paragraph(w.promise(promises))
        return
    page.heading("Promised and obtained", "time saved in each step")
    page.paragraph("  ", (w.promise(promises), "title"), hang=2)
    for one in promises.findings:
        each = f"{t.saving_short(one.saving, promises.step_ns)}: " if len(promises.findings) > 1 else ""
        page.paragraph(f"  gone: {each}{t.sentence(one.title)}", (f" [{one.rule}]", "dim"), hang=8)
    if basis := w.promise_basis(promises):
        page.paragraph("  ", (basis, "dim"), hang=2)
    if promises.new_findings:
        page.paragraph("  ", (f"{t.count(promises.new_findings, 'new finding')} may have taken a part of it.", "dim"), hang=2)


def _parts(page: Page, comparison: Comparison) -> None:
    parts = w.parts(comparison)
    if not parts:
        return
    page.heading("Where the step changed", "as recorded, mean over GPUs")
    rows = [
        [w.part_name(one), w.amount(one.base_ns), w.amount(one.head_ns), w.signed(one.head_ns - one.base_ns), _seen(one.changed)]
        for one in parts
    ]
    page.table(["part", "base", "head", "change", ""], rows, [False, True, True, True, False], indent=2)


def _seen(changed: bool) -> str:
    return "" if changed else "within noise"


def _kernels(page: Page, comparison: Comparison, full: bool) -> None:
    found = comparison.kernels
    if found is None:
        return
    page.heading("Kernels", f"{found.slower} slower, {found.faster} faster, {found.new} new, {found.gone} gone")
    kinds = [one for one in found.classes if one.changed]
    shown = found.kernels if full else found.kernels[:_KERNELS]
    if not kinds and not shown:
        page.paragraph("  No kernel changed beyond noise.")
        return
    columns, right = ["", "base", "head", "change", "calls"], [False, True, True, True, True]
    rows = [
        [name, w.amount(one.base_ns), w.amount(one.head_ns), w.kernel_state(one), _calls(one.base_calls, one.head_calls)]
        for name, one in [*((f"all {one.name}", one) for one in kinds), *((w.kernel_name(one), one) for one in shown)]
    ]
    page.table(columns, rows, right, indent=2)
    if len(shown) < len(found.kernels):
        page.line((f"and {t.count(len(found.kernels) - len(shown), 'more kernel')} (-v)", "dim"), indent=2)


def _calls(base: float | None, head: float | None) -> str:
    before, after = ("-" if n is None else t.significant(n, 3) for n in (base, head))
    return before if before == after else f"{before} → {after}"


def _findings(page: Page, comparison: Comparison, full: bool) -> None:
    page.heading("Findings", w.counted(comparison))
    loud = [one for one in comparison.findings if one.status not in _QUIETER]
    quiet = [one for one in comparison.findings if one.status in _QUIETER]
    shown = comparison.findings if full else [*loud[: max(_FINDINGS, len(comparison.worsened))]]
    for one in shown:
        _finding(page, one, True)
    more = len(comparison.findings) - len(shown)
    if more:
        what = "unchanged or not judged on both sides" if more == len(quiet) else "further"
        page.line((f"and {more} {what} (-v)", "dim"), indent=2)
    elif not shown:
        page.paragraph("  None on either side.")


def _finding(page: Page, one: FindingChange, details: bool) -> None:
    label = f"{w.STATUS_WORDS[one.status].upper() if one.status in _STYLES else w.STATUS_WORDS[one.status]}  "
    finding = one.finding
    page.paragraph(
        "  ",
        (label, _STYLES.get(one.status, "dim")),
        t.sentence(finding.title),
        (f" [{finding.rule}]", "dim"),
        f" {w.saving(one)}",
        hang=6,
    )
    if not details:
        return
    if reason := w.why(one):
        page.paragraph((reason, "dim"), indent=6, hang=6)
    if one.status in ("new", "worse"):
        if place := w.place(finding):
            page.paragraph("at ", (place, "code"), indent=6, hang=6)
        if finding.fixes:
            page.paragraph(f"Fix: {t.sentence(finding.fixes[0].title)}", indent=6, hang=6)


def _notices(page: Page, comparison: Comparison, full: bool) -> None:
    shown = comparison.notices if full else comparison.notices[:_NOTICES]
    if not shown:
        return
    page.heading("Notices")
    for notice in shown:
        page.paragraph(f"  {t.sentence(notice.message)}", (f" [{notice.code}]", "dim"), hang=4)
    if len(shown) < len(comparison.notices):
        page.line((f"  and {t.count(len(comparison.notices) - len(shown), 'more notice')} (-v)", "dim"))
