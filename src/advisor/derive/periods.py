"""Where steps begin when nothing marks them: the period of the kernel sequence.

Steps are cut at a kernel that occurs once in each. What lies between two cuts must hold the same kernels as elsewhere, up to a
few; the order need not agree, and a kernel that runs in some steps only (logging, gradient clipping) does no harm.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import links
from advisor.derive.gpus import KERNEL, gpu_work
from advisor.derive.marks import NONE, Marks
from advisor.model import Run

_LEAST_PERIODS = 3  # repeats of the kernel sequence before a period is believed
_SHORTEST = 4  # kernels in a period
_LEAST_FIT = 0.9  # share of kernels that a period has in common with the typical one
# A period that differs by this share of its kernels is of another kind. The layers of a model repeat too, but where a step ends
# and the next begins there are other kernels than in a layer: such periods come back, which shows a longer period.
_OTHER_KIND = 0.25
_PROPOSALS = 12
_CELLS = 4_000_000  # counts held at a time


def inferred_steps(run: Run) -> Marks:
    """Steps by the kernels of each process's busiest GPU; bounds are launch times. Empty if there is no period."""
    return run.derived(_inferred_steps)


def _inferred_steps(run: Run) -> Marks:
    work = gpu_work(run)
    kernels = np.flatnonzero(work.source == KERNEL)
    if len(kernels) < _LEAST_PERIODS * _SHORTEST:
        return NONE
    call, calls = links(run).call, run.table("runtime_calls")
    parts = []
    for gpu in _busiest(run):
        rows = kernels[work.gpu[kernels] == gpu]
        # In the order of launching: streams overlap, the host does not.
        begin = work.start[rows].copy()
        linked = call[rows] >= 0
        begin[linked] = calls["start"][call[rows][linked]]
        order = np.argsort(begin, kind="stable")
        rows, begin = rows[order], begin[order]
        bounds = period_bounds(run.table("kernels")["name"][work.row[rows]], work.start[rows], work.end[rows])
        if bounds is None:
            continue
        start = begin[bounds]
        # Layers of one CUDA graph repeat too, but one launch is no sequence of steps.
        if (np.diff(start) <= 0).any():
            continue
        parts.append((start[:-1], start[1:], work.gpus[gpu]))
    if not parts:
        return NONE
    return Marks(
        "inferred",
        np.concatenate([p[0] for p in parts]),
        np.concatenate([p[1] for p in parts]),
        np.concatenate([np.full(len(p[0]), p[2].rank, np.int32) for p in parts]),
        np.concatenate([np.full(len(p[0]), p[2].process, np.int64) for p in parts]),
        np.concatenate([np.arange(len(p[0])) for p in parts]),
    )


def _busiest(run: Run) -> list[int]:
    """For each process: the GPU that worked longest, as an index into `gpu_work(run).gpus`."""
    work = gpu_work(run)
    spent = np.bincount(work.gpu, weights=work.end - work.start, minlength=len(work.gpus))
    best: dict[tuple[int, int], int] = {}
    for index, gpu in enumerate(work.gpus):
        member = (gpu.rank, gpu.process)
        if member not in best or spent[index] > spent[best[member]]:
            best[member] = index
    return list(best.values())


def period_bounds(
    names: npt.NDArray[np.int32], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64] | None:
    """Positions at which periods begin, at the widest typical gap; None without a period. Arguments in launch order."""
    distinct, codes = np.unique(names, return_inverse=True)
    fits = []
    for cuts in _proposals(codes.reshape(-1), len(distinct)):
        fit = _fit(codes, len(distinct), cuts)
        if fit >= _LEAST_FIT:
            fits.append((fit, len(cuts), cuts))
    if not fits:
        return None
    cuts = max(fits, key=lambda f: f[:2])[2]
    gaps = np.concatenate(([0], np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)))
    shortest = int(np.diff(cuts).min())
    typical = np.median(gaps[cuts[:-1, None] + np.arange(shortest)], axis=0)
    phase = int(typical.argmax())
    # Cut at the kernel after that gap if it occurs once a period: then it is met in every one, whatever lies before it.
    after = np.flatnonzero(codes == codes[cuts[0] + phase])
    bounds = after if len(after) in (len(cuts) - 1, len(cuts), len(cuts) + 1) else cuts + phase
    bounds = bounds[bounds < len(names)]
    return bounds if len(bounds) >= _LEAST_PERIODS else None


def _proposals(codes: npt.NDArray[np.int64], kinds: int) -> list[npt.NDArray[np.int64]]:
    """Positions of names that come back at a regular distance, rare names first, each distance once."""
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(kinds + 1))
    count = np.diff(bounds)
    found: dict[int, npt.NDArray[np.int64]] = {}
    for kind in np.argsort(count, kind="stable"):
        if count[kind] <= _LEAST_PERIODS:
            continue
        at = order[bounds[kind] : bounds[kind + 1]]
        apart = np.diff(at)
        period = int(np.median(apart))
        if period < _SHORTEST or period in found or np.mean(np.abs(apart - period) <= 0.1 * period) < 0.5:
            continue
        found[period] = at
        if len(found) >= _PROPOSALS:
            break
    return list(found.values())


def _fit(codes: npt.NDArray[np.int64], kinds: int, cuts: npt.NDArray[np.int64]) -> float:
    """Share of all kernels that typical periods have in common; 0 where periods of another kind come back."""
    periods = len(cuts) - 1
    typical = np.rint(np.bincount(codes[cuts[0] : cuts[-1]], minlength=kinds) / periods)
    size = max(float(typical.sum()), 1.0)
    differs = np.empty(periods)
    at_once = max(_CELLS // kinds, 1)
    for low in range(0, periods, at_once):
        high = min(low + at_once, periods)
        edges = cuts[low : high + 1]
        owner = np.repeat(np.arange(high - low), np.diff(edges))
        counts = np.bincount(owner * kinds + codes[edges[0] : edges[-1]], minlength=(high - low) * kinds)
        differs[low:high] = np.abs(counts.reshape(high - low, kinds) - typical).sum(axis=1) / size
    # Before the first cut and after the last one lie parts of a period: what they lack tells nothing, what they hold does.
    parts = [np.bincount(part, minlength=kinds) for part in (codes[: cuts[0]], codes[cuts[-1] :])]
    foreign = np.array([np.maximum(part - typical, 0).sum() / size for part in parts])
    if np.count_nonzero(np.append(differs, foreign) > _OTHER_KIND) >= _LEAST_PERIODS:
        return 0.0
    common = size * float(np.maximum(1.0 - differs, 0.0).sum()) + sum(float(np.minimum(part, typical).sum()) for part in parts)
    return common / len(codes)
