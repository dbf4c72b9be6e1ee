"""A DataLoader without worker processes: batches are made on the thread that drives the GPU."""

from __future__ import annotations

import numpy as np

from advisor.derive.activity import loader_ranges
from advisor.derive.attribution import locations
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import steady
from advisor.detectors.input.loading import edits, evidence, gain, loading, unmarked, workers_needed
from advisor.detectors.words import time_text
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    judged = steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    found = loading(ctx.run, judged)
    if found is None and len(loader_ranges(ctx.run)):
        return None  # on threads of its own: it holds nobody up
    if found is None:
        raise unmarked(ctx.run)
    gone = found.gone(judged, ctx.threshold("handover_ns"))
    if not found.single or gain(judged, gone) < ctx.threshold("gain_share"):
        return None
    share = found.wait_ns / max(judged.step.step_ns, 1)
    workers = workers_needed(judged, found.wait_ns, gone)
    ranges = ctx.run.table("ranges")
    keys, middle = thread_keys(ranges)[found.rows], ranges["start"][found.rows] - 1
    draft = Draft(
        title=f"The training process loads its own data: {time_text(found.wait_ns)} of each step, {share:.0%}",
        confidence="high",
        edits=edits(ctx.run),
        change=gone,
        subject=["_SingleProcessDataLoaderIter"],
        facts={
            "loader_ns": found.wait_ns,
            "loader_frac": round(share, 4),
            "gpu_idle_ns": found.idle_ns,
            "workers": workers + 1,
            "least_workers": workers,
        },
        evidence=[evidence(judged, found.when, "Waiting for the data loader in steady steps")],
        locations=locations(ctx.run, keys, middle.astype(np.int64)),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
    )
    if workers > 16:
        rest = judged.step.after(host_ns=gone.host_ns)
        draft.caveats.append(
            f"One process takes {time_text(found.wait_ns)} a batch, the rest of the step {time_text(rest)}: {workers} workers "
            "would be needed to hide all of it, so a cheaper preparation of samples matters more."
        )
    return draft
