"""The HTML page in a real browser: it draws, answers to pointer and keys, prints, and executes nothing that a trace names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from advisor.comparing import Recording, compare
from advisor.model import Report
from advisor.report import render
from advisor.report.comparison import render as compared
from advisor.report.html import message
from build import comparisons as pairs
from build.pages import ATTACKS, full_report, hostile_report
from build.reports import ALL, healthy

Open = Callable[..., Any]
TIMELINE = "#timeline .canvas"


@pytest.fixture(scope="module")
def report() -> Report:
    return full_report()


def ink(page: Any, selector: str) -> int:
    """How many different colours the canvas of a chart shows."""
    return page.evaluate(
        """(selector) => {
            const canvas = document.querySelector(selector + " canvas");
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const seen = new Set();
            for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
            return seen.size;
        }""",
        selector,
    )


def window(page: Any) -> tuple[float, float]:
    """What the timeline shows, ns."""
    box = page.locator(TIMELINE)
    return float(box.get_attribute("data-from")), float(box.get_attribute("data-to"))


def centre_of(page: Any, kind: str, at: int = 0) -> tuple[float, float]:
    """Where on the screen a rectangle of the first track of a kind is."""
    place = page.evaluate(
        """([kind, at]) => {
            const chart = echarts.getInstanceByDom(document.querySelector("#timeline .canvas"));
            const data = JSON.parse(document.getElementById("data").textContent);
            const t = data.timelines[0].tracks.findIndex((track) => track.kind === kind);
            const rectangle = chart.getOption().series[1].data.filter((one) => one[4] === t)[at];
            const [from, to, top, height] = rectangle;
            const [x, y] = chart.convertToPixel({ gridIndex: 0 }, [(from + to) / 2, top + height / 2]);
            const box = document.querySelector("#timeline .canvas").getBoundingClientRect();
            return [box.x + x, box.y + y];
        }""",
        [kind, at],
    )
    return place[0], place[1]


def test_every_chart_draws(opened: Open, report: Report) -> None:
    page = opened(report)
    for chart in ("timeline", "ranks", "steps", "memory", "samples", "roofline", "moving"):
        page.locator(f"[data-chart={chart}]").first.scroll_into_view_if_needed()
        assert ink(page, f"[data-chart={chart}] .canvas") > 8, chart


def test_the_timeline_zooms_and_pans_by_keys(opened: Open, report: Report) -> None:
    page = opened(report)
    page.locator(TIMELINE).focus()
    whole = window(page)
    assert whole[0] == 0 and whole[1] > 1_000_000
    page.keyboard.press("+")
    near = window(page)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
    page.keyboard.press("ArrowRight")
    right = window(page)
    assert right[0] > near[0] and right[1] - right[0] == pytest.approx(near[1] - near[0], abs=2)
    page.keyboard.press("a")
    assert window(page)[0] == pytest.approx(near[0], abs=2)
    page.keyboard.press("-")
    page.keyboard.press("0")
    assert window(page) == whole


def test_the_timeline_zooms_by_wheel_and_buttons(opened: Open, report: Report) -> None:
    page = opened(report)
    page.locator(TIMELINE).scroll_into_view_if_needed()
    whole = window(page)
    page.mouse.move(*centre_of(page, "stream", 3))
    page.mouse.wheel(0, -240)  # without Ctrl the page scrolls
    page.wait_for_timeout(200)
    assert window(page) == whole
    page.mouse.move(*centre_of(page, "stream", 3))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -240)
    page.keyboard.up("Control")
    page.wait_for_function("Number(document.querySelector('#timeline .canvas').dataset.from) > 0")
    near = window(page)
    assert near[1] - near[0] < whole[1] - whole[0]
    page.get_by_role("button", name="Whole step").click()
    assert window(page) == whole
    page.get_by_role("button", name="Zoom in").click()
    assert window(page)[1] - window(page)[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)


def test_hover_tells_what_a_rectangle_is(opened: Open, report: Report) -> None:
    page = opened(report)
    page.locator(TIMELINE).scroll_into_view_if_needed()
    page.mouse.move(*centre_of(page, "stream", 2))
    tip = page.locator(".tip")
    tip.wait_for(state="visible")
    words = tip.inner_text()
    assert "sgemm_128x128" in words or "vectorized_elementwise_kernel" in words
    assert "stream 7" in words and "from" in words
    page.mouse.move(5, 5)
    tip.wait_for(state="hidden")


def test_a_click_selects_and_leads_to_the_launch(opened: Open, report: Report) -> None:
    page = opened(report)
    page.locator(TIMELINE).scroll_into_view_if_needed()
    page.mouse.click(*centre_of(page, "stream", 2))
    assert "after its launch" in page.locator("#timeline .details").inner_text()
    page.locator(TIMELINE).focus()
    before = page.locator("#timeline .details").inner_text()
    page.keyboard.press(".")
    assert page.locator("#timeline .details").inner_text() != before
    page.keyboard.press("ArrowUp")
    assert "stream 7" not in page.locator("#timeline .details").inner_text()


def test_a_finding_shows_where_it_is(opened: Open, report: Report) -> None:
    page = opened(report)
    button = page.get_by_role("button", name="Show in the timeline").first
    card = page.locator(".finding", has=button).first
    fingerprint = card.get_attribute("data-fingerprint")
    before = page.evaluate(
        "echarts.getInstanceByDom(document.querySelector('#timeline .canvas')).getOption().series[2].data.length"
    )
    button.click()
    after = page.evaluate(
        "echarts.getInstanceByDom(document.querySelector('#timeline .canvas')).getOption().series[2].data.length"
    )
    assert report.pictures is not None and fingerprint is not None
    marked = report.pictures.timelines[0].highlights[fingerprint]
    assert after - before == len(marked.start_ns) > 0
    shown = window(page)
    assert all(shown[0] <= start <= shown[1] for start in marked.start_ns)
    assert "chosen" in card.get_attribute("class")
    assert page.locator("#timeline-finding").input_value() == fingerprint
    assert page.evaluate("document.activeElement.closest('#timeline') !== null")
    page.locator("#timeline-finding").select_option("")
    assert "chosen" not in card.get_attribute("class")


def test_another_rank_can_be_looked_at(opened: Open, report: Report) -> None:
    page = opened(report)
    assert report.pictures is not None
    assert page.locator("#timeline-rank option").count() == len(report.pictures.timelines) == 2
    page.locator("#timeline-rank").select_option("1")
    assert window(page)[1] == report.pictures.timelines[1].duration_ns


@pytest.mark.parametrize("key", [None, "Enter"])
def test_snippets_copy(opened: Open, report: Report, key: str | None) -> None:
    page = opened(report, permissions=["clipboard-read", "clipboard-write"])
    button = page.locator(".finding[open] button.copy").first
    button.focus()
    if key is None:
        button.click()
    else:
        page.keyboard.press(key)
    page.wait_for_function("document.querySelector('.finding[open] button.copy').textContent === 'Copied'")
    wanted = page.locator(f"#{button.get_attribute('data-copies')}").text_content()
    assert wanted and page.evaluate("navigator.clipboard.readText()") == wanted


def test_the_table_of_kernels_sorts_and_searches(opened: Open, report: Report) -> None:
    page = opened(report)
    rows = page.locator("#kernel-table tbody tr")
    everything = rows.count()

    def column(i: int) -> list[float]:
        return [float(value) for value in rows.evaluate_all(f"all => all.map(row => row.cells[{i}].dataset.value)") if value]

    assert column(1) == sorted(column(1), reverse=True)
    head = page.locator("#kernel-table thead th")
    calls = page.get_by_role("button", name="calls a step")
    calls.focus()
    page.keyboard.press("Enter")
    assert column(3) == sorted(column(3), reverse=True) and head.nth(3).get_attribute("aria-sort") == "descending"
    calls.click()
    assert column(3) == sorted(column(3)) and head.nth(3).get_attribute("aria-sort") == "ascending"
    assert head.nth(1).get_attribute("aria-sort") is None
    page.get_by_role("searchbox", name="Search").fill("SGEMM 128")
    assert rows.locator("visible=true").count() == 1 and page.locator("#kernel-count").inner_text() == f"1 of {everything}"
    page.get_by_role("searchbox", name="Search").fill("")
    assert rows.locator("visible=true").count() == everything


def background(page: Any) -> int:
    return sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))


def test_dark_follows_the_system_and_the_button(opened: Open, report: Report) -> None:
    light, dark = opened(report, color_scheme="light"), opened(report, color_scheme="dark")
    assert background(light) > 700 and background(dark) < 150
    light.get_by_role("button", name="Switch to dark colours").click()
    assert background(light) < 150
    dark.get_by_role("button", name="Switch to light colours").click()
    assert background(dark) > 700


CONTRAST = """() => {
    const luminance = (rgb) => {
        const [r, g, b] = rgb.map((c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour.length === 3 || colour[3] > 0.99) return colour.slice(0, 3);
        }
        return [255, 255, 255];
    };
    const bad = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const element = walk.currentNode.parentElement;
        const left_out = element.closest("script, noscript, svg") || !element.checkVisibility();
        if (left_out || !walk.currentNode.textContent.trim()) continue;
        const [a, b] = [luminance(parse(getComputedStyle(element).color).slice(0, 3)), luminance(behind(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) bad.push(`${ratio.toFixed(2)}: ${element.className} ${element.textContent.slice(0, 40)}`);
    }
    return bad;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(opened: Open, report: Report, scheme: str) -> None:
    page = opened(report, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate(CONTRAST) == []


def test_every_control_has_a_name_and_is_reached_by_keys(opened: Open, report: Report) -> None:
    page = opened(report)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, a, select, input, summary, [tabindex='0']")]
            .filter((one) => one.checkVisibility())
            .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length))
            .map((one) => one.outerHTML.slice(0, 100))"""
    )
    assert unnamed == []
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map((one) => Number(one.tagName[1]))")
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    for landmark in ("main", "navigation", "banner", "contentinfo"):
        assert page.get_by_role(landmark).count() == 1, landmark
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("width", [360, 768, 1360])
def test_nothing_is_wider_than_the_screen(opened: Open, report: Report, width: int) -> None:
    page = opened(report, width=width, height=800)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_readable_without_scripts(opened: Open, report: Report) -> None:
    page = opened(report, java_script_enabled=False)
    text = page.locator("main").inner_text()
    for finding in report.findings:
        assert finding.title.split(":")[0][1:] in text
    assert "The drawing needs JavaScript" in text and "sgemm_128x128" in text
    assert page.get_by_role("button", name="Copy").count() == 0


def test_paper_shows_everything(opened: Open, report: Report, tmp_path: Path) -> None:
    page = opened(report, color_scheme="dark")
    page.evaluate(
        """addEventListener("beforeprint", () => {
            window.folded = document.querySelectorAll("main details:not([open])").length;
            window.paper = getComputedStyle(document.body).backgroundColor;
            const canvas = document.querySelector("#timeline canvas");
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            window.inked = new Set(Array.from({ length: data.length / 4 }, (_, i) => data[4 * i])).size;
        })"""
    )
    before = page.locator("main details:not([open])").count()
    page.pdf(path=tmp_path / "report.pdf", print_background=True)
    assert page.evaluate("window.inked") > 20
    assert before > 0 and page.evaluate("window.folded") == 0 and page.evaluate("window.paper") == "rgb(255, 255, 255)"
    assert page.locator("main details:not([open])").count() == before and background(page) < 150


def test_paper_shows_everything_also_without_scripts(opened: Open, report: Report) -> None:
    page = opened(report, java_script_enabled=False)
    snippets = page.locator(".finding:not([open]) .snippet")
    assert snippets.count() > 0 and not snippets.first.is_visible()
    page.emulate_media(media="print")
    assert all(one.is_visible() for one in snippets.all())


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_hostile_names_are_text(opened: Open, attack: str) -> None:
    page = opened(hostile_report(ATTACKS[attack]))
    for folded in page.locator("details").all()[:40]:
        folded.evaluate("one => { one.open = true; }")
    page.locator(TIMELINE).scroll_into_view_if_needed()
    page.mouse.move(*centre_of(page, "stream", 1))
    page.locator(".tip").wait_for(state="visible")
    page.mouse.click(*centre_of(page, "host", 1))
    page.locator("#timeline-rank").select_option("1")
    assert page.locator("img, iframe, object, embed, base, form").count() == 0
    assert page.locator("script").count() == 3 and page.locator("style").count() <= 2
    assert page.locator("#timeline .details").inner_text()


@pytest.mark.parametrize("name", sorted(ALL))
def test_reports_without_pictures_open(opened: Open, name: str) -> None:
    page = opened(ALL[name]())
    assert page.locator("h1").inner_text()
    assert page.locator("[data-chart]").count() == 0


def test_the_page_that_stands_for_no_report_opens(opened: Open) -> None:
    page = opened(message("No <recording> was found.", ["Looked for: <script>alert(1)</script>"]), color_scheme="dark")
    assert page.locator("h1").inner_text() == "No <recording> was found." and background(page) < 150


def test_the_policy_stops_what_is_not_ours(opened: Open, browser: Any, tmp_path: Path) -> None:
    """The test of the tests: with a script of somebody else in the page the policy speaks up, and nothing runs."""
    file = tmp_path / "injected.html"
    file.write_text(
        render(healthy(), "html").replace("</main>", "<script>window.hit = 1</script><img src='https://e.org/'></main>")
    )
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    assert page.evaluate("window.hit") is None
    assert len([text for text in said if "Content Security Policy" in text]) == 2, json.dumps(said)
    page.close()


@pytest.mark.parametrize("attack", ["script", "image", "quotes", "end of data", "turned", "nul", "surrogate", "long"])
def test_hostile_names_are_text_in_a_comparison_too(opened: Open, attack: str) -> None:
    name = ATTACKS[attack]
    base, head = (
        pairs.report(ms, [pairs.finding("launch-bound", saved, title=name)], kernels={name: ms})
        for ms, saved in ((20, 1), (26, 6))
    )
    page = opened(compared(compare([Recording(name, base)], [Recording(name, head)]), "html", note=name))
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.locator("img, iframe, object, embed, base, form").count() == 0
    assert page.locator("script").count() == 3 and "Slower" in page.locator("h1").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
