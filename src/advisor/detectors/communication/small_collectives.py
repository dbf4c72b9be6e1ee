"""Many collectives that each move so little that starting them takes longer than the data."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import locations
from advisor.derive.bounds import TwoSided, two_sided
from advisor.derive.collectives import KINDS, Collectives, collectives
from advisor.derive.gpus import device_of
from advisor.derive.host import host_sides
from advisor.derive.nesting import thread_keys
from advisor.derive.sequence import host_cost, steady_calls
from advisor.detectors.communication.issuing import Issuing, Source, issuing
from advisor.detectors.communication.link_rate import link_rate
from advisor.detectors.communication.transfers import Transfers, transfers, work_of
from advisor.detectors.words import count_text, size_text, time_text
from advisor.model import Evidence, Location, Run
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

Mask = npt.NDArray[np.bool_]
# What can be gathered into larger messages: parameters, shards and gradients.
_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "reduce")
_NAMES = {Source.SHARDS: "FSDP units", Source.GRADIENT_HOOK: "gradient buckets", Source.LOOP: "a loop over tensors"}
_FIXES = {
    Source.SHARDS: ["fsdp2-units", "fsdp1-units", "deepspeed-buckets"],
    Source.GRADIENT_HOOK: ["ddp-buckets", "deepspeed-buckets"],
    Source.LOOP: ["flat-buffer", "ddp", "deepspeed-buckets"],
}


@dataclass(frozen=True)
class Small:
    """chosen: mask over `collectives(run)`, of all ranks; calls: the host calls that issue them; per step of the rank that
    sets the pace: count of them now, merged of them afterwards, host_ns to issue them; source: what asks for most of them."""

    chosen: Mask
    calls: Mask
    count: float
    merged: float
    host_ns: int
    source: Source

    @property
    def left(self) -> float:
        return min(self.merged / self.count, 1.0)


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    if pace is None:
        return None
    found = transfers(run, pace)
    if found is None:
        if run.world_size and run.world_size > 1:
            raise NotApplicable("no collective was recorded in the steady steps", ctx.rule.capture)
        return None
    if not (found.bytes >= 0).any():
        raise NotApplicable("the sizes of the collectives were not recorded", ctx.rule.capture)
    limit = _small_bytes(ctx, found)
    small = _small(ctx, run, found, pace, limit)
    if small is None or small.count < ctx.threshold("least_count") or small.left > ctx.threshold("most_left"):
        return None
    mine = small.chosen[found.at]
    latency = int(found.length[mine].min())
    starting = round((small.count - small.merged) * latency)
    held = min(found.per_step(found.held[mine]), starting)
    if max(small.host_ns * (1 - small.left), held) < ctx.threshold("min_share") * pace.step_ns:
        return None
    host = round(small.host_ns * (1 - small.left))
    return Draft(
        title=f"{count_text(small.count, 'small collective')} a step ({_NAMES[small.source]}, median "
        f"{size_text(float(np.median(found.bytes[mine])))}) where {ceil(small.merged)} would do: issuing them takes the host "
        f"{time_text(small.host_ns)}",
        confidence="medium" if found.complete[mine].all() else "low",
        edits=_edits(ctx, run, found, small, starting),
        change=Change(host_ns=host, gpu_ns=held, limit_ns=small.host_ns + min(found.per_step(found.exposed[mine]), starting)),
        facts={
            "collectives_per_step": round(small.count),
            "merged_per_step": round(small.merged, 1),
            "source": _NAMES[small.source],
            "median_bytes": int(np.median(found.bytes[mine])),
            "small_below_bytes": limit,
            "host_ns": small.host_ns,
            "transfer_ns": found.per_step(found.length[mine]),
            "latency_ns": latency,
            "exposed_ns": found.per_step(found.exposed[mine]),
        },
        evidence=[_by_size(run, found, small)],
        locations=_places(run, small, pace),
        fixes=_FIXES[small.source],
        caveats=_caveats(pace, found, mine),
        subject=[_NAMES[small.source]],
        scope={"ranks": [pace.rank] if pace.rank >= 0 else []},
    )


def _small_bytes(ctx: Context, found: Transfers) -> int:
    """Bytes over each link below which the transfer takes less than the start of a collective."""
    sizes = found.found.group_size[found.at]
    ranks = int(sizes.max()) if len(sizes) and sizes.max() > 0 else ctx.run.world_size or 2
    try:
        link = link_rate(ctx.run, device_of(ctx.run, found.activity.gpu), ranks)
    except NotApplicable:
        return int(ctx.threshold("small_bytes"))
    return int(link.bytes_per_s * ctx.threshold("reached_share") * ctx.threshold("start_ns") * 1e-9)


def on_link(found: Collectives, world_size: int | None) -> npt.NDArray[np.float64]:
    """Bytes that each link carries for a collective: message times the factor of nccl-tests, NaN unknown."""
    second = np.full(len(found), 1_000_000_000, np.int64)
    return found.bus_bandwidth(world_size, second)


def _small(ctx: Context, run: Run, found: Transfers, pace: TwoSided, limit: int) -> Small | None:
    everything = collectives(run)
    issued = issuing(run, everything)
    kinds = np.isin(everything.kind, [KINDS.index(kind) for kind in _KINDS])
    size = on_link(everything, run.world_size)
    chosen = kinds & (size < limit) & (issued.source != Source.OTHER)
    chosen &= (issued.source != Source.SHARDS) | np.isin(issued.unit, _small_units(everything, issued, chosen))
    here = chosen[found.at]
    if not here.any():
        return None
    source = Source(int(np.bincount(issued.source[found.at][here]).argmax()))
    merged = 0.0
    for kind in np.unique(found.kind[here]):
        total = found.per_step(found.bytes[here & (found.kind == kind)])
        merged += max(ceil(total / ctx.threshold("merged_bytes")), 1)
    calls = issued.calls_of(chosen) | issued.calls_of_units(issued.unit[chosen])
    side = host_sides(run).get((pace.rank, pace.process))
    host = 0
    if side is not None:
        own = side.call[steady_calls(run, side) & calls[side.call]]
        host = int(host_cost(run)[own].sum()) // max(found.steps, 1)
    return Small(chosen, calls, int(here.sum()) / max(found.steps, 1), merged, host, source)


def _small_units(found: Collectives, issued: Issuing, small: Mask) -> npt.NDArray[np.int64]:
    """FSDP units whose gathers are all small: their reductions, in 32 bits twice as large, go with them."""
    gather = (found.kind == KINDS.index("all-gather")) & (issued.unit >= 0)
    return np.setdiff1d(issued.unit[gather & small], issued.unit[gather & ~small])


def _edits(ctx: Context, run: Run, found: Transfers, small: Small, starting: int) -> list[Edit]:
    """On every rank: the calls that issue the collectives become fewer, and so do the starts on the GPU."""
    mine = small.chosen[found.at]
    stays = 1 - starting / max(found.per_step(found.length[mine]), 1)
    worst = 1 - (1 - small.left) * ctx.threshold("least_gone")
    return [
        Edit(calls=small.calls, host=Factor(worst, small.left, small.left)),
        Edit(work=work_of(run, found.found.kernel[small.chosen]), gpu=Factor(1.0, *[found.left(mine, max(stays, 0.0))] * 2)),
    ]


def _by_size(run: Run, found: Transfers, small: Small) -> Evidence:
    """Per step, by kind and size, the most frequent first."""
    mine = small.chosen[found.at]
    pairs, index = np.unique(np.stack([found.kind[mine].astype(np.int64), found.bytes[mine]]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    count = np.bincount(index)
    rows: list[list[Any]] = []
    for i in np.argsort(-count, kind="stable")[:8]:
        these = index == i
        kind, size = (int(value) for value in pairs[:, i])
        rows.append(
            [KINDS[kind], size, round(int(count[i]) / found.steps, 1), int(np.median(found.length[mine][these])),
             found.per_step(found.exposed[mine][these])]
        )  # fmt: skip
    return Evidence(
        "Small collectives of the rank that sets the pace, per step",
        ["collective", "message_bytes", "calls", "median_transfer_ns", "exposed_ns"],
        rows,
    )


def _places(run: Run, small: Small, pace: TwoSided) -> list[Location]:
    calls = run.table("runtime_calls")
    rows = np.flatnonzero(small.calls & (calls["rank"] == pace.rank) & (calls["process"] == pace.process))
    return locations(run, thread_keys(calls)[rows], calls["start"][rows], host_cost(run)[rows].astype(float))


def _caveats(pace: TwoSided, found: Transfers, mine: Mask) -> list[str]:
    if pace.gpu_bound or found.serial[mine].any():
        return []
    return ["The collectives run beside compute: what counts is the host time that issuing them takes, not their length."]
