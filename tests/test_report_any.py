"""Any report renders in every format, and nothing that a trace names can break out of its place."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from advisor.model import Evidence, Finding, Fix, Location, Notice, Report, RuleOutcome, Saving
from advisor.report import FORMATS, render
from advisor.report.json_document import schema
from advisor.report.markdown import LIMIT
from build.any_report import HOSTILE, REPORTS
from build.reports import ALL, healthy, starved_loader

VALIDATOR = jsonschema.Draft202012Validator(schema())
ANSI = re.compile(r"\x1b\[[0-9;]*m")
OUR_HTML = re.compile(r"<details><summary>|</summary>|</details>|<br>|<!-- -->")
# Without shrinking: reports are large, and a failure would take minutes to become small.
SOME = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


@given(REPORTS, st.booleans(), st.integers(0, 300), st.integers(-1, 1), st.booleans())
@SOME
def test_any_report_renders_as_text(report: Report, color: bool, width: int, verbosity: int, unicode: bool) -> None:
    text = render(report, "text", color=color, width=width, verbosity=verbosity, unicode=unicode)
    assert text.endswith("\n")
    assert_only_our_escapes(text, color)
    if not unicode:
        assert text.isascii()


@given(REPORTS)
@SOME
def test_any_report_is_valid_json(report: Report) -> None:
    text = render(report, "json")
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    VALIDATOR.validate(document)
    assert text.isascii()
    assert render(report, "json") == text


@given(REPORTS)
@SOME
def test_any_report_is_contained_markdown(report: Report) -> None:
    text = render(report, "markdown")
    assert len(text) < LIMIT
    assert_contained(text)


def hostile_report(name: str) -> Report:
    """A report in which every text that can come from a trace or a rule is `name`."""
    finding = Finding(
        rule="launch-bound",
        family="host",
        title=name,
        severity="high",
        confidence="high",
        saving=Saving(1, 2, 3, "replay"),
        evidence=[Evidence(name, [name, "wait_ns"], [[name, 5], [name, None]])],
        locations=[Location(name, 3, name, 0.5)],
        fixes=[Fix(name, name, name, name, name, name, name, [name], [name])],
        caveats=[name],
        alternative_to=name,
    )
    report = healthy()
    report.run["sources"][0]["path"] = name
    report.run["devices"][0]["name"] = name
    return replace(
        report,
        version=name,
        findings=[finding],
        rules=[RuleOutcome(name, "not-applicable", name, name)],
        notices=[Notice(name, name)],
        extra={"good_news": [name]},
    )


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: name.encode("ascii", "backslashreplace").decode()[:20])
def test_hostile_names_stay_text(name: str) -> None:
    report = hostile_report(name)
    for color in (False, True):
        assert_only_our_escapes(render(report, "text", color=color, width=100, verbosity=1), color)
    text = render(report, "markdown")
    assert_contained(text)
    document = json.loads(render(report, "json"))
    VALIDATOR.validate(document)
    json.dumps(document, ensure_ascii=False).encode("utf-8")  # no half of a character, which other parsers refuse


def test_markup_is_printed_as_it_is() -> None:
    report = hostile_report("[red]x[/] :smile:")
    assert "[red]x[/] :smile:" in render(report, "text", width=100)
    assert "\\x1b[31mred" in render(hostile_report("\x1b[31mred"), "text", width=100, color=True)


@pytest.mark.parametrize("name", ["a|b||c", "`a`|b", "\\|", "x\\", "<b>|</b>"])
def test_cells_of_a_markdown_table_keep_their_text(name: str) -> None:
    report = starved_loader()
    report.findings[0] = replace(report.findings[0], title=name, evidence=[Evidence("e", [name, "n"], [[name, 7]])])
    tokens = MarkdownIt("commonmark").enable("table").parse(render(report, "markdown"))
    cells = [shown(tokens[i + 1]) for i, token in enumerate(tokens) if token.type in ("td_open", "th_open")]
    wanted = name.replace("`", "")  # backticks in prose make code
    assert cells[cells.index("1") + 1] == wanted
    row = cells.index("n") - 1
    assert cells[row : row + 4] == [wanted, "n", name, "7"]


def shown(token: Token) -> str:
    return "".join(child.content for child in token.children or [])


def assert_only_our_escapes(text: str, color: bool) -> None:
    rest = ANSI.sub("", text) if color else text
    assert all(character == "\n" or character.isprintable() for character in rest)


def assert_contained(text: str) -> None:
    """The Markdown holds no HTML, link or image but ours, and its folded blocks are balanced."""
    assert all(character == "\n" or character.isprintable() for character in text)
    tokens = MarkdownIt("commonmark").enable("table").enable("strikethrough").parse(text)
    depth = 0
    for token in tokens:
        for inner in [token, *(token.children or [])]:
            if inner.type in ("html_block", "html_inline"):
                rest = OUR_HTML.sub("", inner.content)
                assert "<" not in rest and ">" not in rest, inner.content
                depth += inner.content.count("<details>") - inner.content.count("</details>")
                assert depth in (0, 1)
            assert inner.type != "image"
            if inner.type == "link_open":
                assert inner.info == "auto" and str(inner.attrs["href"]).startswith("https://")
            if inner.type == "text":
                assert not re.search(r"@[A-Za-z0-9]|#\d", inner.content), inner.content
        assert token.type not in ("bullet_list_open", "ordered_list_open", "blockquote_open") or token.level in (0, 1)
        if token.type == "heading_open":
            assert token.tag == "h3"
    assert depth == 0


@pytest.mark.parametrize("format", sorted(FORMATS))
@pytest.mark.parametrize("name", sorted(ALL))
def test_same_report_same_bytes(name: str, format: str) -> None:
    assert render(ALL[name](), format) == render(ALL[name](), format)


def test_markdown_of_a_huge_report_is_cut_and_says_so() -> None:
    report = starved_loader()
    report.findings = [replace(report.findings[0], fingerprint=str(i)) for i in range(400)]
    text = render(report, "markdown")
    assert 20_000 < len(text) < LIMIT
    assert re.search(r"\d+ parts left out", text)
    assert_contained(text)


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match="no report format 'pdf'"):
        render(healthy(), "pdf")
