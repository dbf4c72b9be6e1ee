"""The comparison as one HTML file, made as the report's page is: no network, and whatever a recording names stays text."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model import Breakdown
from advisor.model.comparison import CategoryChange, Comparison, FindingChange, KernelChange
from advisor.report import gates
from advisor.report import text as t
from advisor.report.comparison import words as w
from advisor.report.html import bars, document
from advisor.report.html.findings import snippet
from advisor.report.html.markup import Html, figures_kept, folded, join, section, table, tag
from advisor.report.style import Style

_MOST, _CONDITIONS, _NOTICES = 300, 50, 100  # of each that are shown
_TITLE = 400
_BADGES = {"new": "high", "worse": "medium"}
_CONTENTS = (
    ("verdict", "Verdict"),
    ("promises", "Promised and obtained"),
    ("step", "Where the step changed"),
    ("findings", "Findings"),
    ("kernels", "Kernels"),
    ("configuration", "Configuration"),
    ("notices", "Notices"),
    ("about", "What was compared"),
)


def render(comparison: Comparison, style: Style | None = None, all_findings: bool = False) -> str:
    """The whole document; the same comparison gives the same bytes."""
    sections = [
        _verdict(comparison, style or Style()),
        _promises(comparison),
        _step(comparison),
        _findings(comparison),
        _kernels(comparison),
        _configuration(comparison),
        _notices(comparison),
        _about(comparison),
    ]
    main = join(one for one in sections if one is not None)
    links = [tag("li", tag("a", name, href=f"#{id}")) for id, name in _CONTENTS if f' id="{id}"' in main]
    subject = f"{_first(comparison.base.names)} against {_first(comparison.head.names)}"
    body = join(
        [
            tag("a", "Skip to the comparison", href="#verdict", class_="skip"),
            tag(
                "header",
                tag("p", tag("span", "advisor", class_="brand"), class_="brand-line"),
                tag("p", tag("span", subject), class_="subject"),
                tag("button", "Dark", type="button", id="theme", aria_pressed="false", hidden=True),
            ),
            tag(
                "div",
                tag("nav", tag("ol", links), aria_label="Contents"),
                tag("main", main, id="main"),
                class_="columns",
            ),
            tag("footer", tag("p", f"Made by advisor {t.clean(comparison.version)}.")),
        ]
    )
    return document(f"advisor: {t.shorten(subject, 120)}", body, "{}")


def _first(names: Sequence[str]) -> str:
    name = t.short_path(t.clean(t.shorten(names[0], 300)), 40) if names else "nothing"
    return name if len(names) < 2 else f"{name} and {t.count(len(names) - 1, 'more repeat')}"


def _verdict(comparison: Comparison, style: Style) -> Html:
    voids = [text for spoils, text in w.differences(comparison) if spoils]
    return tag(
        "section",
        tag("h1", figures_kept(w.headline(comparison)), id="verdict-title"),
        tag("p", f"{t.sentence(comparison.step.reason)}.", class_="cause") if comparison.step.verdict != "cannot-tell" else None,
        tag("p", t.shorten(style.note, _TITLE), class_="note") if style.note else None,
        [tag("p", f"Unfair: {text}", class_="alert", role="note") for text in voids],
        _conditions(comparison),
        tag("p", f"Findings: {w.counted(comparison)}."),
        id="verdict",
        aria_labelledby="verdict-title",
    )


def _conditions(comparison: Comparison) -> Html | None:
    if not comparison.gates:
        return None
    rows = gates.rows(comparison.gates)[:_CONDITIONS]
    lines = [[row.state, row.text, row.origin or ""] for row in rows]
    headline = t.sentence(gates.headline(comparison.gates))
    return tag(
        "div",
        tag("h2", headline, class_="fails" if any(row.fails for row in rows) else "holds"),
        table(["State", "Condition", "Set in"], lines, caption="Conditions", hidden_caption=True),
        class_="conditions",
    )


def _promises(comparison: Comparison) -> Html | None:
    promises = comparison.promises
    if promises is None:
        return None
    rows = [
        [
            t.sentence(t.shorten(one.title, _TITLE)),
            tag("code", one.rule, class_="rule"),
            t.saving_short(one.saving, promises.step_ns),
        ]
        for one in promises.findings[:_MOST]
    ]
    listed = table(["Gone", "Rule", "Promised"], rows, right=[2], caption="Findings that are gone", hidden_caption=True)
    basis = w.promise_basis(promises)
    return section("promises", "Promised and obtained", listed, tag("p", basis) if basis else None, lead=w.promise(promises))


def _step(comparison: Comparison) -> Html | None:
    parts = w.parts(comparison)
    if not parts:
        return None
    before, after = ([(one.name, ns(one)) for one in parts] for ns in (_base_ns, _head_ns))
    longest = max(sum(ns for _, ns in side) for side in (before, after)) or 1
    drawn = [
        tag(
            "div",
            tag("span", label, class_="who"),
            bars.step_bar(_as_breakdown(side), longest),
            tag("span", t.duration(sum(ns for _, ns in side), 3), class_="figure"),
            class_="step-row",
        )
        for label, side in (("base", before), ("head", after))
        if sum(ns for _, ns in side) > 0
    ]
    rows = [
        [
            join([bars.swatch(one.name), w.part_name(one)]),
            w.amount(one.base_ns),
            w.amount(one.head_ns),
            w.signed(one.head_ns - one.base_ns),
            "" if one.changed else "within noise",
        ]
        for one in parts[:_MOST]
    ]
    columns = ["Part", "Base", "Head", "Change", ""]
    figures = table(columns, rows, right=[1, 2, 3], caption="Parts of the step", hidden_caption=True)
    return section("step", "Where the step changed", drawn, figures, lead="As recorded, mean over GPUs and repeats.")


def _base_ns(one: CategoryChange) -> int:
    return one.base_ns


def _head_ns(one: CategoryChange) -> int:
    return one.head_ns


def _as_breakdown(side: list[tuple[str, int]]) -> Breakdown:
    """The parts in the form that the drawing takes."""
    amounts = dict(side)
    idle = {name: ns for name, ns in side if name not in t.BUSY_PARTS}
    compute, communication, wait, copy = (
        amounts.get(name, 0) for name in ("compute", "communication", "communication_wait", "copy")
    )
    busy = compute + communication + wait + copy
    whole = busy + sum(idle.values())
    return Breakdown(None, 0, whole, busy, compute, communication + wait, wait, copy, sum(idle.values()), idle)


def _findings(comparison: Comparison) -> Html:
    shown = comparison.findings[:_MOST]
    if not shown:
        return section("findings", "Findings", tag("p", "None on either side.", class_="good"))
    loud = [one for one in shown if one.status in ("new", "worse")]
    rest = [one for one in shown if one.status not in ("new", "worse")]
    rows = [
        [
            w.STATUS_WORDS[one.status],
            _title(one),
            tag("code", one.finding.rule, class_="rule"),
            w.saving(one),
            t.shorten(w.why(one), _TITLE),
        ]
        for one in rest
    ]
    columns = ["", "Finding", "Rule", "Saving per step", ""]
    listed = table(columns, rows, right=[3], caption="Other findings") if rows else None
    more = len(comparison.findings) - len(shown)
    return section(
        "findings",
        "Findings",
        [_card(number, one) for number, one in enumerate(loud, 1)],
        listed,
        tag("p", f"and {t.count(more, 'more finding')}, in the JSON of the comparison.", class_="quiet") if more else None,
        lead=w.counted(comparison),
    )


def _title(one: FindingChange) -> str:
    return t.sentence(t.shorten(one.finding.title, _TITLE))


def _card(number: int, one: FindingChange) -> Html:
    finding, place = one.finding, w.place(one.finding)
    head = [
        tag("span", str(number), class_="number"),
        tag(
            "span",
            tag("span", w.STATUS_WORDS[one.status], class_=f"badge {_BADGES[one.status]}"),
            tag("h3", _title(one)),
            class_="title",
        ),
        tag("span", tag("span", w.saving(one), class_="figure"), class_="saves"),
    ]
    body: list[object] = [tag("p", t.confidence(finding), ". Rule ", tag("code", finding.rule), ".")]
    if place:
        body.append(tag("p", "In your code: ", tag("code", t.shorten(place, _TITLE))))
    for fix in finding.fixes[:1]:
        body.append(tag("p", "Fix: ", tag("strong", t.shorten(fix.title, _TITLE))))
        if fix.snippet.strip():
            body.append(snippet(f"fix-{number}", fix.snippet, "Copy the code of the fix"))
    return tag("details", tag("summary", head), tag("div", body, class_="body"), class_="finding", open=number == 1)


def _kernels(comparison: Comparison) -> Html | None:
    found = comparison.kernels
    if found is None:
        return None
    lead = f"{found.slower} slower, {found.faster} faster, {found.new} new, {found.gone} gone"
    rows = [*(_kernel(f"all {one.name}", one) for one in found.classes if one.changed)]
    rows += [_kernel(w.kernel_name(one), one) for one in found.kernels[:_MOST]]
    if not rows:
        return section("kernels", "Kernels", tag("p", "None changed beyond noise."), lead=lead)
    columns = ["Kernel", "Base", "Head", "Change"]
    return section("kernels", "Kernels", table(columns, rows, right=[1, 2, 3], caption="Time a step and GPU"), lead=lead)


def _kernel(name: str, one: KernelChange) -> list[object]:
    return [tag("code", t.shorten(name, 200)), w.amount(one.base_ns), w.amount(one.head_ns), w.kernel_state(one)]


def _configuration(comparison: Comparison) -> Html | None:
    told = w.differences(comparison)
    if not told:
        return None
    return section("configuration", "Configuration", tag("ul", (tag("li", text) for _, text in told[:_MOST])))


def _notices(comparison: Comparison) -> Html | None:
    if not comparison.notices:
        return None
    items = [tag("li", t.sentence(one.message), " ", tag("code", one.code)) for one in comparison.notices[:_NOTICES]]
    return section("notices", "Notices", tag("ul", items))


def _about(comparison: Comparison) -> Html:
    sides = []
    for label, side in (("Base", comparison.base), ("Head", comparison.head)):
        names = [tag("li", t.shorten(name, 300)) for name in side.names[:_NOTICES]]
        sides.append(tag("p", f"{label}: {w.side(side)}"))
        if len(names) > 1:
            sides.append(folded(t.count(side.repeats, "repeat"), tag("ul", names)))
    return section("about", "What was compared", sides)
