"""Attention written out: two batched matrix products with a softmax between, and the score matrix in device memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass, Precision
from advisor.derive.sequence import Sequence, sequence, source_lines
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.rules.contract import Change, Context, Draft

# Between the products of one attention lie scale, mask, softmax, dropout and casts, forward or backward; more is another layer.
_LONGEST = 24
_BATCHED = r"^aten::(bmm|baddbmm|_?matmul_batched)$"
# The softmax of a loss or of a router is not attention.
_OTHER_SOFTMAX = re.compile(r"log_?softmax|nll|cross_entropy|topk|gating", re.I)


@dataclass(frozen=True)
class Written:
    """inside: kernels between the products; products: the batched products themselves; softmaxes: how many a step."""

    inside: Array
    products: Array
    softmaxes: int


def detect(ctx: Context) -> Draft | None:
    found, pace = sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    written = _written_out(ctx.run, found)
    between, products = found.per_step(found.gpu_ns, written.inside), found.per_step(found.gpu_ns, written.products)
    if not written.softmaxes or between + products < ctx.threshold("min_share") * pace.step_ns:
        return None
    host = found.per_step(found.host_ns, written.inside)
    kept = ctx.threshold("products_left")
    sixteen = bool(np.isin(found.precision[written.products], (Precision.FP16, Precision.BF16)).any())
    capability = ctx.device.compute_capability if ctx.device else None
    flash = sixteen and (capability is None or capability >= (8, 0))
    caveats = (
        []
        if flash
        else ["These products are not 16 bit or the GPU is older than Ampere: the memory-efficient kernel serves them."]
    )
    share = (between + products) / pace.step_ns
    return Draft(
        title=f"attention is written out: {written.softmaxes} softmaxes between batched products take {share:.0%} of a step",
        change=Change(
            host_ns=host,
            gpu_ns=between + round(products * (1 - kept)),
            limit_ns=between + round(products * (1 - ctx.threshold("products_left_at_best"))) + host,
        ),
        facts={
            "softmaxes_per_step": written.softmaxes,
            "between_ns": between,
            "products_ns": products,
            "backend": "FLASH_ATTENTION" if flash else "EFFICIENT_ATTENTION",
        },
        evidence=[_evidence(found, written)],
        locations=source_lines(ctx.run, found, written.inside | written.products),
        caveats=caveats,
        subject=["softmax", "bmm"],
    )


def _written_out(run: Run, found: Sequence) -> Written:
    inside, products = np.zeros(len(found), bool), np.zeros(len(found), bool)
    gemm = found.kind == KernelClass.GEMM
    names = run.table("kernels")["name"][found.row]
    other = {int(code) for code in np.unique(names) if _OTHER_SOFTMAX.search(run.strings[int(code)])}
    batched = op_above(run, found.op, _BATCHED) >= 0
    known = bool((found.op >= 0).any())
    softmaxes = 0
    marks = np.flatnonzero(gemm)
    for low, high in zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True):
        if found.stream[low] != found.stream[high] or not 0 < high - low - 1 <= _LONGEST:
            continue
        if known and not (batched[low] and batched[high]):
            continue
        stretch = slice(low + 1, high)
        kinds = found.kind[stretch]
        if np.isin(kinds, (KernelClass.COMMUNICATION, KernelClass.ATTENTION, KernelClass.OPTIMIZER)).any():
            continue
        softmax = kinds == KernelClass.SOFTMAX
        if any(int(code) in other for code in names[stretch]) or not (softmax.any() or known):
            continue
        inside[stretch], products[low], products[high] = True, True, True
        softmaxes += int(softmax.sum())
    return Written(inside, products, round(softmaxes / max(found.steps, 1)))


def _evidence(found: Sequence, written: Written) -> Evidence:
    groups = [("batched matrix products", written.products)]
    groups += [(f"between them: {kind.label}", written.inside & (found.kind == kind)) for kind in KernelClass]
    table: list[list[Any]] = [
        [what, round(int(mask.sum()) / found.steps, 1), found.per_step(found.gpu_ns, mask)] for what, mask in groups if mask.any()
    ]
    ranked = sorted(table, key=lambda row: -row[2])[:7]
    return Evidence("Kernels of written-out attention, per step", ["kernels", "calls", "gpu_ns"], ranked)
