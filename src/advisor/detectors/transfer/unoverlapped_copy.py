"""Copies between host and GPU that run while no kernel does, although nothing but their place in the queue demands it."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import locations
from advisor.derive.calls import links
from advisor.derive.gpus import COPY, KERNEL, gpu_work
from advisor.derive.intervals import covered, intersect, length, subtract, union
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import Steady, steadies, steady
from advisor.detectors.words import size_text, time_text
from advisor.model import CopyKind, Evidence, Location, MemoryKind, Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_DIRECTIONS = {CopyKind.HOST_TO_DEVICE: "to the GPU", CopyKind.DEVICE_TO_HOST: "to the host"}


def detect(ctx: Context) -> list[Draft]:
    judged = steady(ctx.run)
    if judged is None or judged.unmarked:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    drafts = (_judge(ctx, judged, kind) for kind in _DIRECTIONS)
    return [draft for draft in drafts if draft is not None]


def _judge(ctx: Context, judged: Steady, kind: CopyKind) -> Draft | None:
    run, n = ctx.run, max(judged.count, 1)
    work, copies, call = gpu_work(run), run.table("copies"), links(run).call
    chosen = _chosen(run, judged, kind, ctx.threshold("least_bytes"))
    rows = work.row[chosen]
    span = union(work.start[chosen], work.end[chosen])
    alone = subtract(span, judged.activity.compute)
    exposed = length(alone) // n
    if exposed < ctx.threshold("exposed_share") * judged.step.step_ns:
        return None
    moved, took = int(copies["bytes"][rows].sum()) // n, length(span) // n
    shared = float(np.isin(work.stream[chosen], _compute_streams(run, judged)).mean())
    mask = np.zeros(len(work), bool)
    for one in steadies(run):
        mask[_chosen(run, one, kind, ctx.threshold("least_bytes"))] = True
    # What the copies cannot hide behind: compute that runs beside nothing else.
    room = length(intersect(judged.activity.compute, (judged.start, judged.end))) // n
    hidden = min(exposed, room)
    on = "the stream of the kernels" if shared > 0.5 else "a stream that the kernels wait for"
    return Draft(
        title=f"{size_text(moved)} a step copied {_DIRECTIONS[kind]} on {on}: {time_text(exposed)} in which no kernel runs",
        confidence="medium",
        edits=[Edit(work=mask, aside=True)],
        change=Change(gpu_ns=hidden, limit_ns=hidden),
        subject=[kind.name],
        facts={
            "bytes_per_step": moved,
            "copy_ns": took,
            "exposed_ns": exposed,
            "rate_gb_per_s": round(moved / max(took, 1), 2),
            "on_compute_stream_frac": round(shared, 4),
        },
        evidence=[_evidence(run, judged, chosen)],
        locations=_places(run, call[chosen], copies["bytes"][rows]),
        fixes=["prefetch", "lightning"] if kind == CopyKind.HOST_TO_DEVICE else ["offload-aside"],
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
    )


def _chosen(run: Run, judged: Steady, kind: CopyKind, least_bytes: float) -> Array:
    """Positions in `gpu_work` of the large copies of this direction that ordinary steps launched; pageable ones have a rule of
    their own, and their host waits anyway."""
    work, copies, call = gpu_work(run), run.table("copies"), links(run).call
    mine = (work.source == COPY) & (work.rank == judged.step.rank) & (work.process == judged.step.process) & (call >= 0)
    positions = np.flatnonzero(mine)
    rows = work.row[positions]
    pageable = (copies["source"][rows] == int(MemoryKind.PAGEABLE)) | (copies["target"][rows] == int(MemoryKind.PAGEABLE))
    wanted = (copies["kind"][rows] == int(kind)) & ~pageable & (copies["bytes"][rows] >= least_bytes)
    inside = np.zeros(len(run.table("runtime_calls")), bool)
    inside[judged.side.call[judged.at >= 0]] = True
    positions = positions[wanted]
    return positions[inside[call[positions]]]


def _compute_streams(run: Run, judged: Steady) -> Array:
    """Streams that hold a tenth or more of the kernels."""
    work = gpu_work(run)
    mine = (work.source == KERNEL) & (work.rank == judged.step.rank) & (work.process == judged.step.process)
    streams, counts = np.unique(work.stream[mine], return_counts=True)
    return streams[counts >= 0.1 * counts.sum()]


def _evidence(run: Run, judged: Steady, chosen: Array) -> Evidence:
    work, copies, n = gpu_work(run), run.table("copies"), max(judged.count, 1)
    size = copies["bytes"][work.row[chosen]]
    alone = (work.end - work.start)[chosen] - covered(judged.activity.compute, work.start[chosen], work.end[chosen])
    sizes, group = np.unique(np.stack([size, work.stream[chosen]]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    time, exposed = np.bincount(group, weights=(work.end - work.start)[chosen]), np.bincount(group, weights=alone)
    count = np.bincount(group)
    order = np.argsort(-exposed, kind="stable")[:8]
    rows = [[int(sizes[0, i]), int(sizes[1, i]), round(count[i] / n, 2), int(time[i]) // n, int(exposed[i]) // n] for i in order]
    return Evidence(
        "Copies per steady step", ["size_bytes", "stream", "copies_per_step", "gpu_time_ns", "without_kernels_ns"], rows
    )


def _places(run: Run, rows: Array, weight: Array) -> list[Location]:
    calls = run.table("runtime_calls")
    return locations(run, thread_keys(calls)[rows], calls["start"][rows], np.maximum(weight, 1).astype(float))
