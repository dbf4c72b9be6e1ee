"""Gated activations in which the activation and the product with the gate are kernels of their own."""

from __future__ import annotations

import re

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.sequence import Sequence, on_gpu, runs_of, sequence, source_lines
from advisor.detectors.kernel.chains import kernel_table, longest, named
from advisor.model.tables import Array
from advisor.replay.changes import Edit
from advisor.rules.contract import Change, Context, Draft

_ACTIVATION = re.compile(r"silu_kernel|gelu(CUDA)?Kernel|sigmoid_kernel", re.I)
_GRADIENT = re.compile(r"(silu|gelu|sigmoid)_?backward", re.I)
_ACTIVATION_OPERATOR, _GRADIENT_OPERATOR = r"^aten::(silu|gelu)$", r"^aten::(silu|gelu)_backward$"
_PRODUCT = re.compile(r"MulFunctor|BinaryFunctor", re.I)


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or len(found) < 2:
        return None
    product = named(run, found, _PRODUCT) & (found.kind == KernelClass.ELEMENTWISE)
    gradient = named(run, found, _GRADIENT) | (op_above(run, found.op, _GRADIENT_OPERATOR) >= 0)
    activation = (named(run, found, _ACTIVATION) | (op_above(run, found.op, _ACTIVATION_OPERATOR) >= 0)) & ~gradient
    forward = _pairs(found, activation, product & ~gradient & ~activation, 1)
    if not forward.any():
        return None
    backward = _pairs(found, gradient, product & ~gradient & ~activation, -2)
    chosen = forward | backward
    spent = found.per_step(found.gpu_ns, chosen)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    kept = longest(found, forward, 1) | longest(found, backward & ~forward, 1)
    vanish = chosen & ~kept
    gpu, host = found.per_step(found.gpu_ns, vanish), found.per_step(found.host_ns, vanish)
    count = found.count(forward & activation)
    return Draft(
        title=f"{count} gated activations a step run as {found.count(chosen)} kernels, {spent / pace.step_ns:.0%} of the step",
        confidence="medium",
        edits=[Edit(work=on_gpu(run, found, vanish), vanish=True)],
        change=Change(host_ns=host, gpu_ns=gpu, limit_ns=gpu + host),
        facts={
            "activations_per_step": count,
            "kernels_per_step": found.count(chosen),
            "time_per_step_ns": spent,
            "time_share_frac": round(spent / pace.step_ns, 4),
        },
        evidence=[kernel_table(run, found, chosen, "Kernels of gated activations, per step")],
        locations=source_lines(run, found, forward),
        subject=["gated-activation"],
        alternative_to="unfused-elementwise",
    )


def _pairs(found: Sequence, anchor: Array, product: Array, reach: int) -> Array:
    """Anchors with the products directly behind (reach 1) or before (reach -2: up to two) them on the same stream."""
    chosen = np.zeros(len(found), bool)
    number = runs_of(anchor | product, found.stream)
    at = np.flatnonzero(anchor)
    for distance in range(1, abs(reach) + 1):
        near = at + (distance if reach > 0 else -distance)
        inside = (near >= 0) & (near < len(found))
        here, near = at[inside], near[inside]
        same = product[near] & (number[near] == number[here])
        chosen[here[same]] = chosen[near[same]] = True
    return chosen
