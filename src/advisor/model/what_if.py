"""How long a step takes once the findings of chosen rules are mended: the contract "advisor.whatif/1"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from advisor.model.report import NO_SAVING, Outcome, Saving
from advisor.model.run import Notice


@dataclass(frozen=True)
class Mended:
    """One rule whose findings are mended alone. `findings`: their titles; saving: None where nothing is promised."""

    rule: str
    outcome: Outcome
    findings: list[str]
    saving: Saving | None
    reason: str | None = None
    capture: str | None = None


@dataclass(frozen=True)
class WhatIf:
    """`run` and `step_ns` as in a Report; alone: the rules in the order asked for; together: all of them mended at once."""

    version: str
    run: dict[str, Any]
    step_ns: int | None
    alone: list[Mended]
    together: Saving | None
    items_per_step: float | None = None
    notices: list[Notice] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data exactly as docs/report-json.md says: no NaN, absent values None."""
        return {
            "schema": "advisor.whatif/1",
            "advisor_version": self.version,
            "run": self.run,
            "step_ns": self.step_ns,
            "alone": [
                {
                    "rule": one.rule,
                    "outcome": one.outcome,
                    **({"reason": one.reason} if one.reason else {}),
                    **({"capture": one.capture} if one.capture else {}),
                    "findings": one.findings,
                    **self._then(one.saving),
                }
                for one in self.alone
            ],
            "together": self._then(self.together),
            "notices": [dict(vars(notice)) for notice in self.notices],
        }

    def _then(self, saving: Saving | None) -> dict[str, Any]:
        """The saving, and the step after it; without a saving the step stays as it is."""
        step = self.step_ns
        said = saving.to_dict(step or 0) if saving else dict(NO_SAVING)
        if not step:
            return {"saving": said, "step": dict.fromkeys(("best_ns", "expected_ns", "worst_ns"))}
        best, expected, worst = after(saving, step)
        then: dict[str, Any] = {"saving": said, "step": {"best_ns": best, "expected_ns": expected, "worst_ns": worst}}
        if self.items_per_step:
            then["items_per_second"] = round(self.items_per_step * 1e9 / max(expected, 1), 3)
        return then


def after(saving: Saving | None, step_ns: int) -> tuple[int, int, int]:
    """(shortest, expected, longest) step once the saving is made, ns."""
    if saving is None:
        return step_ns, step_ns, step_ns
    return step_ns - saving.high_ns, step_ns - saving.expected_ns, step_ns - saving.low_ns
