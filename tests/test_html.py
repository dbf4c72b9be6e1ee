"""The HTML page as text: what is in it, that names stay text, and that its policy admits only its own scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner
from hypothesis import given

from advisor.cli import cli
from advisor.model import Accepted, BaselineVerdict, Condition, Report, Verdict
from advisor.report import render
from advisor.report.html import bars, findings
from advisor.report.html.markup import Html, tag, text
from build.any_report import HOSTILE, REPORTS
from build.pages import ATTACKS, full_report, hostile_report
from build.recordings import write_kineto
from build.reports import ALL, healthy, starved_loader
from test_report_any import SOME

VOID = {"meta", "input", "br"}
ELEMENTS = """
html head title style script body a header p span button div nav ol ul li main section h1 h2 h3 h4 dl dt dd table caption thead
tbody tr th td details summary code pre strong svg rect circle text figure noscript select option label output footer input
"""
ATTRIBUTES = """
class id href rel type hidden open lang charset content name title role tabindex scope for value autocomplete spellcheck
http-equiv width height x y cx cy r rx
"""


class Page(HTMLParser):
    """What a browser would see: elements (with their attributes), the text of each script and style, and all other text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.raw:
            self.raw[self._open[-1]][-1] += data
        else:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:80]}")

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def checked(page: str) -> Page:
    """The page, after what must hold for every one: only our elements, nothing that runs or loads but what the policy names."""
    seen = Page(page)
    ids = [about["id"] for _, about in seen.elements if "id" in about]
    assert len(ids) == len(set(ids))
    for name, about in seen.elements:
        assert name in VOID or name in ELEMENTS.split(), name
        for key, value in about.items():
            assert key in ATTRIBUTES.split() or key.startswith(("aria-", "data-")), (name, key)
            if key == "href":
                assert value and value.startswith(("#", "https://")), value
            if key == "href" and value and value.startswith("#"):
                assert value[1:] in ids, value
    assert [name for name, _ in seen.elements].count("script") == 3
    (policy,) = [about["content"] for _, about in seen.elements if about.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    data, *scripts = seen.raw["script"]
    assert re.search(r"script-src ([^;]*)", policy)[1].split() == [hashed(script) for script in scripts]  # type: ignore[index]
    assert re.search(r"style-src ([^;]*)", policy)[1].split() == [hashed(style) for style in seen.raw["style"]]  # type: ignore[index]
    assert data.isascii() and not re.search(r"[<>&]", data)
    json.loads(data, parse_constant=lambda name: pytest.fail(name))
    assert all(character.isprintable() or character == "\n" for character in page)
    return seen


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@given(REPORTS)
@SOME
def test_any_report_is_a_contained_page(report: Report) -> None:
    page = render(report, "html")
    checked(page)
    assert page.endswith("</html>\n") and render(report, "html") == page


@pytest.mark.parametrize("name", [*HOSTILE, *ATTACKS.values()], ids=lambda name: ascii(name)[:24])
def test_hostile_names_stay_text(name: str) -> None:
    seen = checked(render(hostile_report(name), "html"))
    assert len("".join(seen.words)) < 600_000


def test_a_name_is_shown_as_it_is() -> None:
    assert "<img src=x onerror=alert(1)>" in checked(render(hostile_report(ATTACKS["image"]), "html")).text
    assert "\\u202eevil" in checked(render(hostile_report(ATTACKS["turned"]), "html")).text
    assert "a\\x00b\\x1b[31mc" in checked(render(hostile_report(ATTACKS["nul"]), "html")).text


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_page_says_what_the_report_says(name: str) -> None:
    report = ALL[name]()
    seen = checked(render(report, "html"))
    for finding in report.findings:
        assert finding.title in seen.text
        for fix in finding.fixes:
            assert " ".join(fix.snippet.split()) in seen.text and fix.title in seen.text
        for table in finding.evidence:
            assert table.caption in seen.text
    for notice in report.notices:
        assert notice.code in seen.text
    for rule in report.rules:
        assert rule.id in seen.text
        assert not rule.capture or rule.capture in seen.text
    assert "made from a saved report" in seen.text  # no pictures in these


def test_a_healthy_run_shows_what_is_good() -> None:
    seen = checked(render(healthy(), "html"))
    assert "Nothing worth fixing was found" in seen.text and "Attention runs as one fused kernel." in seen.text
    assert "no rule found anything worth fixing" in seen.text


def test_weak_findings_stand_apart() -> None:
    report = starved_loader()
    page = render(report, "html")
    apart = page.index('id="also"')
    for finding in report.findings:
        promises = finding.saving is not None and finding.confidence != "low" and finding.severity != "info"
        assert (page.index(f'data-fingerprint="{finding.fingerprint}"') < apart) == promises


def test_every_picture_has_its_figures_in_words() -> None:
    report = full_report()
    assert report.pictures is not None
    seen = checked(render(report, "html"))
    charts = [about["data-chart"] for name, about in seen.elements if name == "figure"]
    assert charts == ["timeline", "ranks", "steps", "memory", "samples", "samples", "roofline", "moving"]
    for words in ("What each track holds", "Longest times without GPU work", "Parts of the step by GPU", "Each step by rank"):
        assert words in seen.text
    for words in ("Memory of the caching allocator", "Samples in figures", "Kernels and their roofs", "sgemm_128x128"):
        assert words in seen.text
    data = json.loads(seen.raw["script"][0])
    assert "kernels" not in data and data["timelines"] and data["findings"][0]["fingerprint"] == report.findings[0].fingerprint


def test_a_picture_that_is_missing_says_why() -> None:
    report = full_report()
    assert report.pictures is not None
    report.pictures.memory.clear()
    report.pictures.missing["memory"] = "no memory events <were> recorded"
    assert "No memory events <were> recorded" in checked(render(report, "html")).text


def test_a_huge_report_stays_below_four_megabytes() -> None:
    report = starved_loader()
    first = report.findings[0]
    first.evidence[0].rows[:] = [["x" * 5_000, 1, 2, 0.5]] * 5_000
    report.findings = [first] * 2_000
    page = render(report, "html")
    assert len(page.encode()) < 4 << 20
    assert "1,800 more findings left out of this page" in Page(page).text


@pytest.mark.parametrize(("reference", "linked"), [("https://docs.pytorch.org/a?b=c#d", True), ("javascript:alert(1)", False)])
def test_only_addresses_of_the_web_are_links(reference: str, linked: bool) -> None:
    assert findings.link(reference).startswith("<a ") == linked
    assert not findings.link('https://x.org/"onclick="alert(1)').startswith("<a ")


def test_conditions_stand_on_the_first_screen_and_accepted_findings_apart() -> None:
    report = starved_loader()
    failed = Condition(
        "step-time", "budget", "failed", "step time is <58.6 ms>, at most 50 ms are allowed", origin="advisor.toml, line 3"
    )
    kept = report.findings[1]
    held = BaselineVerdict("b.json", 0.1, (Accepted(kept.fingerprint, kept.rule, kept.title, "accepted"),))
    report.gates = Verdict((failed,), baseline=held)
    page = render(report, "html", note="main at 1a2b <3c>")
    seen = checked(page)
    assert "1 of 1 condition failed" in seen.text and "step time is <58.6 ms>" in seen.text and "main at 1a2b <3c>" in seen.text
    assert page.index("advisor.toml, line 3") < page.index('id="step"')
    assert f'data-fingerprint="{kept.fingerprint}"' not in page and f"accepted: {kept.rule}" in seen.text


def test_markup_escapes_all_but_its_own() -> None:
    assert tag("p", "<b>", Html("<i></i>"), None, ["&", 1], class_='a"b', hidden=True, id=None) == (
        '<p class="a&quot;b" hidden>&lt;b&gt;<i></i>&amp;1</p>'
    )
    assert len(text("x" * 10**6)) == 2000
    assert len(text("\x00" * 10**6)) <= 2000


def test_drawings_keep_within_their_width() -> None:
    assert bars.percent(-1) == "0%" and bars.percent(2) == "100%" and bars.percent(1 / 3) == "33.3333%"
    assert [bars.scale([share]) for share in (0.01, 0.05, 0.3, 0.81, 7)] == [0.05, 0.05, 0.4, 1.0, 1.0]


def test_from_the_command_line(tmp_path) -> None:
    trace = write_kineto(tmp_path / "t.json")
    done = CliRunner().invoke(cli, ["analyze", str(trace), "--format", "html", "-o", str(tmp_path / "report.html")])
    assert (done.exit_code, done.output) == (0, "")
    seen = checked((tmp_path / "report.html").read_text("utf-8"))
    assert any(about.get("data-chart") == "timeline" for _, about in seen.elements)
