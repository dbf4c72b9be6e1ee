"""Pointwise kernels that run at the memory's bandwidth: nothing makes them faster, only less traffic helps."""

from __future__ import annotations

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.roofline import traffic
from advisor.derive.sequence import costliest, sequence, source_lines
from advisor.detectors.words import name_text
from advisor.model import Evidence
from advisor.model.device_table import spec_of
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    spec = spec_of(ctx.device) if ctx.device else None
    if spec is None:
        raise NotApplicable("the bandwidth of this GPU is not in the device table", "name the nearest model: --gpu NAME")
    moved = traffic(run)
    if np.isnan(moved).all():
        raise NotApplicable("no kernel has recorded sizes and types", ctx.rule.capture)
    share = moved / np.maximum(found.gpu_ns, 1) * 1e9 / spec.memory_bandwidth
    fast = (share >= ctx.threshold("of_bandwidth")) & (found.gpu_ns >= ctx.threshold("least_ns"))
    spent = found.per_step(found.gpu_ns, fast)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    rate = float(moved[fast].sum() / found.gpu_ns[fast].sum() * 1e9)
    rows = [[name_text(name), calls, gpu] for name, calls, gpu in costliest(run, found, fast)]
    return Draft(
        title=f"{spent / pace.step_ns:.0%} of the step are pointwise kernels that already run at "
        f"{min(rate / spec.memory_bandwidth, 1):.0%} of the memory bandwidth",
        confidence="medium",
        facts={
            "time_per_step_ns": spent,
            "bandwidth_frac": round(min(rate / spec.memory_bandwidth, 1.0), 4),
            "bytes_per_step_bytes": int(moved[fast].sum()) // max(found.steps, 1),
        },
        evidence=[Evidence("Kernels at the memory's bandwidth, per step", ["kernel", "calls", "gpu_ns"], rows)],
        locations=source_lines(run, found, fast),
        subject=["bandwidth"],
    )
