"""SARIF 2.1.0, as code hosts and editors read it: rules with their pages, findings as results on lines of the repository."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

from advisor.model import Finding, Location, Report, RulePage
from advisor.report import text as t
from advisor.report.json_document import plain
from advisor.report.review import Place, Review, Reviewed, review, stand_in
from advisor.report.style import Style

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
BASE = "SRCROOT"
FINGERPRINT = "gpuAdvisor/v1"
LEVELS = {"high": "error", "medium": "warning", "low": "note", "info": "note"}
_MOST_PLACES = 20  # of one result


def render(report: Report, style: Style | None = None) -> str:
    return written(review(report, style), style)


def written(found: Review, style: Style | None = None) -> str:
    pages = style.rule_pages if style else {}
    ids = list(dict.fromkeys([*(rule.id for rule in found.rules), *(one.finding.rule for one in found.findings)]))
    index = {rule: number for number, rule in enumerate(ids)}
    run = {
        "tool": {
            "driver": {
                "name": "gpu-advisor",
                "version": found.version,
                "rules": [_rule(rule, pages.get(rule), found.findings) for rule in ids],
            }
        },
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(found, index)}],
        "originalUriBaseIds": {BASE: {"description": _message("The root of the repository.")}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, index[one.finding.rule], style) for one in found.findings],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(plain(document), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _rule(name: str, page: RulePage | None, findings: list[Reviewed]) -> dict[str, Any]:
    found = [one.finding for one in findings if one.finding.rule == name]
    family = page.family if page else found[0].family if found else None
    rule: dict[str, Any] = {"id": name, "name": "".join(word.capitalize() for word in re.split(r"[^A-Za-z0-9]+", name)) or name}
    title = page.title if page else found[0].title if found else name
    rule["shortDescription"] = {"text": t.sentence(title)}
    if page:  # shown as it is, code and all: without arguments no reader looks for placeholders in it
        rule["fullDescription"] = {"text": " ".join(page.summary.split("\n\n")[0].split())}
        rule["help"] = {"text": page.summary, "markdown": page.markdown}
    level = min((LEVELS[one.severity] for one in found), key=list(LEVELS.values()).index, default="note")
    rule["defaultConfiguration"] = {"level": level}
    rule["properties"] = {"tags": ["performance", "gpu", *([family] if family else [])]}
    return rule


def _result(one: Reviewed, rule: int, style: Style | None) -> dict[str, Any]:
    finding = one.finding
    text = f"{one.headline.rstrip('.')}. {one.details[0]}"
    if finding.fixes:
        text += f" Fix: {t.sentence(finding.fixes[0].title).rstrip('.')}."
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": LEVELS[finding.severity],
        "message": _message(text),
        "locations": [_placed(place) for place in one.places[:1]] or [_unplaced(finding, style)],
        "partialFingerprints": {FINGERPRINT: one.key},
        "properties": _properties(one),
    }
    if one.places[1:]:
        result["relatedLocations"] = [
            {"id": number, **_placed(place), "message": _message(_share(place.location))}
            for number, place in enumerate(one.places[1:_MOST_PLACES], 1)
        ]
    if one.since:
        result["baselineState"] = one.since.state
    if one.accepted:
        result["suppressions"] = [{"kind": "external", "justification": "The baseline accepts this finding."}]
    return result


def _placed(place: Place) -> dict[str, Any]:
    location = _physical(place.path, place.line or 1)
    if place.location.function:
        location["logicalLocations"] = [{"name": t.clean(place.location.function), "kind": "function"}]
    return location


def _unplaced(finding: Finding, style: Style | None) -> dict[str, Any]:
    """A finding on no line of the repository: code hosts ask for a file, so one stands for the whole, and the text says so."""
    location = _physical(stand_in(style), 1)
    location["message"] = _message("The finding concerns the run: no line of the repository is known for it.")
    names = [t.place(one.file, one.line, one.function) for one in finding.locations[:_MOST_PLACES]] or [finding.rule]
    kind = "function" if finding.locations else "resource"
    location["logicalLocations"] = [{"fullyQualifiedName": t.clean(name), "kind": kind} for name in dict.fromkeys(names)]
    return location


def _physical(path: str, line: int) -> dict[str, Any]:
    artifact = {"uri": quote(path.encode("utf-8", "replace"), safe="/"), "uriBaseId": BASE}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}}}


def _share(location: Location) -> str:
    return "Also here." if location.share is None else f"{t.percent(location.share)} of the evidence comes from here."


def _properties(one: Reviewed) -> dict[str, Any]:
    finding = one.finding
    saving = finding.saving.to_dict(one.step_ns or 0) if finding.saving else {}
    known = {key: saving.get(key) for key in ("low_ns", "expected_ns", "high_ns", "expected_frac", "basis")}
    facts = {"severity": finding.severity, "confidence": finding.confidence, "fingerprint": finding.fingerprint}
    return {**facts, "failing": one.failing, "saving": known if saving else None}


def _notifications(found: Review, index: dict[str, int]) -> list[dict[str, Any]]:
    """What a reader should know first, rules that failed, and notices about the recording."""
    return [
        *({"level": "warning", "message": _message(text)} for text in found.alarms),
        *(
            {
                "level": "error",
                "message": _message(rule.reason or "the rule failed"),
                "associatedRule": {"id": rule.id, "index": index[rule.id]},
            }
            for rule in found.rules
            if rule.outcome == "error"
        ),
        *(
            {"level": "note", "message": _message(notice.message), "descriptor": {"id": t.clean(notice.code)}}
            for notice in found.notices
        ),
    ]


def _message(text: str) -> dict[str, str]:
    """A message string: braces would be placeholders and brackets before a parenthesis a link, so they are escaped."""
    line = t.clean(text).replace("{", "{{").replace("}", "}}")
    return {"text": re.sub(r"([\\\[\]])", r"\\\1", line) if "](" in line else line}
