"""Python code between operators that keeps the GPU waiting, with the lines where it happens."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import locations
from advisor.derive.intervals import IntervalSet, intersect, length
from advisor.derive.paths import short_path
from advisor.derive.steady import Steady, steadies, steady
from advisor.detectors.host.python_gaps import gaps, main_thread, middles, of_the_user, running
from advisor.detectors.words import time_text
from advisor.model import Evidence
from advisor.replay.changes import Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    judged = steady(ctx.run)
    if judged is None or judged.unmarked:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    thread = main_thread(ctx.run, judged)
    when = _gaps(ctx, judged)
    host = judged.host_within(when)
    idle = length(intersect(when, judged.idle)) // max(judged.count, 1)
    if host < ctx.threshold("least_share") * judged.step.step_ns or not idle:
        return None
    seen = intersect(when, (judged.start, judged.end))
    moments, weights = middles(seen)
    places = locations(ctx.run, np.full(len(moments), thread), moments, weights)
    known = f" in {places[0].file}:{places[0].line} ({places[0].function})" if places else ""
    total = max(length(seen), 1)
    return Draft(
        title=f"{time_text(host)} of Python a step{known} while nothing is issued to the GPU",
        confidence="medium",
        edits=[Edit(intervals=_gaps(ctx, one), of=(one.step.rank, one.step.process)) for one in steadies(ctx.run)],
        change=Change(host_ns=host, wait_ns=min(judged.step.wait_ns, idle) if judged.step.gpu_bound else 0, limit_ns=host),
        facts={
            "python_ns": host,
            "gpu_idle_ns": idle,
            "gaps_per_step": round(len(seen[0]) / max(judged.count, 1), 1),
            "line": f"{places[0].file}:{places[0].line}" if places else None,
        },
        evidence=[
            Evidence(
                "What ran in the gaps, as recorded",
                ["function", "time_ns", "share_frac"],
                [
                    [_short(name), spent // max(judged.count, 1), round(spent / total, 4)]
                    for name, spent in running(ctx.run, seen, thread)
                ],
            )
        ],
        locations=places,
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        subject=[f"{place.file} {place.function}" for place in places[:2]] or ["python"],
    )


def _gaps(ctx: Context, judged: Steady) -> IntervalSet:
    return of_the_user(ctx.run, gaps(ctx.run, judged, ctx.threshold("least_gap_ns")), main_thread(ctx.run, judged))


def _short(name: str) -> str:
    head, bracket, tail = name.rpartition("(")
    return f"{short_path(head)}({tail}" if bracket and "): " in tail else name[:90]
