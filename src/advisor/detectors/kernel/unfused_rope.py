"""Rotary position embeddings written with slices, a negation and a concatenation."""

from __future__ import annotations

import re

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.sequence import Sequence, on_gpu, runs_of, sequence, source_lines
from advisor.detectors.kernel.chains import kernel_table, longest, named
from advisor.model import Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit
from advisor.rules.contract import Change, Context, Draft

_NEGATION, _CONCATENATION = re.compile(r"neg_kernel", re.I), re.compile(r"CatArray|cat_out|concat", re.I)
_PRODUCT, _SUM = re.compile(r"MulFunctor|BinaryFunctor", re.I), re.compile(r"CUDAFunctor_add", re.I)
_BACKWARD = r"\b(Mul|Add|Neg|Cat|Slice|Split|Chunk|Unsqueeze)\w*Backward\d"
_NEGATION_BACKWARD = r"\bNegBackward\d"
# x * cos, -x2, cat, * sin, +: five kernels, and a cast; in the gradient the slices are filled with zeros and copied too.
_REACH, _BACKWARD_REACH = 3, 9
_SMALL = (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.REDUCTION)


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    small = np.isin(found.kind, _SMALL)
    forward, count = _forward(run, found, small)
    backward = _backward(run, found, small)
    chosen = forward | backward
    spent = found.per_step(found.gpu_ns, chosen)
    if not count or spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    # Query and key follow each other: of each stretch one kernel for each of the two stays.
    kept = longest(found, forward, 2) | longest(found, backward & ~forward, 2)
    vanish = chosen & ~kept
    gpu, host = found.per_step(found.gpu_ns, vanish), found.per_step(found.host_ns, vanish)
    calls = found.count(count)
    return Draft(
        title=f"{calls} rotary embeddings a step are written out as {found.count(chosen)} kernels, "
        f"{spent / pace.step_ns:.0%} of the step",
        confidence="medium",
        edits=[Edit(work=on_gpu(run, found, vanish), vanish=True)],
        change=Change(host_ns=host, gpu_ns=gpu, limit_ns=gpu + host),
        facts={
            "embeddings_per_step": calls,
            "kernels_per_step": found.count(chosen),
            "time_per_step_ns": spent,
            "time_share_frac": round(spent / pace.step_ns, 4),
        },
        evidence=[kernel_table(run, found, chosen, "Kernels of written-out rotary embeddings, per step")],
        locations=source_lines(run, found, forward),
        subject=["rope"],
        alternative_to="unfused-elementwise",
    )


def _forward(run: Run, found: Sequence, small: Array) -> tuple[Array, int]:
    """(kernels, how many embeddings): a negation, a concatenation right behind it, products and a sum around."""
    negation, concatenation = named(run, found, _NEGATION), named(run, found, _CONCATENATION)
    product, total = named(run, found, _PRODUCT) & ~negation, named(run, found, _SUM)
    under = op_above(run, found.op, _BACKWARD) >= 0
    number = runs_of(small, found.stream)
    chosen, count = np.zeros(len(found), bool), 0
    for at in np.flatnonzero(negation[:-1] & concatenation[1:] & ~under[:-1] & (number[:-1] == number[1:])).tolist():
        low, high = max(at - 1, 0), min(at + 1 + _REACH, len(found))
        around = [i for i in range(low, high) if number[i] == number[at]]
        if sum(product[around]) < 2 or not total[around].any():
            continue
        last = max(i for i in around if total[i])
        chosen[[i for i in around if i <= last and (product | negation | concatenation | total)[i]]] = True
        count += 1
    return chosen, count


def _backward(run: Run, found: Sequence, small: Array) -> Array:
    parts = small & (op_above(run, found.op, _BACKWARD) >= 0)
    number = runs_of(parts, found.stream)
    chosen = np.zeros(len(found), bool)
    for at in np.flatnonzero(parts & (op_above(run, found.op, _NEGATION_BACKWARD) >= 0)).tolist():
        low, high = max(at - _BACKWARD_REACH, 0), min(at + _BACKWARD_REACH + 1, len(found))
        chosen[low:high] |= number[low:high] == number[at]
    return chosen
