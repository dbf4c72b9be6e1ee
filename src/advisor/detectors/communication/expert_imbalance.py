"""Experts of unequal load: ranks that compute longer than others between two all-to-all exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.bounds import all_sides, two_sided
from advisor.derive.collectives import collectives
from advisor.derive.gpus import gpu_work
from advisor.detectors.communication.exchanges import ALL_TO_ALL, Segments, segments, uneven_segments
from advisor.detectors.communication.rank_work import RankWork
from advisor.detectors.communication.stages import SEND_RECV
from advisor.detectors.words import time_text
from advisor.model import Evidence, Run
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_BINS = 24  # factors of the replay between a quarter and four times, so many steps apart


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    found = collectives(run)
    if pace is None or not np.isin(found.kind, (ALL_TO_ALL, SEND_RECV)).any():
        return None
    if not (found.kind == ALL_TO_ALL).any():
        _refuse_without_names(ctx, run)
        return None
    ranks = segments(run) if len(all_sides(run)) > 1 else []
    if len(ranks) < 2:
        raise NotApplicable("needs the recordings of at least two ranks of the same steps", ctx.rule.capture)
    if len({rank.compute.shape[1] for rank in ranks}) > 1:
        raise NotApplicable("the ranks ran different numbers of all-to-all exchanges", "")
    n = min(len(rank.compute) for rank in ranks)
    compute = np.stack([rank.compute[:n] for rank in ranks])  # (ranks, steps, segments)
    heaviest, mean = compute.max(axis=0), compute.mean(axis=0)
    uneven = uneven_segments(ranks, n, ctx.threshold("load_ratio"), pace.step_ns)
    excess = float((heaviest - mean)[:, uneven].sum()) / n
    if excess < ctx.threshold("min_share") * pace.step_ns:
        return None
    load = compute[:, :, uneven].sum(axis=2).mean(axis=1)
    spread = float(heaviest[:, uneven].sum() / max(mean[:, uneven].sum(), 1))
    hot = np.bincount(compute[:, :, uneven].argmax(axis=0).reshape(-1), minlength=len(ranks)) / max(n * int(uneven.sum()), 1)
    at_most = float((heaviest - compute.min(axis=0))[:, uneven].sum()) / n
    return Draft(
        title=f"uneven load of experts: between two exchanges the heaviest rank computes {spread:.2f} times the mean, "
        f"{time_text(excess)} of every step",
        confidence="medium" if run.world_size in (None, len(ranks)) else "low",
        edits=_edits(run, ranks, uneven, mean),
        change=Change(gpu_ns=round(excess), limit_ns=round(min(at_most, pace.step_ns))),
        facts={
            "load_ratio": round(spread, 3),
            "excess_ns": round(excess),
            "uneven_segments": int(uneven.sum()),
            "segments": len(uneven),
            "hottest_rank": _number(ranks[int(load.argmax())].work),
            "hottest_frac": round(float(hot.max()), 3),
        },
        evidence=[_by_rank(ranks, uneven, load, hot)],
        caveats=_caveats(hot),
        subject=["experts"],
    )


def _refuse_without_names(ctx: Context, run: Run) -> None:
    """NCCL runs an all-to-all as sends and receives; without names that may be one."""
    found = collectives(run)
    nameless = (found.kind == SEND_RECV) & (found.call < 0)
    if nameless.any() and len(all_sides(run)) > 1:
        raise NotApplicable(
            "kernels that send and receive without the names of their calls may be an all-to-all or a pipeline", ctx.rule.capture
        )


def _edits(run: Run, ranks: Sequence[Segments], uneven: npt.NDArray[np.bool_], mean: npt.NDArray[np.float64]) -> list[Edit]:
    """Every rank computes the mean of each uneven segment; in the worst case half of the way there.

    Segments with about the same factor are one edit.
    """
    size, n = len(gpu_work(run)), len(mean)
    bins: dict[int, npt.NDArray[np.bool_]] = {}
    for rank in ranks:
        own = rank.compute[:n]
        factor = np.clip(mean / np.maximum(own, 1), 0.25, 4.0)
        which = np.where(uneven & (own > 0), np.round(np.log2(factor) * _BINS / 4), 0).astype(np.int64)
        inside = rank.step < n
        of_kernel = np.zeros(len(rank.rows), np.int64)
        of_kernel[inside] = which[rank.step[inside], rank.segment[inside]]
        for number in np.unique(of_kernel[of_kernel != 0]).tolist():
            mask = bins.setdefault(number, np.zeros(size, bool))
            mask[rank.rows[of_kernel == number]] = True
    edits = []
    for number, mask in sorted(bins.items()):
        kept = float(2.0 ** (number * 4 / _BINS))
        edits.append(Edit(work=mask, gpu=Factor((1 + kept) / 2, kept, kept)))
    return edits


def _number(work: RankWork) -> int | None:
    return work.side.rank if work.side.rank >= 0 else None


def _by_rank(
    ranks: Sequence[Segments], uneven: npt.NDArray[np.bool_], load: npt.NDArray[np.float64], hot: npt.NDArray[np.float64]
) -> Evidence:
    rows: list[list[Any]] = []
    for i in np.argsort(-load, kind="stable")[:16]:
        tokens = float(ranks[i].tokens[uneven].sum())
        rows.append(
            [
                ranks[i].work.side.rank if ranks[i].work.side.rank >= 0 else ranks[i].work.side.process, round(float(load[i])),
                round(float(load[i] / max(load.mean(), 1)), 3), round(float(hot[i]), 3), round(tokens) if tokens else None,
                ranks[i].work.waited_ns,
            ]
        )  # fmt: skip
    return Evidence(
        "Compute of each rank between the exchanges where ranks differ, per step",
        ["rank", "compute_ns", "over_mean", "heaviest_in_frac", "rows_of_products", "waits_for_peers_ns"],
        rows,
    )


def _caveats(hot: npt.NDArray[np.float64]) -> list[str]:
    words = ["Time is taken to follow the number of tokens; small products of lightly loaded experts gain less."]
    if hot.max() < 0.5:
        words.append(
            "Another rank is the heaviest from layer to layer: placing experts anew will not help, balancing the router will."
        )
    return words
