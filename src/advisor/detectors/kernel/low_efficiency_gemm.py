"""Matrix products far below the peak of the arithmetic that they use, by their recorded sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import Precision
from advisor.derive.roofline import PEAK_OF
from advisor.derive.sequence import sequence, source_lines
from advisor.derive.shapes import GEMM, products
from advisor.detectors.words import counted
from advisor.model import Evidence
from advisor.model.device_table import spec_of
from advisor.rules.contract import Context, Draft, NotApplicable

# Products with other sizes are judged by unaligned-gemm.
_ALIGNED = 8


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    known = products(run)
    if not len(known):
        raise NotApplicable("no matrix product has recorded sizes", ctx.rule.capture)
    spec = spec_of(ctx.device) if ctx.device else None
    if spec is None:
        raise NotApplicable("the peak rates of this GPU are not in the device table", "name the nearest model: --gpu NAME")
    peaks = np.array([spec.peak(PEAK_OF[Precision(int(p))]) or np.nan if int(p) in PEAK_OF else np.nan for p in known.precision])
    share = known.flops / np.maximum(known.gpu_ns, 1) * 1e9 / peaks
    low = (known.kind == GEMM) & (share < ctx.threshold("low_share")) & (known.gpu_ns > 0)
    low &= (known.n % _ALIGNED == 0) & (known.k % _ALIGNED == 0)
    spent = int(known.gpu_ns[low].sum()) // max(known.steps, 1)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    whole = float(known.flops[low].sum() / (known.gpu_ns[low] * peaks[low] * 1e-9).sum())
    groups: dict[tuple[int, ...], list[int]] = {}
    for at in np.flatnonzero(low).tolist():
        groups.setdefault(tuple(int(x[at]) for x in (known.batch, known.m, known.n, known.k, known.precision)), []).append(at)
    rows: list[list[Any]] = []
    for (batch, m, n, k, precision), members in groups.items():
        size = f"{m} x {n} x {k}" if batch == 1 else f"{batch} x ({m} x {n} x {k})"
        gpu = int(known.gpu_ns[members].sum())
        reached = float(known.flops[members].sum() / (gpu * peaks[members[0]] * 1e-9))
        rows.append(
            [size, PEAK_OF[Precision(precision)], round(len(members) / known.steps, 1), gpu // known.steps, round(reached, 4)]
        )
    rows.sort(key=lambda row: -row[3])
    mine = (known.of_kernel >= 0) & np.append(low, False)[known.of_kernel]
    count = int(low.sum()) // max(known.steps, 1)
    return Draft(
        title=f"{counted(count, 'matrix product', 'reach')} {whole:.0%} of the GPU's peak, "
        f"{spent / pace.step_ns:.0%} of the step",
        confidence="medium",
        facts={
            "products_per_step": count,
            "time_per_step_ns": spent,
            "peak_share_frac": round(whole, 4),
            "time_share_frac": round(spent / pace.step_ns, 4),
        },
        evidence=[
            Evidence("Products far below the peak, per step", ["m x n x k", "type", "calls", "gpu_ns", "peak_frac"], rows[:8])
        ],
        locations=source_lines(run, found, mine),
        subject=["gemm"],
    )
