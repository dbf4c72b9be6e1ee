"""The report as JSON: the contract "advisor.report/1", whose schema lies in schemas/report-1.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from advisor.model import Report
from advisor.report.style import Style


def render(report: Report, style: Style | None = None) -> str:
    """The document, pure ASCII: no terminal or encoding can change it, and the same report gives the same bytes."""
    return json.dumps(plain(report.to_dict()), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the document."""
    document: dict[str, Any] = json.loads(files("advisor.report").joinpath("schemas/report-1.json").read_text("utf-8"))
    return document


def plain(value: Any) -> Any:
    """The value as JSON can hold it: NumPy's become Python's, NaN and infinity null, halves of characters U+FFFD."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalar or array
        return plain(value.tolist())
    return plain(str(value))
