"""Communication that the GPU does beside nothing, while compute is ready and has to wait for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.attribution import locations, ops_named, ranges_named
from advisor.derive.bounds import TwoSided, two_sided
from advisor.derive.calls import links
from advisor.derive.collectives import KINDS
from advisor.derive.gpus import KERNEL, gpu_work, work_by_row
from advisor.derive.intervals import IntervalSet, contains, intersect, merge, subtract, union
from advisor.derive.nesting import thread_keys
from advisor.detectors.communication.transfers import Transfers, known_words, rates, spread, transfers, work_of
from advisor.detectors.words import count_text, time_text
from advisor.model import Evidence, Location, Run
from advisor.model.report import Confidence
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_GRADIENTS = ("all-reduce", "reduce-scatter", "reduce")
_ENGINE = r"^autograd::engine::evaluate_function"
_BACKWARD_RANGE = r"^\W*backward\W*$"
# Of forward and backward pass, where nothing tells them apart: a matrix product of the forward pass becomes two.
BACKWARD_SHARE = 2 / 3
_SHARDED = ("all-gather", "reduce-scatter")
_MANY = 0.2  # a kind of collective with this share of the exposed time gets its own fixes


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    if pace is None:
        return None
    found = transfers(run, pace)
    if found is None:
        if run.world_size and run.world_size > 1:
            raise NotApplicable("no collective was recorded in the steady steps", ctx.rule.capture)
        return None
    serial = bool(found.length[found.serial].sum() > found.length.sum() / 2)
    hidden, limit = _hideable(run, found, serial)
    if max(hidden, limit) < ctx.threshold("min_share") * pace.step_ns:
        return None
    _check_known(ctx, found)
    # Kernels beside a collective have that much fewer SMs.
    weight = np.maximum(found.exposed, 1)
    beside = 1 - float(np.average(found.sm_share, weights=weight))
    kinds = _kinds(found)
    exposed = found.covered_per_step(found.exposed_set)
    count = round(len(found) / found.steps, 1)
    where = "on the stream of the compute kernels" if serial else "beside no compute"
    return Draft(
        title=f"{count_text(count, 'collective')} a step {where}: {time_text(exposed)} of every step is communication alone",
        confidence=_confidence(found),
        edits=[_edit(run, found, limit, beside)],
        change=Change(gpu_ns=round(hidden * beside), limit_ns=round(limit)),
        facts={
            "collectives_per_step": count,
            "kinds": kinds,
            "transfer_ns": found.per_step(found.length),
            "exposed_ns": exposed,
            "held_up_compute_ns": found.covered_per_step(found.held_set),
            "hideable_ns": hidden,
            "on_compute_stream": serial,
            "bucket_mb": _bucket_mb(found),
        },
        evidence=[_by_collective(found)],
        locations=_places(run, found),
        fixes=_fixes(run, kinds, serial),
        caveats=_caveats(found, pace),
        subject=[*kinds, "serial" if serial else "overlapped"],
        scope={"ranks": [pace.rank] if pace.rank >= 0 else []},
    )


def _check_known(ctx: Context, found: Transfers) -> None:
    """Refuses kernels of one rank whose lengths do not grow with their messages: they waited."""
    rate = rates(ctx.run, found)
    alone = ~found.complete & (found.bytes >= ctx.threshold("large_bytes")) & np.isfinite(rate)
    if not alone.any():
        return
    apart = spread(found, rate, alone)
    if apart is not None and apart > ctx.threshold("most_spread"):
        raise NotApplicable("the collectives take long, but wait for ranks that were not recorded", ctx.rule.capture)


def _edit(run: Run, found: Transfers, hidden: int, beside: float) -> Edit:
    """On every rank, the collectives lose the share of their transfers that compute would hide; in the worst case nothing."""
    every = np.ones(len(found), bool)
    share = hidden / max(found.per_step(found.length), 1)
    return Edit(
        work=work_of(run, found.found.kernel),
        gpu=Factor(1.0, found.left(every, 1 - share * beside), found.left(every, 1 - share)),
    )


def _hideable(run: Run, found: Transfers, serial: bool) -> tuple[int, int]:
    """(what compute that waited could have hidden, the most that can be hidden) of a step, ns.

    What the step's last collective moves has nothing left to hide behind. Collectives on the compute stream never run beside
    compute, also where in this recording the host was too slow for that to matter.
    """
    room = _room(run, found)
    last = found.last_of_step()
    held = found.covered_per_step(found.held_set) - _tail(found, found.held, last)
    exposed = found.covered_per_step(found.exposed_set) - _tail(found, found.exposed, last)
    held, exposed = min(max(held, 0), room), min(max(exposed, 0), room)
    return held, exposed if serial else held


def _room(run: Run, found: Transfers) -> int:
    """Compute of a step that could hide communication and hides none yet, ns.

    Gradients exist only once the backward pass has begun; shards and activations are needed in both passes.
    """
    compute = subtract(found.activity.compute, union(found.begin, found.end))
    free = found.covered_per_step(compute)
    gradients = np.isin(found.kind, [KINDS.index(kind) for kind in _GRADIENTS])
    if found.exposed[gradients].sum() < (1 - _MANY) * found.exposed.sum():
        return free
    backward = _backward(run, found)
    if backward is None:
        return round(free * BACKWARD_SHARE)
    return found.covered_per_step(intersect(compute, backward))


def _backward(run: Run, found: Transfers) -> IntervalSet | None:
    """When kernels of the backward pass ran; None where neither operators nor ranges tell."""
    gpu, work, calls = found.activity.gpu, gpu_work(run), run.table("runtime_calls")
    sets = []
    for table, marked in (("host_ops", ops_named(run, _ENGINE)), ("ranges", ranges_named(run, _BACKWARD_RANGE))):
        rows = run.table(table)
        mine = marked & (rows["rank"] == gpu.rank) & (rows["process"] == gpu.process)
        sets.append(union(rows["start"][mine], rows["end"][mine]))
    when = merge(*sets)
    if not len(when[0]):
        return None
    call = links(run).call
    launched = np.flatnonzero((call >= 0) & (work.gpu == work.gpus.index(gpu)))
    launched = launched[contains(when, calls["start"][call[launched]])]
    return union(work.start[launched], work.end[launched])


def _tail(found: Transfers, amounts: np.ndarray[Any, np.dtype[np.int64]], last: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
    """The share of the last collective of each step; where it is the only one, it can be cut into pieces, so nothing."""
    return found.per_step(amounts[last]) if len(found) > found.steps else 0


def _kinds(found: Transfers) -> list[str]:
    """Kinds of collectives that make up most of the exposed time, the costliest first."""
    spent = np.bincount(found.kind, weights=np.maximum(found.exposed, 1), minlength=len(KINDS))
    order = [int(i) for i in np.argsort(-spent, kind="stable") if spent[i] >= _MANY * spent.sum()]
    return [KINDS[i] for i in order]


def _confidence(found: Transfers) -> Confidence:
    """Low where the waiting in the collectives is unknown. Never high: how well they will overlap is not recorded."""
    return "medium" if found.length[found.complete].sum() > 0.9 * found.length.sum() else "low"


def _bucket_mb(found: Transfers) -> int:
    """Half of the usual message, in MB, for the advice on DDP's buckets; its default where sizes are unknown."""
    sizes = found.bytes[(found.bytes > 1 << 20) & (found.kind == KINDS.index("all-reduce"))]
    return max(int(np.median(sizes)) // 2 >> 20, 1) if len(sizes) else 25


def _fixes(run: Run, kinds: list[str], serial: bool) -> list[str]:
    if any(kind in _SHARDED for kind in kinds):
        return ["fsdp2-prefetch", "fsdp1-prefetch", "deepspeed-overlap", "megatron-overlap"]
    if "all-reduce" in kinds:
        wrapped = bool(ranges_named(run, r"^DistributedDataParallel\.").any())
        if serial and not wrapped:
            return ["ddp", "async-op", "megatron-overlap"]
        return ["ddp-buckets", "ddp-bf16-hook", "deepspeed-overlap", "megatron-overlap"]
    return ["async-op"]


def _caveats(found: Transfers, pace: TwoSided) -> list[str]:
    words = known_words(found)
    if not pace.gpu_bound:
        words.append("The host sets the pace of this step: hidden communication gains nothing before the host is faster.")
    return words


def _by_collective(found: Transfers) -> Evidence:
    """Collectives of the same kind, size and stream together, per step, the most exposed first."""
    stream = found.stream
    groups, index = np.unique(np.stack([found.kind.astype(np.int64), found.bytes, stream]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    exposed = np.bincount(index, weights=found.exposed)
    rows: list[list[Any]] = []
    for i in np.argsort(-exposed, kind="stable")[:8]:
        mine = index == i
        kind, size, where = (int(value) for value in groups[:, i])
        rows.append(
            [
                KINDS[kind], size if size >= 0 else None, where, bool(found.serial[mine].all()),
                round(int(mine.sum()) / found.steps, 1), *(found.per_step(part[mine]) for part in
                (found.wait, found.length, found.exposed)),
            ]
        )  # fmt: skip
    return Evidence(
        "Collectives of the rank that sets the pace, per step",
        ["collective", "message_bytes", "stream", "compute_stream", "calls", "wait_ns", "transfer_ns", "exposed_ns"],
        rows,
    )


def _places(run: Run, found: Transfers) -> list[Location]:
    """The user's lines that launched the exposed collectives."""
    calls, kernels = run.table("runtime_calls"), run.table("kernels")
    place = work_by_row(gpu_work(run), KERNEL, len(kernels))[found.found.kernel[found.at]]
    call = links(run).call[place]
    known = call >= 0
    return locations(run, thread_keys(calls)[call[known]], calls["start"][call[known]], found.exposed[known].astype(float))
