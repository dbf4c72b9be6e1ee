"""Data of the GPUs that Gloo carries through host memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import activities
from advisor.derive.attribution import ops_named, ranges_named
from advisor.derive.intervals import EMPTY, IntervalSet, contains, intersect, merge, subtract, union
from advisor.derive.steady import Steady, steady
from advisor.derive.steps import steps
from advisor.detectors.communication.link_rate import link_rate
from advisor.detectors.words import count_text, size_text, time_text
from advisor.model import CopyKind, Evidence, Run
from advisor.replay.changes import Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable

# PyTorch's name of the work of a Gloo process group, from its issue to its completion. Barriers and objects move nothing.
_GLOO = r"^gloo:(all_?reduce|reduce_?scatter|_?all_?gather|reduce|broadcast)"
Mask = npt.NDArray[np.bool_]


def detect(ctx: Context) -> Draft | None:
    run = ctx.run
    judged = steady(run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    member = (judged.side.rank, judged.side.process)
    gloo = _at_work(run, member)
    copied, count = _copied(run, judged, member, gloo)
    if copied < ctx.threshold("least_bytes"):
        return None
    alone = subtract(gloo, judged.activity.compute)
    waited = judged.within(alone)
    if waited < ctx.threshold("min_share") * judged.step.step_ns:
        return None
    rate = _nccl_rate(ctx, judged)
    ranks = run.world_size or 2
    moved = copied // 2  # down to the host and back
    nccl = round(moved * 2 * (ranks - 1) / ranks / rate * 1e9)
    left = min(nccl / max(waited, 1), 1.0)
    return Draft(
        title=f"Gloo carries {size_text(moved)} a step of the GPU's data through host memory: {time_text(waited)} of every step "
        f"in {count_text(count, 'collective')}, where NCCL would need {time_text(nccl)}",
        confidence="medium",
        edits=[_edit(run, one, left) for one in steps(run).members],
        change=Change(host_ns=round(judged.host_within(alone) * (1 - left)), limit_ns=waited),
        facts={
            "collectives_per_step": round(count, 1),
            "moved_bytes": moved,
            "gloo_ns": judged.within(gloo),
            "gpu_idle_ns": waited,
            "nccl_ns": nccl,
            "nccl_gb_per_s": round(rate / 1e9, 1),
        },
        evidence=[_by_kind(run, judged, member)],
        subject=["gloo"],
        scope={"ranks": [member[0]] if member[0] >= 0 else []},
    )


def _rows(run: Run, table: str, member: tuple[int, int]) -> npt.NDArray[np.int64]:
    rows = run.table(table)
    named = ops_named(run, _GLOO) if table == "host_ops" else ranges_named(run, _GLOO)
    return np.flatnonzero(named & (rows["rank"] == member[0]) & (rows["process"] == member[1]))


def _at_work(run: Run, member: tuple[int, int]) -> IntervalSet:
    """When Gloo carried out collectives of this process."""
    sets = []
    for name in ("ranges", "host_ops"):
        rows, table = _rows(run, name, member), run.table(name)
        sets.append(union(table["start"][rows], table["end"][rows]))
    return merge(*sets)


def _copied(run: Run, judged: Steady, member: tuple[int, int], gloo: IntervalSet) -> tuple[int, float]:
    """Bytes between host and GPU while Gloo was at work, and its collectives, per ordinary step."""
    copies = run.table("copies")
    spans = (judged.start, judged.end)
    both = np.isin(copies["kind"], (int(CopyKind.DEVICE_TO_HOST), int(CopyKind.HOST_TO_DEVICE)))
    inside = both & (copies["rank"] == member[0]) & (copies["process"] == member[1])
    inside &= contains(intersect(gloo, spans), copies["start"]) & (copies["bytes"] > 0)
    count = 0
    for name in ("ranges", "host_ops"):
        rows = _rows(run, name, member)
        count += int(contains(spans, run.table(name)["start"][rows]).sum())
    return int(copies["bytes"][inside].sum()) // max(judged.count, 1), count / max(judged.count, 1)


def _nccl_rate(ctx: Context, judged: Steady) -> float:
    try:
        link = link_rate(ctx.run, ctx.device, ctx.run.world_size or 2)
    except NotApplicable:
        return ctx.threshold("unknown_rate")
    return link.bytes_per_s * ctx.threshold("reached_share")


def _edit(run: Run, member: tuple[int, int], left: float) -> Edit:
    """The host no longer waits for Gloo beside an idle GPU, but for the time that NCCL needs."""
    mine = [a.compute for a in activities(run) if (a.gpu.rank, a.gpu.process) == member]
    start, end = subtract(_at_work(run, member), merge(EMPTY, *mine))
    return Edit(intervals=(start + ((end - start) * left).astype(np.int64), end), of=member)


def _by_kind(run: Run, judged: Steady, member: tuple[int, int]) -> Evidence:
    spans = (judged.start, judged.end)
    found: list[list[Any]] = []
    for name in ("ranges", "host_ops"):
        table, rows = run.table(name), _rows(run, name, member)
        rows = rows[contains(spans, table["start"][rows])]
        for code in np.unique(table["name"][rows]):
            mine = rows[table["name"][rows] == code]
            when = union(table["start"][mine], table["end"][mine])
            found.append(
                [run.strings[int(code)], round(len(mine) / max(judged.count, 1), 1), judged.within(when),
                 judged.within(subtract(when, judged.activity.compute))]
            )  # fmt: skip
    ranked = sorted(found, key=lambda row: (-row[2], row[0]))[:8]
    return Evidence("Collectives of Gloo, per step", ["collective", "calls", "at_work_ns", "beside_no_compute_ns"], ranked)
