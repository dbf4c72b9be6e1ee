"""Convolutions of fixed sizes that run on algorithms of last resort."""

from __future__ import annotations

import re

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.sequence import sequence, source_lines
from advisor.derive.shapes import CONVOLUTION, products
from advisor.detectors.kernel.chains import kernel_table, named
from advisor.detectors.words import counted
from advisor.rules.contract import Context, Draft, NotApplicable

# cuDNN's first choices on any size: implicit and explicit products without tensor cores, and transforms through memory.
_LAST_RESORT = re.compile(
    r"implicit_convolve_sgemm|explicit_convolve|convolve_common_engine|im2col|fft2d_[rc]2[rc]|dgrad_engine|wgrad_alg", re.I
)


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    convolutions = found.kind == KernelClass.CONVOLUTION
    spent = found.per_step(found.gpu_ns, convolutions)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    slow = convolutions & named(run, found, _LAST_RESORT)
    slowly = found.per_step(found.gpu_ns, slow)
    if slowly < ctx.threshold("slow_share") * spent:
        return None
    known = products(run)
    if len(known) and known.steps > 1:
        sizes, times = np.unique(known.flops[known.kind == CONVOLUTION], return_counts=True)
        if len(sizes) and float((times % known.steps != 0).mean()) > ctx.threshold("varying_sizes"):
            return None  # each new size would be measured anew
    elif found.steps < 2:
        raise NotApplicable("one step does not tell whether sizes are fixed", ctx.rule.capture)
    count = found.count(slow)
    return Draft(
        title=f"{counted(count, 'convolution kernel', 'use')} fallback algorithms, {slowly / pace.step_ns:.0%} of the step",
        confidence="low",
        facts={
            "kernels_per_step": count,
            "fallback_ns": slowly,
            "convolutions_ns": spent,
            "time_share_frac": round(slowly / pace.step_ns, 4),
        },
        evidence=[kernel_table(run, found, slow, "Convolutions on fallback algorithms, per step")],
        locations=source_lines(run, found, slow),
        subject=["cudnn"],
    )
