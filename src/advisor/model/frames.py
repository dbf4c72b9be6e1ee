"""The parts of a report as DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from advisor.model.report import Report

Rows = list[dict[str, Any]]


def _findings(report: Report) -> Rows:
    rows = []
    for finding in report.to_dict()["findings"]:
        place = finding["locations"][0] if finding["locations"] else {}
        rows.append(
            {
                **{key: finding[key] for key in ("rule", "family", "severity", "confidence", "title")},
                **finding["saving"],
                "fix": finding["fixes"][0]["title"] if finding["fixes"] else None,
                "file": place.get("file"),
                "line": place.get("line"),
                "fingerprint": finding["fingerprint"],
            }
        )
    return rows


def _breakdown(report: Report) -> Rows:
    """A column a cause that any GPU has; one that a GPU lacks took nothing there."""
    parts = report.to_dict()["breakdown"]
    causes = dict.fromkeys(cause for part in parts for cause in part["idle_by_cause"])
    return [
        {
            **{key: value for key, value in part.items() if key != "idle_by_cause"},
            **{f"idle_{cause.replace('-', '_')}_ns": part["idle_by_cause"].get(cause, 0) for cause in causes},
        }
        for part in parts
    ]


def _evidence(report: Report) -> Rows:
    """One row a row of evidence: `row` maps columns to values, since they differ from table to table."""
    return [
        {"rule": finding["rule"], "fingerprint": finding["fingerprint"], "caption": table["caption"], "row": dict(cells)}
        for finding in report.to_dict()["findings"]
        for table in finding["evidence"]
        for cells in (zip(table["columns"], row, strict=True) for row in table["rows"])
    ]


def _fixes(report: Report) -> Rows:
    return [
        {"rule": finding["rule"], "fingerprint": finding["fingerprint"], **fix}
        for finding in report.to_dict()["findings"]
        for fix in finding["fixes"]
    ]


def _locations(report: Report) -> Rows:
    return [
        {"rule": finding["rule"], "fingerprint": finding["fingerprint"], **place}
        for finding in report.to_dict()["findings"]
        for place in finding["locations"]
    ]


def _rules(report: Report) -> Rows:
    return [{"id": rule.id, "outcome": rule.outcome, "reason": rule.reason, "capture": rule.capture} for rule in report.rules]


def _notices(report: Report) -> Rows:
    return [dict(vars(notice)) for notice in report.notices]


_SAVING = ["low_ns", "expected_ns", "high_ns", "low_frac", "expected_frac", "high_frac", "basis"]
_OF = ["rule", "fingerprint"]
# Name of a frame -> its rows, and its columns where there are none.
FRAMES: dict[str, tuple[Callable[[Report], Rows], list[str]]] = {
    "findings": (
        _findings,
        ["rule", "family", "severity", "confidence", "title", *_SAVING, "fix", "file", "line", "fingerprint"],
    ),
    "breakdown": (_breakdown, ["rank", "device", "step_ns", "busy_ns", "compute_ns", "idle_ns"]),
    "evidence": (_evidence, [*_OF, "caption", "row"]),
    "fixes": (_fixes, [*_OF, "id", "title", "framework", "language", "snippet", "safety", "effort", "caveats", "references"]),
    "locations": (_locations, [*_OF, "file", "line", "function", "share"]),
    "rules": (_rules, ["id", "outcome", "reason", "capture"]),
    "notices": (_notices, ["code", "message"]),
}
# Whole numbers that may be absent: pandas' own integers, so that they stay whole.
_WHOLE = ("low_ns", "expected_ns", "high_ns", "line", "rank")


def frame(report: Report, name: str) -> pd.DataFrame:
    """A part of the report as a DataFrame. KeyError for a name that is none."""
    import pandas as pd

    if name not in FRAMES:
        close = get_close_matches(name, FRAMES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "there are " + ", ".join(FRAMES)
        raise KeyError(f"no frame {name!r}; {hint}")
    rows, columns = FRAMES[name]
    made = rows(report)
    columns = list(made[0]) if made else columns
    values = {column: [row[column] for row in made] for column in columns}
    return pd.DataFrame(
        {column: pd.array(cells, dtype="Int64") if column in _WHOLE else cells for column, cells in values.items()},
        columns=columns,
    )
