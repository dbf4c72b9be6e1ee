"""Activation checkpointing: the forward pass runs a second time in the backward pass, although memory would hold its results."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import op_forest, op_of_call, ops_named, work_of_calls
from advisor.derive.calls import links
from advisor.derive.gpus import gpu_work
from advisor.derive.sequence import host_cost
from advisor.derive.steady import Steady, steady
from advisor.detectors.memory.room import Room, room
from advisor.detectors.words import size_text, time_text
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_ENGINE = r"^autograd::engine::evaluate_function"
_BACKWARD = r"Backward\d*$|Backward>$|^autograd::engine::|AccumulateGrad$"
# Operators that only a forward pass runs: the derivative of each is another operator.
_FORWARD = (
    r"^aten::(linear|conv[123]d|convolution|scaled_dot_product_attention|layer_norm|group_norm|batch_norm|rms_norm|embedding|"
    r"gelu|silu|relu|softmax)$"
)


def detect(ctx: Context) -> Draft | None:
    run, judged = ctx.run, steady(ctx.run)
    if judged is None or judged.unmarked:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    if not ops_named(run, _ENGINE).any():
        raise NotApplicable("no backward pass of PyTorch's autograd was recorded")
    again = _recomputed(run)
    inside = np.zeros(len(again), bool)
    inside[judged.side.call[judged.at >= 0]] = True
    used = room(run)
    host, gpu, operations = _cost(run, judged, again & inside)
    if max(host, gpu) < ctx.threshold("least_share") * judged.step.step_ns:
        return None
    if used is not None and used.share >= ctx.threshold("most_used"):
        return None
    return Draft(
        title=f"The backward pass computes {time_text(gpu)} of forward work a second time{_memory_words(used)}",
        confidence="medium" if used is not None else "low",
        edits=[Edit(work=work_of_calls(run, again), vanish=True), Edit(calls=again, host=Factor(0.0, 0.0, 0.0))],
        change=Change(host_ns=host, gpu_ns=gpu, limit_ns=max(host, gpu)),
        subject=["recompute"],
        facts={
            "recompute_gpu_ns": gpu,
            "recompute_host_ns": host,
            "operations_per_step": operations,
            "peak_frac": round(used.share, 4) if used else None,
        },
        evidence=[_evidence(run, judged, again & inside)],
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        caveats=[] if used else [_caveat(ctx)],
    )


def _memory_words(used: Room | None) -> str:
    return f"; {size_text(used.capacity - used.peak)} of {size_text(used.capacity)} memory stay free" if used else ""


def _caveat(ctx: Context) -> str:
    device = ctx.device
    limit = f" of {size_text(device.memory_bytes)}" if device and device.memory_bytes else ""
    return (
        f"The input does not tell how much memory is in use. This holds if the peak{limit} stays below "
        f"{ctx.threshold('most_used'):.0%} (torch.cuda.max_memory_reserved()): results that are kept need room."
    )


def _recomputed(run: Run) -> Array:
    """For each CUDA call: whether it belongs to forward operators that run inside the backward pass.

    Autograd numbers an operator only while it records it, which is so in a forward pass and not inside a derivative.
    """
    ops, forest = run.table("host_ops"), op_forest(run)
    in_backward = forest.nearest(ops_named(run, _ENGINE)) >= 0
    recorded = in_backward & (ops["sequence"] >= 0) & ~ops_named(run, _BACKWARD)
    if not (recorded & ops_named(run, _FORWARD)).any():
        return np.zeros(len(run.table("runtime_calls")), bool)
    nearest = forest.nearest(recorded | ops_named(run, _BACKWARD))
    op = op_of_call(run)
    owner = np.where(op >= 0, nearest[np.maximum(op, 0)], -1)
    return np.asarray((owner >= 0) & recorded[np.maximum(owner, 0)], bool)


def _cost(run: Run, judged: Steady, calls: Array) -> tuple[int, int, float]:
    """(host ns, GPU ns, operations on the GPU) of these calls in an ordinary step."""
    work, n = gpu_work(run), max(judged.count, 1)
    issued = work_of_calls(run, calls)
    host = int(host_cost(run)[calls].sum()) // n
    return host, int((work.end - work.start)[issued].sum()) // n, round(float(issued.sum()) / n, 1)


def _evidence(run: Run, judged: Steady, calls: Array) -> Evidence:
    """The operators that run again, by GPU time."""
    work, ops, forest, n = gpu_work(run), run.table("host_ops"), op_forest(run), max(judged.count, 1)
    issued = np.flatnonzero(work_of_calls(run, calls))
    op = op_of_call(run)[links(run).call[issued]]
    nearest = forest.nearest(ops_named(run, _FORWARD))
    name = np.where(nearest[op] >= 0, ops["name"][np.maximum(nearest[op], 0)], ops["name"][op])
    codes, group = np.unique(name, return_inverse=True)
    spent, count = np.bincount(group, weights=(work.end - work.start)[issued]), np.bincount(group)
    order = np.argsort(-spent, kind="stable")[:8]
    rows = [[run.strings[int(codes[i])], round(count[i] / n, 1), int(spent[i]) // n] for i in order]
    return Evidence("Forward operators inside the backward pass, per step", ["operator", "operations", "gpu_ns"], rows)
