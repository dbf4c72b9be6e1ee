"""Where steps begin when nothing marks them: the period of the kernel sequence.

Steps are cut at a kernel that occurs equally often in each, once or a few times. What lies between two cuts must hold the
same kernels as elsewhere, up to a few; the order need not agree, and a kernel that runs in some steps only (logging, gradient
clipping) does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import links
from advisor.derive.gpus import KERNEL, gpu_work
from advisor.derive.marks import NONE, Marks
from advisor.model import Run

_LEAST_PERIODS = 3  # repeats of the kernel sequence before a period is believed
_SHORTEST = 4  # kernels in a period
# Share of kernels that a period has in common with the typical one, where the kernel at which steps are cut comes once in each
# and where it comes more often: then other distances than the step's look nearly as regular.
_LEAST_FIT, _LEAST_FIT_OFTEN = 0.9, 0.99
# A period that differs by this share of its kernels is of another kind. The layers of a model repeat too, but where a step ends
# and the next begins there are other kernels than in a layer: such periods come back, which shows a longer period.
_OTHER_KIND = 0.25
_PROPOSALS = 12  # distances that are tried
_MOST_OFTEN = 64  # times that the kernel at which steps are cut may occur in one
_REGULAR = 0.8  # share of its distances that are about the same, where it occurs once
_REGULAR_OFTEN = 0.95  # and that are the same, where it occurs more often
_ALIKE = 0.005  # of fits as near as that the shorter period is taken: something that runs now and then makes a longer one fit too
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
    fits = [(_fit(codes, len(distinct), cuts), often, cuts) for often, cuts in _proposals(codes, len(distinct))]
    fits = [one for one in fits if one[0] >= (_LEAST_FIT if one[1] == 1 else _LEAST_FIT_OFTEN)]
    if not fits:
        return None
    best = max(fit for fit, _, _ in fits)
    cuts = max((cuts for fit, _, cuts in fits if fit >= best - _ALIKE), key=len)
    gaps = np.concatenate(([0], np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)))
    shortest = int(np.diff(cuts).min())
    typical = np.median(gaps[cuts[:-1, None] + np.arange(shortest)], axis=0)
    phase = int(typical.argmax())
    # Cut at the kernel after that gap if it occurs once a period: then it is met in every one, whatever lies before it.
    after = np.flatnonzero(codes == codes[cuts[0] + phase])
    bounds = after if len(after) in (len(cuts) - 1, len(cuts), len(cuts) + 1) else cuts + phase
    bounds = bounds[bounds < len(names)]
    # A whole period may lie before the first cut.
    early = bounds[0] - int(np.median(np.diff(cuts))) if len(bounds) else -1
    if early >= 0 and codes[early] == codes[bounds[0]]:
        bounds = np.concatenate(([early], bounds))
    return bounds if len(bounds) >= _LEAST_PERIODS else None


def _proposals(codes: npt.NDArray[np.int64], kinds: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Positions at which the sequence may be cut, and how often a period the kernel there comes; each distance once."""
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(kinds + 1))
    count = np.diff(bounds)
    tried: set[int] = set()
    for kind in np.argsort(count, kind="stable"):
        at = order[bounds[kind] : bounds[kind + 1]]
        for often in range(1, min(_MOST_OFTEN, len(at) // (_LEAST_PERIODS + 1)) + 1):
            apart = at[often:] - at[:-often]
            period = int(np.median(apart))
            # Five of six occurrences are nearly as far apart as six: more than once must be exact.
            regular = float(np.mean(np.abs(apart - period) <= (0.05 * period if often == 1 else max(0.005 * period, 1))))
            if period < _SHORTEST or regular < (_REGULAR if often == 1 else _REGULAR_OFTEN):
                continue
            # Where it comes at even distances it comes once a period, though not as regularly as every other time.
            single = int(np.median(np.diff(at)))
            once = abs(single * often - period) <= 0.1 * period
            if once:
                period = single
            if period >= _SHORTEST and period not in tried:
                tried.add(period)
                yield (1, at) if once else (often, _first_of_each(at, often))
            if regular == 1.0:  # more often only gives multiples of it
                break
        if len(tried) >= _PROPOSALS:
            return


def _first_of_each(at: npt.NDArray[np.int64], often: int) -> npt.NDArray[np.int64]:
    """Of positions that come `often` times a period: those after the widest typical distance."""
    before = np.diff(at, prepend=at[0])
    typical = [float(np.median(before[i::often][1 if i == 0 else 0 :])) for i in range(often)]
    return at[int(np.argmax(typical)) :: often]


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
