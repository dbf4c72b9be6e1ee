"""How long a step takes while nothing records it, as the program's own hook timed it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.model import Run
from advisor.model.schema import StepState

# The host runs ahead of the GPU and then waits for it, so single steps mean little: their mean over a stretch is what a step
# takes, and the median over stretches leaves out those with a compilation, an evaluation or somebody else's work.
_STRETCH = 16
_LEAST = 8  # steps, below which nothing is said
_WARM_UP = 5  # first steps of the run, which compile, allocate and choose algorithms


@dataclass(frozen=True)
class Unprofiled:
    """One rank's step outside recording windows, ns: the median over stretches of steps, and the 10th and 90th percentile."""

    rank: int
    process: int
    step_ns: int
    low_ns: int
    high_ns: int
    steps: int


def unprofiled_steps(run: Run) -> dict[tuple[int, int], Unprofiled]:
    """One entry for each (rank, process) whose steps were timed; without those of too few steps."""
    return run.derived(_unprofiled_steps)


def unprofiled_step(run: Run) -> Unprofiled | None:
    """The slowest rank's; None where no rank was timed."""
    return max(unprofiled_steps(run).values(), key=lambda found: found.step_ns, default=None)


def _unprofiled_steps(run: Run) -> dict[tuple[int, int], Unprofiled]:
    timed = run.table("step_times")
    result = {}
    for rank, process in sorted({(int(r), int(p)) for r, p in zip(timed["rank"], timed["process"], strict=True)}):
        mine = timed.take((timed["rank"] == rank) & (timed["process"] == process))
        order = np.argsort(mine["number"], kind="stable")
        number, taken = mine["number"][order], (mine["end"] - mine["start"])[order]
        usable = (mine["state"][order] == int(StepState.OUTSIDE)) & (number >= _WARM_UP)
        means = _stretches(number[usable], taken[usable])
        if len(means):
            low, middle, high = (round(float(q)) for q in np.quantile(means, (0.1, 0.5, 0.9)))
            result[rank, process] = Unprofiled(rank, process, middle, low, high, int(np.count_nonzero(usable)))
    return result


def _stretches(number: npt.NDArray[np.int64], taken: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Mean step of each stretch of about _STRETCH consecutive steps; stretches of fewer than _LEAST are left out."""
    if not len(number):
        return np.empty(0)
    means = []
    for part in np.split(taken, np.flatnonzero(np.diff(number) != 1) + 1):
        if len(part) >= _LEAST:
            means += [float(piece.mean()) for piece in np.array_split(part, max(1, len(part) // _STRETCH))]
    return np.array(means)
