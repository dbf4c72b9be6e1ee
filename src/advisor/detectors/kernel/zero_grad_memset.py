"""Gradients that are set to zero instead of being dropped, so that the backward pass adds to zeros."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import calls_in_ranges, calls_under_ops, op_above, work_of_calls
from advisor.derive.bounds import two_sided
from advisor.derive.calls import links
from advisor.derive.gpus import gpu_work
from advisor.derive.sequence import Sequence, host_cost, on_gpu, sequence, source_lines
from advisor.derive.steady import steady
from advisor.detectors.kernel.chains import kernel_table
from advisor.detectors.words import count_text, time_text
from advisor.model import Run
from advisor.model.tables import Array
from advisor.replay.changes import GONE, Edit, Factor
from advisor.rules.contract import Change, Context, Draft

# torch.profiler marks the phase itself; people name it so in NVTX.
_RANGE = r"^Optimizer\.zero_grad#|^\W*(?i:(optimizer|opt|model)?[ _.\-]?zero[ _\-]?grads?)\W*$"
_FOREACH = r"^aten::_foreach_zero_$"
_ACCUMULATE = r"AccumulateGrad$"
_BACKWARD = r"^autograd::engine::evaluate_function"
# A backward pass this much smaller than the largest of a step is no pass of its own.
_SMALL_PASS = 0.2


def detect(ctx: Context) -> Draft | None:
    run, found, pace, now = ctx.run, sequence(ctx.run), two_sided(ctx.run), steady(ctx.run)
    if pace is None or now is None or not len(found):
        return None
    zeroing = calls_in_ranges(run, _RANGE) | calls_under_ops(run, _FOREACH)
    gone = work_of_calls(run, zeroing) & _in_steps(run, now.start, now.end)
    work = gpu_work(run)
    length, count = work.end - work.start, max(now.count, 1)
    zeroed, zeros = int(length[gone].sum()) // count, int(gone.sum()) // count
    if not gone.any():
        return None
    adds, passes = op_above(run, found.op, _ACCUMULATE) >= 0, backward_passes(run, found)
    added = found.per_step(found.gpu_ns, adds)
    # With accumulation over several backward passes only the first one adds to zeros.
    first = adds if passes == 1 else np.zeros(len(found), bool)
    host = int(host_cost(run)[np.unique(links(run).call[gone])].sum()) // count
    gpu = zeroed + added // passes
    host += found.per_step(found.host_ns, adds) // passes
    if max(gpu, host) < ctx.threshold("min_share") * pace.step_ns:
        return None
    vanish = gone | on_gpu(run, found, first)
    calls = np.zeros(len(run.table("runtime_calls")), bool)
    calls[links(run).call[vanish & (links(run).call >= 0)]] = True
    left = ctx.threshold("host_left")
    edits = [Edit(work=vanish, gpu=GONE), Edit(calls=calls, host=Factor(1.0, left, 0.0))]
    evidence = [kernel_table(run, found, adds | _mine(found, gone), "Zeroing gradients and adding to them, per step")]
    return Draft(
        title=f"gradients are zeroed by {count_text(zeros, 'operation')} a step ({time_text(zeroed)}) "
        f"and added to ({time_text(added)})",
        confidence="medium",
        edits=edits,
        change=Change(host_ns=round(host * (1 - left)), gpu_ns=gpu, limit_ns=host + gpu),
        facts={
            "zeroing_per_step": zeros,
            "zeroing_ns": zeroed,
            "adds_per_step": found.count(adds),
            "adds_ns": added,
            "backward_passes_per_step": passes,
        },
        evidence=evidence,
        locations=source_lines(run, found, _mine(found, gone)),
        subject=["zero-grad"],
    )


def _in_steps(run: Run, start: Array, end: Array) -> Array:
    """For each operation on the GPU: whether an ordinary steady step launched it."""
    call, calls = links(run).call, run.table("runtime_calls")
    begin = np.where(call >= 0, calls["start"][np.maximum(call, 0)], -1) if len(calls) else np.full(len(call), -1)
    at = np.searchsorted(start, begin, side="right") - 1
    return np.asarray((call >= 0) & (at >= 0) & (begin < end[np.maximum(at, 0)]), bool)


def _mine(found: Sequence, gone: Array) -> Array:
    return np.asarray(gone[found.work], bool)


def backward_passes(run: Run, found: Sequence) -> int:
    """Backward passes a step: stretches of kernels below the backward graph, in launch order."""
    order = np.argsort(found.launch, kind="stable")
    backward = (op_above(run, found.op, _BACKWARD) >= 0)[order]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], backward.astype(np.int8), [0]))))
    sizes = edges[1::2] - edges[::2]
    large = int((sizes >= _SMALL_PASS * sizes.max(initial=0)).sum()) if len(sizes) else 0
    return max(round(large / max(found.steps, 1)), 1)
