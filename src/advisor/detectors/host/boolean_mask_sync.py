"""Indexing with boolean masks: the host waits for the number of selected elements, then gathers them."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import op_forest, op_of_call, ops_named, work_of_calls
from advisor.derive.calls import links
from advisor.derive.gpus import gpu_work
from advisor.derive.sequence import host_cost
from advisor.derive.steady import Steady, steadies, steady
from advisor.derive.waits import Waits, waits
from advisor.detectors.host.wait_causes import from_masks
from advisor.detectors.host.waiting import at_best, caveats, change, edits, evidence, operators, places
from advisor.detectors.words import count_text, time_text
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

# The operators that a mask sets in motion; the backward pass of an index is an index_put_.
_CHAIN = r"^aten::(index|index_put_?|_index_put_impl_|masked_select|nonzero)$"
_DEEPEST = 4


def detect(ctx: Context) -> Draft | None:
    judged = steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    found = _waits(ctx.run, judged)
    each = len(found) / max(judged.count, 1)
    if each < ctx.threshold("least_per_step"):
        return None
    chain = _chain(ctx.run)
    gone, idle = change(judged, found, ctx.threshold("wake_up_ns")), found.total_idle_ns // max(judged.count, 1)
    left = ctx.threshold("chain_left")
    host, gpu, kernels = _cost(ctx.run, judged, chain)
    most = (gone.limit_ns or 0) + host + gpu
    names = sorted({ctx.run.strings[int(code)] for code in operators(ctx.run, found) if code >= 0})
    return Draft(
        title=f"{count_text(each, 'boolean mask')} {judged.per} make the host wait; the GPU then idles for {time_text(idle)}",
        confidence="high" if names else "medium",
        edits=[
            *edits(ctx.run, _waits),
            Edit(calls=chain, host=Factor(1.0, left, 0.0)),
            Edit(work=work_of_calls(ctx.run, chain), gpu=Factor(1.0, left, 0.0)),
        ],
        at_best_ns=at_best(judged, found, ctx.threshold("wake_up_ns")),
        change=Change(gone.host_ns + round(host * (1 - left)), round(gpu * (1 - left)), gone.wait_ns, most),
        subject=names[:4] or ["nonzero"],
        facts={
            "masks_per_step": round(each, 2),
            "wait_ns": int(found.wait_ns.sum()) // max(judged.count, 1),
            "gpu_idle_after_ns": idle,
            "chain_kernels": kernels,
            "chain_host_ns": host,
            "chain_gpu_ns": gpu,
        },
        evidence=[
            evidence(ctx.run, judged, found),
            Evidence("What selecting by masks costs a step", ["kernels", "host_ns", "gpu_ns"], [[kernels, host, gpu]]),
        ],
        locations=places(ctx.run, judged, found),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        caveats=caveats(judged, gone, at_step_end=False),
    )


def _waits(run: Run, judged: Steady) -> Waits:
    found = waits(run, judged)
    return found.take(from_masks(run, judged, found))


def _chain(run: Run) -> Array:
    """On all ranks: the calls of the indexing operators whose mask made the host wait, but for the waits. The backward pass
    repeats both."""
    result = np.zeros(len(run.table("runtime_calls")), bool)
    if not len(run.table("host_ops")):
        return result
    forest, op = op_forest(run), op_of_call(run)
    nearest = forest.nearest(ops_named(run, _CHAIN))
    top = np.where(op >= 0, nearest[np.maximum(op, 0)], -1)
    for _ in range(_DEEPEST):  # an index_put_ holds an _index_put_impl_, which holds a nonzero
        parent = np.where(top >= 0, forest.parent[np.maximum(top, 0)], -1)
        above = np.where(parent >= 0, nearest[np.maximum(parent, 0)], -1)
        top = np.where(above >= 0, above, top)
    waiting = np.concatenate([one.side.call[_waits(run, one).side] for one in steadies(run)])
    result = np.isin(top, np.unique(top[waiting])) & (top >= 0)
    result[waiting] = False
    return result


def _cost(run: Run, judged: Steady, chain: Array) -> tuple[int, int, float]:
    """(host ns, GPU ns, operations on the GPU) of the chain in an ordinary step."""
    side, work, call, n = judged.side, gpu_work(run), links(run).call, max(judged.count, 1)
    inside = np.zeros(len(chain), bool)
    inside[side.call[judged.at >= 0]] = True
    host = int(host_cost(run)[chain & inside].sum()) // n
    issued = (call >= 0) & (chain & inside)[np.maximum(call, 0)]
    return host, int((work.end - work.start)[issued].sum()) // n, round(float(issued.sum()) / n, 1)
