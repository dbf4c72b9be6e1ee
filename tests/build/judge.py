"""One rule on one run, as the report would tell it."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model import Finding, Report, Run
from advisor.rules.engine import analyze


@dataclass(frozen=True)
class Verdict:
    """What a report says about one rule. `share`: the expected saving's part of the step, 0 without a finding."""

    report: Report
    rule: str

    @property
    def outcome(self) -> str:
        return next(one.outcome for one in self.report.rules if one.id == self.rule)

    @property
    def reason(self) -> str:
        return next(one.reason for one in self.report.rules if one.id == self.rule) or ""

    @property
    def findings(self) -> list[Finding]:
        return [finding for finding in self.report.findings if finding.rule == self.rule]

    @property
    def finding(self) -> Finding:
        """The only finding; fails unless there is exactly one."""
        assert len(self.findings) == 1, (self.outcome, self.reason, self.findings)
        return self.findings[0]

    def part(self, which: str = "expected") -> float:
        """low, expected or high saving of the only finding as a share of the step."""
        saving, step = self.finding.saving, self.report.step_ns
        assert saving is not None and step
        return float(getattr(saving, f"{which}_ns")) / step


def judge(run: Run, rule: str, *others: str) -> Verdict:
    """The verdict on `rule`, with `others` judged beside it."""
    return Verdict(analyze(run, select=[rule, *others]), rule)
