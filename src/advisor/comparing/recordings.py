"""A report as one measurement of a side: its step, what the report knows of its noise, and its findings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.comparing import statistics as stats
from advisor.model import Breakdown, Finding, Report, RuleOutcome, Saving
from advisor.model.comparison import Side

# How much the step of the same program differs between runs, as a standard deviation of its logarithm, by what it waits for.
# From 32 loops that were measured twice without a profiler: those paced by the GPU differed by 0.8 %, those paced by the host
# by 18 % (docs/compare.md).
GPU_VARIES = 0.01
HOST_VARIES = 0.18
# Relative error of what was taken out of the step for the profiler (docs/accuracy.md).
DEFLATION_ERROR = 0.25


@dataclass(frozen=True)
class Recording:
    """One input of a side. combined: what the findings that are gone in the head promise together, by replay of this
    recording; None where there is none (a saved report, or fewer than two such findings).
    """

    name: str
    report: Report
    combined: Saving | None = None

    @property
    def steps(self) -> dict[str, Any]:
        return self.report.run.get("steps") or {}

    @property
    def step_ns(self) -> int | None:
        return self.report.step_ns or None

    @property
    def recorded_ns(self) -> int | None:
        return self.steps.get("recorded_median_ns") or None

    @property
    def source(self) -> str:
        return str(self.steps.get("source", "none"))

    @property
    def inflation(self) -> float:
        """Logarithm of what the profiler stretched the step by."""
        if not self.step_ns or not self.recorded_ns:
            return 0.0
        return max(math.log(self.recorded_ns / self.step_ns), 0.0)

    @property
    def items(self) -> float | None:
        found = self.report.extra.get("throughput") or {}
        return found.get("items_per_step") or None

    @property
    def within_error(self) -> float:
        """Relative error of the step by the spread of the steps in this recording."""
        steps = self.steps
        samples, middle = steps.get("samples_ns") or [], self.recorded_ns or 0
        if len(samples) >= 3:
            # Where stalls belong to the run the report tells the mean, else the median.
            means = abs(float(np.mean(samples)) - middle) < abs(float(np.median(samples)) - middle)
            return stats.standard_error(samples, np.mean if means else np.median)
        return stats.spread_error(steps.get("p10_ns") or 0, steps.get("p90_ns") or 0, steps.get("count") or 0)

    @property
    def host_paced(self) -> bool:
        told = self.steps.get("paced_by")
        return told == "host" if told else self.waiting_frac > 0.3

    @property
    def waiting_frac(self) -> float:
        """Share of the step in which no GPU computes: idle, exposed communication and exposed copies."""
        steps = sum(part.step_ns for part in self.report.breakdown)
        computed = sum(part.compute_ns for part in self.report.breakdown) / steps if steps else 0.0
        return min(max(1 - computed, 0.0), 1.0)

    @property
    def between_error(self) -> float:
        """Allowance for what differs between runs, where nobody has recorded a second one."""
        waiting = self.waiting_frac
        return HOST_VARIES if self.host_paced else math.hypot(GPU_VARIES * (1 - waiting), HOST_VARIES * waiting)

    def outcome(self, rule: str) -> RuleOutcome | None:
        return next((one for one in self.report.rules if one.id == rule), None)


class Repeats:
    """All recordings of one side. `middle`: the one whose step is in the middle, which stands for the side."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self.recordings = list(recordings)
        timed = sorted((one for one in recordings if one.step_ns), key=lambda one: one.step_ns or 0)
        self.timed = [one for one in recordings if one.step_ns]
        self.middle = timed[(len(timed) - 1) // 2] if timed else self.recordings[0]

    def __len__(self) -> int:
        return len(self.recordings)

    @property
    def step_ns(self) -> int | None:
        """The geometric mean of the repeats."""
        if not self.timed:
            return None
        return round(math.exp(sum(math.log(one.step_ns or 1) for one in self.timed) / len(self.timed)))

    @property
    def recorded_ns(self) -> int | None:
        known = [one.recorded_ns for one in self.timed if one.recorded_ns]
        return round(math.exp(sum(map(math.log, known)) / len(known))) if known else None

    @property
    def items(self) -> float | None:
        found = {one.items for one in self.recordings}
        return found.pop() if len(found) == 1 else None

    def rules(self, rule: str) -> list[RuleOutcome]:
        """What each repeat says of a rule."""
        return [found for one in self.recordings if (found := one.outcome(rule)) is not None]

    def judged(self, rule: str) -> bool:
        return any(one.outcome in ("found", "clean") for one in self.rules(rule))

    def findings(self) -> dict[str, list[Finding]]:
        """Fingerprint -> the finding in each repeat that has it, in the order of the middle repeat."""
        found: dict[str, list[Finding]] = {}
        for one in [self.middle, *(other for other in self.recordings if other is not self.middle)]:
            for finding in one.report.findings:
                found.setdefault(finding.fingerprint, []).append(finding)
        return found

    def breakdowns(self) -> list[list[Breakdown]]:
        return [one.report.breakdown for one in self.recordings if one.report.breakdown]

    def side(self) -> Side:
        return Side(
            names=[one.name for one in self.recordings],
            repeats=len(self),
            step_ns=self.step_ns,
            recorded_ns=self.recorded_ns,
            run=self.middle.report.run,
            findings=len(self.middle.report.findings),
            items_per_step=self.items,
        )
