"""Launches that return only after their own kernel: CUDA_LAUNCH_BLOCKING=1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.derive.calls import CallKind, is_kind, links
from advisor.derive.gpus import gpu_work
from advisor.derive.steps import step_time, steps
from advisor.model import Evidence, Run
from advisor.rules.contract import Change, Context, Draft, NotApplicable

VARIABLE = "CUDA_LAUNCH_BLOCKING"


@dataclass(frozen=True)
class Launches:
    """Launches of one process in its steady steps. wait_ns: time a step beyond the cost of an ordinary launch."""

    rank: int
    process: int
    count: int
    blocked: int
    ordinary_ns: int
    wait_ns: int

    @property
    def share(self) -> float:
        return self.blocked / self.count if self.count else 0.0


def detect(ctx: Context) -> Draft | None:
    asked = ctx.run.environment.get(VARIABLE, "").strip() not in ("", "0")
    known = [one for one in _launches(ctx.run) if one.count >= ctx.threshold("min_launches")]
    blocked = [one for one in known if one.share >= ctx.threshold("blocked_share")]
    if blocked:
        return _draft(blocked, f"{max(one.share for one in blocked):.0%} of the launches wait for their own kernel", asked)
    if asked:
        # The variable counts only if it was set before CUDA started; launches that do not wait say that it was not.
        draft = _draft(known, f"{VARIABLE} is set", asked)
        draft.confidence = "low" if known else "high"
        return draft
    if known or ctx.run.environment:
        return None
    raise NotApplicable("the input holds too few launches whose kernels were recorded too")


def _draft(seen: list[Launches], why: str, asked: bool) -> Draft:
    worst = max(seen, key=lambda one: one.wait_ns, default=None)
    rows = [[one.rank if one.rank >= 0 else None, one.count, one.blocked, one.ordinary_ns, one.wait_ns] for one in seen]
    columns = ["rank", "launches", "ended_after_kernel", "ordinary_launch_ns", "wait_per_step_ns"]
    facts: dict[str, object] = {"variable_recorded": asked}
    if worst:
        facts |= {"blocked_share": round(worst.share, 4), "wait_per_step_ns": worst.wait_ns}
    return Draft(
        title=f"Launch blocking: {why}",
        confidence="high",
        change=Change(host_ns=worst.wait_ns) if worst else None,
        facts=facts,
        evidence=[Evidence("Kernel launches in steady steps", columns, rows)] if rows else [],
        scope={"ranks": sorted(one.rank for one in seen if one.rank >= 0)},
        subject=[VARIABLE],
    )


def _launches(run: Run) -> list[Launches]:
    """Per process with launches; the process that sets the step's time first."""
    calls, link, work, found = run.table("runtime_calls"), links(run), gpu_work(run), steps(run)
    rows = np.flatnonzero(is_kind(run, CallKind.LAUNCH) & (link.last_work >= 0))
    rank, process = calls["rank"][rows], calls["process"][rows]
    result = []
    for r, p in sorted({(int(r), int(p)) for r, p in zip(rank, process, strict=True)}):
        mine = rows[(rank == r) & (process == p)]
        own = found.of(r, p)
        own = own[found.steady[own]]
        if len(own):
            at = np.searchsorted(found.start[own], calls["start"][mine], side="right") - 1
            mine = mine[(at >= 0) & (calls["start"][mine] < found.end[own][np.maximum(at, 0)])]
        if not len(mine):
            continue
        took = calls["end"][mine] - calls["start"][mine]
        waits = calls["end"][mine] >= work.end[link.last_work[mine]]
        # Launches that do not wait show what a launch costs here; where all wait, the quickest do.
        ordinary = int(np.median(took[~waits])) if (~waits).sum() >= 10 else int(np.quantile(took, 0.1))
        wait = int(np.maximum(took[waits] - ordinary, 0).sum()) // max(len(own), 1)
        result.append(Launches(r, p, len(mine), int(waits.sum()), ordinary, wait))
    slowest = step_time(run)
    return sorted(result, key=lambda one: slowest is None or (one.rank, one.process) != (slowest.rank, slowest.process))
