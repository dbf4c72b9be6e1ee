"""Layer and RMS norms written out: a mean, a root and a handful of pointwise kernels where a library has one or two."""

from __future__ import annotations

import re

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.sequence import Sequence, on_gpu, runs_of, sequence, source_lines
from advisor.detectors.kernel.chains import kernel_table, longest, named, optimizer_kernels
from advisor.model import Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft

_ROOT = re.compile(r"rsqrt|[^a-z]sqrt", re.I)
_MEAN = re.compile(r"MeanOps|WelfordOps|reduce_kernel", re.I)
_SQUARE = re.compile(r"pow_tensor|MulFunctor|square|BinaryFunctor", re.I)
_ROOT_BACKWARD = r"\b(Rsqrt|Sqrt|Std|Var|StdMean|VarMean)Backward\d"
_PARTS_BACKWARD = (
    r"^(Mul|Div|Sub|Add|Mean|Pow|Rsqrt|Sqrt|Std|Var|StdMean|VarMean|Neg|Sum)Backward|: (Mul|Div|Sub|Add|Mean|Pow)Backward"
)
# A written-out layer norm has two means and a difference before its root, and a quotient, a weight and a bias behind it.
_BEFORE, _BEHIND, _BACKWARD_REACH = 8, 3, 14


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    small = np.isin(found.kind, (KernelClass.ELEMENTWISE, KernelClass.REDUCTION)) | named(run, found, _MEAN)
    small &= ~optimizer_kernels(run, found)
    forward, backward = _forward(run, found, small), _backward(run, found, small)
    chosen = forward | backward
    spent = found.per_step(found.gpu_ns, chosen)
    norms = found.count(int(runs_of(forward, found.stream).max(initial=-1) + 1)) if forward.any() else 0
    if not norms or spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    kept = longest(found, forward, 1) | longest(found, backward & ~forward, 2)
    vanish = chosen & ~kept
    gpu, host = found.per_step(found.gpu_ns, vanish), found.per_step(found.host_ns, vanish)
    kernels = found.count(chosen)
    return Draft(
        title=f"{norms} norms a step are written out as {kernels} kernels, {spent / pace.step_ns:.0%} of the step",
        confidence="medium",
        edits=[
            Edit(work=on_gpu(run, found, vanish), vanish=True),
            Edit(work=on_gpu(run, found, kept), gpu=Factor(1.0, 1.0, ctx.threshold("kept_at_best"))),
        ],
        change=Change(host_ns=host, gpu_ns=gpu, limit_ns=gpu + host),
        facts={
            "norms_per_step": norms,
            "kernels_per_step": kernels,
            "forward_ns": found.per_step(found.gpu_ns, forward),
            "backward_ns": found.per_step(found.gpu_ns, backward),
            "time_share_frac": round(spent / pace.step_ns, 4),
        },
        evidence=[kernel_table(run, found, chosen, "Kernels of written-out norms, per step")],
        locations=source_lines(run, found, forward),
        caveats=[] if backward.any() else ["Only the forward pass was recognised; the backward pass gains too."],
        subject=["norm"],
        alternative_to="unfused-elementwise",
    )


def _forward(run: Run, found: Sequence, small: Array) -> Array:
    """From the first mean before each root to the last pointwise kernel behind it."""
    mean, square = named(run, found, _MEAN) & small, named(run, found, _SQUARE) & small
    under = op_above(run, found.op, _ROOT_BACKWARD) >= 0
    roots = np.flatnonzero(named(run, found, _ROOT) & small & ~mean & ~under)
    number = runs_of(small, found.stream)
    chosen = np.zeros(len(found), bool)
    for root in roots.tolist():
        first = max(root - _BEFORE, 0)
        means = [at for at in range(first, root) if mean[at] and number[at] == number[root]]
        if not means:
            continue
        begin = means[0]
        if begin and square[begin - 1] and number[begin - 1] == number[root]:
            begin -= 1
        end = root + 1
        while end < len(found) and end <= root + _BEHIND and number[end] == number[root] and not mean[end]:
            end += 1
        chosen[begin:end] = True
    return chosen


def _backward(run: Run, found: Sequence, small: Array) -> Array:
    """Neighbours of the root's gradient that belong to the gradients of a norm's other parts."""
    parts = small & (op_above(run, found.op, _PARTS_BACKWARD) >= 0)
    number = runs_of(parts, found.stream)
    chosen = np.zeros(len(found), bool)
    for root in np.flatnonzero(parts & (op_above(run, found.op, _ROOT_BACKWARD) >= 0)).tolist():
        low, high = max(root - _BACKWARD_REACH, 0), min(root + _BACKWARD_REACH + 1, len(found))
        chosen[low:high] |= number[low:high] == number[root]
    return chosen
