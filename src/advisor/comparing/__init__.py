"""Two sides of reports compared: pure functions Report -> Comparison, so that saved reports and recordings compare alike."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.comparing.configuration import differences
from advisor.comparing.findings import finding_changes
from advisor.comparing.parts import categories, kernels
from advisor.comparing.promises import promises
from advisor.comparing.recordings import Recording, Repeats
from advisor.comparing.step import step_change
from advisor.model import Notice
from advisor.model.comparison import Comparison


def compare(base: Sequence[Recording], head: Sequence[Recording], version: str | None = None) -> Comparison:
    """What became of the base. At least one recording a side; ValueError for none."""
    from advisor import __version__

    if not base or not head:
        raise ValueError("a comparison needs a recording on each side")
    first, second = Repeats(distinct(base)), Repeats(distinct(head))
    unfair = differences(first, second)
    step = step_change(first, second, unfair)
    items = (second.items or 1.0) / (first.items or 1.0) if step.per == "item" else 1.0
    parts = categories(first, second)
    fair = not any("categories" in one.voids for one in unfair)
    findings = finding_changes(first, second, step, parts if fair else (), items)
    return Comparison(
        version=version or __version__,
        base=first.side(),
        head=second.side(),
        step=step,
        unfair=unfair,
        categories=parts,
        kernels=kernels(first, second),
        findings=findings,
        promises=promises(first, findings, step, unfair),
        notices=_notices(base, head, first, second),
    )


def distinct(recordings: Sequence[Recording]) -> list[Recording]:
    """Each recording once: the same measurement given twice is no repeat, and would make noise look small."""
    kept: list[Recording] = []
    for one in recordings:
        if not any(_same(one, other) for other in kept):
            kept.append(one)
    return kept


def _same(one: Recording, other: Recording) -> bool:
    """The same steps to the nanosecond."""
    samples = one.steps.get("samples_ns") or []
    if one.step_ns is None or one.step_ns != other.step_ns or samples != (other.steps.get("samples_ns") or []):
        return False
    return bool(samples) or one.report.to_dict() == other.report.to_dict()


def _notices(base: Sequence[Recording], head: Sequence[Recording], first: Repeats, second: Repeats) -> list[Notice]:
    found = []
    for side, given, kept in (("base", base, first), ("head", head, second)):
        if len(kept) < len(given):
            text = f"{_recordings(len(given) - len(kept), f'of the {side}')} the same as others and counted once"
            found.append(Notice("same-recording", text))
        if len(kept.timed) < len(kept) and kept.timed:
            text = f"{_recordings(len(kept) - len(kept.timed), f'of the {side}')} without steps and counted for findings only"
            found.append(Notice("no-steps", text))
        for one in kept.recordings:
            for notice in one.report.notices:
                if notice.code in ("input-unused", "recording-unused", "profiler-hitches"):
                    found.append(Notice(notice.code, f"{side}, {one.name}: {notice.message}"))
    if len(first) == len(second) == 1:
        text = "one recording a side: three repeats each (--base, --head) would show smaller changes"
        found.append(Notice("one-recording", text))
    both = [one for one in second.recordings if any(_same(one, other) for other in first.recordings)]
    if both:
        found.append(Notice("same-on-both-sides", f"{_recordings(len(both))} given on both sides"))
    return list(dict.fromkeys(found))


def _recordings(count: int, of: str = "") -> str:
    """'1 recording of the base is', '2 recordings are'."""
    return f"{count} recording{'' if count == 1 else 's'}{of and ' '}{of} {'is' if count == 1 else 'are'}"


__all__ = ["Recording", "Repeats", "compare", "distinct"]
