"""Large 16-bit matrix products on a GPU whose tensor cores take FP8."""

from __future__ import annotations

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import Precision
from advisor.derive.sequence import on_gpu, sequence, source_lines
from advisor.derive.shapes import GEMM, products
from advisor.model import Evidence
from advisor.model.device_table import spec_of
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_MULTIPLE = 16  # FP8 kernels load 16 elements at a time and take nothing else


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    spec = spec_of(ctx.device) if ctx.device else None
    if spec is None or not spec.peak("fp8"):
        raise NotApplicable("the device table knows no FP8 peak of this GPU", "name the nearest model: --gpu NAME")
    known = products(run)
    if not len(known):
        raise NotApplicable("no matrix product has recorded sizes", ctx.rule.capture)
    least = int(ctx.threshold("least_size"))
    large = (known.kind == GEMM) & np.isin(known.precision, (Precision.BF16, Precision.FP16)) & (known.batch == 1)
    for size in (known.m, known.n, known.k):
        large &= (size >= least) & (size % _MULTIPLE == 0)
    mine = (known.of_kernel >= 0) & np.append(large, False)[known.of_kernel]
    spent = found.per_step(found.gpu_ns, mine)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    left = Factor(*(ctx.threshold(f"left{end}") for end in ("_at_worst", "", "_at_best")))
    sizes, count = np.unique(np.stack([known.m, known.n, known.k])[:, large], axis=1, return_counts=True)
    order = np.argsort(-count, kind="stable")[:6]
    rows = []
    for at in order.tolist():
        same = large & (known.m == sizes[0, at]) & (known.n == sizes[1, at]) & (known.k == sizes[2, at])
        name = " x ".join(str(int(size)) for size in sizes[:, at])
        rows.append([name, round(int(same.sum()) / known.steps, 1), int(known.gpu_ns[same].sum()) // known.steps])
    kernels = int(large.sum()) // max(known.steps, 1)
    return Draft(
        title=f"{kernels} large 16-bit products a step, {spent / pace.step_ns:.0%} of the step, could run in FP8",
        confidence="low",
        edits=[Edit(work=on_gpu(run, found, mine), gpu=left)],
        change=Change(gpu_ns=round(spent * (1 - left.expected)), limit_ns=round(spent * (1 - left.most))),
        facts={
            "products_per_step": kernels,
            "time_per_step_ns": spent,
            "time_share_frac": round(spent / pace.step_ns, 4),
            "peak_fp8_tflops": round((spec.peak("fp8") or 0) / 1e12, 1),
        },
        evidence=[Evidence("Large 16-bit products, per step", ["m x n x k", "calls", "gpu_ns"], rows)],
        locations=source_lines(run, found, mine),
        subject=["fp8"],
    )
