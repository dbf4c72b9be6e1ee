"""Tensors copied to the host inside the step, each of which makes the host wait for the GPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import links
from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.steady import Steady, steady
from advisor.derive.waits import Waits, waits
from advisor.detectors.host.wait_causes import from_gradient_scaling, from_masks
from advisor.detectors.host.waiting import at_best, caveats, change, edits, evidence, last_of_step, operators, places
from advisor.detectors.words import count_text, size_text, time_text
from advisor.model import CopyKind, Run
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    run, judged = ctx.run, steady(ctx.run)
    if judged is None or judged.unmarked:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")

    def reads(run: Run, rank: Steady) -> Waits:
        found = waits(run, rank)
        size = _bytes_read(run, rank, found)
        tensors = (size > ctx.threshold("scalar_bytes")) & (size <= ctx.threshold("most_bytes"))
        return found.take(tensors & ~from_masks(run, rank, found) & ~from_gradient_scaling(run, rank, found))

    found = reads(run, judged)
    size = _bytes_read(run, judged, found)
    n = max(judged.count, 1)
    each = len(found) / n
    if each < ctx.threshold("least_per_step"):
        return None
    gone, idle = change(judged, found, ctx.threshold("wake_up_ns")), found.total_idle_ns // n
    names = sorted({run.strings[int(code)] for code in operators(run, found) if code >= 0})
    moved = int(size.sum()) // n
    return Draft(
        title=f"{count_text(each, 'tensor')} ({size_text(moved)}) read back to the host {judged.per}; "
        f"the GPU then idles for {time_text(idle)}",
        confidence="high",
        edits=edits(run, reads),
        at_best_ns=at_best(judged, found, ctx.threshold("wake_up_ns")),
        change=gone,
        subject=names[:4] or ["device to host"],
        facts={
            "reads_per_step": round(each, 2),
            "bytes_per_step": moved,
            "wait_ns": int(found.wait_ns.sum()) // n,
            "gpu_idle_after_ns": idle,
        },
        evidence=[evidence(run, judged, found)],
        locations=places(run, judged, found),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        caveats=caveats(judged, gone, bool(last_of_step(judged, found).all())),
    )


def _bytes_read(run: Run, judged: Steady, found: Waits) -> npt.NDArray[np.int64]:
    """For each wait: bytes of the copy to the host that it is, or that the call before it made; 0 for other waits."""
    work, copies = gpu_work(run), run.table("copies")
    last = links(run).last_work[judged.side.call]

    def read_by(calls: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        position = np.where(calls >= 0, last[np.maximum(calls, 0)], -1)
        size = np.zeros(len(calls), np.int64)
        is_copy = np.flatnonzero(position >= 0)
        is_copy = is_copy[work.source[position[is_copy]] == COPY]
        rows = work.row[position[is_copy]]
        to_host = copies["kind"][rows] == int(CopyKind.DEVICE_TO_HOST)
        size[is_copy] = np.where(to_host, np.maximum(copies["bytes"][rows], 0), 0)
        return size

    return np.maximum(read_by(found.side), read_by(found.side - 1))
