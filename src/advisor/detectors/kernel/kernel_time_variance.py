"""The same kernels of the same steps that take very different times."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.bounds import two_sided
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.sequence import Sequence, sequence
from advisor.derive.steps import steps
from advisor.detectors.words import name_text
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    run, found, pace = ctx.run, sequence(ctx.run), two_sided(ctx.run)
    if pace is None or not len(found):
        return None
    if found.steps < ctx.threshold("least_steps"):
        raise NotApplicable("too few steps to compare the same kernel in", ctx.rule.capture)
    table = _aligned(run, found, pace.rank, pace.process)
    if table is None:
        raise NotApplicable("the steps do not run the same kernels, so their times cannot be compared")
    rows = table[:, found.kind[table[0]] != KernelClass.COMMUNICATION]
    time = found.gpu_ns[rows].astype(float)
    mean, fast = time.mean(axis=0), np.percentile(time, 10, axis=0)
    varies = (time.std(axis=0) > ctx.threshold("variation") * mean) & (mean >= ctx.threshold("least_ns"))
    lost = int((mean - fast)[varies].sum())
    if lost < ctx.threshold("min_share") * pace.step_ns:
        return None
    names = run.table("kernels")["name"][found.row[rows[0]]]
    evidence: list[list[Any]] = []
    for code in np.unique(names[varies]).tolist():
        same = varies & (names == code)
        text = name_text(run.strings[code])
        evidence.append(
            [
                text,
                int(same.sum()),
                round(float(fast[same].sum())),
                round(float(mean[same].sum())),
                round(float(time[:, same].sum(axis=1).max())),
            ]
        )
    evidence.sort(key=lambda row: row[2] - row[3])
    return Draft(
        title=f"{int(varies.sum())} kernels a step vary by more than {ctx.threshold('variation'):.0%} from step to step, "
        f"{lost / pace.step_ns:.0%} of the step above their fast times",
        confidence="medium",
        facts={"kernels_per_step": int(varies.sum()), "above_fast_ns": lost, "share_frac": round(lost / pace.step_ns, 4)},
        evidence=[
            Evidence("Kernels whose time varies, per step", ["kernel", "calls", "fast_ns", "mean_ns", "slowest_ns"], evidence[:8])
        ],
        subject=["variance"],
    )


def _aligned(run: Run, found: Sequence, rank: int, process: int) -> Array | None:
    """Entries of the sequence, one line a step; None unless every step runs the same kernels in the same order."""
    known = steps(run)
    mine = known.of(rank, process)
    starts = np.sort(known.start[mine[known.steady[mine]]])
    at = np.searchsorted(starts, found.launch, side="right") - 1
    order = np.lexsort((np.arange(len(found)), at))
    size, rest = divmod(len(found), found.steps)
    if rest or not size or not (np.bincount(np.maximum(at, 0), minlength=found.steps) == size).all():
        return None
    table = order.reshape(found.steps, size)
    names = run.table("kernels")["name"][found.row[table]]
    return table if (names == names[0]).all() else None
