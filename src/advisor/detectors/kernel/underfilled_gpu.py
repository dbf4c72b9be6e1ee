"""Kernels with fewer blocks than the GPU has SMs: the other SMs do nothing while they run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import activities
from advisor.derive.bounds import TwoSided, two_sided
from advisor.derive.intervals import covered, length
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.occupancy import blocks, sm_limits, warp_share
from advisor.derive.sequence import Sequence, sequence, source_lines
from advisor.detectors.words import count_text, name_text
from advisor.model import Evidence, Run
from advisor.model.device_table import spec_of
from advisor.rules.contract import Context, Draft, NotApplicable

# "SM Active", "SMs Active [Throughput %]": share of the SMs with at least one warp. Not "Unallocated Warps in Active SMs".
_SM_ACTIVE = re.compile(r"^SMs? Active\b", re.I)


def detect(ctx: Context) -> Draft | None:
    run, pace, found, device = ctx.run, two_sided(ctx.run), sequence(ctx.run), ctx.device
    if pace is None or not len(found):
        return None
    spec = spec_of(device) if device else None
    sm_count = (device.sm_count if device else None) or (spec.sm_count if spec else None)
    if not sm_count or device is None:
        raise NotApplicable("the number of SMs of this GPU is not known", "name the model: --gpu 'NVIDIA A100-SXM4-80GB'")
    number = blocks(run, found.row)
    known = (number > 0) & (found.kind != KernelClass.COMMUNICATION)
    sampled = _sampled(run, pace, int(ctx.threshold("least_samples")))
    if not known.any() and sampled is None:
        raise NotApplicable("launch sizes of kernels were not recorded", ctx.rule.capture)
    few = known & (number < sm_count)
    spent = found.per_step(found.gpu_ns, known)
    part = np.where(few, 1 - number / sm_count, 0.0)
    empty = int((found.gpu_ns * part).sum()) // max(found.steps, 1)
    share = empty / spent if spent else 0.0
    judged = 1 - sampled if sampled is not None else share
    if judged < ctx.threshold("empty_share") or spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    count = found.count(few)
    limits = sm_limits(device.compute_capability)
    facts: dict[str, Any] = {
        "empty_sm_time_frac": round(judged, 4),
        "kernels_per_step": count,
        "kernels_time_ns": found.per_step(found.gpu_ns, few),
        "sm_count": sm_count,
        "gain_per_item_frac": round(_per_item(pace, judged), 4),
    }
    if sampled is not None:
        facts["sampled_sm_active_frac"] = round(sampled, 4)
    if limits is not None:
        warps = warp_share(run, found.row, limits, sm_count)
        measured = known & ~np.isnan(warps)
        if measured.any():
            facts["warp_slots_filled_frac"] = round(float(np.average(warps[measured], weights=found.gpu_ns[measured] + 1)), 4)
    return Draft(
        title=f"{judged:.0%} of the SMs' time is empty while kernels run; {count_text(count, 'kernel')} a step with fewer "
        f"blocks than the {sm_count} SMs",
        confidence="high" if sampled is not None else "medium",
        facts=facts,
        evidence=[_by_kernel(run, found, few, number, sm_count)] if few.any() else [],
        locations=source_lines(run, found, few),
        caveats=[_gain(pace, judged)],
        subject=["blocks"],
    )


def _per_item(pace: TwoSided, empty: float) -> float:
    """Share by which the time per item can fall when the batch grows until the SMs are full and the GPU sets the pace."""
    filled = pace.gpu_ns * (1 - empty)
    return 1 - filled / (max(pace.gpu_ns, pace.host_ns) or 1)


def _gain(pace: TwoSided, empty: float) -> str:
    text = "Nothing is promised for this step: kernels that get more to do take about as long until the SMs are full. "
    if pace.gpu_bound:
        return f"{text}The time per item can fall by at most {empty:.0%}."
    gain = _per_item(pace, empty)
    return f"{text}Since the host sets the pace, a batch that keeps the GPU busy can lower the time per item by up to {gain:.0%}."


def _sampled(run: Run, pace: TwoSided, least: int) -> float | None:
    """Mean share of active SMs in samples taken while kernels ran without a pause; None with fewer than `least` of them."""
    table = run.table("hardware_metrics")
    codes = [int(code) for code in np.unique(table["metric"]) if _SM_ACTIVE.search(run.strings[int(code)])]
    mine = [a for a in activities(run) if (a.gpu.rank, a.gpu.process) == (pace.rank, pace.process)]
    if not codes or not mine:
        return None
    activity = max(mine, key=lambda a: length(a.compute))
    rows = np.isin(table["metric"], codes) & (table["device"] == activity.gpu.device)
    rows &= ~table.known("rank") | (table["rank"] == activity.gpu.rank)
    time, value = table["time"][rows], table["value"][rows]
    if len(time) < 2:
        return None
    # A sample speaks of the time since the one before it.
    inside: npt.NDArray[np.bool_] = covered(activity.compute, time[:-1], time[1:]) >= 0.99 * np.diff(time)
    return float(value[1:][inside].mean()) / 100 if inside.sum() >= least else None


def _by_kernel(run: Run, found: Sequence, few: npt.NDArray[np.bool_], number: npt.NDArray[np.int64], sm_count: int) -> Evidence:
    """Kernels with few blocks by name and blocks, those that leave most SM time empty first."""
    names = run.table("kernels")["name"][found.row].astype(np.int64)
    keys, index = np.unique(np.stack([names[few], number[few]]), axis=1, return_inverse=True)
    index, steps = index.reshape(-1), max(found.steps, 1)
    count, spent = np.bincount(index), np.bincount(index, weights=found.gpu_ns[few])
    empty = spent * (1 - keys[1] / sm_count)
    order = sorted(range(len(count)), key=lambda i: (-empty[i], run.strings[int(keys[0, i])], int(keys[1, i])))[:8]
    rows: list[list[Any]] = [
        [
            name_text(run.strings[int(keys[0, i])]), int(keys[1, i]), round(int(keys[1, i]) / sm_count, 4),
            round(float(count[i]) / steps, 1), int(spent[i]) // steps,
        ]
        for i in order
    ]  # fmt: skip
    return Evidence("Kernels with fewer blocks than SMs, per step", ["kernel", "blocks", "of_sms_frac", "calls", "gpu_ns"], rows)
