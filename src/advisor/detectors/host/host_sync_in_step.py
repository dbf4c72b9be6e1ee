"""Reads of values and waits for streams or events inside a step: the host stops issuing and the GPU runs dry."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import matching_codes
from advisor.derive.calls import CallKind
from advisor.derive.steady import Steady, steady
from advisor.derive.waits import Waits, waits
from advisor.detectors.host.wait_causes import from_gradient_scaling, from_masks
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
    codes, counts = np.unique(operators(ctx.run, found), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    counts = counts[order][codes[order] >= 0]
    names = [ctx.run.strings[int(code)] for code in codes[order] if code >= 0]
    wait, idle = (total // max(judged.count, 1) for total in (int(found.wait_ns.sum()), found.total_idle_ns))
    closing = bool(last_of_step(judged, found).all())
    by = f" in {names[0]}" if names else ""
    # In a loop that the host rules the GPU may idle elsewhere: what the waits cost is host time.
    cost = f"the GPU then idles for {time_text(idle)}" if 2 * idle >= gone.wait_ns else f"{time_text(wait)} in all"
    return Draft(
        title=f"The host waits for the GPU {_times(each)} {judged.per}{by}; {cost}",
        confidence="low" if judged.unmarked else "high",
        edits=edits(ctx.run, _waits),
        at_best_ns=at_best(judged, found, ctx.threshold("wake_up_ns")),
        change=gone,
        subject=_lasting(judged, counts, names) or ["cudaStreamSynchronize"],
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


def _lasting(judged: Steady, counts: npt.NDArray[np.int64], names: list[str]) -> list[str]:
    """Operators that wait in most steps: one that comes now and then is not in every recording of the program."""
    return sorted(name for name, count in zip(names, counts.tolist(), strict=True) if 2 * count > judged.count)


def _waits(run: Run, judged: Steady) -> Waits:
    found = waits(run, judged)
    found = found.take(found.kind != CallKind.SYNC_DEVICE)
    # An event that was reached already costs nothing; a stream is always waited for with what it holds.
    found = found.take((found.kind != CallKind.SYNC_EVENT) | (found.wait_ns > 0))
    found = found.take(~_searching(run, found))
    # Waits with a rule of their own, which knows the way out.
    found = found.take(~from_masks(run, judged, found))
    return found.take(~from_gradient_scaling(run, judged, found))


def _searching(run: Run, found: Waits) -> npt.NDArray[np.bool_]:
    """Waits for events inside a convolution: the library times its algorithms, once for each size."""
    ops = run.table("host_ops")
    codes = matching_codes(run, ops["name"], "conv")
    name = np.where(found.op >= 0, ops["name"][np.maximum(found.op, 0)], -1) if len(ops) else np.full(len(found), -1)
    return np.asarray((found.kind == CallKind.SYNC_EVENT) & np.isin(name, codes), bool)


def _times(each: float) -> str:
    return "once" if round(each, 1) == 1 else count_text(each, "time")
