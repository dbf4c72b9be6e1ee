"""Gradients of micro-batches added up one tensor at a time."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.sequence import on_gpu, sequence, source_lines
from advisor.detectors.kernel.chains import kernel_table
from advisor.detectors.kernel.zero_grad_memset import backward_passes
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_ACCUMULATE = r"AccumulateGrad$"


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    if not (found.op >= 0).any():
        raise NotApplicable("the operators behind the kernels were not recorded", ctx.rule.capture)
    adds = op_above(run, found.op, _ACCUMULATE) >= 0
    passes = backward_passes(run, found)
    spent, host = found.per_step(found.gpu_ns, adds), found.per_step(found.host_ns, adds)
    # With a single backward pass these are additions to zeros, or copies into the buckets of a wrapper.
    if passes < 2 or max(spent, host) < ctx.threshold("min_share") * pace.step_ns:
        return None
    left = ctx.threshold("left")
    calls = np.zeros(len(run.table("runtime_calls")), bool)
    calls[found.call[adds & (found.call >= 0)]] = True
    count = found.count(adds)
    return Draft(
        title=f"{count} kernels a step add up the gradients of {passes} micro-batches, {spent / pace.step_ns:.0%} of the step",
        confidence="medium",
        edits=[
            Edit(work=on_gpu(run, found, adds), gpu=Factor(1.0, left, 0.0)),
            Edit(calls=calls, host=Factor(1.0, left, 0.0)),
        ],
        change=Change(host_ns=round(host * (1 - left)), gpu_ns=round(spent * (1 - left)), limit_ns=host + spent),
        facts={
            "adds_per_step": count,
            "micro_batches": passes,
            "adds_ns": spent,
            "time_share_frac": round(spent / pace.step_ns, 4),
        },
        evidence=[kernel_table(run, found, adds, "Kernels that accumulate gradients, per step")],
        locations=source_lines(run, found, adds),
        subject=["accumulation"],
    )
