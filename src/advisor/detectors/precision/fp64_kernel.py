"""Kernels in double precision, which training rarely wants."""

from __future__ import annotations

import re

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass, Precision
from advisor.derive.sequence import on_gpu, sequence, source_lines
from advisor.detectors.kernel.chains import kernel_table, named
from advisor.detectors.words import counted
from advisor.model.device_table import spec_of
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft

# The element type is the first argument of the inner function's template; plain arguments of type double say nothing.
_DOUBLE = re.compile(r"\w<\s*double\b|\bdgemm|_d884|_f64f64|\bdmma")
# Optimizers and random numbers have double arguments and helpers whatever the tensors are.
_HELPERS = re.compile(r"multi_tensor_apply|curand|philox|distribution|bernoulli|random", re.I)


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    double = (named(run, found, _DOUBLE) | (found.precision == Precision.FP64)) & ~named(run, found, _HELPERS)
    spent = found.per_step(found.gpu_ns, double)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    matrix = double & np.isin(found.kind, (KernelClass.GEMM, KernelClass.CONVOLUTION))
    spec = spec_of(ctx.device) if ctx.device else None
    fp64, fp32 = (spec.peak("fp64"), spec.peak("fp32")) if spec else (None, None)
    ratio = min(fp64 / fp32, 1.0) if fp64 and fp32 else 0.5
    half = Factor(ctx.threshold("left_at_worst"), ctx.threshold("left"), min(ratio, ctx.threshold("left")))
    products = Factor(min(2 * ratio, 1.0), ratio, ratio / 2)
    multiplied = found.per_step(found.gpu_ns, matrix)
    count = found.count(double)
    gone = (spent - multiplied) * (1 - half.expected) + multiplied * (1 - products.expected)
    return Draft(
        title=f"{counted(count, 'kernel', 'compute')} in FP64, {spent / pace.step_ns:.1%} of the step",
        confidence="medium",
        edits=[
            Edit(work=on_gpu(run, found, double & ~matrix), gpu=half),
            Edit(work=on_gpu(run, found, matrix), gpu=products),
        ],
        change=Change(gpu_ns=round(gone), limit_ns=spent),
        # Doubles that came by accident vanish with their casts and launches.
        at_best_ns=found.per_step(found.host_ns, double),
        facts={
            "kernels_per_step": count,
            "time_per_step_ns": spent,
            "time_share_frac": round(spent / pace.step_ns, 4),
            "fp64_to_fp32_rate": round(ratio, 4),
        },
        evidence=[kernel_table(run, found, double, "Kernels in FP64, per step")],
        locations=source_lines(run, found, double),
        subject=["fp64"],
    )
