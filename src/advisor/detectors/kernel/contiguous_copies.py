"""Copies that only rearrange a tensor in memory, before something that wants it contiguous."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.sequence import on_gpu, sequence, source_lines
from advisor.detectors.kernel.chains import kernel_table
from advisor.model import Evidence
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_REARRANGED = r"^aten::(contiguous|clone)$"
_CAST = r"^aten::_to_copy$"
# Who asked for it: the first of these above the copy.
_ASKED = r"^aten::(contiguous|reshape|matmul|linear|einsum|bmm|flatten|scaled_dot_product_attention|\w*norm\w*|conv\w*)$"


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    if not (found.op >= 0).any():
        raise NotApplicable("the operators behind the kernels were not recorded", ctx.rule.capture)
    copies = (found.kind == KernelClass.COPY) & (op_above(run, found.op, _REARRANGED) >= 0)
    copies &= op_above(run, found.op, _CAST) < 0
    spent, host = found.per_step(found.gpu_ns, copies), found.per_step(found.host_ns, copies)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    left, count = ctx.threshold("left"), found.count(copies)
    ops = run.table("host_ops")
    asked = op_above(run, found.op, _ASKED)[copies]
    names = np.where(asked >= 0, ops["name"][np.maximum(asked, 0)], -1)
    rows: list[list[Any]] = []
    for code in np.unique(names).tolist():
        same = np.flatnonzero(copies)[names == code]
        gpu = int(found.gpu_ns[same].sum()) // max(found.steps, 1)
        rows.append([run.strings[code] or "elsewhere", round(len(same) / max(found.steps, 1), 1), gpu])
    rows.sort(key=lambda row: -row[2])
    return Draft(
        title=f"{count} copies a step only make tensors contiguous, {spent / pace.step_ns:.0%} of the step",
        confidence="medium",
        edits=[Edit(work=on_gpu(run, found, copies), gpu=Factor(1.0, left, 0.0))],
        change=Change(gpu_ns=round(spent * (1 - left)), limit_ns=spent + host),
        facts={"copies_per_step": count, "copy_ns": spent, "time_share_frac": round(spent / pace.step_ns, 4)},
        evidence=[
            Evidence("Who asked for the copies, per step", ["operator", "calls", "gpu_ns"], rows[:6]),
            kernel_table(run, found, copies, "Copies, per step", 4),
        ],
        locations=source_lines(run, found, copies),
        subject=["contiguous"],
        alternative_to="unfused-elementwise",
    )
