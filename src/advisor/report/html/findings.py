"""Findings as cards that unfold: the saving as a range, evidence, places in the source, fixes to copy."""

from __future__ import annotations

import re
from dataclasses import replace

from advisor.model import Evidence, Finding, Fix, Location, Report
from advisor.report import gates
from advisor.report import text as t
from advisor.report.html import bars
from advisor.report.html.markup import Html, code_block, folded, section, table, tag, text
from advisor.report.style import Style

MOST = 200  # findings; a report of more is no longer read by anybody
ROOM = 600_000  # characters of cards in full; later ones show their saving, places and first fix
NOTHING = "Nothing: no rule found anything worth fixing."
_OPEN = 1  # cards that are unfolded at the start
_ROWS, _FIXES, _PLACES, _NOTES = 100, 12, 50, 30
_ROWS_SHOWN = 8
_LINK = re.compile(r"https://[\w./#?=&%~+:,@-]+", re.ASCII)


def finding_sections(report: Report, style: Style) -> Html:
    """The sections of findings: what promises a saving, and apart from it weaker evidence and what only informs."""
    main, also = (gates.standing(report, found) for found in t.sections(report))
    cut = len(main) + len(also) - MOST
    main, also = main[:MOST], also[: max(MOST - len(main), 0)]
    end = bars.scale([finding.saving.high_ns / report.step_ns for finding in main if finding.saving and report.step_ns])
    card = _Cards(report, style, end)
    blocks = []
    if main:
        cards = [card(i, finding, open=i <= _OPEN) for i, finding in enumerate(main, 1)]
        blocks.append(
            section(
                "findings",
                "What to fix",
                _axis(end) if report.step_ns else None,
                cards,
                lead="Largest saving first. Each saving counts as if only that one were fixed; "
                "the bar, a share of the step, runs from the low to the high estimate, and the dot is what to expect.",
            )
        )
    if also:
        cards = [card(i, finding, open=not main and i <= _OPEN) for i, finding in enumerate(also, len(main) + 1)]
        blocks.append(
            section(
                "also",
                "Also noticed" if main else "Noticed",
                cards,
                lead="Weaker evidence, or no saving to promise." if main else "No firm saving to promise.",
            )
        )
    if not main and not also:
        blocks.append(section("findings", "What to fix", tag("p", NOTHING, class_="good")))
    if cut > 0:
        blocks.append(tag("p", f"{t.count(cut, 'more finding')} left out of this page; the JSON report has all.", class_="quiet"))
    return Html("".join(blocks))


def _axis(end: float) -> Html:
    return tag(
        "div",
        tag("span", "0"),
        tag("span", t.percent(end / 2)),
        tag("span", t.percent(end)),
        class_="axis",
        aria_hidden="true",
    )


class _Cards:
    """Makes cards, in full as long as there is room."""

    def __init__(self, report: Report, style: Style, end: float) -> None:
        self.report, self.style, self.end, self.left = report, style, end, ROOM

    def __call__(self, number: int, finding: Finding, open: bool) -> Html:
        made = _card(number, finding, self.report, self.style, self.end, open)
        if len(made) > self.left:
            brief = replace(finding, evidence=[], fixes=finding.fixes[:1], locations=finding.locations[:5])
            made = _card(number, brief, self.report, self.style, self.end, open)
        self.left -= len(made)
        return made


def _card(number: int, finding: Finding, report: Report, style: Style, end: float, open: bool) -> Html:
    saving, step_ns = finding.saving, report.step_ns or 0
    summary = [
        tag("span", str(number), class_="number"),
        tag(
            "span",
            tag("span", finding.severity, class_=f"badge {finding.severity}"),
            tag("h3", t.sentence(t.shorten(finding.title, 400)), id=f"finding-{number}-title"),
            class_="title",
        ),
        tag(
            "span",
            tag("span", _figure(finding, report.step_ns), class_="figure"),
            bars.saving_range(saving, step_ns, end, t.per_step(report)) if saving is not None and step_ns else None,
            class_="saves",
        ),
    ]
    body = [
        _promise(finding, report.step_ns, t.per_step(report)),
        tag(
            "p",
            tag("button", "Show in the timeline", type="button", class_="show", data_finding=finding.fingerprint, hidden=True),
            class_="actions",
        ),
        [_evidence(table) for table in finding.evidence[:8] if table.columns],
        _places(finding.locations, style),
        [_fix(f"fix-{number}-{i}", fix, first=i == 0) for i, fix in enumerate(finding.fixes[:_FIXES])],
        _notes(finding.caveats),
        _rule(finding),
    ]
    return tag(
        "details",
        tag("summary", summary),
        tag("div", body, class_="body"),
        class_="finding",
        id=f"finding-{number}",
        open=open,
        data_fingerprint=finding.fingerprint,
    )


def _rule(finding: Finding) -> Html:
    explain = tag("code", f"advisor explain {t.shorten(finding.rule, 80)}")
    family = t.shorten(t.clean(finding.family), 80)
    return tag("p", f"Family {family}. What this rule measures, and why: ", explain, class_="quiet")


def _figure(finding: Finding, step_ns: int | None) -> str:
    saving = finding.saving
    if saving is None:
        return "no promise"
    shares = saving.to_dict(step_ns or 0)
    if not saving.expected_ns:
        return f"up to {t.percent(shares['high_frac'])}" if step_ns else f"up to {t.duration(saving.high_ns)}"
    return t.percent(shares["expected_frac"]) if step_ns else t.duration(saving.expected_ns)


def _promise(finding: Finding, step_ns: int | None, per: str) -> Html:
    lines = []
    if finding.saving is not None:
        lines.append(tag("p", "Saves ", tag("strong", t.saving_long(finding.saving, step_ns, per)), "."))
    if finding.cost_per_day:
        lines.append(tag("p", "Worth ", tag("strong", f"{t.money(finding.cost_per_day)} a day"), " on the job's GPUs."))
    lines.append(tag("p", t.confidence(finding), "."))
    if finding.alternative_to:
        lines.append(tag("p", "Competes for the same time as ", tag("code", finding.alternative_to), ": mend one of them."))
    return tag("div", lines, class_="promise")


def _evidence(evidence: Evidence) -> Html:
    evidence = t.evidence_table(evidence)
    columns = evidence.columns[:16]
    rows, right = [], set(range(len(columns)))
    for row in evidence.rows[:_ROWS]:
        cells: list[object] = []
        for i, (column, value) in enumerate(zip(columns, row, strict=False)):
            figure = value is None or isinstance(value, (int, float))
            if not figure:
                right.discard(i)
            shown = t.cell(column, t.shorten(value, 400) if isinstance(value, str) else value)
            cells.append(shown if figure else tag("code", shown))
        rows.append(cells + [""] * (len(columns) - len(cells)))
    heads = [t.heading(t.shorten(column, 80)) for column in columns]
    caption = t.sentence(t.shorten(evidence.caption, 400))
    shown_table = table(heads, rows[:_ROWS_SHOWN], right=right, caption=caption, head=False)
    more = []
    if len(rows) > _ROWS_SHOWN:
        rest = table(heads, rows[_ROWS_SHOWN:], right=right, caption=f"{caption}, continued", head=False, hidden_caption=True)
        more.append(folded(f"{t.count(len(rows) - _ROWS_SHOWN, 'more row')}", rest))
    if len(evidence.rows) > _ROWS:
        more.append(tag("p", f"and {t.count(len(evidence.rows) - _ROWS, 'more row')}, in the JSON report.", class_="quiet"))
    return tag("div", shown_table, more, class_="evidence")


def _places(locations: list[Location], style: Style) -> Html | None:
    if not locations:
        return None
    items = []
    for location in locations[:_PLACES]:
        place = t.place(t.shorten(location.file, 300), location.line, location.function and t.shorten(location.function, 200))
        share = "" if location.share is None else f" {t.percent(location.share)}"
        line = style.source.line(location) if style.source else None
        items.append(
            tag("li", tag("code", place), tag("span", share, class_="quiet"), tag("pre", tag("code", line)) if line else None)
        )
    more = len(locations) - _PLACES
    return tag(
        "div",
        tag("h4", "In your code"),
        tag("ul", items, class_="places"),
        tag("p", f"and {t.count(more, 'more place')}", class_="quiet") if more > 0 else None,
    )


def _fix(id: str, fix: Fix, first: bool) -> Html:
    title = t.shorten(t.clean(t.shorten(fix.title, 400)), 400)
    kind = t.fix_kind(fix)
    body: list[object] = []
    if fix.snippet.strip():
        body.append(snippet(id, fix.snippet, f"Copy the code of: {title}"))
    body.append(_notes(fix.caveats))
    if fix.references:
        body.append(tag("p", "Read on: ", _joined([link(one) for one in fix.references[:_NOTES]]), class_="references"))
    head = [tag("span", "Fix" if first else "Or", class_="which"), tag("strong", title), tag("span", kind, class_="quiet")]
    if first:
        return tag("div", tag("h4", head), body, class_="fix")
    return folded(head, tag("div", body), class_="fix")


def snippet(id: str, code: str, label: str) -> Html:
    """Code in a box with a button that copies it; the button is there only where a script can serve it."""
    return tag(
        "div",
        tag("button", "Copy", type="button", class_="copy", data_copies=id, aria_label=label, hidden=True),
        tag("pre", tag("code", code_block(code), id=id), tabindex="0", role="group", aria_label="Code"),
        class_="snippet",
    )


def _notes(caveats: list[str]) -> Html | None:
    if not caveats:
        return None
    return tag("ul", (tag("li", t.shorten(note, 1000)) for note in caveats[:_NOTES]), class_="notes")


def link(reference: str) -> Html:
    """A link if it is nothing but an address of the web, else the text."""
    if not _LINK.fullmatch(reference) or len(reference) > 500:
        return text(reference)
    return tag("a", reference.removeprefix("https://"), href=reference, rel="noopener noreferrer")


def _joined(items: list[Html]) -> Html:
    return Html(", ".join(items))
