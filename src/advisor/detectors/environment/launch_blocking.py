"""Launches that return only after their own kernel: CUDA_LAUNCH_BLOCKING=1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.calls import CallKind, is_kind, links
from advisor.derive.gpus import gpu_work
from advisor.derive.host import host_sides
from advisor.derive.profiler_cost import LAUNCH
from advisor.derive.steps import steps
from advisor.model import Evidence, Run
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

VARIABLE = "CUDA_LAUNCH_BLOCKING"


@dataclass(frozen=True)
class Launches:
    """Kernel launches of one process in its steady steps (graph launches apart), counted in all, timed per step.

    wait_ns: GPU work while a launch call was open; return_ns: from the kernel's end to the call's; call_ns: all of the calls;
    own_ns: launching alone, without the profiler.
    """

    rank: int
    process: int
    count: int
    per_step: float
    blocked: int
    wait_ns: int
    return_ns: int
    call_ns: int
    own_ns: int

    @property
    def share(self) -> float:
        return self.blocked / self.count


def detect(ctx: Context) -> Draft | None:
    asked = ctx.run.environment.get(VARIABLE, "").strip() not in ("", "0")
    known = [one for one in _launches(ctx.run) if one.count >= ctx.threshold("min_launches")]
    blocked = [one for one in known if one.share >= ctx.threshold("blocked_share")]
    if not blocked and not asked:
        if known or ctx.run.environment:
            return None
        raise NotApplicable("the input holds too few launches whose kernels were recorded too")
    draft = Draft(title=f"{VARIABLE} is set: launches wait for their own kernel", confidence="high", subject=[VARIABLE])
    draft.facts["variable_recorded"] = asked
    if known:
        columns = ["rank", "launches", "ended_after_kernel", "wait_per_step_ns", "return_per_step_ns"]
        rows = [[one.rank if one.rank >= 0 else None, one.count, one.blocked, one.wait_ns, one.return_ns] for one in known]
        draft.evidence.append(Evidence("Kernel launches in steady steps", columns, rows))
    if blocked:
        # The rank that sets the time of the step decides what can be won; the others only follow.
        slowest = two_sided(ctx.run)
        decides = [one for one in blocked if slowest and (one.rank, one.process) == (slowest.rank, slowest.process)]
        worst = (decides or blocked)[0]
        draft.title = f"{worst.share:.0%} of the launches wait for their own kernel: launch blocking is on"
        # Waking up after the kernel is host work that vanishes; what an ordinary launch costs beyond the fastest is open.
        limit = worst.call_ns - int(worst.per_step * ctx.threshold("fastest_launch"))
        fastest = Factor(1.0, 1.0, min(ctx.threshold("fastest_launch") * worst.per_step / max(worst.own_ns, 1), 1.0))
        draft.edits = [Edit(calls=is_kind(ctx.run, CallKind.LAUNCH), own=fastest, waits=False)]
        draft.change = Change(host_ns=worst.return_ns, wait_ns=worst.wait_ns, limit_ns=limit)
        draft.facts |= {"blocked_share": round(worst.share, 4), "wait_per_step_ns": worst.wait_ns + worst.return_ns}
        draft.scope["ranks"] = sorted(one.rank for one in blocked if one.rank >= 0)
    elif known:
        # The variable counts only if it was set before CUDA started.
        draft.title = f"{VARIABLE} is set, although launches do not wait"
        draft.confidence = "low"
    return draft


def _launches(run: Run) -> list[Launches]:
    """One entry a process that launches kernels."""
    found, last, work = steps(run), links(run).last_work, gpu_work(run)
    result = []
    for (rank, process), side in sorted(host_sides(run).items()):
        own = found.of(rank, process)
        own = own[found.steady[own]]
        chosen = (side.kind == CallKind.LAUNCH) & (last[side.call] >= 0)
        if len(own):
            at = np.searchsorted(found.start[own], side.start, side="right") - 1
            chosen &= (at >= 0) & (side.start < found.end[own][np.maximum(at, 0)])
        if chosen.any():
            n, count = max(len(own), 1), int(chosen.sum())
            start, end = side.start[chosen], side.end[chosen]
            after = end - np.maximum(work.end[last[side.call[chosen]]], start)
            wait, back, whole = (int(part.sum()) // n for part in (side.wait[chosen], after[after > 0], end - start))
            own_ns = int(side.cost.launch_ns * (1 - LAUNCH) * count / n)
            result.append(Launches(rank, process, count, count / n, int((after >= 0).sum()), wait, back, whole, own_ns))
    return result
