"""The comparison as JSON: the contract "advisor.compare/1", whose schema lies in schemas/compare-1.json."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from advisor.model.comparison import Comparison
from advisor.report.json_document import plain
from advisor.report.style import Style


def render(comparison: Comparison, style: Style | None = None, all_findings: bool = False) -> str:
    """The document, pure ASCII; the same comparison gives the same bytes."""
    return json.dumps(plain(comparison.to_dict(all_findings)), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the document."""
    document: dict[str, Any] = json.loads(files("advisor.report").joinpath("schemas/compare-1.json").read_text("utf-8"))
    return document
