"""Which kernels two ranks run, how often, at which launch size, and how fast."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.detectors.communication.rank_work import RankWork
from advisor.model import Run

SAME = 0.02  # numbers of launches within 2 % are equal: profilers lose a few records


def _keys(run: Run, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Name and launch size of kernels, one row each."""
    kernels = run.table("kernels")
    return np.stack([kernels[column][rows].astype(np.int64) for column in ("name", "grid_x", "grid_y", "grid_z", "block_x")])


Counted = dict[tuple[int, ...], tuple[float, float]]


def per_launch(run: Run, rank: RankWork) -> Counted:
    """(name, launch size) -> (executions, ns) a step."""
    kernels = run.table("kernels")
    keys, index = np.unique(_keys(run, rank.kernels), axis=1, return_inverse=True)
    index, n = index.reshape(-1), max(rank.steps, 1)
    count = np.bincount(index) / n
    spent = np.bincount(index, weights=(kernels["end"] - kernels["start"])[rank.kernels]) / n
    return {tuple(key): (float(c), float(s)) for key, c, s in zip(keys.T.tolist(), count, spent, strict=True)}


def by_name(counted: Counted) -> dict[int, tuple[float, float]]:
    names: dict[int, tuple[float, float]] = {}
    for key, (count, spent) in counted.items():
        before = names.get(key[0], (0.0, 0.0))
        names[key[0]] = (before[0] + count, before[1] + spent)
    return names


def common_names(run: Run, late: RankWork, other: RankWork) -> float:
    """Share of the compute time of each rank in kernels that the other runs too, the smaller of both."""
    mine, theirs = by_name(per_launch(run, late)), by_name(per_launch(run, other))
    shares = []
    for one, known in ((mine, theirs), (theirs, mine)):
        whole = sum(spent for _, spent in one.values()) or 1.0
        shares.append(sum(spent for name, (_, spent) in one.items() if name in known) / whole)
    return min(shares)


def more_of_everything(mine: Counted, theirs: Counted) -> bool:
    """Most of the other rank's kernels run more often on the late one: it has more micro-batches, not work of its own."""
    more, names = 0.0, by_name(mine)
    everything = by_name(theirs)
    for name, (count, spent) in everything.items():
        if names.get(name, (0.0, 0.0))[0] > (1 + SAME) * count:
            more += spent
    return more > 0.5 * sum(spent for _, spent in everything.values())


def shared(mine: Counted, theirs: Counted) -> float:
    """Share of the late rank's compute time in kernels that the other runs as often and at the same launch size."""
    whole = sum(spent for _, spent in mine.values()) or 1.0
    same = sum(spent for key, (count, spent) in mine.items() if abs(theirs.get(key, (0.0, 0.0))[0] - count) <= SAME * count)
    return same / whole


def slower(run: Run, late: RankWork, other: RankWork) -> float:
    """How much longer the late rank's kernels take than the same ones of the other, both beside no communication."""
    kernels = run.table("kernels")
    medians: list[dict[tuple[int, ...], tuple[float, int]]] = []
    for rank in (late, other):
        rows = rank.kernels[~rank.beside]
        keys, index = np.unique(_keys(run, rows), axis=1, return_inverse=True)
        index, took = index.reshape(-1), (kernels["end"] - kernels["start"])[rows]
        each = np.split(took[np.argsort(index, kind="stable")], np.cumsum(np.bincount(index))[:-1]) if len(rows) else []
        medians.append({tuple(key): (float(np.median(part)), len(part)) for key, part in zip(keys.T.tolist(), each, strict=True)})
    both = medians[0].keys() & medians[1].keys()
    usual = sum(medians[1][key][0] * medians[0][key][1] for key in both)
    return sum(medians[0][key][0] * medians[0][key][1] for key in both) / usual if usual else 1.0
