"""Allowed regressions: whether the second side of a comparison got worse by more than a limit, noise taken into account."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from advisor.gates import expression as x
from advisor.gates.amounts import told
from advisor.gates.judge import OPTION, Asked, counted, matching, unset
from advisor.model import Condition, Finding, Verdict
from advisor.model.comparison import Comparison
from advisor.model.verdict import State


@dataclass(frozen=True)
class Part:
    """What can get worse. categories: parts of the step in a comparison, together; none for the step and for memory."""

    words: str
    meaning: str
    categories: tuple[str, ...] = ()


_CATEGORY = "Time of this part, as a share of the base step, that the head may take more: {}"

PARTS: dict[str, Part] = {
    "step-time": Part("step time", "Time of a step (of an item, where both sides know the items a step)"),
    "memory-peak": Part("peak of GPU memory", "Most memory in use on a GPU, relative to the base"),
    **{
        name: Part(words, _CATEGORY.format(words), tuple(category.split()))
        for name, words, category in (
            ("compute", "compute kernels", "compute"),
            ("exposed-communication", "exposed communication, waiting included", "communication communication_wait"),
            ("waiting-for-ranks", "waiting for other ranks", "communication_wait"),
            ("exposed-copies", "exposed copies", "copy"),
            ("idle-dataloader", "idle time by data loading", "dataloader"),
            ("idle-host-sync", "idle time by host synchronisation", "host-sync"),
            ("idle-launch", "idle time by kernel launches", "launch"),
            ("idle-python", "idle time by Python", "python"),
            ("idle-memory-management", "idle time by memory management", "memory-management"),
            ("idle-unexplained", "unexplained idle time", "unexplained"),
        )
    },
}


@dataclass(frozen=True)
class Limit:
    """By how much `part` may get worse: a share. name: as the condition is called."""

    name: str
    part: str
    share: float
    origin: str | None = None


def limits(asked: Asked, allowed: Mapping[str, tuple[float, str | None]]) -> list[Limit]:
    """All limits: those of the configuration (part -> share and where it was set), and those of `--fail-on`.

    `regression` without a limit stands for the configured one of its part; where none is set, nothing may get worse.
    """
    found = {part: Limit(part, part, share, origin) for part, (share, origin) in allowed.items()}
    for written, term, origin in asked.terms:
        if not isinstance(term, x.Regression):
            continue
        if term.limit is not None:
            found[written] = Limit(written, term.what, term.limit, origin)
        elif term.what not in allowed:
            found[written] = Limit(written, term.what, 0.0, origin)
    return list(found.values())


def judge(comparison: Comparison, asked: Asked, allowed: Mapping[str, tuple[float, str | None]]) -> Verdict:
    """The regressions, and what `--fail-on` asks of findings: in a comparison only new and worse ones of the head count.

    Limits of figures are no part of it: `gates.judge` judges a single report by them.
    """
    conditions = [_regression(comparison, limit) for limit in limits(asked, allowed)]
    if asked.errors:
        conditions.append(
            _findings(comparison, "error", lambda one: one.rule in asked.errors, "of rules whose level is error", None)
        )
    for written, term, origin in asked.terms:
        match term:
            case x.Finding(name) | x.New(name):
                matches, what = matching(name or x.LEVELS[-1])
                conditions.append(_findings(comparison, written, matches, what, origin))
            case x.Errors() if not asked.errors:
                conditions.append(unset(written, "the level of no rule is error", origin))
            case x.Limit() | x.Budgets() if origin == OPTION:  # of a configuration: they are for the other command
                conditions.append(unset(written, "figures of one run are judged by advisor analyze", origin))
    return Verdict(tuple(conditions), asked.strict, asked.advisory)


def _findings(
    comparison: Comparison, written: str, matches: Callable[[Finding], bool], what: str, origin: str | None
) -> Condition:
    what = f"{what}, new or worse than in the base"
    if unfair := comparison.voided("findings"):
        return Condition(
            written, "finding", "not-judged", f"there is to be no finding {what}", reason=unfair[0].message, origin=origin
        )
    return counted(written, what, [one.finding for one in comparison.worsened if matches(one.finding)], origin)


def _regression(comparison: Comparison, limit: Limit) -> Condition:
    if limit.part == "step-time":
        return _step(comparison, limit)
    return _memory(comparison, limit) if limit.part == "memory-peak" else _category(comparison, limit)


def _allowed(limit: Limit) -> str:
    return f"at most {told('share', limit.share)} more is allowed" if limit.share else "no measurable increase is allowed"


def _condition(limit: Limit, state: State, text: str, actual: float | None, source: str | None, reason: str | None) -> Condition:
    return Condition(
        limit.name,
        "regression",
        state,
        text,
        limit.share,
        actual,
        "fraction",
        source=source,
        reason=reason,
        origin=limit.origin,
    )


def _untold(limit: Limit, reason: str) -> Condition:
    return _condition(limit, "not-judged", f"of {PARTS[limit.part].words} {_allowed(limit)}", None, None, reason)


def _step(comparison: Comparison, limit: Limit) -> Condition:
    """By the interval of the ratio: all above the limit fails, all within it passes, and else nobody can tell."""
    step = comparison.step
    change = step.change_frac
    if step.verdict == "cannot-tell" or change is None or step.low is None or step.high is None:
        return _untold(limit, step.reason)
    low, high = _over(step.low), _over(step.high)
    words = f"time per {step.per}" if step.per != "step" else "step time"
    spread = f"{step.level:.0%} interval {_signed(low)} to {_signed(high)}"
    text = f"{words} changed by {_signed(change)} ({spread}), {_allowed(limit)}"
    source = "step.change_frac"
    if low > limit.share:
        return _condition(limit, "failed", text, change, source, None)
    # Without a limit of its own: what cannot be told from no change is none.
    if high <= limit.share or (not limit.share and step.verdict != "slower"):
        return _condition(limit, "passed", text, change, source, None)
    return _condition(
        limit, "not-judged", text, change, source, "the interval holds the limit; more repeats of each side narrow it"
    )


def _memory(comparison: Comparison, limit: Limit) -> Condition:
    if unfair := comparison.voided("step"):
        return _untold(limit, unfair[0].message)
    sides = [side.run.get("measured") or {} for side in (comparison.base, comparison.head)]
    before, after = (side.get("memory_peak_bytes") for side in sides)
    if not before or after is None:
        return _untold(limit, "the memory of one side is not recorded (nvidia-smi beside the trace, or profile_memory=True)")
    if sides[0].get("memory_peak_source") != sides[1].get("memory_peak_source"):
        return _untold(limit, "one side was sampled by the device, the other is what its allocator tells")
    change = _over(after / before)
    text = f"peak of GPU memory went from {told('bytes', before)} to {told('bytes', after)}, {_allowed(limit)}"
    state: State = "failed" if change > limit.share else "passed"
    return _condition(limit, state, text, change, "base.run.measured and head.run.measured", None)


def _category(comparison: Comparison, limit: Limit) -> Condition:
    part = PARTS[limit.part]
    if unfair := comparison.voided("categories"):
        return _untold(limit, unfair[0].message)
    whole = sum(one.base_ns for one in comparison.categories)
    if whole <= 0:
        return _untold(limit, "one side has no steps with GPU work")
    members = [one for one in comparison.categories if one.name in part.categories]
    change = sum(one.head_ns - one.base_ns for one in members) / whole
    change = round(change, 12)
    text = f"{part.words} changed by {_signed(change)} of the step, {_allowed(limit)}"
    if change <= limit.share:
        return _condition(limit, "passed", text, change, "categories", None)
    if any(one.changed for one in members):
        return _condition(limit, "failed", text, change, "categories", None)
    if not limit.share:  # what cannot be told from no change is none
        return _condition(limit, "passed", text, change, "categories", None)
    reason = "runs of one program differ by as much; more repeats of each side would tell"
    return _condition(limit, "not-judged", text, change, "categories", reason)


def _over(ratio: float) -> float:
    """1.03 -> 0.03, which is not more than 3 %: without what floating point leaves behind."""
    return round(ratio - 1, 12)


def _signed(share: float) -> str:
    return f"{'-' if share < 0 else '+'}{told('share', abs(share))}"
