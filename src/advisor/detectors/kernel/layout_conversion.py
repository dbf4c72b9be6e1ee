"""Convolutions whose kernels want channels last while the tensors are channels first: cuDNN converts to and fro."""

from __future__ import annotations

import re

from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.sequence import costliest, on_gpu, sequence, source_lines
from advisor.detectors.kernel.chains import named
from advisor.detectors.words import name_text
from advisor.model import Evidence
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_CONVERSION = re.compile(r"nchw_?(to|2)_?nhwc|nhwc_?(to|2)_?nchw|ncdhw_?(to|2)_?ndhwc|transpose_readwrite", re.I)
# Kernels of norms and pooling that exist in two forms, here the ones for channels first.
_CHANNELS_FIRST = re.compile(
    r"batch_norm_(backward|collect_statistics|transform_input|backward_reduce|backward_elemt)_kernel(?!_channels_last)"
    r"|bn_(fw|bw)_(tr_)?1C11|max_pool\w*_nchw|(max|avg)_pool2d\w*_frame<|max_pool_(forward|backward)_nchw",
    re.I,
)
_CHANNELS_LAST = re.compile(r"channels_last|nhwc", re.I)
# The one kernel of a group norm's forward pass that no other norm launches.
_GROUP_NORM = re.compile(r"ComputeFusedParamsCUDAKernel")


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    conversions = named(run, found, _CONVERSION)
    spent, host = found.per_step(found.gpu_ns, conversions), found.per_step(found.host_ns, conversions)
    convolutions = int((found.kind == KernelClass.CONVOLUTION).sum())
    if not convolutions or spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    if int(named(run, found, _GROUP_NORM).sum()) >= ctx.threshold("max_group_norms") * convolutions:
        raise NotApplicable(
            "Group norms stand between the convolutions, and PyTorch computes them channels first on a GPU: in channels last "
            "the conversions would move to the norms instead of going away. Measure a step both ways.",
            "",
        )
    others = named(run, found, _CHANNELS_FIRST) & ~named(run, found, _CHANNELS_LAST)
    slow = found.per_step(found.gpu_ns, others)
    left, least = ctx.threshold("channels_last_left"), ctx.threshold("channels_last_left_at_best")
    count = found.count(conversions)
    rows = [[name_text(name), "conversion", calls, gpu] for name, calls, gpu in costliest(run, found, conversions, 4)]
    rows += [[name_text(name), "channels first", calls, gpu] for name, calls, gpu in costliest(run, found, others, 4)]
    return Draft(
        title=f"{count} layout conversions a step round convolutions take {spent / pace.step_ns:.0%} of the step"
        + (f", channels-first norms and pooling {slow / pace.step_ns:.0%}" if slow >= 0.005 * pace.step_ns else ""),
        confidence="medium",
        edits=[
            Edit(work=on_gpu(run, found, conversions), vanish=True),
            Edit(work=on_gpu(run, found, others), gpu=Factor(1.0, left, least)),
        ],
        change=Change(
            host_ns=host, gpu_ns=spent + round(slow * (1 - left)), limit_ns=spent + round(slow * (1 - least)) + host
        ),
        facts={
            "conversions_per_step": count,
            "conversions_ns": spent,
            "norms_and_pooling_ns": slow,
            "conversions_share_frac": round(spent / pace.step_ns, 4),
        },
        evidence=[Evidence("Kernels that the layout costs, per step", ["kernel", "what", "calls", "gpu_ns"], rows)],
        locations=source_lines(run, found, conversions),
        subject=["channels-first"],
    )  # fmt: skip
