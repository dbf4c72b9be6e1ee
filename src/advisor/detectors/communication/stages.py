"""Ranks as the stages of a pipeline: how much each computes in a step, and how long it waits for its neighbours.

Stages hand activations and gradients on by send and receive. NCCL runs other exchanges (all-to-all) as kernels of the same
name, so the names of the calls are needed; and a ring exchanges by send and receive too, but there all ranks begin at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import step_windows
from advisor.derive.attribution import matching_codes, ranges_named
from advisor.derive.collectives import KINDS, collectives
from advisor.derive.intervals import contains, intersect, length, merge, subtract, union
from advisor.derive.steps import steps
from advisor.detectors.communication.rank_work import RankWork, rank_works
from advisor.detectors.communication.transfers import on_gpu
from advisor.model import Run

SEND_RECV = KINDS.index("send-recv")
_SEND = r"^_?i?send$"
_SEND_RANGE = r"^nccl(Send|:send)\b"  # NVTX of NCCL, and of torch
# Share of a step's compute after which a stage counts as begun: kernels that need no neighbour (masks, zeroing) are less.
_BEGUN = 0.05


@dataclass(frozen=True)
class Stage:
    """One rank. ns per steady step: `step_ns`, `compute_ns` and `bubble_ns`, in sends and receives beside no compute.

    sends: a step, 0 where no names tell; stages: size of the group that it sends in, 0 unknown; kernels: sends and receives on
    the GPU a step; begun: when each steady step had begun to compute.
    """

    work: RankWork
    step_ns: int
    bubble_ns: int
    sends: float
    stages: int
    kernels: float
    begun: npt.NDArray[np.int64]

    @property
    def name(self) -> str:
        return self.work.name

    @property
    def compute_ns(self) -> int:
        return self.work.compute_ns


def stages(run: Run) -> list[Stage]:
    """One entry a rank that runs kernels of send and receive, by rank."""
    return run.derived(_stages)


def order(found: Sequence[Stage]) -> tuple[list[Stage], int]:
    """(stages from first to last as they usually begin, how long after the first the last one begins, ns); ([], 0) where the
    order changes from step to step, as it does among ranks that begin at once.
    """
    n = min(len(stage.begun) for stage in found)
    if not n:
        return [], 0
    begun = np.stack([stage.begun[:n] for stage in found])
    usual = np.argsort(np.median(begun - begun.min(axis=0), axis=1), kind="stable")
    in_order = (np.diff(begun[usual], axis=0) >= 0).all(axis=0)
    if in_order.mean() < 0.75:
        return [], 0
    return [found[i] for i in usual], int(np.median(begun.max(axis=0) - begun.min(axis=0)))


def _stages(run: Run) -> list[Stage]:
    kernels, found, named = run.table("kernels"), collectives(run), _sends(run)
    result = []
    for work in rank_works(run):
        gpu = work.activity.gpu
        windows = step_windows(run, gpu)
        span, n = merge(windows), len(windows[0])
        mine = on_gpu(run, found.kernel, gpu)
        own = found.kernel[mine & (found.kind == SEND_RECV)]
        inside = own[(kernels["end"][own] > span[0][0]) & (kernels["start"][own] < span[1][-1])] if n else own[:0]
        if not len(inside):
            continue
        others = found.kernel[mine & (found.kind != SEND_RECV)]
        busy = merge(work.activity.compute, union(kernels["start"][others], kernels["end"][others]))
        alone = subtract(union(kernels["start"][inside], kernels["end"][inside]), busy)
        sends, size = named.get((work.side.rank, work.side.process), (0, 0))
        result.append(
            Stage(
                work, length(windows) // n, length(intersect(alone, span)) // n, sends / max(work.steps, 1), size,
                len(inside) / n, _begun(run, work),
            )
        )  # fmt: skip
    return result


def _sends(run: Run) -> dict[tuple[int, int], tuple[int, int]]:
    """(calls that send in the steady steps, size of their group) of each rank and process."""
    calls, ranges, found = run.table("collective_calls"), run.table("ranges"), steps(run)
    send = np.isin(calls["collective"], matching_codes(run, calls["collective"], _SEND))
    by_op = send & calls.known("op")  # the kernel's arguments repeat those of the operator
    ranged = ranges_named(run, _SEND_RANGE)
    result = {}
    for work in rank_works(run):
        rank, process = work.side.rank, work.side.process
        mine = found.of(rank, process)
        mine = mine[found.steady[mine]]
        on_host = (found.start[mine], found.end[mine])
        places = (
            (calls, by_op, on_host),
            (calls, send & ~by_op, step_windows(run, work.activity.gpu)),
            (ranges, ranged, on_host),
        )
        for table, chosen, windows in places:
            own = chosen & (table["rank"] == rank) & ((table["process"] == process) | ~table.known("process"))
            inside = own & contains(merge(windows), table["start"])
            if inside.any():
                size = int(calls["group_size"][inside].max()) if table is calls else 0
                result[rank, process] = (int(inside.sum()), max(size, 0))
                break
    return result


def _begun(run: Run, work: RankWork) -> npt.NDArray[np.int64]:
    """When each steady step had done the first part of its compute."""
    kernels, calls, found = run.table("kernels"), run.table("runtime_calls"), steps(run)
    mine = found.of(work.side.rank, work.side.process)
    mine = mine[found.steady[mine]]
    rows, launched = work.kernels, work.call >= 0
    when = np.where(launched, calls["start"][np.maximum(work.call, 0)] if len(calls) else 0, kernels["start"][rows])
    step = np.searchsorted(found.start[mine], when, side="right") - 1
    result = []
    for number in range(len(mine)):
        inside = rows[step == number]
        inside = inside[np.argsort(kernels["end"][inside], kind="stable")]
        done = np.cumsum(kernels["end"][inside] - kernels["start"][inside])
        if len(done):
            result.append(int(kernels["end"][inside][np.searchsorted(done, _BEGUN * done[-1])]))
    return np.array(result, np.int64)
