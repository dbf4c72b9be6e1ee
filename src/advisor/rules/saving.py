"""From a change of the step to a saving, and from several savings to the one of all fixes together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.derive.bounds import TwoSided
from advisor.model import Saving
from advisor.replay.changes import Edit
from advisor.replay.engine import Replay
from advisor.rules.contract import Change


@dataclass(frozen=True)
class Claim:
    """What one finding claims: its saving, and the change and the edits it came from, as far as there are any.

    spares_gpu: whether the fix may take work from the GPU, or move some beside other; without such a fix no step is shorter
    than the GPU's work.
    """

    saving: Saving
    change: Change | None = None
    edits: tuple[Edit, ...] = ()
    spares_gpu: bool = True


def replayed_saving(edits: Sequence[Edit], replayed: Replay, step_ns: int, at_best_ns: int = 0) -> Saving:
    """What a step saves when the recorded steps run again with the edits; at best `at_best_ns` more."""
    gain = replayed.gain(edits)
    low, expected, high = (round(share * step_ns) for share in (gain.low, gain.expected, gain.high))
    return Saving(low, expected, min(high + at_best_ns, step_ns), "replay")


def bound_saving(change: Change, step: TwoSided) -> Saving:
    """The saving of one change, basis `bound`: low 0, expected by step = max(host, gpu) + wait.

    High is the interval limit, and no more than leaves room for the GPU work that stays. What the limit exceeds the change by
    is GPU time too, unless the change takes host time or waits alone.
    """
    total = change.host_ns + change.gpu_ns + change.wait_ns
    limit = total if change.limit_ns is None else change.limit_ns
    more = max(limit - total, 0) if change.gpu_ns or not (change.host_ns or change.wait_ns) else 0
    stays = max(step.gpu_ns - change.gpu_ns - more, 0)
    high = max(min(limit, step.step_ns - stays), 0)
    expected = step.step_ns - step.after(host_ns=change.host_ns, gpu_ns=change.gpu_ns, wait_ns=change.wait_ns)
    return Saving(0, min(max(expected, 0), high), high, "bound")


def combined_saving(claims: Sequence[Claim], step: TwoSided, replayed: Replay | None = None) -> Saving | None:
    """What all claims save together; None without claims.

    Claims with edits are replayed together, and the others take their share of what that leaves. Claims may mean the same
    time, so what is left is never below the GPU's work less what single claims take from it.
    """
    if len(claims) < 2:
        return claims[0].saving if claims else None
    if replayed is None or not any(claim.edits for claim in claims):
        return _floored(_combined_bounds(claims, step), claims, step)
    combined = _combined_replay(claims, step, replayed)
    return combined if combined.basis == "replay" else _floored(combined, claims, step)


def _combined_replay(claims: Sequence[Claim], step: TwoSided, replayed: Replay) -> Saving:
    edits = [edit for claim in claims for edit in claim.edits]
    together = replayed_saving(edits, replayed, step.step_ns)
    others = [claim.saving for claim in claims if not claim.edits]
    largest = [claim.saving for claim in claims]

    def with_others(share: str, least: int) -> int:
        left = 1 - getattr(together, share) / max(step.step_ns, 1)
        for saving in others:
            left *= 1 - min(getattr(saving, share) / max(step.step_ns, 1), 1.0)
        return min(max(round(step.step_ns * (1 - left)), least), step.step_ns)

    # The replay knows the edits, not how sure the findings are: a low of 0 stays one in the sum.
    lows = [saving.low_ns for saving in largest]
    low = max(min(with_others("low_ns", 0), sum(lows)), max(lows))
    expected = max(with_others("expected_ns", max(saving.expected_ns for saving in largest)), low)
    high = max(with_others("high_ns", max(saving.high_ns for saving in largest)), expected)
    return Saving(low, expected, high, "bound" if others else "replay")


def _floored(saving: Saving, claims: Sequence[Claim], step: TwoSided) -> Saving:
    """The saving, cut to what leaves room for the GPU's work; at least that of the largest claim."""

    def cut(value: str) -> int:
        singly = [getattr(claim.saving, value) for claim in claims]
        # A fix alone may save nothing, and still take from the GPU what another fix then lets the step have.
        taken = [claim.change.gpu_ns if claim.change else 0 for claim in claims]
        spared = sum(max(pair) for *pair, claim in zip(singly, taken, claims, strict=True) if claim.spares_gpu)
        most = step.step_ns - max(step.gpu_ns - spared, 0)
        return int(min(getattr(saving, value), max(most, *singly)))

    low = cut("low_ns")
    expected = max(cut("expected_ns"), low)
    return Saving(low, expected, max(cut("high_ns"), expected), saving.basis)


def _combined_bounds(claims: Sequence[Claim], step: TwoSided) -> Saving:
    """What claims without edits save together.

    Claims may overlap in time, and nothing here says where. So each takes its share of what the others leave, side by
    side: host, GPU and waits shrink by (1 - share) for every claim, and the two-sided step of what is left is the
    result. That is below the sum of the claims, at least the largest of them, and never above the step.
    """
    changes = [claim.change for claim in claims if claim.change is not None]
    after = step.after(
        host_ns=_together([change.host_ns for change in changes], step.host_ns),
        gpu_ns=_together([change.gpu_ns for change in changes], step.gpu_ns),
        wait_ns=_together([change.wait_ns for change in changes], step.wait_ns),
    )
    others = [claim.saving for claim in claims if claim.change is None]
    if others and step.step_ns:
        after -= round(_together([saving.expected_ns for saving in others], step.step_ns) * after / step.step_ns)
    low = max(claim.saving.low_ns for claim in claims)
    expected = max(step.step_ns - after, *(claim.saving.expected_ns for claim in claims))
    high = max(_together([claim.saving.high_ns for claim in claims], step.step_ns), expected)
    basis = "replay" if all(claim.saving.basis == "replay" for claim in claims) else "bound"
    return Saving(
        low_ns=min(low, step.step_ns),
        expected_ns=min(expected, step.step_ns),
        high_ns=min(high, step.step_ns),
        basis=basis,  # type: ignore[arg-type]
    )


def clipped(saving: Saving, step_ns: int) -> Saving:
    """No saving is more than the step."""
    return Saving(min(saving.low_ns, step_ns), min(saving.expected_ns, step_ns), min(saving.high_ns, step_ns), saving.basis)


def scaled(saving: Saving, ratio: float) -> Saving:
    return Saving(round(saving.low_ns * ratio), round(saving.expected_ns * ratio), round(saving.high_ns * ratio), saving.basis)


def spares_gpu(change: Change | None, edits: Sequence[Edit]) -> bool:
    """Whether a fix may take work from the GPU or move some beside other; yes where nothing tells."""
    if any(edit.work is not None for edit in edits):
        return True
    if change is None:
        return not edits
    return change.gpu_ns > 0 or not (change.host_ns or change.wait_ns)


def scaled_change(change: Change, ratio: float) -> Change:
    limit = None if change.limit_ns is None else round(change.limit_ns * ratio)
    return Change(round(change.host_ns * ratio), round(change.gpu_ns * ratio), round(change.wait_ns * ratio), limit)


def _together(parts: Sequence[int], whole: int) -> int:
    """What is taken from `whole` when each part takes its share of what the parts before it left.

    Negative parts are work that a fix adds; they count in full.
    """
    left = 1.0
    for part in parts:
        left *= 1.0 - min(max(part, 0) / whole, 1.0) if whole > 0 else 1.0
    return min(round(whole * (1.0 - left)), max(whole, 0)) + sum(part for part in parts if part < 0)
