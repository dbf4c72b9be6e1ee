"""The gradient scaler or gradient clipping reads a value of the GPU before the optimizer may go on."""

from __future__ import annotations

from advisor.derive.steady import Steady, steady
from advisor.derive.waits import Waits, waits
from advisor.detectors.host.wait_causes import from_gradient_scaling
from advisor.detectors.host.waiting import at_best, caveats, change, edits, evidence, places
from advisor.detectors.words import count_text, time_text
from advisor.model import Run
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    judged = steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    found = _waits(ctx.run, judged)
    each = len(found) / max(judged.count, 1)
    if each < ctx.threshold("least_per_step"):
        return None
    gone = change(judged, found, ctx.threshold("wake_up_ns"))
    wait, idle = (total // max(judged.count, 1) for total in (int(found.wait_ns.sum()), found.total_idle_ns))
    return Draft(
        title=f"{count_text(each, 'wait')} {judged.per} for gradient scaling or clipping; the GPU then idles {time_text(idle)}",
        confidence="high",
        edits=edits(ctx.run, _waits),
        at_best_ns=at_best(judged, found, ctx.threshold("wake_up_ns")),
        change=gone,
        subject=["gradient scaler"],
        facts={"waits_per_step": round(each, 2), "wait_ns": wait, "gpu_idle_after_ns": idle},
        evidence=[evidence(ctx.run, judged, found)],
        locations=places(ctx.run, judged, found),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        caveats=caveats(judged, gone, at_step_end=False),
    )


def _waits(run: Run, judged: Steady) -> Waits:
    found = waits(run, judged)
    return found.take(from_gradient_scaling(run, judged, found))
