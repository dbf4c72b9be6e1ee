"""An optimizer that updates its parameters one by one, with several small kernels each."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import work_of_calls
from advisor.derive.bounds import two_sided
from advisor.derive.host import HostSide, host_sides
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.phases import optimizer_calls, optimizer_name
from advisor.derive.sequence import costliest, host_cost, sequence, source_lines, steady_calls
from advisor.detectors.words import name_text
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None:
        return None
    side = host_sides(run).get((pace.rank, pace.process))
    if side is None:
        raise NotApplicable("the launches of the optimizer were not recorded")
    phase = optimizer_calls(run)
    if phase is None:
        raise NotApplicable("no range marks the optimizer step and no kernel is known to be one of an optimizer's")
    kernels = (found.call >= 0) & phase[np.maximum(found.call, 0)]
    launches = found.count(kernels)
    gpu, host = found.per_step(found.gpu_ns, kernels), _host(run, side, phase, found.steps)
    if launches < ctx.threshold("min_launches") or max(gpu, host) < ctx.threshold("min_share") * pace.step_ns:
        return None
    foreach = bool((found.kind[kernels] == KernelClass.OPTIMIZER).mean() > 0.5) if kernels.any() else False
    name = optimizer_name(run)
    left, traffic = ctx.threshold("host_left"), ctx.threshold("traffic_left")
    return Draft(
        title=f"the optimizer step launches {launches} kernels where a fused one launches a few",
        confidence="medium",
        edits=[
            Edit(calls=phase, host=Factor(ctx.threshold("host_left_at_worst"), left, left / 2)),
            Edit(work=work_of_calls(run, phase), gpu=Factor(1.0, traffic, traffic / 2)),
        ],
        change=Change(
            host_ns=round(host * (1 - left)), gpu_ns=round(gpu * (1 - traffic)), limit_ns=host + gpu
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
                [[name_text(text), calls, spent] for text, calls, spent in costliest(run, found, kernels)],
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
