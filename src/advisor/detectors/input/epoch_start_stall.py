"""Each epoch begins with a pause, in which the data loader starts its workers again."""

from __future__ import annotations

import numpy as np

from advisor.derive.activity import loader_ranges
from advisor.derive.attribution import locations
from advisor.derive.bounds import two_sided
from advisor.derive.intervals import covered, union
from advisor.derive.nesting import thread_keys
from advisor.derive.steps import steps
from advisor.detectors.input.loading import unmarked
from advisor.detectors.words import count_text, time_text
from advisor.model import Evidence, Saving
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    run, step = ctx.run, two_sided(ctx.run)
    found, ranges = steps(run), run.table("ranges")
    if step is None or found.source == "none":
        raise NotApplicable("the input holds no steps")
    own = found.of(step.rank, step.process)
    own = own[~found.hitch[own]]
    rows = loader_ranges(run)
    rows = rows[(ranges["rank"][rows] == step.rank) & (ranges["process"][rows] == step.process)]
    if not len(rows):
        raise unmarked(ctx.run)
    if len(own) < ctx.threshold("least_steps"):
        raise NotApplicable("too few steps for two starts of an epoch", "record more steps than two epochs have")
    taken = found.time()[own]
    waited = covered(union(ranges["start"][rows], ranges["end"][rows]), found.start[own], found.end[own])
    # Starts may be many where epochs are short: the lower quartile is an ordinary step, the median need not be.
    middle = int(np.quantile(taken, 0.25, method="lower"))
    usual = int(np.quantile(waited, 0.25, method="lower"))
    starts = np.flatnonzero(
        (taken > ctx.threshold("times_ordinary") * middle)
        & (waited > ctx.threshold("least_wait_ns") + usual)
        & (waited >= ctx.threshold("wait_share") * (taken - middle))
    )
    apart = np.diff(starts)
    if len(starts) < 2 or (apart < 2).any():
        return None
    interval = int(np.median(apart))
    excess = int(np.mean(taken[starts] - middle))
    each = excess // interval
    shown = sorted({int(p) for start in starts for p in (start - 1, start, start + 1) if 0 <= p < len(own)})[:8]
    first = rows[np.isin(np.searchsorted(found.start[own], ranges["start"][rows], side="right") - 1, starts)]
    return Draft(
        title=f"Every {count_text(interval, 'step')} training stops for {time_text(excess)} while the data loader starts again",
        confidence="medium",
        saving=Saving(0, each, each, "bound"),
        facts={
            "stall_ns": excess,
            "starts": len(starts),
            "interval_steps": interval,
            "ordinary_step_ns": middle,
            "per_step_ns": each,
        },
        evidence=[
            Evidence(
                "Steps at the start of an epoch, and those around them",
                ["step", "step_ns", "loader_ns"],
                [[int(found.number[own[p]]), int(taken[p]), int(waited[p])] for p in shown],
            )
        ],
        locations=locations(run, thread_keys(ranges)[first], ranges["start"][first] - 1),
        scope={"ranks": [step.rank]} if step.rank >= 0 else {},
        subject=["epoch start"],
    )
