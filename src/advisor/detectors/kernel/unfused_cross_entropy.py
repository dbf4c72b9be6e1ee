"""A loss over a large vocabulary in several kernels, each of which passes all logits through device memory."""

from __future__ import annotations

import re

import numpy as np

from advisor.derive.attribution import op_above
from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.sequence import Sequence, on_gpu, sequence, source_lines
from advisor.derive.shapes import parsed
from advisor.detectors.kernel.chains import kernel_table, named
from advisor.model import Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft

_LOSS = re.compile(r"LogSoftMax|log_softmax|nll_loss|cross_entropy", re.I)
_LOSS_OPERATOR = (
    r"^aten::(_?log_softmax|_log_softmax_backward_data|nll_loss\w*|cross_entropy_loss)$|^(NllLoss\w*|LogSoftmax)Backward"
)
_SOFTMAX = re.compile(r"LogSoftMax|log_softmax", re.I)


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    own = named(run, found, _LOSS) | (op_above(run, found.op, _LOSS_OPERATOR) >= 0)
    own &= found.kind != KernelClass.OPTIMIZER
    if not (own & named(run, found, _SOFTMAX)).any():
        return None
    beside = _beside(run, found, own)
    chosen = own | beside
    spent = found.per_step(found.gpu_ns, chosen)
    if spent < ctx.threshold("min_share") * pace.step_ns:
        return None
    left = Factor(ctx.threshold("left_at_worst"), ctx.threshold("left"), ctx.threshold("left_at_best"))
    logits = _logits(run, found, own)
    sized = f" over {' x '.join(map(str, logits))} logits" if logits else ""
    count = found.count(chosen)
    return Draft(
        title=f"the loss{sized} takes {count} kernels and {spent / pace.step_ns:.0%} of the step",
        confidence="medium",
        edits=[Edit(work=on_gpu(run, found, chosen), gpu=left)],
        change=Change(gpu_ns=round(spent * (1 - left.expected)), limit_ns=round(spent * (1 - left.most))),
        facts={
            "kernels_per_step": count,
            "loss_ns": spent,
            "casts_ns": found.per_step(found.gpu_ns, beside),
            "time_share_frac": round(spent / pace.step_ns, 4),
            **({"vocabulary": logits[-1]} if logits else {}),
        },
        evidence=[kernel_table(run, found, chosen, "Kernels of the loss, per step")],
        locations=source_lines(run, found, own),
        subject=["cross-entropy"],
    )


def _beside(run: Run, found: Sequence, own: Array) -> Array:
    """Casts to FP32 and back and zeroed gradients: copies directly beside the loss's kernels that take as long as those."""
    size = int(np.median(found.gpu_ns[own & named(run, found, _SOFTMAX)]))
    near = np.zeros(len(found), bool)
    for here, there in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
        near[here] |= own[there] & (found.stream[here] == found.stream[there])
    return np.asarray(near & ~own & (found.kind == KernelClass.COPY) & (found.gpu_ns > size // 8), bool)


def _logits(run: Run, found: Sequence, own: Array) -> list[int] | None:
    """Size of what goes into the softmax, where shapes were recorded."""
    ops = run.table("host_ops")
    rows = found.op[own & named(run, found, _SOFTMAX) & (found.op >= 0)]
    sizes = [shape for row in rows.tolist() for shape in parsed(run.strings[int(ops["shapes"][row])])[:1]]
    sizes = [shape for shape in sizes if isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape)]
    return max(sizes, key=np.prod, default=None)
