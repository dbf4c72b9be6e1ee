"""Python's garbage collector runs on the training thread while the GPU waits."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import locations
from advisor.derive.intervals import covered, intersect, length, merge, union
from advisor.derive.steady import steadies, steady
from advisor.derive.steps import steps
from advisor.detectors.host.python_gaps import collections, main_thread
from advisor.detectors.words import count_text, time_text
from advisor.model import Evidence
from advisor.replay.changes import Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    run, judged = ctx.run, steady(ctx.run)
    if judged is None or judged.unmarked:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    pauses = collections(run, judged, ctx.threshold("least_pause_ns"))
    found = steps(run)
    own = found.of(judged.step.rank, judged.step.process)
    own = own[found.steady[own]]
    span = merge(union(found.start[own], found.end[own]))
    seen = intersect(pauses, span)
    if not len(seen[0]):
        return None
    total, count, n = length(seen), len(seen[0]), max(len(own), 1)
    each = total // n
    idle = int(covered(judged.idle, *seen).sum()) // max(judged.count, 1)
    longest = int((seen[1] - seen[0]).max())
    middle = (seen[0] + seen[1]) // 2
    return Draft(
        title=f"{count_text(count / n, 'garbage collection')} a step on the training thread, {time_text(total / count)} each",
        confidence="high",
        edits=[
            Edit(intervals=collections(run, one, ctx.threshold("least_pause_ns")), of=(one.step.rank, one.step.process))
            for one in steadies(run)
        ],
        change=Change(host_ns=each, wait_ns=min(judged.step.wait_ns, idle) if judged.step.gpu_bound else 0, limit_ns=each),
        facts={"pauses_per_step": round(count / n, 2), "pause_ns": total // count, "longest_ns": longest, "per_step_ns": each},
        evidence=[
            Evidence(
                "Garbage collections in steady steps",
                ["start_ns", "pause_ns"],
                [[int(seen[0][i]), int(seen[1][i] - seen[0][i])] for i in range(min(count, 8))],
            )
        ],
        locations=locations(run, np.full(len(middle), main_thread(run, judged)), middle),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        subject=["gc"],
    )
