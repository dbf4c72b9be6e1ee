"""The report as one HTML file: opens from disk, asks no network, and whatever a recording names stays text.

Three walls, each enough alone: text becomes HTML only through `markup.text`; scripts take data from an inert JSON block and
set text, never markup; and the page's policy admits no script or style but those whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from advisor.model import Report
from advisor.report import text as t
from advisor.report.colors import PARTS
from advisor.report.html.about import about_sections
from advisor.report.html.charts import chart_sections, data
from advisor.report.html.findings import finding_sections
from advisor.report.html.markup import Html, join, tag
from advisor.report.html.overview import first_screen, where_a_step_goes
from advisor.report.style import Style
from advisor.report.summary import run_facts

STYLES = ("base", "layout", "findings", "charts", "print")
SCRIPTS = (  # in the order in which they stand on the page
    *("words", "colours", "copy", "tables", "tip", "canvas", "timeline_model", "timeline_keys", "timeline"),
    *("curves", "roofline", "ranks", "start"),
)
_CONTENTS = (
    ("verdict", "Verdict"),
    ("step", "Where a step goes"),
    ("findings", "What to fix"),
    ("also", "Also noticed"),
    ("timeline", "One step in time"),
    ("ranks", "Ranks"),
    ("memory", "Memory"),
    ("samples", "Sensors"),
    ("roofline", "Roofline"),
    ("kernels", "Kernels"),
    ("limits", "Limits"),
    ("notices", "Notices"),
    ("rules", "Rules"),
    ("about", "Made from"),
)


def render(report: Report, style: Style | None = None) -> str:
    """The whole document; the same report gives the same bytes."""
    style = style or Style()
    sections = [
        first_screen(report, style),
        where_a_step_goes(report),
        finding_sections(report, style),
        *chart_sections(report),
        *about_sections(report),
    ]
    main = Html("".join(one for one in sections if one is not None))
    body = join(
        [
            tag("a", "Skip to the report", href="#verdict", class_="skip"),
            _header(report),
            tag("div", _contents(main), tag("main", main, id="main"), class_="columns"),
            tag("footer", tag("p", f"Made by advisor {t.clean(report.version)}. Drawings: Apache ECharts, Apache License 2.0.")),
        ]
    )
    return document(_title(report), body, data(report))


def message(sentence: str, lines: list[str]) -> str:
    """A page that stands in place of a report and says why there is none."""
    said = tag("section", tag("h1", sentence), [tag("p", line) for line in lines], id="verdict")
    return document(f"advisor: {sentence}", tag("main", said, id="main", class_="columns"), "{}")


def _title(report: Report) -> str:
    return f"advisor: {t.shorten(_made_from(report), 120)}"


def _made_from(report: Report) -> str:
    """What was read, in a few words: the one file, or how many."""
    sources = report.run.get("sources")
    listed = sources if isinstance(sources, (list, tuple)) else []
    paths = list(dict.fromkeys(str(one.get("path", "?")) for one in listed if isinstance(one, dict)))
    if len(paths) == 1:
        return t.short_path(t.clean(t.shorten(paths[0], 300)), 60)
    return t.count(len(paths), "recording") if paths else "report"


def _header(report: Report) -> Html:
    facts = dict(run_facts(report))
    words = [
        _made_from(report),
        *facts.get("GPU", [])[:1],
        *(f"ranks {line}" if " " in line else line for line in facts.get("ranks", [])[:1]),
    ]
    return tag(
        "header",
        tag("p", tag("span", "advisor", class_="brand"), class_="brand-line"),
        tag("p", (tag("span", t.shorten(word, 120)) for word in words), class_="subject"),
        tag("button", "Dark", type="button", id="theme", aria_pressed="false", hidden=True),
    )


def _contents(main: Html) -> Html:
    links = [tag("li", tag("a", name, href=f"#{id}")) for id, name in _CONTENTS if f' id="{id}"' in main]
    return tag("nav", tag("ol", links), aria_label="Contents")


def document(title: str, body: Html, data: str) -> str:
    """A page with our styles and scripts; data: JSON for the charts."""
    style, library, script = _style(), _library(), _script()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(library)} {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    head = Html("\n").join(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", title),
        ]
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n<style>{style}</style>\n</head>\n<body>\n{body}\n'
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>{library}</script>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _style() -> str:
    parts = "".join(f"  --part-{name.replace('_', '-')}: {colour};\n" for name, colour in PARTS.items())
    return f"\n:root {{\n{parts}}}\n" + "\n".join(_static(f"{name}.css") for name in STYLES)


@cache
def _script() -> str:
    """Our scripts share one scope of their own; `start` comes last and runs what the others define."""
    return '\n(() => {\n"use strict";\n' + "\n".join(_static(f"{name}.js") for name in SCRIPTS) + "})();\n"


@cache
def _library() -> str:
    return files("advisor").joinpath("vendor", "echarts", "echarts.min.js").read_text("utf-8")


def _static(name: str) -> str:
    return files("advisor").joinpath("report", "html", "static", name).read_text("utf-8")
