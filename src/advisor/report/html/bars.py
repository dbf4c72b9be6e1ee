"""Drawings that need no script: the step as a stacked bar, a saving as a range, now beside then. Inline SVG.

Lengths are attributes in percent of the drawing's width, colours are classes: the page's policy allows no inline style.
"""

from __future__ import annotations

from advisor.model import Breakdown, Saving
from advisor.report import text as t
from advisor.report.html.markup import Html, tag
from advisor.report.summary import parts

_LABEL_FROM = 0.09  # share of the drawing from which on a part carries its share as a label
NAMES = {**t.BUSY_PARTS, **{cause: f"idle: {words}" for cause, words in t.IDLE_CAUSES.items()}}


def percent(share: float) -> str:
    """A length for SVG: four decimals are a hundredth of a pixel."""
    return f"{min(max(share, 0.0), 1.0) * 100:.4f}".rstrip("0").rstrip(".") + "%"


def colour(part: str) -> str:
    """Class that gives a part its colour; a cause that nobody declared is grey."""
    return f"part-{part.replace('_', '-')}" if part in NAMES else "part-unexplained"


def swatch(part: str) -> Html:
    return tag("span", class_=f"swatch {colour(part)}", aria_hidden="true")


def step_bar(part: Breakdown, longest_ns: int) -> Html:
    """One GPU's step; the longest fills the width. The figures stand in the table below it."""
    amounts = {name: ns for name, ns in parts(part).items() if ns > 0}
    ordered = [name for name in NAMES if name in amounts] + [name for name in amounts if name not in NAMES]
    shapes, at = [], 0
    for name in ordered:
        share = amounts[name] / part.step_ns
        hint = tag("title", f"{NAMES.get(name, name)}: {t.duration(amounts[name])}, {t.percent(share)}")
        shapes.append(
            tag(
                "rect",
                hint,
                x=percent(at / longest_ns),
                width=percent(amounts[name] / longest_ns),
                height="100%",
                class_=colour(name),
            )
        )
        at += amounts[name]
    labels = []
    at = 0
    for name in ordered:
        if amounts[name] / longest_ns >= _LABEL_FROM:
            middle = percent((at + amounts[name] / 2) / longest_ns)
            labels.append(tag("text", t.percent(amounts[name] / part.step_ns), x=middle, y="50%", class_=f"on-{colour(name)}"))
        at += amounts[name]
    spoken = "; ".join(f"{NAMES.get(name, name)} {t.percent(amounts[name] / part.step_ns)}" for name in ordered)
    return tag("svg", shapes, labels, class_="bar", width="100%", height="34", role="img", aria_label=spoken or "nothing")


def scale(shares: list[float]) -> float:
    """The end of the axis that all ranges share: the next of 5, 10, 20, 40, 60, 80, 100 %."""
    most = max(shares, default=0.0)
    return next((end for end in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8) if most <= end), 1.0)


def saving_range(saving: Saving, step_ns: int, end: float, per: str = "a step") -> Html:
    """From low to high, the expected one marked, on an axis from 0 to `end` of the step."""
    low, expected, high = (min(ns / step_ns / end, 1.0) for ns in (saving.low_ns, saving.expected_ns, saving.high_ns))
    return tag(
        "svg",
        tag("rect", x="0", y="8", width="100%", height="6", rx="3", class_="range-track"),
        tag("rect", x=percent(low), y="8", width=percent(high - low), height="6", class_="range-span"),
        tag("rect", x="0", y="8", width=percent(low), height="6", rx="3", class_="range-sure"),
        tag("circle", cx=percent(expected), cy="11", r="6", class_="range-mark"),
        class_="range",
        width="100%",
        height="22",
        role="img",
        aria_label=f"saves {t.saving_long(saving, step_ns, per)}",
    )


def now_and_then(step_ns: int, saving: Saving) -> Html:
    """The step as it is above the step with everything mended, with the span in which that may lie."""
    then = {
        key: max(step_ns - ns, 0) for key, ns in (("long", saving.low_ns), ("mid", saving.expected_ns), ("short", saving.high_ns))
    }
    shares = {key: ns / step_ns for key, ns in then.items()}
    spread = t.duration_range(then["short"], then["long"], 3)

    def row(label: str, figure: str, *shapes: Html, hint: str, more: str = "") -> list[Html]:
        drawn = tag("svg", shapes, width="100%", height="22", role="img", aria_label=hint)
        return [
            tag("dt", label),
            tag("dd", drawn, class_="drawn"),
            tag("dd", figure, tag("span", more, class_="share") if more else None, class_="figure"),
        ]

    return tag(
        "dl",
        row(
            "now",
            t.duration(step_ns, 3),
            tag("rect", x="0", y="4", width="100%", height="14", rx="3", class_="bar-now"),
            hint=f"now {t.duration(step_ns, 3)}",
        ),
        row(
            "with all fixes",
            t.duration(then["mid"], 3),
            tag("rect", x="0", y="4", width="100%", height="14", rx="3", class_="range-track"),
            tag("rect", x="0", y="4", width=percent(shares["mid"]), height="14", rx="3", class_="bar-then"),
            tag(
                "rect",
                x=percent(shares["short"]),
                y="10",
                width=percent(shares["long"] - shares["short"]),
                height="2",
                class_="whisker",
            ),
            hint=f"with all fixes {t.duration(then['mid'], 3)}, {spread}",
            more=spread if spread != t.duration(then["mid"], 3) else "",
        ),
        class_="now-then",
    )


def split(breakdown: list[Breakdown]) -> tuple[list[str], list[dict[str, int]]]:
    """Names of the parts that occur in any of them, in their order, and the parts of each."""
    amounts = [parts(part) for part in breakdown]
    names = [name for name in NAMES if any(one.get(name, 0) > 0 for one in amounts)]
    others = sorted({name for one in amounts for name, ns in one.items() if ns > 0 and name not in NAMES})
    return names + others, amounts
