"""The baseline: findings that were there when it was written, and that do not count until they get worse."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.gates.files import FileError, read_text
from advisor.model import Accepted, BaselineVerdict, Finding, Report
from advisor.model.report import REPORTED_UNDER, SEVERITIES, fraction

SCHEMA = "advisor.baseline/1"
MARGIN = 0.05  # share of the step by which a saving may grow: repeats of one loop differ by less


@dataclass(frozen=True)
class Entry:
    """A finding as it was accepted. expected_ns, step_ns: its saving and the step of that recording, None without a promise."""

    fingerprint: str
    rule: str
    title: str
    severity: str
    expected_ns: int | None = None
    step_ns: int | None = None

    @property
    def expected_frac(self) -> float | None:
        return None if self.expected_ns is None else fraction(self.expected_ns, self.step_ns or 0)


@dataclass(frozen=True)
class Baseline:
    """The entries of a file, in order of rule and fingerprint."""

    version: str
    entries: tuple[Entry, ...]
    date: str | None = None


def accept(findings: Iterable[Finding], step_ns: int | None) -> list[Entry]:
    """Today's findings as entries."""
    return [
        Entry(
            one.fingerprint,
            one.rule,
            one.title,
            one.severity,
            one.saving.expected_ns if one.saving else None,
            step_ns if one.saving else None,
        )
        for one in findings
    ]


def written(baseline: Baseline) -> str:
    """The file: the same findings give the same bytes, one entry changes one block of lines."""
    entries = sorted(baseline.entries, key=lambda entry: (entry.rule, entry.fingerprint))
    document: dict[str, Any] = {"schema": SCHEMA, "advisor_version": baseline.version}
    if baseline.date:
        document["date"] = baseline.date
    document["findings"] = [dict(vars(entry)) for entry in entries]
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def read(path: Path) -> Baseline:
    """The baseline in a file. FileError, one line that names file and place, for anything else."""
    if not os.path.lexists(path) and "\0" not in str(path):
        raise FileError(f"{path}: no such file; advisor baseline PATH... writes a baseline")
    text = read_text(path)
    try:
        document = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise FileError(f"{path}: no valid JSON: {reason}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise FileError(f"{path}: is no baseline ('schema' is not {SCHEMA!r}); write one with advisor baseline")
    listed = document.get("findings")
    if not isinstance(listed, list):
        raise FileError(f"{path}: 'findings' is no list")
    entries = {}
    for place, value in enumerate(listed, 1):
        entry = _entry(path, place, value)
        if entry.fingerprint in entries:
            raise FileError(f"{path}: finding {place}: {entry.fingerprint!r} is there twice")
        entries[entry.fingerprint] = entry
    date = document.get("date")
    return Baseline(str(document.get("advisor_version", "")), tuple(entries.values()), date if isinstance(date, str) else None)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _entry(path: Path, place: int, value: object) -> Entry:
    if not isinstance(value, dict):
        raise FileError(f"{path}: finding {place}: is no object")
    texts = [value.get(key) for key in ("fingerprint", "rule", "title")]
    if not all(isinstance(text, str) and text for text in texts):
        raise FileError(f"{path}: finding {place}: needs the texts 'fingerprint', 'rule' and 'title'")
    numbers = [value.get(key) for key in ("expected_ns", "step_ns")]
    if any(not (number is None or (type(number) is int and 0 <= number < 1 << 63)) for number in numbers):
        raise FileError(f"{path}: finding {place}: 'expected_ns' and 'step_ns' are whole numbers of nanoseconds, or null")
    severity = value.get("severity", "info")
    if severity not in SEVERITIES:
        raise FileError(f"{path}: finding {place}: 'severity' is none of {', '.join(SEVERITIES)}")
    fingerprint, rule, title = map(str, texts)
    return Entry(fingerprint, rule, title, severity, *numbers)


def against(baseline: Baseline, report: Report, path: str, margin: float = MARGIN) -> BaselineVerdict:
    """What became of each entry, and which findings are new."""
    now = {finding.fingerprint: finding for finding in report.findings}
    outcomes = {rule.id: rule for rule in report.rules}
    entries = []
    for entry in baseline.entries:
        finding = now.get(entry.fingerprint)
        saving = finding.saving.expected_ns if finding and finding.saving else None
        if finding is not None:
            state: Any = "worse" if _worse(entry, finding, report.step_ns, margin) else "accepted"
        else:
            outcome = outcomes.get(entry.rule)
            judged = outcome is not None and outcome.outcome in ("found", "clean")
            folded = outcome is not None and (outcome.reason or "").startswith(REPORTED_UNDER)
            state = "fixed" if judged and not folded else "not-judged"
        entries.append(Accepted(entry.fingerprint, entry.rule, entry.title, state, entry.expected_ns, saving))
    known = {entry.fingerprint for entry in baseline.entries}
    return BaselineVerdict(path, margin, tuple(entries), tuple(name for name in now if name not in known))


def _worse(entry: Entry, finding: Finding, step_ns: int | None, margin: float) -> bool:
    """Whether the saving grew by more than the margin, in time and as a share of the step.

    Both: mending another finding makes the share of this one larger, a larger batch makes its time longer, and neither makes
    it worse. Without a saving: whether the danger became greater.
    """
    if finding.saving is None:
        return entry.expected_ns is None and SEVERITIES.index(finding.severity) < SEVERITIES.index(entry.severity)
    then, then_share = entry.expected_ns or 0, entry.expected_frac or 0.0
    share = fraction(finding.saving.expected_ns, step_ns or 0) or 0.0
    longer = finding.saving.expected_ns - then > margin * (entry.step_ns or step_ns or 0)
    return longer and share - then_share > margin and math.isfinite(share)


def pruned(baseline: Baseline, found: BaselineVerdict) -> Baseline:
    """Without the entries that are fixed; the others as they are."""
    gone = {entry.fingerprint for entry in found.of("fixed")}
    return Baseline(baseline.version, tuple(entry for entry in baseline.entries if entry.fingerprint not in gone), baseline.date)


def updated(baseline: Baseline, report: Report, version: str, date: str | None) -> Baseline:
    """Today's findings; entries that this recording cannot judge stay as they are."""
    found = against(baseline, report, "")
    blind = {entry.fingerprint for entry in found.of("not-judged")}
    kept = [entry for entry in baseline.entries if entry.fingerprint in blind]
    return Baseline(version, (*accept(report.findings, report.step_ns), *kept), date)
