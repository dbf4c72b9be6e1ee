"""Chains of small pointwise kernels, each of which reads and writes all of its data."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.gpus import gpu_work
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.phases import optimizer_calls
from advisor.derive.sequence import Sequence, on_gpu, runs_of, sequence, sequences, source_lines
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft

# A compiler merges these with their neighbours; a reduction or softmax can end a fused kernel. Norm kernels are fused already.
FUSABLE = (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.REDUCTION)
# What the function inside an elementwise launcher does, in the forms that PyTorch's kernel names have.
_INNER = tuple(
    re.compile(pattern)
    for pattern in (
        r"CUDAFunctor(?:OnSelf|OnOther)?_(\w+)",
        r"binary_internal::(\w+?)Functor",
        r"(?:::|\b)launch_(\w+?)(?:_kernel)?\(",
        r"(\w+?)_kernel(?:_impl|_cuda)\w*[(<]",
        r"ReduceOp<.*?(\w+?)(?:_functor|Ops|NormOps)\b",
        r"(?:::|\b)(?!AUnary|BUnary|Binary)(\w+?)Functor\b",
        r"(\w+?)KernelImpl\(",
    )
)


def detect(ctx: Context) -> Draft | None:
    found, pace = sequence(ctx.run), two_sided(ctx.run)
    if pace is None:
        return None
    chain, lengths, chained = _chains(ctx, found)
    if not chained.any():
        return None
    vanish = chained & ~_longest(found, chain, len(lengths))
    gpu, host = found.per_step(found.gpu_ns, vanish), found.per_step(found.host_ns, vanish)
    spent = found.per_step(found.gpu_ns, chained)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    chains = found.count(lengths >= ctx.threshold("min_chain"))
    kernels = found.count(chained)
    return Draft(
        title=f"{kernels} pointwise kernels a step in {chains} chains pass their data through memory again and again",
        edits=_edits(ctx),
        change=Change(host_ns=host, gpu_ns=gpu, limit_ns=gpu + host),
        facts={
            "kernels_per_step": kernels,
            "chains_per_step": chains,
            "mean_chain_length": round(kernels / max(chains, 1), 1),
            "time_per_step_ns": spent,
            "time_share_frac": round(spent / pace.step_ns, 4),
        },
        evidence=[_longest_chains(ctx.run, found, chain, chained)],
        locations=source_lines(ctx.run, found, chained),
        subject=["pointwise chains"],
    )


def _chains(ctx: Context, found: Sequence) -> tuple[Array, Array, Array]:
    """For each kernel the number of its chain (-1: none); the length of each chain; which kernels are in one that counts."""
    chain = runs_of(np.isin(found.kind, FUSABLE) & ~_optimizer(ctx.run, found), found.stream, found.step)
    lengths = np.bincount(chain[chain >= 0]) if (chain >= 0).any() else np.empty(0, np.int64)
    chained = (chain >= 0) & (lengths[np.maximum(chain, 0)] >= ctx.threshold("min_chain")) if len(lengths) else chain >= 0
    return chain, lengths, chained


def _edits(ctx: Context) -> list[Edit]:
    """On every rank one kernel a chain stays. At worst it also reads what the others read beside the chain's own data."""
    gone, stays = (np.zeros(len(gpu_work(ctx.run)), bool) for _ in range(2))
    lost = kept = 0
    for found in sequences(ctx.run):
        chain, lengths, chained = _chains(ctx, found)
        longest = _longest(found, chain, len(lengths))
        gone |= on_gpu(ctx.run, found, chained & ~longest)
        stays |= on_gpu(ctx.run, found, chained & longest)
        lost += int(found.gpu_ns[chained & ~longest].sum())
        kept += int(found.gpu_ns[chained & longest].sum())
    worst = 1 + ctx.threshold("other_operand") * lost / max(kept, 1)
    return [Edit(work=gone, vanish=True), Edit(work=stays, gpu=Factor(worst, 1.0, 1.0))]


def _optimizer(run: Run, found: Sequence) -> Array:
    """Kernels of the optimizer step: a compiler of the model does not see them, and unfused-optimizer judges them."""
    calls = optimizer_calls(run)
    if calls is None:
        return np.zeros(len(found), bool)
    return np.asarray((found.call >= 0) & calls[np.maximum(found.call, 0)], bool)


def _longest(found: Sequence, chain: Array, chains: int) -> Array:
    """One kernel a chain stays: the longest, since a fused kernel moves at least the data of its largest member."""
    rows = np.flatnonzero(chain >= 0)
    by_length = rows[np.argsort(found.gpu_ns[rows], kind="stable")]
    keeper = np.full(chains, -1, np.int64)
    keeper[chain[by_length]] = by_length
    mask = np.zeros(len(found), bool)
    mask[keeper[keeper >= 0]] = True
    return mask


def _short(name: str) -> str:
    """'add' out of 'void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>'."""
    for pattern in _INNER:
        inner = pattern.search(name)
        if inner:
            return inner[1]
    # Nsight Systems writes <unnamed>, torch (anonymous namespace).
    base = re.sub(r"\([^()]*\)|<.*", "", name.replace("<unnamed>::", "").removeprefix("void ")).rstrip(":( ")
    return (base.rsplit("::", 1)[-1] or name)[:32]


def _longest_chains(run: Run, found: Sequence, chain: Array, chained: Array) -> Evidence:
    """Equal chains of a step together, the costliest first."""
    names = run.table("kernels")["name"][found.row]
    total: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0])
    rows = np.flatnonzero(chained)
    bounds = np.flatnonzero(np.append(True, chain[rows][1:] != chain[rows][:-1]))
    for part in np.split(rows, bounds[1:]):
        entry = total[tuple(names[part].tolist())]
        entry[0] += 1
        entry[1] += int(found.gpu_ns[part].sum())
    ranked = sorted(total.items(), key=lambda item: (-item[1][1], item[0]))[:6]
    steps = max(found.steps, 1)
    table = []
    for kinds, (count, gpu) in ranked:
        words = [_short(run.strings[code]) for code in kinds]
        shown = " + ".join(words[:5]) + (f" + {len(words) - 5} more" if len(words) > 5 else "")
        table.append([shown, len(kinds), round(count / steps, 1), gpu // steps])
    return Evidence("Costliest chains in a step", ["chain", "kernels", "times", "gpu_ns"], table)
