"""DDP sends the buffers of the module from rank 0 to all before every forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import op_above, op_of_call, range_forest, ranges_named, work_of_calls
from advisor.derive.bounds import two_sided
from advisor.derive.calls import LAUNCHES, CallKind, call_kinds, is_kind, links
from advisor.derive.collectives import KINDS, collectives
from advisor.derive.host import host_sides
from advisor.derive.intervals import EMPTY, IntervalSet, merge
from advisor.derive.nesting import thread_keys
from advisor.derive.sequence import steady_calls
from advisor.derive.steady import steady
from advisor.detectors.communication.issuing import issuing
from advisor.detectors.communication.transfers import known_words, transfers, work_of
from advisor.detectors.words import count_text, size_text, time_text
from advisor.model import Evidence, Run
from advisor.replay.changes import GONE, Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable

Mask = npt.NDArray[np.bool_]
_FORWARD = r"^DistributedDataParallel\.forward$"
_FLATTEN = r"^aten::(un)?flatten_dense_tensors$"


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    if not ranges_named(run, _FORWARD).any():
        raise NotApplicable("no forward pass of DistributedDataParallel is marked", ctx.rule.capture)
    judged, found = steady(run), transfers(run, pace) if pace is not None else None
    if pace is None or found is None or judged is None:
        return None
    everything = collectives(run)
    issued = issuing(run, everything)
    inside = _forward_of_calls(run)
    sent = (everything.kind == KINDS.index("broadcast")) & (issued.call >= 0)
    sent &= inside[np.maximum(issued.call, 0)] >= 0
    mine = sent[found.at]
    if not mine.any():
        return None
    spans, calls = _spans(run, inside, issued.call[sent])
    member = (pace.rank, pace.process)
    side = host_sides(run)[member]
    chosen = steady_calls(run, side) & calls[side.call]
    own = side.call[chosen]
    host = judged.host_within(spans[member])
    held = found.per_step(found.held[mine])
    if max(host, held) < ctx.threshold("min_share") * pace.step_ns:
        return None
    count, moved = int(mine.sum()) / max(found.steps, 1), found.per_step(np.maximum(found.bytes[mine], 0))
    copies = int((call_kinds(run)[own] == CallKind.COPY).sum()) / max(found.steps, 1)
    return Draft(
        title=f"DDP sends the module's buffers before every forward pass: {count_text(count, 'broadcast')} of "
        f"{size_text(moved)} and {count_text(copies, 'copy').replace('copys', 'copies')} a step, {time_text(host)} of host work",
        confidence="medium",
        edits=[
            Edit(work=work_of(run, everything.kernel[sent]) | work_of_calls(run, calls), gpu=GONE),
            *(Edit(intervals=when, of=one) for one, when in spans.items()),
        ],
        change=Change(host_ns=host, gpu_ns=held, limit_ns=host + found.per_step(found.exposed[mine])),
        facts={
            "broadcasts_per_step": round(count, 1),
            "copies_per_step": round(copies, 1),
            "moved_bytes": moved,
            "host_ns": host,
            "transfer_ns": found.per_step(found.length[mine]),
            "waited_ns": found.per_step(found.wait[mine]),
        },
        evidence=[_evidence(run, own, side.deflated_own[chosen], found.steps)],
        caveats=known_words(found),
        subject=["buffers"],
        scope={"ranks": [pace.rank] if pace.rank >= 0 else []},
    )


def _forward_of_calls(run: Run) -> npt.NDArray[np.int64]:
    """For each row of `runtime_calls`: the row of DDP's forward range around it, else -1."""
    calls, forest = run.table("runtime_calls"), range_forest(run)
    inner = forest.innermost(thread_keys(calls), calls["start"])
    return np.where(inner >= 0, forest.nearest(ranges_named(run, _FORWARD))[np.maximum(inner, 0)], -1)


def _spans(
    run: Run, inside: npt.NDArray[np.int64], launches: npt.NDArray[np.int64]
) -> tuple[dict[tuple[int, int], IntervalSet], Mask]:
    """When each process sends buffers, and the calls inside.

    From the first flattening in a forward pass to the last call before the module itself launches anything.
    """
    calls, ops = run.table("runtime_calls"), run.table("host_ops")
    op = op_of_call(run)
    flattening = op_above(run, op, _FLATTEN)
    own = flattening >= 0
    own[launches] = True
    begin = np.where(flattening >= 0, ops["start"][np.maximum(flattening, 0)], calls["start"]) if len(ops) else calls["start"]
    other = is_kind(run, *LAUNCHES) & (links(run).count > 0) & ~own
    mask, spans = np.zeros(len(calls), bool), dict.fromkeys(host_sides(run), EMPTY)
    for forward in np.unique(inside[launches]):
        rows = np.flatnonzero(inside == forward)
        rows = rows[np.argsort(calls["start"][rows], kind="stable")]
        at = np.flatnonzero(own[rows])
        until = np.flatnonzero(other[rows[at[-1] :]])
        rows = rows[at[0] : at[-1] + int(until[0]) if len(until) else len(rows)]
        mask[rows] = True
        member = (int(calls["rank"][rows[0]]), int(calls["process"][rows[0]]))
        one = (begin[rows[:1]], calls["end"][rows].max(keepdims=True))
        spans[member] = merge(spans.get(member, EMPTY), one)
    return spans, mask


def _evidence(run: Run, own: npt.NDArray[np.int64], took: npt.NDArray[np.int64], steps: int) -> Evidence:
    """The calls by name, per step."""
    names, index = np.unique(run.table("runtime_calls")["name"][own], return_inverse=True)
    count, spent = np.bincount(index), np.bincount(index, weights=took)
    rows: list[list[Any]] = [
        [run.strings[int(names[i])], round(int(count[i]) / max(steps, 1), 1), int(spent[i]) // max(steps, 1)]
        for i in np.argsort(-spent, kind="stable")[:6]
    ]
    return Evidence("CUDA calls that sending the buffers takes, per step", ["call", "calls", "call_ns"], rows)
