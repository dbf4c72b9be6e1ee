"""A Code Quality report of GitLab, for `artifacts: reports: codequality`: a JSON list that the merge request shows."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from advisor.model import Report
from advisor.report import text as t
from advisor.report.json_document import plain
from advisor.report.review import Reviewed, details, reviewed, stand_in
from advisor.report.style import Style

SEVERITIES = {"high": "critical", "medium": "major", "low": "minor", "info": "info"}
FAILING = "blocker"


def render(report: Report, style: Style | None = None) -> str:
    """One entry a finding that the baseline does not accept, and one a condition that fails without naming a finding."""
    entries = [_finding(one, report, style) for one in reviewed(report, style) if not one.accepted]
    for condition in report.gates.failing if report.gates else ():
        if not condition.findings:
            name = f"{condition.kind}:{condition.name}"
            entries.append(_entry(name, t.sentence(condition.text), name, FAILING, stand_in(style), 1))
    return json.dumps(plain(entries), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _finding(one: Reviewed, report: Report, style: Style | None) -> dict[str, Any]:
    path, line = (one.places[0].path, one.places[0].line) if one.places else (stand_in(style), 1)
    severity = FAILING if one.failing else SEVERITIES[one.finding.severity]
    text = f"{one.headline.rstrip('.')}. {details(one, report.step_ns)[0]}"
    return _entry(one.finding.rule, text, one.key, severity, path, line or 1)


def _entry(check: str, text: str, key: str, severity: str, path: str, line: int) -> dict[str, Any]:
    return {
        "description": text,
        "check_name": check,
        "fingerprint": hashlib.sha256(key.encode(errors="replace")).hexdigest(),
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line}},
    }
