"""Generated pages are up to date, links lead somewhere, and every key of the JSON report is documented."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"(?<!\\)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(generate: ModuleType) -> None:
    stale = [name for name in generate.stale() if not _only_wrapping(generate, name)]
    assert stale == [], "run: python docs/generate.py"


def _only_wrapping(generate: ModuleType, name: str) -> bool:
    """Versions of click wrap help texts at other places: that makes no page stale."""
    path, wanted = DOCS / name, generate.pages().get(Path(name))
    return name == "cli.md" and path.is_file() and wanted is not None and path.read_text("utf-8").split() == wanted.split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text("utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        assert file.exists(), f"{page.name} links to {target}"
        assert file.is_relative_to(ROOT), f"{page.name} links out of the project: {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{page.name} links to a heading that does not exist: {target}"


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as code hosts make them."""
    text = FENCE.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text("utf-8")
    for page in DOCS.glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, f"docs/index.md does not name {page.name}"


def test_every_key_of_the_json_report_is_documented() -> None:
    from advisor.report.json_document import schema

    text = (DOCS / "report-json.md").read_text("utf-8")
    keys = set(schema_keys(schema(), schema()))
    assert {"run.steps.median_ns", "findings[].evidence[].rows", "breakdown[].idle_by_cause"} <= keys
    for key in keys:
        assert f"| `{key}` |" in text, f"docs/report-json.md lacks {key}"


def schema_keys(node: dict[str, Any], document: dict[str, Any], where: str = "") -> Iterator[str]:
    for key, value in node.get("properties", {}).items():
        yield where + key
        inner = value.get("items", value)
        if "$ref" in inner:
            inner = document["$defs"][inner["$ref"].rsplit("/", 1)[1]]
        yield from schema_keys(inner, document, f"{where}{key}{'[]' if value.get('type') == 'array' else ''}.")


def test_python_in_the_docs_compiles() -> None:
    for page in PAGES:
        for language, code in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            if language == "python":
                compile(code, str(page), "exec")


def test_fields_that_nvidia_smi_is_asked_for_are_read() -> None:
    from advisor.ingest.nvidia_smi.fields import SAMPLES

    known = {name for meaning in SAMPLES for name in meaning.query}
    asked = re.findall(r"--query-gpu=(\S+)", (DOCS / "how-to-capture.md").read_text("utf-8"))
    assert len(asked) == 1
    for field in [*asked[0].split(","), "clocks_throttle_reasons.active"]:
        assert field in known


def test_words_of_the_report_are_explained() -> None:
    """What the report calls things, the page that explains the report calls so too."""
    from advisor.report import text

    page = (DOCS / "reading-the-report.md").read_text("utf-8")
    for word in [*text.IDLE_CAUSES.values(), *text.BASIS_MEANING.values()]:
        assert f"| {word} |" in page or f" {word} |" in page, word
    assert text.IDLE_CAUSES.keys() == set(activity_causes())


def activity_causes() -> tuple[str, ...]:
    from advisor.derive.activity import CAUSES

    return CAUSES
