"""Reads of values and waits for streams or events inside a step: the host stops issuing and the GPU runs dry."""

from __future__ import annotations

import numpy as np

from advisor.derive.calls import CallKind
from advisor.derive.steady import steady
from advisor.derive.waits import waits
from advisor.detectors.host.waiting import caveats, change, evidence, last_of_step, operators, places
from advisor.detectors.words import count_text, time_text
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    judged = steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    found = waits(ctx.run, judged)
    found = found.take(found.kind != CallKind.SYNC_DEVICE)
    # An event that was reached already costs nothing; a stream is always waited for with what it holds.
    found = found.take((found.kind != CallKind.SYNC_EVENT) | (found.wait_ns > 0))
    each = len(found) / max(judged.count, 1)
    if each < ctx.threshold("least_per_step"):
        return None
    gone = change(judged, found, ctx.threshold("wake_up_ns"))
    codes, counts = np.unique(operators(ctx.run, found), return_counts=True)
    names = [ctx.run.strings[int(code)] for code in codes[np.argsort(-counts, kind="stable")] if code >= 0]
    wait, idle = (total // max(judged.count, 1) for total in (int(found.wait_ns.sum()), found.total_idle_ns))
    closing = bool(last_of_step(judged, found).all())
    by = f" in {names[0]}" if names else ""
    return Draft(
        title=f"The host waits for the GPU {_times(each)} a step{by}; the GPU then idles for {time_text(idle)}",
        confidence="high",
        change=gone,
        subject=sorted(names)[:4] or ["cudaStreamSynchronize"],
        facts={
            "waits_per_step": round(each, 2),
            "wait_ns": wait,
            "gpu_idle_after_ns": idle,
            "operators": names[:4],
            "at_step_end": closing,
        },
        evidence=[evidence(ctx.run, judged, found)],
        locations=places(ctx.run, judged, found),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        caveats=caveats(judged, gone, closing),
    )


def _times(each: float) -> str:
    return "once" if round(each, 1) == 1 else count_text(each, "time")
