"""Kernels that only change the element type of weights, activations and gradients, step after step."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.sequence import Sequence, on_gpu, sequence, source_lines
from advisor.derive.shapes import parsed
from advisor.detectors.kernel.chains import kernel_table, named, optimizer_kernels
from advisor.detectors.words import counted
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft

# PyTorch's copy kernels have names of their own for 16-bit targets, or say that they load or store with a cast.
_CAST = re.compile(
    r"b?float16_copy_kernel|direct_copy_kernel.*(Load|Store)WithCast|(Load|Store)WithCast.*direct_copy_kernel", re.I
)
_OPERATOR = r"^aten::_to_copy$"
_WEIGHT = r"^aten::(linear|conv\dd|matmul|addmm|bmm|baddbmm|scaled_dot_product_attention)$"
_GRADIENT = r"ToCopyBackward"


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    casts = named(run, found, _CAST) & ~optimizer_kernels(run, found)
    if (found.op >= 0).any():
        casts &= (op_above(run, found.op, _OPERATOR) >= 0) & _changes(run, found)
    spent, host = found.per_step(found.gpu_ns, casts), found.per_step(found.host_ns, casts)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    left = ctx.threshold("left")
    count = found.count(casts)
    evidence = [kernel_table(run, found, casts, "Casting kernels, per step")]
    if (found.op >= 0).any():
        evidence.insert(0, _by_place(run, found, casts))
    return Draft(
        title=f"{counted(count, 'kernel', 'only cast')} tensors to another type, {spent / pace.step_ns:.0%} of the step",
        confidence="medium",
        edits=[Edit(work=on_gpu(run, found, casts), gpu=Factor(1.0, left, 0.0))],
        change=Change(gpu_ns=round(spent * (1 - left)), limit_ns=spent + host),
        facts={
            "casts_per_step": count,
            "cast_ns": spent,
            "time_share_frac": round(spent / pace.step_ns, 4),
            "launches_host_ns": host,
        },
        evidence=evidence,
        locations=source_lines(run, found, casts),
        subject=["casts"],
        alternative_to="unfused-elementwise",
    )


def _changes(run: Run, found: Sequence) -> Array:
    """False where recorded element types show that a copy keeps its type."""
    ops = run.table("host_ops")
    if not ops.has("types"):
        return np.ones(len(found), bool)
    codes = ops["types"][np.maximum(found.op, 0)]
    same: dict[int, bool] = {}
    for code in np.unique(codes).tolist():
        types = [kind for kind in parsed(run.strings[code]) if kind not in ("", "Scalar")]
        same[code] = len(types) >= 2 and types[0] == types[1]
    return np.array([not same[code] for code in codes.tolist()], bool)


def _by_place(run: Run, found: Sequence, casts: Array) -> Evidence:
    """What is cast: inputs of matrix products (weights and activations), gradients, or something else."""
    gradient = casts & (op_above(run, found.op, _GRADIENT) >= 0)
    product = casts & ~gradient & (op_above(run, found.op, _WEIGHT) >= 0)
    groups = [("weights and inputs of products", product), ("gradients", gradient), ("elsewhere", casts & ~gradient & ~product)]
    steps = max(found.steps, 1)
    rows: list[list[Any]] = [
        [what, round(int(mask.sum()) / steps, 1), found.per_step(found.gpu_ns, mask)] for what, mask in groups if mask.any()
    ]
    return Evidence("What is cast, per step", ["what", "calls", "gpu_ns"], rows)
