"""What a comparison says, in the sentences that all formats for people share."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.model import Finding
from advisor.model.comparison import (
    CategoryChange,
    Comparison,
    Conclusion,
    Difference,
    FindingChange,
    Kept,
    KernelChange,
    Promises,
    Side,
    Status,
)
from advisor.report import text as t

_LEAST_PART = 0.0005  # of the step
STATUS_WORDS: Mapping[Status, str] = {
    "new": "new",
    "worse": "worse",
    "gone": "gone",
    "better": "better",
    "uncovered": "uncovered",
    "faded": "faded",
    "first-judged": "judged in the head only",
    "not-judged": "judged in the base only",
    "folded": "reported under another",
    "same": "unchanged",
}
STATUS_MEANING: Mapping[Status, str] = {
    "uncovered": "there before, but hidden by something else",
    "faded": "there still, but hidden or worth little now",
    "first-judged": "the base could not be judged",
    "not-judged": "the head could not be judged",
}
CONCLUSIONS: Mapping[Conclusion, str] = {
    "step": "the step time",
    "categories": "the parts of the step",
    "kernels": "the kernels",
    "findings": "the findings",
    "promises": "promise against outcome",
}
KEPT: Mapping[Kept, str] = {
    "kept": "as promised",
    "less": "less than promised",
    "more": "more than promised",
    "unclear": "nobody can tell whether that was kept",
}


def headline(comparison: Comparison) -> str:
    """The verdict in one sentence."""
    step = comparison.step
    if step.ratio is None or step.low is None or step.high is None:
        return f"Cannot tell whether the step changed: {step.reason}."
    times = f"{t.duration(step.base_ns, 3)} → {t.duration(step.head_ns, 3)} a step"
    per = " per item" if step.per == "item" else ""
    between = f"{step.level:.0%} interval: {interval(step.low, step.high)}".replace("%", " %", 1)
    if step.verdict == "cannot-tell":
        return f"Cannot tell whether the step changed: {times}, {change(step.ratio)}{per}. {t.sentence(step.reason)}."
    if step.verdict == "no-measurable-change":
        return f"No measurable change: {times}, {change(step.ratio)}{per} ({between})."
    word = "Faster" if step.verdict == "faster" else "Slower"
    return f"{word}: {times}, {change(step.ratio)}{per} ({between})."


def change(ratio: float) -> str:
    """0.97 -> '3 % less time'; 1.3 -> '30 % more time'; 4 -> '4 times the time'."""
    if ratio >= 2:
        return f"{t.significant(ratio, 2)} times the time"
    if abs(ratio - 1) < 0.0005:
        return "the same time"
    return f"{t.percent(abs(ratio - 1))} {'more' if ratio > 1 else 'less'} time"


def interval(low: float, high: float) -> str:
    """'67 to 84 % less', '2.7 % less to 2.8 % more', '3.2 to 4.1 times'."""
    if low >= 2:
        return f"{t.significant(low, 2)} to {t.significant(high, 2)} times"
    if high <= 1:
        return f"{t.percent_range(1 - high, 1 - low)} less"
    if low >= 1:
        return f"{t.percent_range(low - 1, high - 1)} more"
    return f"{t.percent(1 - low)} less to {t.percent(high - 1)} more"


def differences(comparison: Comparison) -> list[tuple[bool, str]]:
    """(voids something, sentence) of each difference of configuration."""
    return [(bool(one.voids), difference(one)) for one in comparison.unfair]


def difference(one: Difference) -> str:
    both = f" (base: {t.clean(one.base)}; head: {t.clean(one.head)})" if one.base or one.head else ""
    spoiled = f". It spoils {t.join([CONCLUSIONS[each] for each in one.voids])}" if one.voids else ""
    return f"{t.sentence(one.message)}{both}{spoiled}."


def side(one: Side) -> str:
    """'before.json.gz', or '3 repeats: a.json, b.json and 1 more'; with the step."""
    names = [t.short_path(t.clean(name), 40) for name in one.names]
    listed = t.join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
    text = f"{t.count(one.repeats, 'repeat')}: {listed}" if one.repeats > 1 else listed
    step = f", {t.duration(one.step_ns, 3)} a step" if one.step_ns else ", no step"
    recorded = (
        f" (recorded: {t.duration(one.recorded_ns, 3)})"
        if one.recorded_ns and one.step_ns and t.duration(one.recorded_ns, 3) != t.duration(one.step_ns, 3)
        else ""
    )
    return text + step + recorded


def promise(promises: Promises) -> str:
    """'Promised 63.4 ms a step, 76 % (75 to 76 %); obtained 64.5 ms, 77 % (67 to 84 %): as promised.'"""
    step = promises.step_ns
    told = f"Promised {t.saving_short(promises.together, step)} of {t.duration(step, 3)}"
    if promises.obtained_ns is None or promises.obtained_low_ns is None or promises.obtained_high_ns is None:
        return f"{told}; what was obtained cannot be told."
    low, high = promises.obtained_low_ns / step, promises.obtained_high_ns / step
    obtained = f"{t.duration(promises.obtained_ns)}, {t.percent(promises.obtained_ns / step)} ({t.percent_range(low, high)})"
    return f"{told}; obtained {obtained}: {KEPT[promises.kept]}."


def promise_basis(promises: Promises) -> str:
    """How the promise for several findings at once was found; empty for one."""
    if promises.together_by == "single":
        return ""
    how = "the base recording replayed with all of them mended"
    if promises.together_by == "sum":
        how = "their sum, limited by what everything together saves; give the base recording to have it replayed"
    return f"{t.count(len(promises.findings), 'finding')} together: {how}."


def parts(comparison: Comparison) -> list[CategoryChange]:
    """Without those that take next to nothing on both sides."""
    whole = sum(one.base_ns for one in comparison.categories)
    return [one for one in comparison.categories if max(one.base_ns, one.head_ns) >= _LEAST_PART * whole]


def part_name(one: CategoryChange) -> str:
    return t.BUSY_PARTS.get(one.name) or f"idle: {t.IDLE_CAUSES.get(one.name, t.clean(one.name))}"


def signed(ns: int | None) -> str:
    """'+1.2 ms', '-340 µs', '0'."""
    if ns is None:
        return ""
    return "0" if ns == 0 else f"{'+' if ns > 0 else '-'}{t.duration(abs(ns))}"


def amount(ns: int | None) -> str:
    return "-" if ns is None else t.duration(ns)


def kernel_name(one: KernelChange) -> str:
    return t.clean(one.name) + (
        " (name changed)" if one.matched == "normalised" and None not in (one.base_ns, one.head_ns) else ""
    )


def kernel_state(one: KernelChange) -> str:
    if not one.known:
        return "not listed on one side"
    return "new" if one.base_ns is None else "gone" if one.head_ns is None else signed(one.change_ns)


def counted(comparison: Comparison) -> str:
    """'1 new, 2 gone, 3 unchanged'."""
    return ", ".join(f"{count} {STATUS_WORDS[status]}" for status, count in comparison.counts.items() if count) or "none"  # type: ignore[index]


def saving(one: FindingChange) -> str:
    """'4.6 ms, 28 % (19 to 36 %)', for a pair 'was 1 ms, now 4.6 ms'."""
    if one.base and one.head and (one.base.saving or one.head.saving):
        before, after = (each.saving.expected_ns if each.saving else 0 for each in (one.base, one.head))
        return f"{t.duration(before)} → {t.duration(after)}"
    step = one.head_step_ns if one.head else one.base_step_ns
    return t.saving_short(one.finding.saving, step)


def place(finding: Finding) -> str | None:
    """Where most of it comes from."""
    if not finding.locations:
        return None
    first = max(finding.locations, key=lambda one: one.share or 0)
    return t.place(first.file, first.line, first.function)


def why(one: FindingChange) -> str:
    """Why it is neither new nor gone, or nothing."""
    if one.status in ("new", "worse", "gone", "better") or not one.reason:
        return STATUS_MEANING.get(one.status, "")
    return t.clean(one.reason)
