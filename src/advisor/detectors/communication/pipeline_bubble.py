"""Stages of a pipeline that wait for one another: too few micro-batches, or stages of uneven work."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.collectives import collectives
from advisor.detectors.communication.stages import SEND_RECV, Stage, order, stages
from advisor.detectors.words import count_text, time_text
from advisor.model import Evidence, Run
from advisor.rules.contract import Change, Context, Draft, NotApplicable

UNEVEN, FEW = "uneven stages", "few micro-batches"


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    if pace is None or not (collectives(run).kind == SEND_RECV).any():
        return None
    found = _stages(ctx, run)
    if not found:
        return None
    step = pace.step_ns
    bubble = int(np.median([stage.bubble_ns for stage in found]))
    if bubble < ctx.threshold("min_share") * step:
        return None
    micro_batches, count = _micro_batches(found), _stage_count(found)
    ideal = None if micro_batches is None else (count - 1) / (micro_batches + count - 1)
    work = np.array([stage.compute_ns for stage in found], float)
    ratio = float(work.max() / max(work.mean(), 1.0))
    heaviest = found[int(work.argmax())]
    uneven = ratio >= ctx.threshold("work_ratio")
    # Every stage waits while the heaviest works: with even stages the whole schedule shrinks to the mean.
    evened = round(step * (1 - 1 / ratio))
    doubled = bubble // 2  # the bubble is what p - 1 micro-batches take: with twice as many, each is half as long
    cause = UNEVEN if uneven and evened >= doubled else FEW
    gain = evened if cause == UNEVEN else doubled
    words = f"{time_text(bubble)} of each step, {bubble / step:.0%}, the stages of the pipeline wait for one another"
    if cause == UNEVEN:
        words += f": {heaviest.name} has {ratio:.2f} times the mean work"
    elif micro_batches is not None:
        words += f": {count_text(micro_batches, 'micro-batch')}".replace("batchs", "batches") + f" for {count} stages"
    return Draft(
        title=words,
        confidence="medium" if micro_batches is not None or cause == UNEVEN else "low",
        change=Change(gpu_ns=gain, limit_ns=max(gain, bubble * 3 // 4)),
        facts={
            "cause": cause,
            "stages": count,
            "micro_batches": None if micro_batches is None else round(micro_batches),
            "more_micro_batches": 2 * round(micro_batches) if micro_batches else 4 * count,
            "bubble_ns": bubble,
            "bubble_frac": round(bubble / step, 4),
            "ideal_frac": None if ideal is None else round(ideal, 4),
            "work_ratio": round(ratio, 3),
            "heaviest_rank": heaviest.work.side.rank if heaviest.work.side.rank >= 0 else None,
        },
        evidence=[_by_stage(found)],
        fixes=_fixes(cause),
        caveats=_caveats(cause, ideal, bubble / step),
        subject=[cause],
    )


def _stages(ctx: Context, run: Run) -> list[Stage]:
    """The stages from first to last; empty where the ranks are none. NotApplicable where the recording cannot tell."""
    found = stages(run)
    waiting = [stage for stage in found if stage.bubble_ns >= ctx.threshold("min_share") * stage.step_ns]
    if not waiting:
        return []
    if not any(stage.sends for stage in found):
        raise NotApplicable(
            "kernels that send and receive without the names of their calls may be an all-to-all or a pipeline", ctx.rule.capture
        )
    if len(found) < 2:
        raise NotApplicable("needs the recordings of at least two stages of the same steps", ctx.rule.capture)
    ordered, stagger = order(found)
    if stagger < ctx.threshold("stagger") * float(np.median([stage.bubble_ns for stage in found])):
        return []  # all ranks begin at once: a ring, or pairs that exchange
    return ordered


def _stage_count(found: list[Stage]) -> int:
    return max(max(stage.stages for stage in found), len(found) if not any(stage.stages for stage in found) else 2)


def _micro_batches(found: list[Stage]) -> float | None:
    """The first and the last stage send once a micro-batch (and part of a rank), those between twice."""
    if len(found) < _stage_count(found):
        return None
    sends = [stage.sends for stage in found if stage.sends]
    return min(sends) if len(sends) == len(found) and min(sends) >= 1 else None


def _fixes(cause: str) -> list[str]:
    few = ["more-micro-batches", "interleave", "megatron-micro-batches", "deepspeed-micro-batches"]
    return ["even-stages", "megatron-even-stages", *few] if cause == UNEVEN else few


def _caveats(cause: str, ideal: float | None, share: float) -> list[str]:
    words = ["What finer micro-batches lose in their own kernels is not in the estimate: compare two settings."]
    if cause == FEW and ideal is not None:
        words.append(f"So many micro-batches leave {ideal:.0%} of a step idle at best; {share:.0%} were.")
    return words


def _by_stage(found: list[Stage]) -> Evidence:
    rows: list[list[Any]] = [
        [
            stage.work.side.rank if stage.work.side.rank >= 0 else stage.work.side.process, stage.compute_ns, stage.bubble_ns,
            round(stage.sends, 1) if stage.sends else None, round(stage.kernels, 1),
        ]
        for stage in found[:16]
    ]  # fmt: skip
    return Evidence(
        "The stages in the order in which they begin, per step",
        ["rank", "compute_ns", "waits_for_neighbours_ns", "sends", "send_receive_kernels"],
        rows,
    )
