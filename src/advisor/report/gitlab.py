"""A Code Quality report of GitLab, for `artifacts: reports: codequality`: a JSON list that the merge request shows."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from advisor.model import Report
from advisor.report.json_document import plain
from advisor.report.review import Review, Reviewed, review, stand_in
from advisor.report.style import Style

SEVERITIES = {"high": "critical", "medium": "major", "low": "minor", "info": "info"}
FAILING = "blocker"


def render(report: Report, style: Style | None = None) -> str:
    return written(review(report, style), style)


def written(found: Review, style: Style | None = None) -> str:
    """One entry a finding that the baseline does not accept, and one a condition that fails without naming a finding."""
    entries = [_finding(one, style) for one in found.findings if not one.accepted and not one.gone]
    entries += [_entry(name, text, name, FAILING, stand_in(style), 1) for name, text in found.missed]
    return json.dumps(plain(entries), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _finding(one: Reviewed, style: Style | None) -> dict[str, Any]:
    path, line = (one.places[0].path, one.places[0].line) if one.places else (stand_in(style), 1)
    severity = FAILING if one.failing else SEVERITIES[one.finding.severity]
    text = f"{one.headline.rstrip('.')}. {one.details[0]}"
    return _entry(one.finding.rule, text, one.key, severity, path, line or 1)


def _entry(check: str, text: str, key: str, severity: str, path: str, line: int) -> dict[str, Any]:
    return {
        "description": text,
        "check_name": check,
        "fingerprint": hashlib.sha256(key.encode(errors="replace")).hexdigest(),
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line}},
    }
