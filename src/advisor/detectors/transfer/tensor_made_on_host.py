"""Small tensors that are made on the CPU and then copied to the GPU, in every step."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import locations, op_forest, op_of_call, ops_named
from advisor.derive.calls import CallKind, links
from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.host import HostSide
from advisor.derive.nesting import thread_keys
from advisor.derive.sequence import host_cost
from advisor.derive.steady import Steady, steadies, steady
from advisor.detectors.words import count_text, size_text, time_text
from advisor.model import CopyKind, Evidence, Run
from advisor.model.tables import Array
from advisor.replay.changes import GONE, Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable

# Operators that make a tensor out of nothing. On the CPU they launch nothing.
_FACTORY = (
    r"^aten::(arange|linspace|logspace|zeros|ones|full|eye|rand|randn|randint|randperm|normal|tril|triu|tril_indices|"
    r"scalar_tensor)$"
)
# torch.tensor(list) ends with this, after the copy to the GPU where one was asked for.
_FROM_LIST = r"^aten::lift_fresh$"
_COPYING = r"^aten::(to|_to_copy|copy_)$"


def detect(ctx: Context) -> Draft | None:
    run, judged = ctx.run, steady(ctx.run)
    if judged is None or judged.unmarked:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    calls, made = _copies(run, judged, ctx.threshold("most_bytes"))
    n = max(judged.count, 1)
    each = len(calls) / n
    if each < ctx.threshold("least_per_step"):
        return None
    side, work, copies = judged.side, gpu_work(run), run.table("copies")
    moved = work.row[links(run).last_work[side.call[calls]]]
    waits = _waits(side, calls)
    host = int(host_cost(run)[side.call[waits]].sum()) // n
    waited = int(side.wait[np.concatenate([calls, waits])].sum())
    gpu = int((copies["end"] - copies["start"])[moved].sum()) // n
    size = int(copies["bytes"][moved].sum()) // n
    turns = judged.turns(waited)
    table = run.table("runtime_calls")
    return Draft(
        title=f"{count_text(each, 'small tensor')} ({size_text(size)}) made on the CPU and copied to the GPU {judged.per}, "
        f"for which the host waits {time_text(waited / n)}",
        confidence="medium",
        edits=_edits(ctx),
        change=Change(host_ns=host, gpu_ns=gpu, wait_ns=turns, limit_ns=host + gpu + turns),
        subject=sorted({name for name, _ in made})[:4],
        facts={"copies_per_step": round(each, 2), "bytes_per_step": size, "wait_ns": waited // n, "made_by": made[0][0]},
        evidence=[
            Evidence("What makes them, per step", ["operator", "copies_per_step"], [[k, round(v / n, 2)] for k, v in made[:6]])
        ],
        locations=locations(run, thread_keys(table)[side.call[calls]], table["start"][side.call[calls]]),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
    )


def _waits(side: HostSide, calls: Array) -> Array:
    """Positions of the waits for these copies: from pageable memory each is a call of its own, right behind the copy."""
    after = np.minimum(calls + 1, len(side) - 1)
    return np.unique(after[side.kind[after] == CallKind.SYNC_STREAM])


def _edits(ctx: Context) -> list[Edit]:
    """On all ranks the copies take no time and nobody waits for them; a launch that fills the tensor replaces the copy's."""
    run = ctx.run
    gone, still = (np.zeros(len(run.table("runtime_calls")), bool) for _ in range(2))
    copying = np.zeros(len(gpu_work(run)), bool)
    for one in steadies(run):
        calls, _ = _copies(run, one, ctx.threshold("most_bytes"))
        gone[one.side.call[_waits(one.side, calls)]] = True
        still[one.side.call[calls]] = True
        copying[links(run).last_work[one.side.call[calls]]] = True
    return [Edit(calls=gone, host=GONE, waits=False), Edit(calls=still, waits=False), Edit(work=copying, gpu=GONE)]


def _copies(run: Run, judged: Steady, most_bytes: float) -> tuple[Array, list[tuple[str, int]]]:
    """Positions in the host side of the copies to the GPU whose tensor was made just before, and who made how many."""
    side, work, copies, ops = judged.side, gpu_work(run), run.table("copies"), run.table("host_ops")
    last = links(run).last_work[side.call]
    is_copy = (last >= 0) & (judged.at >= 0) & (side.kind == CallKind.COPY)
    is_copy[is_copy] = work.source[last[is_copy]] == COPY
    calls = np.flatnonzero(is_copy)
    rows = work.row[last[calls]]
    small = (copies["kind"][rows] == int(CopyKind.HOST_TO_DEVICE)) & (copies["bytes"][rows] <= most_bytes)
    calls = calls[small]
    op = op_of_call(run)[side.call[calls]]
    calls, op = calls[op >= 0], op[op >= 0]
    before, after = _neighbours(run, op)
    factory, listed = ops_named(run, _FACTORY), ops_named(run, _FROM_LIST)
    from_factory = (before >= 0) & factory[np.maximum(before, 0)]
    from_list = (after >= 0) & listed[np.maximum(after, 0)]
    chosen = from_factory | from_list
    names = np.where(from_factory, ops["name"][np.maximum(before, 0)], -1)[chosen]
    codes, counts = np.unique(names, return_counts=True)
    made = [(run.strings[int(c)] if c >= 0 else "torch.tensor", int(k)) for c, k in zip(codes, counts, strict=True)]
    return calls[chosen], sorted(made, key=lambda item: (-item[1], item[0]))


def _neighbours(run: Run, op: Array) -> tuple[Array, Array]:
    """For each operator that copies: the operators of the same thread and parent right before and right after the outermost
    copying operator around it; -1 without."""
    forest, ops = op_forest(run), run.table("host_ops")
    copying = ops_named(run, _COPYING)
    top = op.copy()
    for _ in range(4):  # aten::to holds aten::_to_copy, which holds aten::copy_
        up = forest.parent[top]
        top = np.where((up >= 0) & copying[np.maximum(up, 0)], up, top)
    order = np.lexsort((ops["start"], forest.parent, thread_keys(ops)))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    sides = []
    for step in (-1, 1):
        at = place[top] + step
        other = order[np.clip(at, 0, len(order) - 1)]
        same = (at >= 0) & (at < len(order)) & (forest.parent[other] == forest.parent[top])
        same &= thread_keys(ops)[other] == thread_keys(ops)[top]
        sides.append(np.where(same, other, -1))
    return sides[0], sides[1]
