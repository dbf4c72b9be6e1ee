"""The page of a comparison: only our elements, whatever the recordings name, and what it shows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from advisor.comparing import Recording, compare
from advisor.model import Report
from advisor.report.comparison import render
from build.any_report import HOSTILE, REPORTS
from build.comparisons import finding, report
from test_compare_golden import mended, unchanged, unfair
from test_html import SOME, checked


@given(REPORTS, REPORTS)
@SOME
def test_any_comparison_is_a_contained_page(base: Report, head: Report) -> None:
    checked(render(compare([Recording("b", base)], [Recording("h", head)]), "html"))


def test_hostile_names() -> None:
    name = "".join(HOSTILE) + "<img src=x onerror=alert(1)>"
    base = report(20, [finding("launch-bound", 4, title=name)], kernels={name: 3.0})
    head = report(14, [finding(name, 4, title=name)], seed=2, kernels={"a": 3.0}, world_size=7)
    seen = checked(render(compare([Recording(name, base)], [Recording(name, head)]), "html", note=name))
    assert "onerror" in seen.text and not any("onerror" in about for _, about in seen.elements)


def test_what_the_page_shows() -> None:
    seen = checked(render(mended(), "html"))
    assert "Faster: 20 ms → 14 ms a step, 30 % less time" in seen.text and "as promised" in seen.text
    assert [about.get("aria-label") for name, about in seen.elements if name == "svg"] == [
        "compute 60 %; idle: kernel launches 40 %",
        "compute 93 %; idle: kernel launches 7.1 %",
    ]
    assert seen.text.index("new") < seen.text.index("worse")
    ids = {about.get("id") for _, about in seen.elements}
    assert {"verdict", "promises", "step", "findings", "kernels", "configuration", "notices", "about"} <= ids


def test_what_is_unfair_is_an_alert() -> None:
    seen = checked(render(unfair(), "html"))
    assert [about["class"] for name, about in seen.elements if about.get("role") == "note"] == ["alert"]
    assert "Cannot tell whether the step changed" in seen.text


def test_small_and_the_same_bytes() -> None:
    page = render(unchanged(), "html")
    assert page == render(unchanged(), "html") and len(page) < 2_000_000


@pytest.mark.parametrize("count", [1000])
def test_many_findings(count: int) -> None:
    many = [finding("launch-bound", 0.5, str(i), title="t" * 1000) for i in range(count)]
    base, head = report(20), report(20, many, seed=2)
    assert len(render(compare([Recording("b", base)], [Recording("h", head)]), "html")) < 4_000_000


def test_figures_of_the_verdict_stay_with_their_units() -> None:
    heading = re.search("<h1[^>]*>(.*?)</h1>", render(mended(), "html"), re.DOTALL)
    assert heading is not None and '<span class="keep">30 %</span>' in heading[1]
