"""The verdict on the step time: faster, slower, no measurable change, or nobody can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.comparing import statistics as stats
from advisor.comparing.recordings import DEFLATION_ERROR, Recording, Repeats
from advisor.model.comparison import Difference, Method, Per, StepChange, Verdict

# An interval that includes "no change" says so up to this width; a wider one says that nobody can tell.
WIDEST = 0.10
_CLOSE = 0.001
# Single recordings whose own steps leave this much open say nothing, not even that nothing changed.
_UNSTEADY = 0.3


def step_change(base: Repeats, head: Repeats, unfair: Sequence[Difference]) -> StepChange:
    """The ratio of the steps, its interval, and what that means."""
    if not base.timed or not head.timed:
        lacking = "neither side has a" if not base.timed and not head.timed else f"the {'head' if base.timed else 'base'} has no"
        return StepChange("cannot-tell", f"{lacking} step time", base.step_ns, head.step_ns)
    per: Per = "item" if base.items and head.items and base.items != head.items else "step"
    before, after = (_logs(side, per) for side in (base, head))
    method: Method = "repeats" if len(before) > 1 or len(after) > 1 else "single-recording"
    found = _interval(base.timed, head.timed, before, after)
    voided = next((one for one in unfair if "step" in one.voids), None)
    verdict, reason = _verdict(found, base.timed, head.timed, method, voided)
    recorded = head.recorded_ns / base.recorded_ns if head.recorded_ns and base.recorded_ns else None
    if recorded and per == "item":
        recorded *= (base.items or 1) / (head.items or 1)
    return StepChange(
        verdict=verdict,
        reason=reason,
        base_ns=base.step_ns,
        head_ns=head.step_ns,
        ratio=round(found.ratio, 6),
        low=round(found.low, 6),
        high=round(found.high, 6),
        recorded_ratio=None if recorded is None else round(recorded, 6),
        noise_frac=round(found.noise, 6),
        level=stats.LEVEL,
        method=method,
        per=per,
    )


def _logs(side: Repeats, per: Per) -> list[float]:
    each = math.log(side.items or 1.0) if per == "item" else 0.0
    return [math.log(one.step_ns or 1) - each for one in side.timed]


def _systematic(base: Sequence[Recording], head: Sequence[Recording]) -> float:
    """What taking out the profiler may be wrong by. Alike captures err alike, so that the difference counts."""
    one, other = (sum(each.inflation for each in side) / len(side) for side in (base, head))
    kinds = [{tuple(sorted(_kind(each).items())) for each in side} for side in (base, head)]
    together = abs(one - other) if kinds[0] == kinds[1] else math.hypot(one, other)
    return DEFLATION_ERROR * together


def _kind(recording: Recording) -> dict[str, str]:
    told = recording.report.run.get("profiler_overhead") or {}
    return {key: str(told.get(key)) for key in ("stacks", "shapes", "memory")}


def _interval(
    base: Sequence[Recording], head: Sequence[Recording], before: Sequence[float], after: Sequence[float]
) -> stats.Interval:
    systematic = _systematic(base, head)
    recordings = [*base, *head]
    within = [one.within_error for one in recordings]
    if len(before) > 1 or len(after) > 1:
        return stats.repeated(before, after, within, systematic)
    return stats.single(before[0], after[0], [*within, *(one.between_error for one in recordings), systematic])


def _verdict(
    found: stats.Interval,
    base: Sequence[Recording],
    head: Sequence[Recording],
    method: Method,
    voided: Difference | None,
) -> tuple[Verdict, str]:
    """The verdict and one sentence of why."""
    noise = f"{100 * found.noise:.{0 if found.noise >= 0.095 else 1}f} %"
    if voided is not None:
        return "cannot-tell", f"the sides are not comparable: {voided.message}"
    if found.differs:
        how = "repeats of each side" if method == "repeats" else "the spread of the steps and what runs of one program differ by"
        return ("slower" if found.log_ratio > 0 else "faster"), f"the change is beyond {how} ({noise})"
    if method == "repeats":
        if found.noise > WIDEST:
            return "cannot-tell", f"the repeats differ so much that changes below {noise} cannot be seen: record more of them"
        return "no-measurable-change", f"the sides differ by less than their repeats do; a change of {noise} would be seen"
    within = [one.within_error for one in (*base, *head)]
    alone = stats.single(0.0, found.log_ratio, within)
    if alone.noise > _UNSTEADY:
        return "cannot-tell", f"the steps of these recordings vary so much that no change below {noise} can be told"
    if alone.differs and abs(found.log_ratio) > _CLOSE:
        return "cannot-tell", (
            f"the two recordings differ, but runs of one program differ by up to {noise} as well: record repeats of each side"
        )
    return "no-measurable-change", (
        f"the recordings differ by less than their own steps do; from one recording a side no change below {noise} can be told: "
        "repeats would show smaller ones"
    )
