"""cudaDeviceSynchronize inside steps: the host waits until every stream is empty."""

from __future__ import annotations

from advisor.derive.calls import CallKind
from advisor.derive.steady import Steady, steady
from advisor.derive.waits import Waits, waits
from advisor.detectors.host.waiting import at_best, caveats, change, edits, evidence, last_of_step, operators, places
from advisor.detectors.words import count_text, time_text
from advisor.model import Run
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    judged = steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    found = _waits(ctx.run, judged)
    each = len(found) / max(judged.count, 1)
    if each < ctx.threshold("least_unmarked" if judged.unmarked else "least_per_step"):
        return None
    gone = change(judged, found, ctx.threshold("wake_up_ns"))
    wait, idle = (total // max(judged.count, 1) for total in (int(found.wait_ns.sum()), found.total_idle_ns))
    closing = bool(last_of_step(judged, found).all())
    names = sorted({ctx.run.strings[int(code)] for code in operators(ctx.run, found) if code >= 0})
    return Draft(
        title=f"{count_text(each, 'device synchronisation')} {judged.per}; the GPU then idles for {time_text(idle)}",
        confidence="low" if judged.unmarked else "high",
        edits=edits(ctx.run, _waits),
        at_best_ns=at_best(judged, found, ctx.threshold("wake_up_ns")),
        change=gone,
        subject=names[:4] or ["cudaDeviceSynchronize"],
        facts={
            "synchronisations_per_step": round(each, 2),
            "wait_ns": wait,
            "gpu_idle_after_ns": idle,
            "at_step_end": closing,
        },
        evidence=[evidence(ctx.run, judged, found)],
        locations=places(ctx.run, judged, found),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        caveats=caveats(judged, gone, closing),
    )


def _waits(run: Run, judged: Steady) -> Waits:
    found = waits(run, judged)
    return found.take(found.kind == CallKind.SYNC_DEVICE)
