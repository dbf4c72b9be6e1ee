"""Ranks that wait inside collectives for one that comes late, for a reason that the recording did not make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import step_windows
from advisor.derive.attribution import locations
from advisor.derive.bounds import all_sides, two_sided
from advisor.derive.host import host_sides
from advisor.derive.intervals import covered, intersect, length, merge, union
from advisor.derive.nesting import thread_keys
from advisor.derive.sequence import steady_calls
from advisor.derive.steps import steps
from advisor.detectors.communication.rank_work import RankWork, rank_works
from advisor.detectors.words import time_text
from advisor.model import Evidence, Location, Run
from advisor.replay.changes import Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable


@dataclass(frozen=True)
class Pauses:
    """Long stretches of a rank's steady steps in which its driving thread made no CUDA call and issued nothing.

    start, end: of each, ns; call: row of `runtime_calls` that follows; ns: their time without the profiler's in the middle one
    of the steps, since every host is held up now and then.
    """

    rank: RankWork
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    call: npt.NDArray[np.int64]
    ns: int


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    ranks = rank_works(run) if len(all_sides(run)) > 1 else []
    if len(ranks) < 2 or pace is None:
        raise NotApplicable("needs the recordings of at least two ranks of the same steps", ctx.rule.capture)
    if not any(rank.last_frac for rank in ranks):
        raise NotApplicable("no collective was recorded on more than one rank", ctx.rule.capture)
    least, step = ctx.threshold("min_share") * pace.step_ns, pace.step_ns
    waiting = max(ranks, key=lambda rank: rank.waited_ns)
    share = waiting.waited_ns / max(_communication(run, waiting), 1)
    if share < ctx.threshold("wait_share") or waiting.waited_ns < least:
        return None
    late = max(ranks, key=lambda rank: rank.last_frac)
    _leave_to_straggler(ctx, ranks, least)
    waits = f"{waiting.name} waits {time_text(waiting.waited_ns)} a step in collectives, {share:.0%} of their time"
    varying = _varying(ctx, ranks)
    if varying >= least:
        return _of_data(ranks, varying, waits)
    # The same stretch of Python takes longer on one host than on another: of the others count shorter ones too.
    least_pause = ctx.threshold("pause_ns")
    pauses = [_pauses(run, rank, ctx, least_pause / (1 if rank is late else ctx.threshold("host_ratio"))) for rank in ranks]
    mine = next(each for each in pauses if each.rank is late)
    others = sorted(each.ns for each in pauses if each.rank is not late)
    usual = others[(len(others) - 1) // 2]
    if late.last_frac < ctx.threshold("same_rank") or mine.ns < max(usual + least, ctx.threshold("host_ratio") * usual):
        raise NotApplicable(
            f"{waits}, and {late.name} comes last to {late.last_frac:.0%} of them, but has no more work and no longer pauses "
            "than the others; a profiler slows each host differently, so this recording cannot tell",
            "time the steps of each rank without a profiler",
        )
    kept = usual / mine.ns
    excess = mine.ns - usual
    return Draft(
        title=f"{late.name} comes last to {late.last_frac:.0%} of the collectives: its host pauses {time_text(mine.ns)} a step, "
        f"the others {time_text(usual)}; {waits}",
        confidence="medium" if run.world_size in (None, len(ranks)) else "low",
        edits=[_edit(mine, kept)],
        change=Change(host_ns=excess if late.side == pace else 0, limit_ns=min(excess, step)),
        facts={
            "late_rank": late.side.rank if late.side.rank >= 0 else None,
            "cause": "host pauses",
            "pause_ns": mine.ns,
            "others_pause_ns": usual,
            "waited_ns": waiting.waited_ns,
            "wait_frac": round(share, 4),
        },
        evidence=[_by_rank(run, pauses)],
        locations=_places(run, mine),
        fixes=["same-work-on-all-ranks", "look-at-the-host"],
        caveats=["The collectives are not slow: changing NCCL's settings or the network gains nothing here."],
        subject=["host pauses"],
        scope={"ranks": [late.side.rank] if late.side.rank >= 0 else []},
    )


def _communication(run: Run, rank: RankWork) -> int:
    """Time in communication kernels, waiting included, per step."""
    windows = step_windows(run, rank.activity.gpu)
    return length(intersect(rank.activity.communication, merge(windows))) // max(len(windows[0]), 1)


def _leave_to_straggler(ctx: Context, ranks: Sequence[RankWork], least: float) -> None:
    """One rank with more work of its own, in nearly every step, is what straggler-rank names."""
    work = np.array([rank.compute_ns for rank in ranks], float)
    loading = np.array([rank.loader_ns for rank in ranks], float)
    if work.max() >= ctx.threshold("work_ratio") * np.median(np.delete(work, work.argmax())):
        heaviest = np.argmax(_compute(ranks), axis=0)
        if (heaviest == work.argmax()).mean() >= ctx.threshold("same_rank"):
            raise NotApplicable(
                f"{ranks[int(work.argmax())].name} has more GPU work than the others: straggler-rank judges that", ""
            )
    if loading.max() - np.median(np.delete(loading, loading.argmax())) >= least:
        raise NotApplicable(f"{ranks[int(loading.argmax())].name} waits longer for its data: straggler-rank judges that", "")


def _compute(ranks: Sequence[RankWork]) -> npt.NDArray[np.float64]:
    """GPU work of each rank (row) in each step, ns."""
    n = min(rank.steps for rank in ranks)
    return np.stack([rank.compute[:n] for rank in ranks])


def _varying(ctx: Context, ranks: Sequence[RankWork]) -> float:
    """How much the heaviest rank of each step has above the mean, ns a step; 0 where ranks hardly differ within a step."""
    work = _compute(ranks)
    apart = work.max(axis=0) / np.maximum(np.median(work, axis=0), 1)
    apart = np.maximum(apart, work.max(axis=0) / np.maximum(work.min(axis=0), 1)) if len(ranks) == 2 else apart
    if work.shape[1] < 2 or np.median(apart) < ctx.threshold("work_ratio"):
        return 0.0
    return float((work.max(axis=0) - work.mean(axis=0)).mean())


def _of_data(ranks: Sequence[RankWork], excess: float, waits: str) -> Draft:
    work = _compute(ranks)
    heaviest = np.argmax(work, axis=0)
    rows: list[list[Any]] = [
        [rank.side.rank if rank.side.rank >= 0 else rank.side.process, int(work[i].min()), int(work[i].max()),
         round(float((heaviest == i).mean()), 4), rank.waited_ns]
        for i, rank in enumerate(ranks[:8])
    ]  # fmt: skip
    return Draft(
        title=f"the ranks' GPU work differs by step: the heaviest has {time_text(excess)} a step above the mean; {waits}",
        confidence="medium",
        change=Change(gpu_ns=round(excess), limit_ns=round(float((work.max(axis=0) - work.min(axis=0)).mean()))),
        facts={"cause": "uneven batches", "excess_ns": round(excess), "steps": work.shape[1]},
        evidence=[
            Evidence(
                "GPU work of each rank over the steady steps",
                ["rank", "least_compute_ns", "most_compute_ns", "heaviest_in_frac", "waits_for_peers_ns"],
                rows,
            )
        ],
        fixes=["even-batches"],
        caveats=["The collectives are not slow: changing NCCL's settings or the network gains nothing here."],
        subject=["uneven batches"],
    )


def _pauses(run: Run, rank: RankWork, ctx: Context, least: float) -> Pauses:
    side = host_sides(run).get((rank.side.rank, rank.side.process))
    if side is None:
        nothing = np.empty(0, np.int64)
        return Pauses(rank, nothing, nothing, nothing, 0)
    begin = side.start - side.before
    loading = covered(union(*rank.loading), begin, side.start) > side.before // 2
    long = steady_calls(run, side) & (side.deflated_before >= least) & ~loading
    # Where operators follow each other closely, the time is theirs and the profiler's.
    long &= side.events * ctx.threshold("operator_ns") <= side.before
    found = steps(run)
    own = found.of(rank.side.rank, rank.side.process)
    own = own[found.steady[own]]
    at = np.searchsorted(found.start[own], side.start[long], side="right") - 1
    each = np.bincount(at, weights=side.deflated_before[long], minlength=len(own))
    return Pauses(
        rank, begin[long], side.start[long], side.call[long], int(np.sort(each)[(len(each) - 1) // 2]) if len(each) else 0
    )


def _edit(late: Pauses, kept: float) -> Edit:
    """The late rank's pauses become as long as those of the others."""
    taken = ((late.end - late.start) * kept).astype(np.int64)
    return Edit(intervals=(late.start + taken, late.end), of=(late.rank.side.rank, late.rank.side.process))


def _by_rank(run: Run, pauses: Sequence[Pauses]) -> Evidence:
    rows: list[list[Any]] = [
        [
            each.rank.side.rank if each.rank.side.rank >= 0 else each.rank.side.process, each.ns,
            round(len(each.start) / max(each.rank.steps, 1), 1), each.rank.compute_ns, each.rank.waited_ns,
            round(each.rank.last_frac, 4),
        ]
        for each in sorted(pauses, key=lambda one: -one.ns)[:8]
    ]  # fmt: skip
    return Evidence(
        "Each rank in a steady step",
        ["rank", "host_pauses_ns", "pauses", "compute_ns", "waits_for_peers_ns", "arrives_last_frac"],
        rows,
    )


def _places(run: Run, late: Pauses) -> list[Location]:
    keys = thread_keys(run.table("runtime_calls"))[late.call]
    return locations(run, keys, (late.start + late.end) // 2, (late.end - late.start).astype(float))
