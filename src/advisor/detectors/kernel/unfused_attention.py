"""Attention written out: two batched matrix products with a softmax between, and the score matrix in device memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.calls import links
from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.kernel_classes import KernelClass, Precision
from advisor.derive.sequence import Sequence, host_cost, on_gpu, sequence, sequences, source_lines
from advisor.model import CopyKind, Evidence, Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft

# Between the products of one attention lie scale, mask, softmax, dropout and casts, forward or backward; more is another layer.
_LONGEST = 24
_BATCHED = r"^aten::(bmm|baddbmm|_?matmul_batched)$"
# The softmax of a loss or of a router is not attention.
_OTHER_SOFTMAX = re.compile(r"log_?softmax|nll|cross_entropy|topk|gating", re.I)


# Kernels of these kinds never stand inside one attention.
_OTHER_KINDS = (KernelClass.COMMUNICATION, KernelClass.ATTENTION, KernelClass.OPTIMIZER)


@dataclass(frozen=True)
class Written:
    """inside: kernels between the products; products: the batched products themselves; softmaxes: how many a step.

    moved: positions in `gpu_work` of copies within device memory between the products (a score matrix made contiguous);
    copies, copy_ns, copy_host_ns: how many and how long on GPU and host, per step.
    """

    inside: Array
    products: Array
    softmaxes: int
    moved: Array
    copies: float
    copy_ns: int
    copy_host_ns: int


def detect(ctx: Context) -> Draft | None:
    found, pace = sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    written = _written_out(ctx.run, found)
    between = found.per_step(found.gpu_ns, written.inside) + written.copy_ns
    products = found.per_step(found.gpu_ns, written.products)
    if not written.softmaxes or between + products < ctx.threshold("min_share") * pace.step_ns:
        return None
    host = found.per_step(found.host_ns, written.inside) + written.copy_host_ns
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
        edits=_edits(ctx, found, written),
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


def _edits(ctx: Context, found: Sequence, written: Written) -> list[Edit]:
    gone, products = (np.zeros(len(gpu_work(ctx.run)), bool) for _ in range(2))
    for each in sequences(ctx.run):
        same = written if each is found else _written_out(ctx.run, each)
        gone |= on_gpu(ctx.run, each, same.inside)
        gone[same.moved] = True
        products |= on_gpu(ctx.run, each, same.products)
    kept = Factor(1.0, ctx.threshold("products_left"), ctx.threshold("products_left_at_best"))
    return [Edit(work=gone, vanish=True), Edit(work=products, gpu=kept)]


def _written_out(run: Run, found: Sequence) -> Written:
    inside, products = np.zeros(len(found), bool), np.zeros(len(found), bool)
    gemm = found.kind == KernelClass.GEMM
    names = run.table("kernels")["name"][found.row]
    other = [int(code) for code in np.unique(names) if _OTHER_SOFTMAX.search(run.strings[int(code)])]
    batched = op_above(run, found.op, _BATCHED) >= 0
    known = bool((found.op >= 0).any())
    marks = np.flatnonzero(gemm)
    low, high = marks[:-1], marks[1:]

    def between(mask: Array) -> Array:
        """How many kernels of the mask lie between each pair of neighbouring products."""
        total = np.concatenate(([0], np.cumsum(mask)))
        return np.asarray(total[high] - total[low + 1])

    softmax = between(found.kind == KernelClass.SOFTMAX)
    count = high - low - 1
    fits = (found.stream[low] == found.stream[high]) & (count > 0) & (count <= _LONGEST)
    fits &= between(np.isin(found.kind, _OTHER_KINDS)) == 0
    fits &= between(np.isin(names, other)) == 0
    # Other batched products (experts, for one) have activations between them, never a softmax.
    fits &= softmax > 0
    if known:
        fits &= batched[low] & batched[high]
    low, high = low[fits], high[fits]
    stretches = list(zip(low.tolist(), high.tolist(), strict=True))
    for first, last in stretches:
        inside[first + 1 : last] = True
    products[low], products[high] = True, True
    softmaxes = int(softmax[fits].sum())
    if known:
        _add_neighbours(found, products, batched, marks)
    return Written(inside, products, round(softmaxes / max(found.steps, 1)), *_copies_between(run, found, stretches))


def _add_neighbours(found: Sequence, products: Array, batched: Array, marks: Array) -> None:
    """Batched products that follow each other directly: the backward pass has two for each of the forward pass."""
    pairs = [
        (low, high)
        for low, high in zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True)
        if high == low + 1 and batched[low] and batched[high] and found.stream[low] == found.stream[high]
    ]
    for low, high in [*pairs, *reversed(pairs)]:
        products[low] = products[high] = products[low] or products[high]


def _copies_between(run: Run, found: Sequence, stretches: list[tuple[int, int]]) -> tuple[Array, float, int, int]:
    """Copies within device memory that ran between the products: which, and (count, GPU time, host time) per step."""
    if not stretches:
        return np.empty(0, np.int64), 0.0, 0, 0
    kernels, work, call = run.table("kernels"), gpu_work(run), links(run).call
    low, high = (found.row[np.array(ends)] for ends in zip(*stretches, strict=True))
    order = np.argsort(kernels["end"][low])
    begin, end, stream = kernels["end"][low][order], kernels["start"][high][order], kernels["stream"][low][order]
    copies = np.flatnonzero(work.source == COPY)
    inner = run.table("copies")["kind"][work.row[copies]] == CopyKind.DEVICE_TO_DEVICE
    inner &= (work.rank[copies] == kernels["rank"][low[0]]) & (work.process[copies] == kernels["process"][low[0]])
    copies = copies[inner]
    at = np.maximum(np.searchsorted(begin, work.start[copies], side="right") - 1, 0)
    copies = copies[(work.start[copies] >= begin[at]) & (work.end[copies] <= end[at]) & (work.stream[copies] == stream[at])]
    known = copies[call[copies] >= 0]
    steps = max(found.steps, 1)
    gpu, host = (work.end[copies] - work.start[copies]).sum(), host_cost(run)[call[known]].sum()
    return copies, round(len(copies) / steps, 1), int(gpu) // steps, int(host) // steps


def _evidence(found: Sequence, written: Written) -> Evidence:
    groups = [("batched matrix products", written.products)]
    groups += [(f"between them: {kind.label}", written.inside & (found.kind == kind)) for kind in KernelClass]
    table: list[list[Any]] = [
        [what, round(int(mask.sum()) / found.steps, 1), found.per_step(found.gpu_ns, mask)] for what, mask in groups if mask.any()
    ]
    if written.copy_ns:
        table.append(["between them: copies within device memory", written.copies, written.copy_ns])
    ranked = sorted(table, key=lambda row: -row[2])[:7]
    return Evidence("Kernels of written-out attention, per step", ["kernels", "calls", "gpu_ns"], ranked)
