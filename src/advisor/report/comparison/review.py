"""A comparison as formats for code hosts are written from it: new and worse findings, and the step as a check of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from advisor.model.comparison import WORSENED, Comparison, FindingChange, Status
from advisor.report import text as t
from advisor.report.comparison import words as w
from advisor.report.review import BaselineState, Review, Since, reviewed
from advisor.report.style import Style

# Of findings that the head has, and of those that are gone. What nobody could judge in the head is neither there nor gone.
_STATES: Mapping[Status, BaselineState] = {
    "new": "new",
    "first-judged": "new",
    "worse": "updated",
    "better": "updated",
    "uncovered": "updated",
    "same": "unchanged",
    "folded": "unchanged",
    "gone": "absent",
}


def review(comparison: Comparison, style: Style | None = None, all_findings: bool = False) -> Review:
    """New and worse findings only, unless all are asked for."""
    changes = comparison.findings if all_findings else comparison.worsened
    shown = [one for one in changes if one.status in _STATES and (one.head is not None or one.status == "gone")]
    promise = [w.promise(comparison.promises)] if comparison.promises else []
    return Review(
        version=comparison.version,
        findings=reviewed(
            [(one.finding, one.head_step_ns if one.head else one.base_step_ns, _since(one)) for one in shown],
            comparison.gates,
            style.source if style else None,
        ),
        summary=" ".join([w.headline(comparison), f"Findings: {w.counted(comparison)}.", *promise]),
        rules=[],
        gates=comparison.gates,
        alarms=[f"Unfair comparison: {text}" for voids, text in w.differences(comparison) if voids],
        notices=comparison.notices,
        checks=[("step time", _step(comparison), w.headline(comparison))],
    )


def _since(one: FindingChange) -> Since:
    told = {"new": "new since the base", "worse": f"worse than in the base ({w.saving(one)})"}.get(one.status)
    return Since(_STATES[one.status], told or t.sentence(w.STATUS_WORDS[one.status]), one.status in WORSENED)


def _step(comparison: Comparison) -> Literal["passed", "failed", "not-judged"]:
    verdict = comparison.step.verdict
    return "failed" if verdict == "slower" else "not-judged" if verdict == "cannot-tell" else "passed"
