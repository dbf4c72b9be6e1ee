"""DDP searches the autograd graph for unused parameters after every forward pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import ops_named, ranges_named
from advisor.derive.calls import LAUNCHES
from advisor.derive.collectives import KINDS, Collectives, collectives
from advisor.derive.intervals import IntervalSet, contains, union
from advisor.derive.steady import Steady, steady
from advisor.derive.steps import steps
from advisor.detectors.communication.issuing import issuing
from advisor.detectors.communication.transfers import work_of
from advisor.detectors.words import time_text
from advisor.model import Evidence, Run, Table
from advisor.replay.changes import GONE, Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable

Mask = npt.NDArray[np.bool_]
_SEARCH = r"^torch\.distributed\.ddp\.reducer::search_unused_parameters$"
_WRAPPED = r"^DistributedDataParallel\.forward$"
_WHOLE_NUMBERS = ("int", "int32")


def detect(ctx: Context) -> Draft | None:
    run, judged = ctx.run, steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    wrapped = ranges_named(run, _WRAPPED).any() or ops_named(run, _WRAPPED).any()
    search = ops_named(run, _SEARCH)
    if not search.any():
        if not wrapped:
            raise NotApplicable("no forward pass of DistributedDataParallel is marked", ctx.rule.capture)
        return None
    ops, found = run.table("host_ops"), collectives(run)
    member = (judged.side.rank, judged.side.process)
    when = _searching(ops, search, member)
    count = int(contains((judged.start, judged.end), when[0]).sum())
    searching = judged.within(when)
    maps = _maps(run, found)
    calls = issuing(run, found).calls_of(maps) if len(found) else np.zeros(len(run.table("runtime_calls")), bool)
    reducing = judged.each(judged.side.deflated_own, calls[judged.side.call])
    host = judged.host_within(when) + reducing
    parameters = _parameters(run, found, maps)
    edits = [Edit(intervals=_searching(ops, search, one), of=one) for one in steps(run).members]
    if maps.any():
        edits += [Edit(work=work_of(run, found.kernel[maps]), vanish=True), Edit(calls=calls, own=GONE)]
    return Draft(
        title=f"DDP searches for unused parameters in every step: {time_text(searching)} as recorded"
        + (f", and a map of {parameters} parameters is reduced" if parameters else ""),
        confidence="medium",
        edits=edits,
        change=Change(host_ns=host),
        facts={
            "searches_per_step": round(count / max(judged.count, 1), 1),
            "search_ns": searching,
            "host_ns": host,
            "parameters": parameters,
        },
        evidence=[
            Evidence(
                "Search for unused parameters, per step",
                ["what", "times", "host_ns"],
                [
                    ["search through the autograd graph (as recorded)", round(count / max(judged.count, 1), 1), searching],
                    ["reduction of the map of used parameters", round(_launched(run, judged, calls), 1), reducing],
                ],
            )
        ],
        subject=["unused parameters"],
        scope={"ranks": [member[0]] if member[0] >= 0 else []},
    )


def _searching(ops: Table, search: Mask, member: tuple[int, int]) -> IntervalSet:
    mine = search & (ops["rank"] == member[0]) & (ops["process"] == member[1])
    return union(ops["start"][mine], ops["end"][mine])


def _launched(run: Run, judged: Steady, calls: Mask) -> float:
    """Launches among these calls, per ordinary step."""
    side = judged.side
    launches = calls[side.call] & np.isin(side.kind, LAUNCHES) & (judged.at >= 0)
    return int(launches.sum()) / max(judged.count, 1)


def _maps(run: Run, found: Collectives) -> Mask:
    """All-reduces of 32-bit whole numbers: the map of used parameters, one number each. Gradients are no whole numbers."""
    calls = run.table("collective_calls")
    known = (found.call >= 0) & (found.kind == KINDS.index("all-reduce"))
    codes = [code for code in np.unique(calls["dtype"]) if run.strings[int(code)].lower() in _WHOLE_NUMBERS] if len(calls) else []
    return known & np.isin(calls["dtype"][np.maximum(found.call, 0)], codes) if len(calls) else np.zeros(len(found), bool)


def _parameters(run: Run, found: Collectives, maps: Mask) -> int | None:
    if not maps.any():
        return None
    return int(np.median(run.table("collective_calls")["elements_in"][found.call[maps]])) or None
