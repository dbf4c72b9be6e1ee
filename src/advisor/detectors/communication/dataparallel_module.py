"""nn.DataParallel: one process drives several GPUs, copies the model to them in every step and collects the results."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.activity import Activity, activities, step_windows
from advisor.derive.attribution import op_above, op_of_call, op_of_work, ops_named, ranges_named
from advisor.derive.bounds import TwoSided, two_sided
from advisor.derive.gpus import gpu_work
from advisor.derive.host import host_sides
from advisor.derive.intervals import contains, intersect, length, merge
from advisor.derive.phases import optimizer_calls
from advisor.derive.sequence import host_cost, steady_calls
from advisor.derive.steps import steps
from advisor.detectors.words import time_text
from advisor.model import Evidence, Run
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_MODULE = r"^DataParallel\.forward$"
# What nn.DataParallel does besides the replicas' own work, forward and backward.
_PARTS = (
    ("copies of the parameters", r"^Broadcast$|^_broadcast_coalesced"),
    ("sum of the gradients", r"^ReduceAddCoalesced$|BroadcastBackward$"),
    ("scattered inputs", r"^Scatter$|^_scatter|ScatterBackward$"),
    ("gathered outputs", r"^Gather$|^_gather|GatherBackward$"),
)
_ANY = "|".join(pattern for _, pattern in _PARTS)
_USED = 0.05  # of the busiest GPU's compute: below, a GPU only holds data


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    if not (ops_named(run, _MODULE).any() or ranges_named(run, _MODULE).any()):
        return None
    if pace is None:
        raise NotApplicable("the input holds no steps with GPU work", ctx.rule.capture)
    gpus = _used(run, pace)
    if len(gpus) < 2:
        return None
    n = len(gpus)
    compute = {a.gpu.device: _per_step(run, a) for a in gpus}
    host, own, optimizer = _host(run, pace)
    # Each process of DDP issues one replica; the optimizer stays as it is, and DDP's own work is beside the backward pass.
    shared = max(pace.host_ns - own - optimizer, 0)
    gone = own + round(shared * (1 - 1 / n))
    busiest = max(compute.values())
    return Draft(
        title=f"nn.DataParallel drives {n} GPUs from one process: {time_text(own)} of host work a step only copies the model and "
        f"collects results, and {time_text(busiest)} of {time_text(pace.step_ns)} is compute on the busiest GPU",
        confidence="medium",
        change=Change(
            host_ns=gone,
            gpu_ns=max(pace.gpu_ns - busiest, 0),
            wait_ns=pace.wait_ns,
            limit_ns=max(pace.step_ns - busiest, 0),
        ),
        facts={
            "gpus": n,
            "distribution_host_ns": own,
            "host_ns": host,
            "busiest_compute_ns": busiest,
            "least_compute_ns": min(compute.values()),
        },
        evidence=[_by_part(run, pace), _by_gpu(run, gpus, compute)],
        caveats=["The estimate gives each GPU its own process and host thread; the reduction of gradients hides behind compute."],
        subject=["DataParallel"],
        scope={"devices": sorted(compute)},
    )


def _used(run: Run, pace: TwoSided) -> list[Activity]:
    mine = [a for a in activities(run) if (a.gpu.rank, a.gpu.process) == (pace.rank, pace.process)]
    most = max((length(a.compute) for a in mine), default=0)
    return [a for a in mine if length(a.compute) > _USED * most]


def _per_step(run: Run, activity: Activity) -> int:
    windows = step_windows(run, activity.gpu)
    return length(intersect(activity.compute, merge(windows))) // max(len(windows[0]), 1)


def _host(run: Run, pace: TwoSided) -> tuple[int, int, int]:
    """(all, DataParallel's own, the optimizer's) host work of a steady step without the profiler's, ns."""
    side = host_sides(run).get((pace.rank, pace.process))
    if side is None:
        return 0, 0, 0
    inside = side.call[steady_calls(run, side)]
    cost, count = host_cost(run), max(_steps(run, pace), 1)
    parts = op_above(run, op_of_call(run), _ANY) >= 0
    optimizer = optimizer_calls(run)
    spent = int(cost[inside][optimizer[inside]].sum()) // count if optimizer is not None else 0
    return int(cost[inside].sum()) // count, int(cost[inside][parts[inside]].sum()) // count, spent


def _steps(run: Run, pace: TwoSided) -> int:
    found = steps(run)
    return int(found.steady[found.of(pace.rank, pace.process)].sum())


def _by_part(run: Run, pace: TwoSided) -> Evidence:
    work, count = gpu_work(run), max(_steps(run, pace), 1)
    side = host_sides(run).get((pace.rank, pace.process))
    inside = np.zeros(len(run.table("runtime_calls")), bool)
    if side is not None:
        inside[side.call[steady_calls(run, side)]] = True
    op, work_op, cost = op_of_call(run), op_of_work(run), host_cost(run)
    windows = merge(*(step_windows(run, gpu) for gpu in work.gpus))
    rows: list[list[Any]] = []
    for name, pattern in _PARTS:
        calls = inside & (op_above(run, op, pattern) >= 0)
        gpu = op_above(run, work_op, pattern) >= 0
        busy = contains(windows, work.start) & gpu
        rows.append(
            [name, round(int(calls.sum()) / count, 1), int(cost[calls].sum()) // count,
             int((work.end - work.start)[busy].sum()) // count]
        )  # fmt: skip
    return Evidence(
        "What nn.DataParallel does in a steady step besides the replicas' work",
        ["part", "cuda_calls", "host_ns", "gpu_ns"],
        rows,
    )


def _by_gpu(run: Run, gpus: list[Activity], compute: dict[int, int]) -> Evidence:
    rows: list[list[Any]] = []
    for activity in gpus[:8]:
        windows = step_windows(run, activity.gpu)
        count = max(len(windows[0]), 1)
        rows.append(
            [activity.gpu.device, compute[activity.gpu.device],
             length(intersect(activity.communication, merge(windows))) // count,
             length(intersect(activity.copies, merge(windows))) // count]
        )  # fmt: skip
    return Evidence("Each GPU in a steady step", ["device", "compute_ns", "communication_ns", "copies_ns"], rows)
