"""Compute of each rank between its all-to-all exchanges: where the ranks differ there, experts have unequal load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.collectives import KINDS, collectives
from advisor.derive.kernel_classes import MATRIX_CLASSES, KernelClass
from advisor.derive.sequence import sequence_of
from advisor.derive.shapes import GEMM, products_of
from advisor.detectors.communication.rank_work import RankWork, rank_works
from advisor.model import Run

ALL_TO_ALL = KINDS.index("all-to-all")
_WORTH = 0.002  # segments with less of the step are left alone
# Attention and norms are more than a tenth of a layer; where less than this is even, it is the rank and not its experts.
_EVEN_SHARE = 0.1


@dataclass(frozen=True)
class Segments:
    """One rank's compute between its all-to-all exchanges, in launch order.

    compute: ns by steady step (row) and segment (column); matrix: of that, in matrix products; rows: of `gpu_work`, its
    kernels; step, segment: of each of them; tokens: rows of the matrix products, by segment, 0 where shapes are unknown.
    """

    work: RankWork
    compute: npt.NDArray[np.float64]
    matrix: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    segment: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.float64]


def segments(run: Run) -> list[Segments]:
    """Of the ranks that run all-to-all exchanges in each steady step, equally many."""
    found = collectives(run)
    exchange = np.zeros(len(run.table("kernels")), bool)
    exchange[found.kernel[found.kind == ALL_TO_ALL]] = True
    result = []
    for work in rank_works(run):
        launched = sequence_of(run, work.side.rank, work.side.process)
        order = np.argsort(launched.launch, kind="stable")
        step, is_exchange = launched.step[order], exchange[launched.row[order]]
        steps = launched.steps
        counts = np.bincount(step[is_exchange], minlength=steps)
        if not steps or counts.min() != counts.max() or not counts.max():
            continue
        first = np.concatenate(([0], np.cumsum(counts)))[step]
        segment = np.cumsum(is_exchange) - first
        own = launched.kind[order] != KernelClass.COMMUNICATION
        key = step[own] * (counts[0] + 1) + segment[own]
        spent = launched.gpu_ns[order][own]
        shape, size = (steps, int(counts[0]) + 1), steps * (int(counts[0]) + 1)
        matrix = np.isin(launched.kind[order][own], MATRIX_CLASSES)
        products = products_of(run, launched)
        of = products.of_kernel[order][own]
        once = np.unique(of[of >= 0], return_index=True)[1]
        firsts = np.flatnonzero(of >= 0)[once]
        rows_of = np.where(products.kind == GEMM, products.batch * products.m, 0)[of[firsts]] if len(firsts) else np.empty(0)
        result.append(
            Segments(
                work,
                np.bincount(key, weights=spent, minlength=size).astype(float).reshape(shape),
                np.bincount(key, weights=spent * matrix, minlength=size).astype(float).reshape(shape),
                launched.work[order][own],
                step[own],
                segment[own],
                np.bincount(segment[own][firsts], weights=rows_of, minlength=shape[1]) / steps,
            )
        )
    return result


def are_experts(ranks: Sequence[Segments], n: int, uneven: npt.NDArray[np.bool_]) -> bool:
    """Uneven are matrix products, and only some segments; where all are, one rank is slower or has larger inputs."""
    compute = sum(rank.compute[:n].sum(axis=0) for rank in ranks)
    matrix = sum(rank.matrix[:n].sum(axis=0) for rank in ranks)
    inside = float(np.asarray(compute)[uneven].sum())
    even = float(np.asarray(compute)[~uneven].sum())
    products = float(np.asarray(matrix)[uneven].sum())
    return even >= _EVEN_SHARE * (inside + even) and products >= 0.5 * inside


def uneven_segments(ranks: Sequence[Segments], n: int, ratio: float, step_ns: int) -> npt.NDArray[np.bool_]:
    """Segments in which the heaviest rank has that many times the mean over `n` steps; none where what differs is
    no matrix products, or where nearly all segments do.
    """
    compute = np.stack([rank.compute[:n] for rank in ranks])  # (ranks, steps, segments)
    heaviest, mean = compute.max(axis=0), compute.mean(axis=0)
    uneven = heaviest.sum(axis=0) >= ratio * np.maximum(mean.sum(axis=0), 1)
    uneven &= mean.mean(axis=0) >= _WORTH * step_ns
    return uneven if are_experts(ranks, n, uneven) else np.zeros_like(uneven)
