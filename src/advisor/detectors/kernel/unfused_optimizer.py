"""An optimizer that updates its parameters one by one, with several small kernels each."""

from __future__ import annotations

import re

import numpy as np

from advisor.derive.attribution import calls_in_ranges
from advisor.derive.bounds import two_sided
from advisor.derive.host import HostSide, host_sides
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.sequence import Sequence, costliest, host_cost, sequence, source_lines, steady_calls
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.rules.contract import Change, Context, Draft, NotApplicable

# torch.profiler marks optimizers itself; people name the phase so in NVTX.
PHASE = r"^Optimizer\.step#|^\W*(optim(izer)?|opt)([ _.\-]?step)?\W*$"
# Kernels that only the written-out Adam family launches; without a marked phase they show where it is.
_ADAM = re.compile(r"addcmul|addcdiv|lerp", re.I)
_NAME = re.compile(r"^Optimizer\.step#(\w+)")


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None:
        return None
    side = host_sides(run).get((pace.rank, pace.process))
    if side is None:
        raise NotApplicable("the launches of the optimizer were not recorded")
    phase = calls_in_ranges(run, PHASE)
    if not phase.any():
        shown = _by_kernels(run, found)
        if shown is None:
            raise NotApplicable("no range marks the optimizer step and no kernel is known to be one of an optimizer's")
        phase = shown
    kernels = (found.call >= 0) & phase[np.maximum(found.call, 0)]
    launches = int(kernels.sum()) // max(found.steps, 1)
    gpu, host = found.per_step(found.gpu_ns, kernels), _host(run, side, phase, found.steps)
    if launches < ctx.threshold("min_launches") or max(gpu, host) < ctx.threshold("min_share") * pace.step_ns:
        return None
    foreach = bool((found.kind[kernels] == KernelClass.OPTIMIZER).mean() > 0.5) if kernels.any() else False
    name = _optimizer(run)
    left = ctx.threshold("host_left")
    return Draft(
        title=f"the optimizer step launches {launches} kernels where a fused one launches a few",
        confidence="medium",
        change=Change(
            host_ns=round(host * (1 - left)), gpu_ns=round(gpu * (1 - ctx.threshold("traffic_left"))), limit_ns=host + gpu
        ),
        facts={
            "launches_per_step": launches,
            "optimizer": name or "AdamW",
            "host_ns": host,
            "gpu_ns": gpu,
            "multi_tensor": foreach,
        },
        evidence=[
            Evidence(
                "Kernels of the optimizer step, per step",
                ["kernel", "calls", "gpu_ns"],
                [[text[:90], calls, spent] for text, calls, spent in costliest(run, found, kernels)],
            ),
            Evidence(
                "The optimizer step", ["launches", "host_ns", "gpu_ns", "share_of_step_frac"],
                [[launches, host, gpu, round(max(host, gpu) / pace.step_ns, 4)]],
            ),
        ],
        locations=source_lines(run, found, kernels),
        subject=[name or "optimizer"],
    )  # fmt: skip


def _host(run: Run, side: HostSide, phase: Array, steps: int) -> int:
    """Host work of the phase's calls and the segments before them, per steady step."""
    chosen = side.call[steady_calls(run, side) & phase[side.call]]
    return int(host_cost(run)[chosen].sum()) // max(steps, 1)


def _by_kernels(run: Run, found: Sequence) -> Array | None:
    """The calls from the first to the last addcmul, addcdiv or lerp kernel of each step: the written-out Adam family."""
    names = run.table("kernels")["name"][found.row]
    codes = [int(code) for code in np.unique(names) if _ADAM.search(run.strings[int(code)])]
    marked = np.isin(names, codes) & (found.call >= 0)
    if not marked.any():
        return None
    calls = np.sort(found.call[marked])
    # Within an optimizer the marks follow each other closely; between steps lie the forward and backward pass.
    apart = np.diff(calls)
    typical = float(np.median(apart)) if len(apart) else 1.0
    blocks = np.split(calls, np.flatnonzero(apart > max(20 * typical, 50)) + 1)
    mask = np.zeros(len(run.table("runtime_calls")), bool)
    for block in blocks:
        mask[block[0] : block[-1] + 1] = True
    return mask


def _optimizer(run: Run) -> str | None:
    for code in np.unique(run.table("ranges")["name"]):
        match = _NAME.match(run.strings[int(code)]) if code >= 0 else None
        if match:
            return match[1]
    return None
