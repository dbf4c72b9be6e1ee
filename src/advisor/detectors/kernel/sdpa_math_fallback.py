"""scaled_dot_product_attention that falls back to its written-out form, since no fused kernel takes the inputs."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import op_above, ops_named
from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import MATRIX_CLASSES
from advisor.derive.sequence import Sequence, on_gpu, sequence, source_lines
from advisor.derive.shapes import parsed
from advisor.detectors.kernel.chains import kernel_table
from advisor.detectors.kernel.unfused_attention import _written_out as written_out
from advisor.model import Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_MATH = r"^aten::_scaled_dot_product_attention_math"
_FUSED_LIMIT = 256  # largest head of today's fused kernels


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    if not ops_named(run, r"scaled_dot_product").any() and not (found.op >= 0).any():
        raise NotApplicable("the operators behind the kernels were not recorded", ctx.rule.capture)
    math = op_above(run, found.op, _MATH) >= 0
    if not math.any():
        return None
    written, matrix = written_out(run, found), np.isin(found.kind, MATRIX_CLASSES)
    products = (math | written.products) & matrix
    inside = (math | written.inside) & ~matrix
    between = found.per_step(found.gpu_ns, inside) + written.copy_ns
    multiplied = found.per_step(found.gpu_ns, products)
    if between + multiplied < ctx.threshold("min_share") * pace.step_ns:
        return None
    gone = on_gpu(run, found, inside)
    gone[written.moved] = True
    kept, best = ctx.threshold("products_left"), ctx.threshold("products_left_at_best")
    host = found.per_step(found.host_ns, inside) + written.copy_host_ns
    why = _reasons(run, found, math)
    share = (between + multiplied) / pace.step_ns
    return Draft(
        title=f"scaled_dot_product_attention runs its written-out form, {share:.0%} of the step",
        confidence="high",
        edits=[Edit(work=gone, vanish=True), Edit(work=on_gpu(run, found, products), gpu=Factor(1.0, kept, best))],
        change=Change(
            host_ns=host,
            gpu_ns=between + round(multiplied * (1 - kept)),
            limit_ns=between + round(multiplied * (1 - best)) + host,
        ),
        facts={
            "calls_per_step": _calls(run, found, math),
            "between_ns": between,
            "products_ns": multiplied,
            "time_share_frac": round(share, 4),
        },
        evidence=[kernel_table(run, found, inside | products, "Kernels of the written-out form, per step")],
        locations=source_lines(run, found, math),
        caveats=why,
        subject=["sdpa-math"],
    )


def _calls(run: Run, found: Sequence, math: Array) -> float:
    """Forward calls of the written-out form, per step."""
    return round(len(np.unique(op_above(run, found.op[math], _MATH))) / max(found.steps, 1), 1)


def _reasons(run: Run, found: Sequence, math: Array) -> list[str]:
    """What of the inputs, as far as recorded, no fused kernel takes."""
    ops = run.table("host_ops")
    rows = np.unique(op_above(run, found.op[math], _MATH))
    reasons: list[str] = []
    for row in rows[:50].tolist():
        shapes, types = (parsed(run.strings[int(ops[column][row])]) for column in ("shapes", "types"))
        sizes = [shape for shape in shapes if isinstance(shape, list) and len(shape) >= 3]
        if not sizes:
            continue
        head = sizes[0][-1]
        if isinstance(head, int) and head > _FUSED_LIMIT:
            reasons.append(f"The head size of {head} is above the {_FUSED_LIMIT} of the fused kernels.")
        if types and types[0] == "double":
            reasons.append("The inputs are FP64, for which there is no fused kernel.")
        elif types and types[0] == "float":
            reasons.append("The inputs are FP32: flash kernels take 16 bit only, the memory-efficient one takes FP32.")
        if len(shapes) > 3 and shapes[3]:
            reasons.append("A mask tensor is given: flash kernels take none, and the memory-efficient one only some alignments.")
    return list(dict.fromkeys(reasons))[:3]
