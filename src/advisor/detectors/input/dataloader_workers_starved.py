"""A DataLoader with worker processes that still cannot keep up."""

from __future__ import annotations

from advisor.derive.activity import loader_ranges
from advisor.derive.attribution import locations
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import steady
from advisor.detectors.input.loading import edits, evidence, gain, loading, unmarked, workers_needed
from advisor.detectors.words import time_text
from advisor.rules.contract import Context, Draft, NotApplicable

WORKERS = "_MultiProcessingDataLoaderIter"


def detect(ctx: Context) -> Draft | None:
    run, judged = ctx.run, steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    found = loading(run, judged)
    if found is None and len(loader_ranges(run)):
        return None  # on threads of its own: it holds nobody up
    if found is None:
        raise unmarked(ctx.run)
    ranges = run.table("ranges")
    name = run.strings[int(ranges["name"][found.rows[0]])]
    gone = found.gone(judged, ctx.threshold("handover_ns"))
    if WORKERS not in name or gain(judged, gone) < ctx.threshold("gain_share"):
        return None
    share = found.wait_ns / max(judged.step.step_ns, 1)
    more = workers_needed(judged, found.wait_ns, gone) + 1
    return Draft(
        title=f"The loader's workers are too slow: each step waits {time_text(found.wait_ns)} for its batch, {share:.0%}",
        confidence="high",
        edits=edits(run),
        change=gone,
        subject=[WORKERS],
        facts={
            "loader_ns": found.wait_ns,
            "loader_frac": round(share, 4),
            "gpu_idle_ns": found.idle_ns,
            "times_more": more,
        },
        evidence=[evidence(judged, found.when, "Waiting for the workers in steady steps")],
        locations=locations(run, thread_keys(ranges)[found.rows], ranges["start"][found.rows] - 1),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
    )
