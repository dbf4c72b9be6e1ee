"""Two sides of a comparison and what differs: the contract "advisor.compare/1" (docs/compare-json.md).

Times are integer nanoseconds a step, shares 0..1, absent values None. A ratio is head over base: above 1 the head is slower.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from advisor.model.report import NO_SAVING, Basis, Finding, Saving, finding_document, fraction
from advisor.model.run import Notice
from advisor.model.verdict import Verdict as Gates

SCHEMA = "advisor.compare/1"

Verdict = Literal["faster", "slower", "no-measurable-change", "cannot-tell"]
# What the interval of the step rests on: spread between repeats, or the spread of steps within one recording and a stated
# allowance for what differs between runs; none where there is no interval.
Method = Literal["repeats", "single-recording", "none"]
Per = Literal["step", "item"]
Status = Literal["new", "worse", "gone", "better", "uncovered", "faded", "first-judged", "not-judged", "folded", "same"]
Conclusion = Literal["step", "categories", "kernels", "findings", "promises"]
Kept = Literal["kept", "less", "more", "unclear"]

VERDICTS: tuple[Verdict, ...] = ("faster", "slower", "no-measurable-change", "cannot-tell")
# In the order in which they are listed. The first two are what a reviewer must see.
STATUSES: tuple[Status, ...] = (
    "new",
    "worse",
    "gone",
    "better",
    "uncovered",
    "faded",
    "first-judged",
    "not-judged",
    "folded",
    "same",
)
WORSENED: tuple[Status, ...] = ("new", "worse")


@dataclass(frozen=True)
class Side:
    """One side: its recordings, and what they have in common. `names`: the inputs as given, one a repeat.

    step_ns: the step without the profiler, the geometric mean of the repeats; recorded_ns: the same as recorded.
    run: the report's "run" object of the repeat that stands for the side (the one whose step is in the middle).
    """

    names: list[str]
    repeats: int
    step_ns: int | None
    recorded_ns: int | None
    run: dict[str, Any]
    findings: int
    items_per_step: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Difference:
    """A difference of the two sides beside the program itself. `voids`: the conclusions that it makes unfair; may be empty.

    what: a stable name in kebab-case (gpu, ranks, capture-stacks, torch-version ...); base, head: values in words.
    """

    what: str
    base: str | None
    head: str | None
    message: str
    voids: tuple[Conclusion, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "voids": list(self.voids)}


@dataclass(frozen=True)
class StepChange:
    """The verdict on the step time. base_ns and head_ns are per step; ratio and interval per `per`.

    low, high: the interval of the ratio that holds the true one with probability `level`. noise_frac: by how much the ratio
    of two recordings of the same program may differ from 1 (half the width of the interval): smaller changes cannot be seen.
    """

    verdict: Verdict
    reason: str
    base_ns: int | None = None
    head_ns: int | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    recorded_ratio: float | None = None
    noise_frac: float | None = None
    level: float = 0.95
    method: Method = "none"
    per: Per = "step"

    @property
    def change_frac(self) -> float | None:
        """Relative change of the time, whether it can be told from noise or not: 0.03 is 3 % slower."""
        return None if self.ratio is None else round(self.ratio - 1, 6)

    @property
    def regression_frac(self) -> float | None:
        """By how much the head is slower as far as that can be told from noise: 0 if it is not, None if nobody can tell."""
        if self.verdict == "cannot-tell" or self.ratio is None:
            return None
        return max(self.change_frac or 0.0, 0.0) if self.verdict == "slower" else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "base_ns": self.base_ns,
            "head_ns": self.head_ns,
            "per": self.per,
            "change_frac": self.change_frac,
            "regression_frac": self.regression_frac,
            "ratio": self.ratio,
            "ratio_low": self.low,
            "ratio_high": self.high,
            "recorded_ratio": self.recorded_ratio,
            "noise_frac": self.noise_frac,
            "level": self.level,
            "method": self.method,
        }


@dataclass(frozen=True)
class CategoryChange:
    """A part of the recorded step, the mean over GPUs and repeats. group: busy or idle. changed: more than noise and 1 %."""

    name: str
    group: Literal["busy", "idle"]
    base_ns: int
    head_ns: int
    changed: bool

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "change_ns": self.head_ns - self.base_ns}


@dataclass(frozen=True)
class KernelChange:
    """GPU time of one kernel (or of kernels whose names differ in template arguments and numbers only), a step and GPU.

    matched: by the exact name, by the normalised name, or (in `classes`) by the kind of work. A side is None where the
    kernel did not run, 0 calls never stand for that. known: False where the other side's list is cut off above this time,
    so that nobody knows whether the kernel ran there.
    """

    name: str
    kind: str
    base_ns: int | None
    head_ns: int | None
    base_calls: float | None
    head_calls: float | None
    matched: Literal["exact", "normalised", "class"] = "exact"
    changed: bool = False
    known: bool = True

    @property
    def change_ns(self) -> int:
        return (self.head_ns or 0) - (self.base_ns or 0)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "change_ns": self.change_ns}


@dataclass(frozen=True)
class KernelChanges:
    """kernels: those that changed, largest change first, at most so many; classes: every kind of work, in the same order."""

    kernels: list[KernelChange] = field(default_factory=list)
    classes: list[KernelChange] = field(default_factory=list)
    new: int = 0
    gone: int = 0
    slower: int = 0
    faster: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "new": self.new,
            "gone": self.gone,
            "slower": self.slower,
            "faster": self.faster,
            "classes": [one.to_dict() for one in self.classes],
            "kernels": [one.to_dict() for one in self.kernels],
        }


@dataclass(frozen=True)
class FindingChange:
    """A finding of either side. base, head: the finding in the report that stands for that side, None where it is not there.

    base_step_ns, head_step_ns: the steps to which the savings refer. base_seen, head_seen: in how many repeats it was found.
    paired_by: `rule` where the fingerprints differ, None where there is no counterpart. reason: why it was not judged.
    """

    status: Status
    base: Finding | None
    head: Finding | None
    base_step_ns: int | None = None
    head_step_ns: int | None = None
    base_seen: int = 0
    head_seen: int = 0
    paired_by: Literal["fingerprint", "rule"] | None = None
    reason: str | None = None

    @property
    def finding(self) -> Finding:
        """As it is now, or, where it is gone, as it was."""
        found = self.head or self.base
        assert found is not None
        return found

    @property
    def change_ns(self) -> int | None:
        """By how much the expected saving grew; None where neither side promises one."""
        savings = [one.saving.expected_ns if one and one.saving else None for one in (self.base, self.head)]
        return None if savings == [None, None] else (savings[1] or 0) - (savings[0] or 0)

    def to_dict(self) -> dict[str, Any]:
        step = self.head_step_ns if self.head else self.base_step_ns
        return {
            "status": self.status,
            "fingerprint": self.finding.fingerprint,
            "paired_by": self.paired_by,
            "reason": self.reason,
            "base_saving": _saving(self.base, self.base_step_ns),
            "head_saving": _saving(self.head, self.head_step_ns),
            "change_ns": self.change_ns,
            "base_seen": self.base_seen,
            "head_seen": self.head_seen,
            "finding": finding_document(self.finding, step or 0),
        }


def _saving(finding: Finding | None, step_ns: int | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    return finding.saving.to_dict(step_ns or 0) if finding.saving else dict(NO_SAVING)


@dataclass(frozen=True)
class Promise:
    """What the base promised for a finding that is gone."""

    rule: str
    title: str
    fingerprint: str
    saving: Saving

    def to_dict(self, step_ns: int) -> dict[str, Any]:
        head = {"rule": self.rule, "title": self.title, "fingerprint": self.fingerprint}
        return {**head, "saving": self.saving.to_dict(step_ns)}


@dataclass(frozen=True)
class Promises:
    """Promised against obtained. step_ns: the base step to which all shares refer.

    together: all gone findings mended at once; together_by: how that was found (`single`: one finding; `replay`: the base
    recording was replayed; `sum`: the sum of the single ones, limited by the base's combined saving).
    obtained_*: the time per step that the head takes less, with the interval of the step verdict; negative where it takes
    more. kept: `kept` if the two ranges meet, else `less` or `more`; `unclear` if the step cannot be compared.
    new_findings: findings of the head that eat up a part of what was obtained.
    """

    step_ns: int
    findings: list[Promise]
    together: Saving
    together_by: Literal["single", "replay", "sum"]
    obtained_ns: int | None
    obtained_low_ns: int | None
    obtained_high_ns: int | None
    kept: Kept
    new_findings: int = 0

    @property
    def basis(self) -> Basis:
        return self.together.basis

    def to_dict(self) -> dict[str, Any]:
        obtained = {"low": self.obtained_low_ns, "expected": self.obtained_ns, "high": self.obtained_high_ns}
        return {
            "kept": self.kept,
            "step_ns": self.step_ns,
            "promised": self.together.to_dict(self.step_ns),
            "promised_by": self.together_by,
            "obtained": {
                **{f"{name}_ns": ns for name, ns in obtained.items()},
                **{f"{name}_frac": None if ns is None else fraction(ns, self.step_ns) for name, ns in obtained.items()},
            },
            "new_findings": self.new_findings,
            "findings": [one.to_dict(self.step_ns) for one in self.findings],
        }


@dataclass(frozen=True)
class Comparison:
    """What became of a run. `unfair` comes first: differences of configuration; those with `voids` spoil conclusions.

    gates: what the user asked of the comparison (regressions, new and worse findings), None where nobody asked.
    """

    version: str
    base: Side
    head: Side
    step: StepChange
    unfair: list[Difference] = field(default_factory=list)
    categories: list[CategoryChange] = field(default_factory=list)
    kernels: KernelChanges | None = None
    findings: list[FindingChange] = field(default_factory=list)
    promises: Promises | None = None
    notices: list[Notice] = field(default_factory=list)
    gates: Gates | None = None

    def of(self, *statuses: Status) -> list[FindingChange]:
        """Findings of these statuses, in order: what matters most first."""
        return [one for one in self.findings if one.status in statuses]

    @property
    def worsened(self) -> list[FindingChange]:
        """New and worse findings: what machine formats show unless asked for all."""
        return self.of(*WORSENED)

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each status, all statuses in order."""
        counted = Counter(one.status for one in self.findings)
        return {status: counted[status] for status in STATUSES}

    def voided(self, conclusion: Conclusion) -> list[Difference]:
        """The differences that make this conclusion unfair."""
        return [one for one in self.unfair if conclusion in one.voids]

    def to_dict(self, all_findings: bool = False) -> dict[str, Any]:
        """Plain data exactly as docs/compare-json.md says; `findings` new and worse ones only unless all are asked for."""
        shown = self.findings if all_findings else self.worsened
        return {
            "schema": SCHEMA,
            "advisor_version": self.version,
            "unfair": [one.to_dict() for one in self.unfair],
            "step": self.step.to_dict(),
            "base": self.base.to_dict(),
            "head": self.head.to_dict(),
            "categories": [one.to_dict() for one in self.categories],
            "kernels": self.kernels.to_dict() if self.kernels else None,
            "finding_counts": self.counts,
            "findings": [one.to_dict() for one in shown],
            "promises": self.promises.to_dict() if self.promises else None,
            "notices": [dict(vars(notice)) for notice in self.notices],
            **({"gates": self.gates.to_dict()} if self.gates else {}),
        }
