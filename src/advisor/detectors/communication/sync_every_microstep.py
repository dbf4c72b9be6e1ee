"""Gradients that are reduced in each of several backward passes before one optimizer step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import op_above, op_of_call, ops_named, range_forest, ranges_named, work_of_calls
from advisor.derive.bounds import TwoSided, two_sided
from advisor.derive.collectives import KINDS, Collectives, collectives
from advisor.derive.host import host_sides
from advisor.derive.nesting import distinct_rows, mixed_key, thread_keys
from advisor.derive.sequence import host_cost, steady_calls
from advisor.derive.steps import steps
from advisor.detectors.communication.issuing import Issuing, Source, issuing
from advisor.detectors.communication.transfers import Transfers, known_words, transfers, work_of
from advisor.detectors.words import count_text, size_text, time_text
from advisor.model import Evidence, Run
from advisor.replay.changes import GONE, Edit
from advisor.rules.contract import Change, Context, Draft

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_GRADIENTS = tuple(KINDS.index(kind) for kind in ("all-reduce", "reduce-scatter", "reduce"))
_FORWARD = r"^DistributedDataParallel\.forward$|^FSDP::root_pre_forward$"
_OPTIMIZER = r"^Optimizer\.step#"
# DDP divides each gradient by the number of ranks before it is sent.
_SCALING = r"^aten::(div|mul)_?$"
_REDUCING = r"^FSDP::post_backward_reduce"


@dataclass(frozen=True)
class Rounds:
    """Reductions of gradients, one entry each: at, position in `collectives(run)`; update: which optimizer step they lead
    to; number: of the backward pass among those of the update; of: how many there are; last: the last of them."""

    at: Ints
    update: Ints
    number: Ints
    of: Ints

    @property
    def last(self) -> Mask:
        return self.number == self.of - 1


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    found = transfers(run, pace) if pace is not None else None
    if pace is None or found is None:
        return None
    everything = collectives(run)
    issued = issuing(run, everything)
    rounds = _rounds(run, everything, issued)
    here = np.isin(rounds.at, found.at)
    if not here.any() or np.median(rounds.of[here]) < 2:
        return None
    early = np.zeros(len(everything), bool)
    early[rounds.at[(rounds.of > 1) & ~rounds.last]] = True
    mine = early[found.at]
    if not mine.any():
        return None
    calls = issued.calls_of(early) | _scaling(run, rounds, issued) | _reducing(run, issued.call[early & (issued.call >= 0)])
    host, passes = _host(run, pace, found, calls), int(np.median(rounds.of[here]))
    if max(host, found.per_step(found.exposed[mine])) < ctx.threshold("min_share") * pace.step_ns:
        return None
    count, moved = mine.sum() / max(found.steps, 1), found.per_step(np.maximum(found.bytes[mine], 0))
    sharded = bool((issued.source[found.at][mine] == Source.SHARDS).mean() > 0.5)
    return Draft(
        title=f"gradients are reduced in each of {passes} backward passes of an update: {count_text(count, 'collective')} a step"
        + (f" move {size_text(moved)}" if moved else "")
        + " for nothing",
        confidence="medium" if found.complete[mine].all() else "low",
        edits=[Edit(work=_work(run, early, calls), vanish=True), Edit(calls=calls, host=GONE)],
        change=Change(
            host_ns=host,
            gpu_ns=found.per_step(found.held[mine]),
            limit_ns=host + found.per_step(found.exposed[mine]),
        ),
        facts={
            "passes": passes,
            "collectives_for_nothing": round(count, 1),
            "bytes_for_nothing": moved,
            "host_ns": host,
            "transfer_ns": found.per_step(found.length[mine]),
            "exposed_ns": found.per_step(found.exposed[mine]),
        },
        evidence=[_by_round(found, rounds)],
        fixes=["fsdp2", "accelerate", "deepspeed"] if sharded else ["ddp", "accelerate", "deepspeed"],
        caveats=_caveats(pace, found, host),
        subject=["sharded" if sharded else "replicated"],
        scope={"ranks": [pace.rank] if pace.rank >= 0 else []},
    )


def _rounds(run: Run, found: Collectives, issued: Issuing) -> Rounds:
    """Of all ranks. Passes are told apart by the forward pass before them, or else by the sizes that come again."""
    kernels = run.table("kernels")
    gradient = np.isin(found.kind, _GRADIENTS) & (issued.call >= 0)
    marked = gradient & np.isin(issued.source, (Source.GRADIENT_HOOK, Source.SHARDS))
    at = np.flatnonzero(marked if marked.any() else gradient)
    when = run.table("runtime_calls")["start"][issued.call[at]]
    rank, process = kernels["rank"][found.kernel[at]], kernels["process"][found.kernel[at]]
    update, number, of = (np.zeros(len(at), np.int64) for _ in range(3))
    of[:] = 1
    members, member = distinct_rows(rank, process)
    for one, who in enumerate(members):
        mine = np.flatnonzero(member == one)
        mine = mine[np.argsort(when[mine], kind="stable")]
        update[mine] = np.searchsorted(_updates(run, who), when[mine], side="right")
        forward = _starts(run, who, _FORWARD)
        for group in np.unique(update[mine]):
            these = mine[update[mine] == group]
            if len(forward):
                _, number[these] = np.unique(np.searchsorted(forward, when[these]), return_inverse=True)
            else:
                number[these] = _repeats(mixed_key(found.kind[at[these]], found.bytes[at[these]]))
            counts = np.bincount(number[these])
            # Other modules, or a pass that reduces only some gradients, are no accumulation.
            of[these] = len(counts) if counts.min() == counts.max() and _alike(found.bytes[at[these]], number[these]) else 1
    return Rounds(at, update, number, of)


def _alike(size: Ints, number: Ints) -> bool:
    """Every pass reduces the same bytes."""
    moved = np.bincount(number, weights=size)
    return bool(moved.max() - moved.min() <= 0.05 * abs(moved.max()))


def _repeats(keys: Ints) -> Ints:
    """For each of the reductions of an update: how often the list of their sizes has begun before; 0 where it never does.

    A list of equal sizes says nothing: a model of equal layers has buckets of one size.
    """
    n = len(keys)
    for period in range(2, n // 2 + 1):
        if n % period == 0 and len(np.unique(keys[:period])) > 1 and (keys.reshape(-1, period) == keys[:period]).all():
            return np.arange(n) // period
    return np.zeros(n, np.int64)


def _updates(run: Run, who: tuple[int, ...]) -> Ints:
    """When each update begins: with the optimizer's steps where they are marked, else with the steps."""
    marked = _starts(run, who, _OPTIMIZER)
    found = steps(run)
    mine = found.of(who[0], who[1])
    return marked if len(marked) >= len(mine) > 0 else found.start[mine]


def _starts(run: Run, who: tuple[int, ...], pattern: str) -> Ints:
    ranges = run.table("ranges")
    mine = ranges_named(run, pattern) & (ranges["rank"] == who[0]) & (ranges["process"] == who[1])
    return np.sort(ranges["start"][mine])


def _scaling(run: Run, rounds: Rounds, issued: Issuing) -> Mask:
    """Calls that scale a gradient in a hook, in passes whose reductions are for nothing."""
    calls = run.table("runtime_calls")
    result = np.zeros(len(calls), bool)
    if not ops_named(run, _SCALING).any():
        return result
    op = op_of_call(run)
    scaling = (op_above(run, op, r"AccumulateGrad") >= 0) & (op_above(run, op, _SCALING) >= 0)
    early = issued.call[rounds.at[(rounds.of > 1) & ~rounds.last]]
    members, member = distinct_rows(calls["rank"], calls["process"])
    for one, who in enumerate(members):
        forward, mine = _starts(run, who, _FORWARD), scaling & (member == one)
        if len(forward) and mine.any():
            passes = np.searchsorted(forward, calls["start"][early[member[early] == one]])
            result |= mine & np.isin(np.searchsorted(forward, calls["start"]), passes)
    return result


def _reducing(run: Run, launches: Ints) -> Mask:
    """All calls of the FSDP ranges in which these launches reduce a unit's gradients."""
    calls, wanted = run.table("runtime_calls"), ranges_named(run, _REDUCING)
    if not wanted.any():
        return np.zeros(len(calls), bool)
    forest = range_forest(run)
    inner = forest.innermost(thread_keys(calls), calls["start"])
    row = np.where(inner >= 0, forest.nearest(wanted)[np.maximum(inner, 0)], -1)
    return (row >= 0) & np.isin(row, row[launches])


def _work(run: Run, early: Mask, calls: Mask) -> Mask:
    return work_of(run, collectives(run).kernel[early]) | work_of_calls(run, calls)


def _host(run: Run, pace: TwoSided, found: Transfers, calls: Mask) -> int:
    side = host_sides(run).get((pace.rank, pace.process))
    if side is None:
        return 0
    own = side.call[steady_calls(run, side) & calls[side.call]]
    return int(host_cost(run)[own].sum()) // max(found.steps, 1)


def _by_round(found: Transfers, rounds: Rounds) -> Evidence:
    place = np.full(len(found.found), -1, np.int64)
    place[rounds.at] = rounds.number
    number = place[found.at]
    rows = [
        [
            int(one) + 1, round(int(mine.sum()) / max(found.steps, 1), 1), found.per_step(np.maximum(found.bytes[mine], 0)),
            found.per_step(found.length[mine]), found.per_step(found.exposed[mine]),
        ]
        for one in np.unique(number[number >= 0])[:8]
        for mine in [number == one]
    ]  # fmt: skip
    return Evidence(
        "Reductions of gradients in each backward pass of an update, per step",
        ["backward_pass", "collectives", "moved_bytes", "transfer_ns", "exposed_ns"],
        rows,
    )


def _caveats(pace: TwoSided, found: Transfers, host: int) -> list[str]:
    words = known_words(found)
    if not pace.gpu_bound:
        words.append(
            f"The host sets the pace of this step: what counts is the {time_text(host)} of host work for these collectives. "
            "Ranks that need not meet in every pass also wait less for each other, which is not in the estimate."
        )
    return words
