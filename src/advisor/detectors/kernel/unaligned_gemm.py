"""Matrix products whose sizes fit no 16-byte loads, so the library falls back to a slow kernel."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass, Precision
from advisor.derive.sequence import Sequence, costliest, on_gpu, sequence, source_lines
from advisor.derive.shapes import GEMM, Products, products
from advisor.detectors.words import counted, name_text
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft

# Elements in 16 bytes, the widest load: what every leading dimension must be a multiple of for the fast kernels.
_NEEDED = {Precision.TF32: 4, Precision.FP16: 8, Precision.BF16: 8, Precision.FP8: 16}
# CUTLASS prints how many elements its loads take: "..._tn_align1", "..._aligna2_alignc2".
_ALIGN = re.compile(r"(?:align|ldg)[abc]?(\d+)")
_CONVOLUTION = r"conv"
# Multiples that fill the tiles of today's kernels, not only their loads.
_PAD = 64


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    known = products(run)
    needed, loads = _needed(found), _loads(run, found)
    gemm = (found.kind == KernelClass.GEMM) & (needed > 0) & ~_of_convolutions(run, found)
    odd_name = gemm & (loads > 0) & (loads < needed)
    sizes, peers = _odd_sizes(known, found, gemm & ~odd_name)
    slow = odd_name | (gemm & _slow(known, found, sizes, peers, ctx.threshold("of_aligned_rate")))
    spent = found.per_step(found.gpu_ns, slow)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    left, measured = _left(ctx, known, found, slow, peers)
    worst, best = left * ctx.threshold("left_factor_at_worst"), left * ctx.threshold("left_factor_at_best")
    factor = Factor(min(worst, 1.0), left, best)
    count = found.count(slow)
    size = _commonest(known, found, slow)
    facts: dict[str, Any] = {
        "kernels_per_step": count,
        "time_per_step_ns": spent,
        "time_share_frac": round(spent / pace.step_ns, 4),
        "rate_measured": measured,
        "left_frac": round(left, 4),
    }
    where = ""
    if size:
        facts |= {"size": size, "padded": -(-size // _PAD) * _PAD}
        where = f" (a size of {size})"
    return Draft(
        title=f"{counted(count, 'matrix product', 'are')} not aligned{where} and {'takes' if count == 1 else 'take'} "
        f"{spent / pace.step_ns:.0%} of the step",
        confidence="high" if measured else "medium",
        edits=[Edit(work=on_gpu(run, found, slow), gpu=factor)],
        change=Change(gpu_ns=round(spent * (1 - left)), limit_ns=round(spent * (1 - best))),
        facts=facts,
        evidence=[_evidence(run, known, found, slow, peers)],
        locations=source_lines(run, found, slow),
        subject=["gemm", *([str(size)] if size else [])],
    )


def _needed(found: Sequence) -> Array:
    needed = np.zeros(len(found), np.int64)
    for precision, multiple in _NEEDED.items():
        needed[found.precision == precision] = multiple
    return needed


def _loads(run: Run, found: Sequence) -> Array:
    """Elements of the narrowest load that each kernel's name states, 0 if it states none."""
    names = run.table("kernels")["name"][found.row]
    codes, place = np.unique(names, return_inverse=True)
    stated = [min((int(number) for number in _ALIGN.findall(run.strings[int(code)])), default=0) for code in codes]
    return np.array(stated, np.int64)[place] if len(codes) else np.zeros(0, np.int64)


def _of_convolutions(run: Run, found: Sequence) -> Array:
    """Products that compute a convolution: their sizes are those of images. Where nothing tells, all of a net of those."""
    if (found.op >= 0).any():
        return np.asarray(op_above(run, found.op, _CONVOLUTION) >= 0, bool)
    convolutions = found.gpu_ns[found.kind == KernelClass.CONVOLUTION].sum()
    many = convolutions > 0.2 * found.gpu_ns[np.isin(found.kind, (KernelClass.CONVOLUTION, KernelClass.GEMM))].sum()
    return np.full(len(found), bool(many))


def _odd_sizes(known: Products, found: Sequence, others: Array) -> tuple[Array, dict[int, float]]:
    """(operations with a size that is not a multiple, rate of the others by Precision in FLOP/s)."""
    needed = np.array([_NEEDED.get(Precision(int(p)), 1) for p in known.precision], np.int64)
    odd = (known.kind == GEMM) & (((known.n % needed) != 0) | ((known.k % needed) != 0) | ((known.m % needed) != 0))
    whole = np.zeros(len(known), bool)
    mine = known.of_kernel[others]
    whole[mine[mine >= 0]] = True
    peers: dict[int, float] = {}
    for precision in np.unique(known.precision).tolist():
        same = whole & ~odd & (known.kind == GEMM) & (known.precision == precision) & (known.gpu_ns > 0)
        if same.any():
            peers[precision] = float(known.flops[same].sum() / known.gpu_ns[same].sum() * 1e9)
    return odd, peers


def _slow(known: Products, found: Sequence, odd: Array, peers: dict[int, float], share: float) -> Array:
    """Kernels of operations with odd sizes that run at less than this share of the aligned ones' rate."""
    rate = known.flops / np.maximum(known.gpu_ns, 1) * 1e9
    other = np.array([peers.get(int(p), 0.0) for p in known.precision])
    slow = odd & (rate < share * other) & (known.m > 1) & (known.n > 1)
    return np.asarray((known.of_kernel >= 0) & np.append(slow, False)[known.of_kernel], bool)


def _left(ctx: Context, known: Products, found: Sequence, slow: Array, peers: dict[int, float]) -> tuple[float, bool]:
    """(what is left of the time of these kernels, whether the trace itself shows the aligned rate)."""
    own = known.of_kernel[slow]
    own = np.unique(own[own >= 0])
    rates = np.array([peers.get(int(p), 0.0) for p in known.precision[own]])
    if len(own) and (rates > 0).all():
        return min(float((known.flops[own] / rates).sum() * 1e9 / max(known.gpu_ns[own].sum(), 1)), 1.0), True
    capability = (ctx.device.compute_capability if ctx.device else None) or (8, 0)
    generation = "hopper" if capability >= (9, 0) else "ampere" if capability >= (8, 0) else "older"
    return ctx.threshold(f"left_{generation}"), False


def _commonest(known: Products, found: Sequence, slow: Array) -> int | None:
    """The odd size that costs most time."""
    own = known.of_kernel[slow]
    own = np.unique(own[own >= 0])
    spent: dict[int, int] = {}
    for one in own.tolist():
        needed = _NEEDED.get(Precision(int(known.precision[one])), 1)
        for size in {int(known.m[one]), int(known.n[one]), int(known.k[one])}:
            if size % needed:
                spent[size] = spent.get(size, 0) + int(known.gpu_ns[one])
    return max(spent, key=lambda size: (spent[size], size)) if spent else None


def _evidence(run: Run, known: Products, found: Sequence, slow: Array, peers: dict[int, float]) -> Evidence:
    own = known.of_kernel[slow]
    own = np.unique(own[own >= 0])
    if not len(own):
        rows = [[name_text(name), calls, gpu] for name, calls, gpu in costliest(run, found, slow)]
        return Evidence("Kernels with narrow loads, per step", ["kernel", "calls", "gpu_ns"], rows)
    groups: dict[tuple[int, ...], list[int]] = {}
    for one in own.tolist():
        groups.setdefault(tuple(int(x[one]) for x in (known.batch, known.m, known.n, known.k, known.precision)), []).append(one)
    table: list[list[Any]] = []
    for (batch, m, n, k, precision), members in groups.items():
        spent = int(known.gpu_ns[members].sum())
        rate = float(known.flops[members].sum()) / max(spent, 1) * 1e9
        peer = peers.get(precision)
        size = f"{m} x {n} x {k}" if batch == 1 else f"{batch} x ({m} x {n} x {k})"
        calls, per_step = round(len(members) / max(known.steps, 1), 1), spent // max(known.steps, 1)
        table.append([size, calls, per_step, round(rate / 1e12, 1), round(peer / 1e12, 1) if peer else None])
    table.sort(key=lambda row: -row[2])
    columns = ["m x n x k", "calls", "gpu_ns", "tflops", "aligned_tflops"]
    return Evidence("Products with sizes that are not multiples, per step", columns, table[:6])
