"""One rank that has more to do than the others, which wait for it in every collective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import locations
from advisor.derive.bounds import TwoSided, all_sides, two_sided
from advisor.derive.nesting import thread_keys
from advisor.detectors.communication.exchanges import segments, uneven_segments
from advisor.detectors.communication.rank_compare import (
    SAME,
    by_name,
    common_names,
    more_of_everything,
    per_launch,
    shared,
    slower,
)
from advisor.detectors.communication.rank_work import RankWork, rank_works
from advisor.detectors.communication.transfers import work_of
from advisor.detectors.words import name_text, time_text
from advisor.model import Evidence, Location, Run
from advisor.replay.changes import Edit, Factor
from advisor.replay.engine import replay
from advisor.rules.contract import Change, Context, Draft, NotApplicable

EXTRA, LARGER, SLOWER, LOADER = "extra kernels", "larger inputs", "slower GPU", "data loading"
_FIXES = {
    EXTRA: ["keep-extra-work-off-the-step", "balance-tokens"],
    LARGER: ["balance-tokens"],
    SLOWER: ["check-the-gpu"],
    LOADER: ["balance-loading"],
}
_COMPARABLE = 0.5  # with less of the compute time in kernels that both ranks run, they run different programs


@dataclass(frozen=True)
class Cause:
    """Why `late` is late: excess_ns a step over `other`, the middle one of the other ranks."""

    what: str
    late: RankWork
    other: RankWork
    excess_ns: int
    words: str

    def amount(self, rank: RankWork) -> int:
        """What makes ranks late, ns a step."""
        return rank.loader_ns if self.what == LOADER else rank.compute_ns


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    ranks = rank_works(run) if len(all_sides(run)) > 1 else []
    if len(ranks) < 2 or pace is None:
        raise NotApplicable("needs the recordings of at least two ranks of the same steps", ctx.rule.capture)
    if not any(rank.last_frac for rank in ranks):
        raise NotApplicable("no collective was recorded on more than one rank", ctx.rule.capture)
    if run.world_size and 2 * len(ranks) < run.world_size:
        raise NotApplicable(f"{len(ranks)} of {run.world_size} ranks were recorded: the late one may be any", ctx.rule.capture)
    step = pace.step_ns
    causes = [cause for cause in (_by_work(ctx, ranks), _by_loading(ctx, ranks, step)) if cause is not None]
    if not causes:
        _refuse_lateness_alone(ctx, ranks, step)
        return None
    cause = max(causes, key=lambda one: one.excess_ns)
    late, other = cause.late, cause.other
    edits, most = _edits(run, cause, ranks), _most(cause, ranks)
    return Draft(
        title=f"{late.name} holds up the others: {cause.words}",
        confidence="medium" if run.world_size in (None, len(ranks)) else "low",
        edits=edits,
        at_best_ns=_beyond_replay(run, edits, most),
        change=_change(cause, ranks, pace, most),
        facts={
            "late_rank": late.side.rank if late.side.rank >= 0 else None,
            "cause": cause.what,
            "excess_ns": cause.excess_ns,
            "late_compute_ns": late.compute_ns,
            "other_compute_ns": other.compute_ns,
            "work_ratio": round(late.compute_ns / max(other.compute_ns, 1), 3),
            "kernels_on_late": round(late.launches, 1),
            "kernels_on_other": round(other.launches, 1),
            "device": late.activity.gpu.device,
        },
        evidence=[_by_rank(ranks), *([_by_kernel(run, late, other)] if cause.what != LOADER else [])],
        locations=_places(run, cause) if cause.what == EXTRA else [],
        fixes=_FIXES[cause.what],
        caveats=_caveats(cause),
        subject=[cause.what],
        scope={"ranks": [late.side.rank] if late.side.rank >= 0 else []},
    )


def _by_work(ctx: Context, ranks: Sequence[RankWork]) -> Cause | None:
    """The rank whose GPU has clearly more to do, nearly always the same one."""
    run = ctx.run
    late, other = _apart(ranks, lambda rank: rank.compute_ns)
    if other.compute_ns <= 0 or late.compute_ns < ctx.threshold("work_ratio") * other.compute_ns:
        return None
    n = min(rank.steps for rank in ranks)
    heaviest = np.argmax(np.stack([rank.compute[:n] for rank in ranks]), axis=0)
    place = next(i for i, rank in enumerate(ranks) if rank is late)
    if (heaviest == place).mean() < ctx.threshold("same_rank"):
        return None
    mine, theirs = per_launch(run, late), per_launch(run, other)
    _leave_to_experts(ctx, late)
    if common_names(run, late, other) < _COMPARABLE:
        raise NotApplicable(
            f"{late.name} and {other.name} run different kernels, as the stages of a pipeline do: their work cannot be compared"
        )
    ahead = (late.launches - other.launches) / other.launches
    excess = late.compute_ns - other.compute_ns
    times = f"{time_text(late.compute_ns)} of GPU work a step against {time_text(other.compute_ns)} on {other.name}"
    if ahead > SAME and not more_of_everything(mine, theirs):
        extra = round(late.launches - other.launches)
        return Cause(EXTRA, late, other, excess, f"{times}, {extra} kernels more")
    if ahead > SAME or shared(mine, theirs) < 1 - 5 * SAME:
        return Cause(LARGER, late, other, excess, f"{times}, in the same kernels on larger inputs")
    longer = slower(run, late, other)
    if longer < 1 + (ctx.threshold("work_ratio") - 1) / 2:
        return None
    clocks = ""
    if late.clock_mhz and other.clock_mhz:
        clocks = f", SM clock {late.clock_mhz:.0f} against {other.clock_mhz:.0f} MHz"
    return Cause(SLOWER, late, other, excess, f"the same kernels take {longer:.2f} times as long as on {other.name}{clocks}")


def _leave_to_experts(ctx: Context, late: RankWork) -> None:
    """Refuses where ranks differ only in the products between two all-to-all exchanges."""
    parts = segments(ctx.run)
    if len(parts) < 2 or len({part.compute.shape[1] for part in parts}) > 1:
        return
    n = min(len(part.compute) for part in parts)
    uneven = uneven_segments(parts, n, ctx.threshold("work_ratio"), late.side.step_ns)
    mine = np.array([part.compute[:n][:, ~uneven].sum() for part in parts])
    if uneven.any() and mine.max() < ctx.threshold("work_ratio") * np.median(mine):
        raise NotApplicable(f"{late.name} computes longer only between exchanges of tokens: expert-imbalance judges that", "")


def _apart(ranks: Sequence[RankWork], amount: Callable[[RankWork], int]) -> tuple[RankWork, RankWork]:
    """The rank with most of it, and the middle one of the others."""
    ordered = sorted(ranks, key=amount)
    return ordered[-1], ordered[(len(ordered) - 2) // 2]


def _by_loading(ctx: Context, ranks: Sequence[RankWork], step: int) -> Cause | None:
    late, other = _apart(ranks, lambda rank: rank.loader_ns)
    excess = late.loader_ns - other.loader_ns
    if excess < ctx.threshold("loader_share") * step:
        return None
    words = f"it waits {time_text(late.loader_ns)} a step for its data loader, {other.name} {time_text(other.loader_ns)}"
    return Cause(LOADER, late, other, excess, words)


def _refuse_lateness_alone(ctx: Context, ranks: Sequence[RankWork], step: int) -> None:
    """Late in the recording, with no more work: the profiler slows hosts unequally, so the recording cannot tell."""
    late = max(ranks, key=lambda rank: rank.last_frac)
    waited = max(rank.waited_ns for rank in ranks)
    if late.last_frac >= ctx.threshold("same_rank") and waited > ctx.threshold("loader_share") * step:
        raise NotApplicable(
            f"{late.name} comes last to {late.last_frac:.0%} of the collectives, but has no more GPU work, data loading or lower "
            "clocks than the others; a profiler slows each host differently, so this recording cannot tell",
            "time the steps of each rank without a profiler, or give nvidia-smi logs of the run too",
        )


def _aims(cause: Cause, ranks: Sequence[RankWork]) -> list[tuple[float, float]]:
    """For each rank: what it has to do afterwards as shares of what it has now, in the expected and the best case.

    Larger inputs can only be moved: then every rank has the mean. What only the late rank does, or does more slowly, it would
    do as the middle one of the others does. At most it has the work of the lightest.
    """
    work = np.array([cause.amount(rank) for rank in ranks], float)
    others = work[[rank is not cause.late for rank in ranks]]
    aims = []
    for rank, own in zip(ranks, np.maximum(work, 1.0).tolist(), strict=True):
        late = rank is cause.late
        aim = float(work.mean()) if cause.what == LARGER else (float(np.median(others)) if late else own)
        aims.append((aim / own, float(work.min()) / own if late else aim / own))
    return aims


def _edits(run: Run, cause: Cause, ranks: Sequence[RankWork]) -> list[Edit]:
    edits = []
    for rank, (expected, best) in zip(ranks, _aims(cause, ranks), strict=True):
        if expected == best == 1.0:
            continue
        if cause.what == LOADER:
            start, end = rank.loading
            kept = ((end - start) * expected).astype(np.int64)
            edits.append(Edit(intervals=(start + kept, end), of=(rank.side.rank, rank.side.process)))
            continue
        edits.append(Edit(work=work_of(run, rank.kernels), gpu=Factor(expected, expected, min(best, expected))))
        if cause.what == EXTRA and rank is cause.late:
            edits.append(_fewer_launches(run, cause))
    return edits


def _fewer_launches(run: Run, cause: Cause) -> Edit:
    """The calls that launch what the late rank runs more often take only the other rank's share."""
    rows, ratio = _more_often(run, cause)
    calls = np.zeros(len(run.table("runtime_calls")), bool)
    call = cause.late.call[rows]
    calls[call[call >= 0]] = True
    return Edit(calls=calls, host=Factor(1.0, ratio, ratio))


def _more_often(run: Run, cause: Cause) -> tuple[npt.NDArray[np.int64], float]:
    """Positions in the late rank's kernels of those it runs more often than the other, and the other's number over its own."""
    mine, theirs = by_name(per_launch(run, cause.late)), by_name(per_launch(run, cause.other))
    nothing = (0.0, 0.0)
    more = [name for name, (count, _) in mine.items() if count > (1 + SAME) * theirs.get(name, nothing)[0]]
    rows = np.flatnonzero(np.isin(run.table("kernels")["name"][cause.late.kernels], more))
    here, there = sum(mine[name][0] for name in more), sum(theirs.get(name, nothing)[0] for name in more)
    return rows, there / here if here else 1.0


def _most(cause: Cause, ranks: Sequence[RankWork]) -> int:
    """The late rank's excess over the lightest; beside collectives that wait, GPU sides differ by more than the work."""
    amounts = [cause.amount(rank) for rank in ranks]
    apart = 0 if cause.what == LOADER else cause.late.side.gpu_ns - min(rank.side.gpu_ns for rank in ranks)
    return max(max(amounts) - min(amounts), apart)


def _beyond_replay(run: Run, edits: list[Edit], most: int) -> int:
    """What `most` is more than the best case of the replay.

    A profiler slows the hosts of the ranks differently, and a replay takes all alike: where the wrong rank's host rules the
    recording, even its best case is too small.
    """
    shown = replay(run)
    if shown is None or not shown.usable:
        return 0
    return max(most - round(shown.gain(edits).high * shown.step_ns), 0)


def _change(cause: Cause, ranks: Sequence[RankWork], pace: TwoSided, most: int) -> Change:
    """Seen from both sides of the rank that sets the pace."""
    place = next((i for i, rank in enumerate(ranks) if rank.side == pace), None)
    gone = 0
    if place is not None:
        gone = max(round(cause.amount(ranks[place]) * (1 - _aims(cause, ranks)[place][0])), 0)
    return Change(host_ns=gone, limit_ns=most) if cause.what == LOADER else Change(gpu_ns=gone, limit_ns=most)


def _caveats(cause: Cause) -> list[str]:
    if cause.what == LARGER:
        return ["The expected saving moves work from this rank to the others; the highest gives it the work of the lightest."]
    if cause.what == SLOWER and not cause.late.clock_mhz:
        return ["Clocks were not recorded: an nvidia-smi log of the run tells whether heat, power or another process is why."]
    return []


def _places(run: Run, cause: Cause) -> list[Location]:
    """The user's lines that launch what the late rank runs more often."""
    kernels, calls, late = run.table("kernels"), run.table("runtime_calls"), cause.late
    more, _ = _more_often(run, cause)
    more = more[late.call[more] >= 0]
    call, rows = late.call[more], late.kernels[more]
    return locations(run, thread_keys(calls)[call], calls["start"][call], (kernels["end"] - kernels["start"])[rows].astype(float))


def _by_rank(ranks: Sequence[RankWork]) -> Evidence:
    rows: list[list[Any]] = [
        [
            rank.side.rank if rank.side.rank >= 0 else rank.side.process, rank.compute_ns, round(rank.launches, 1),
            rank.loader_ns, rank.waited_ns, round(rank.last_frac, 4), rank.clock_mhz,
        ]
        for rank in sorted(ranks, key=lambda one: -one.compute_ns)[:8]
    ]  # fmt: skip
    return Evidence(
        "Work of each rank in a steady step (compute without what waiting collectives beside it cost)",
        ["rank", "compute_ns", "kernels", "loader_ns", "waits_for_peers_ns", "arrives_last_frac", "sm_clock_mhz"],
        rows,
    )


def _by_kernel(run: Run, late: RankWork, other: RankWork) -> Evidence:
    """Kernels that differ most between the two, per step."""
    mine, theirs = by_name(per_launch(run, late)), by_name(per_launch(run, other))
    nothing = (0.0, 0.0)
    apart = {name: mine.get(name, nothing)[1] - theirs.get(name, nothing)[1] for name in mine.keys() | theirs.keys()}
    ranked = sorted(apart, key=lambda name: (-abs(apart[name]), run.strings[name]))[:6]
    rows: list[list[Any]] = []
    for name in ranked:
        (count, spent), (fewer, less) = mine.get(name, nothing), theirs.get(name, nothing)
        rows.append([name_text(run.strings[name]), round(count, 1), round(fewer, 1), int(spent), int(less)])
    return Evidence(
        f"Where {late.name} and {other.name} differ most, per step",
        ["kernel", "calls_late", "calls_other", "gpu_late_ns", "gpu_other_ns"],
        rows,
    )
