"""The first screen: the verdict, the figures that matter, where a step goes."""

from __future__ import annotations

import re

from advisor.model import Breakdown, Report
from advisor.report import gates
from advisor.report import text as t
from advisor.report.html import bars
from advisor.report.html.markup import Html, figures_kept, folded, section, table, tag
from advisor.report.style import Style
from advisor.report.summary import LITTLE, alerts, limits, verdict

_BARS = 16  # GPUs drawn one by one; the heat map shows more
_COLUMNS = 8  # GPUs side by side in the table below the bars
_ROWS = 256
_CONDITIONS = 50
_NOTHING = 1e-4  # share of a step below which a part is not listed: roundings


def first_screen(report: Report, style: Style) -> Html:
    """Verdict in words, then as figures and as a bar."""
    first, rest = _sentences(verdict(report))
    combined = report.combined
    promising = bool(report.step_ns and combined and combined.expected_ns >= LITTLE * report.step_ns)
    drawn = bars.now_and_then(report.step_ns, combined) if report.step_ns and combined and combined.high_ns else None
    return tag(
        "section",
        tag("h1", figures_kept(first), id="verdict-title"),
        tag("p", figures_kept(rest), class_="cause") if rest else None,
        tag("p", t.shorten(style.note, 400), class_="note") if style.note else None,
        [tag("p", line, class_="alert", role="note") for line in alerts(report)],
        _conditions(report),
        drawn,
        _tiles(report),
        _good_news(report),
        id="verdict",
        aria_labelledby="verdict-title",
        class_="promising" if promising else "fine",
    )


def _sentences(words: str) -> tuple[str, str]:
    """The first sentence, which is the heading, and what follows it."""
    first, *rest = re.split(r"(?<=[.;]) +(?=[A-Z0-9])", words, maxsplit=1)
    return first, "".join(rest)


def _conditions(report: Report) -> Html | None:
    """What was asked of the run: what fails first; below it the findings that the baseline accepts."""
    verdict = report.gates
    if not verdict:
        return None
    rows = gates.rows(verdict)[:_CONDITIONS]
    entries = gates.entries(verdict)[:_CONDITIONS]
    failing = any(row.fails for row in rows)
    advice = gates.advice(verdict)
    lines = [[row.state, row.text, row.origin or ""] for row in rows]
    listed = tag("ul", (tag("li", f"{row.state}: {row.text}") for row in entries))
    return tag(
        "div",
        tag("h2", t.sentence(gates.headline(verdict)), class_="fails" if failing else "holds") if rows else None,
        table(["State", "Condition", "Set in"], lines, caption="Conditions", hidden_caption=True) if rows else None,
        folded(f"Baseline: {t.count(len(entries), 'finding')}", listed) if entries else None,
        tag("p", advice, class_="quiet") if advice else None,
        class_="conditions",
    )


def _tiles(report: Report) -> Html:
    main, also = (gates.standing(report, found) for found in t.sections(report))
    whole = sum(max(part.step_ns, 0) for part in report.breakdown)
    tiles: list[tuple[str, str, str | None]] = []
    if report.step_ns:
        tiles.append((t.per_step(report).replace("of the", "the"), t.duration(report.step_ns, 3), None))
    if whole:
        tiles.append(("GPU computes", t.percent(sum(part.compute_ns for part in report.breakdown) / whole), None))
        tiles.append(("GPU idle", t.percent(sum(part.idle_ns for part in report.breakdown) / whole), "#step"))
        exposed = sum(part.exposed_communication_ns for part in report.breakdown)
        if exposed:
            tiles.append(("exposed communication", t.percent(exposed / whole), "#step"))
    tiles.append(("to fix" if len(main) != 1 else "thing to fix", f"{len(main)}", "#findings" if main else None))
    if also:
        tiles.append(("hint" if len(also) == 1 else "hints", f"{len(also)}", "#also"))
    judged = sum(rule.outcome in ("found", "clean") for rule in report.rules)
    if report.rules:
        tiles.append(("rules judged", f"{judged} of {len(report.rules)}", "#rules"))
    return tag("ul", (_tile(*tile) for tile in tiles), class_="tiles")


def _tile(label: str, value: str, target: str | None) -> Html:
    inner = [tag("span", value, class_="value"), Html(" "), tag("span", label, class_="label")]
    return tag("li", tag("a", inner, href=target) if target else tag("div", inner))


def _good_news(report: Report) -> Html | None:
    news = report.extra.get("good_news")
    lines = [line for line in news[:20] if isinstance(line, str)] if isinstance(news, (list, tuple)) else []
    good = [line for fine, line in limits(report)[:20] if fine]
    if not lines and not good:
        return None
    return tag(
        "div",
        tag("h2", "Already good"),
        tag("ul", (tag("li", t.sentence(t.shorten(line, 600))) for line in [*lines, *good]), class_="checks"),
        class_="good-news",
    )


def where_a_step_goes(report: Report) -> Html | None:
    shown = [part for part in report.breakdown if part.step_ns > 0]
    if not shown:
        return None
    longest = max(part.step_ns for part in shown)
    drawn = shown
    if len(shown) > _BARS:
        drawn = sorted(sorted(shown, key=lambda part: -part.step_ns)[:_BARS], key=lambda part: shown.index(part))
    several = len(shown) > 1
    rows = [
        tag(
            "div",
            tag("span", label(part), class_="who") if several else None,
            bars.step_bar(part, longest),
            tag("span", t.duration(part.step_ns, 3), class_="figure"),
            class_="step-row",
        )
        for part in drawn
    ]
    lead = f"{t.duration(longest, 3)} as recorded"
    if report.step_ns and abs(longest - report.step_ns) > 0.02 * report.step_ns:
        lead += (
            f", with what the profiler added; verdict and savings refer to the step without it, {t.duration(report.step_ns, 3)}"
        )
    if len(drawn) < len(shown):
        lead += f". The {len(drawn)} slowest of {len(shown)} GPUs"
    small = len(shown) <= _COLUMNS
    return section(
        "step",
        t.breakdown_title(t.per_step(report)),
        tag("div", rows, class_="step-bars"),
        _by_part(shown) if small else _legend(shown),
        None if small else folded("All GPUs as a table", _by_gpu(shown)),
        lead=f"{lead}.",
    )


def label(part: Breakdown) -> str:
    return f"GPU {part.device}" if part.rank is None else f"rank {part.rank}, GPU {part.device}"


def _name(part: str) -> list[Html]:
    return [bars.swatch(part), tag("span", bars.NAMES.get(part, f"idle: {t.clean(part)}"))]


def _by_part(shown: list[Breakdown]) -> Html:
    """Legend and figures in one: a row a part, a column a GPU."""
    names, amounts = bars.split(shown)
    rows = []
    for name in names:
        if all(one.get(name, 0) < _NOTHING * part.step_ns for one, part in zip(amounts, shown, strict=True)):
            continue
        cells: list[object] = [_name(name)]
        for one, part in zip(amounts, shown, strict=True):
            ns = one.get(name, 0)
            cells.append(tag("span", t.duration(ns), tag("span", t.percent(ns / part.step_ns), class_="share")))
        rows.append(cells)
    columns = ["Part of the step", *(label(part) for part in shown)]
    return table(columns, rows, right=range(1, len(columns)), caption="Parts of the step", hidden_caption=True)


def _by_gpu(shown: list[Breakdown]) -> Html:
    names, amounts = bars.split(shown)
    rows = [
        [label(part), t.duration(part.step_ns, 3), *(t.percent(one.get(name, 0) / part.step_ns) for name in names)]
        for one, part in zip(amounts[:_ROWS], shown[:_ROWS], strict=True)
    ]
    columns = ["GPU", "step", *(bars.NAMES.get(name, name) for name in names)]
    return table(columns, rows, right=range(1, len(columns)), caption="The step of each GPU by part", hidden_caption=True)


def _legend(shown: list[Breakdown]) -> Html:
    names, _ = bars.split(shown)
    return tag("ul", (tag("li", _name(name)) for name in names), class_="legend")
