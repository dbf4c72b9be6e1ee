"""Stretches of Python between operators and CUDA calls on the thread that drives the GPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import loader_ranges
from advisor.derive.attribution import frame_forest, matching_codes
from advisor.derive.host import driving_threads
from advisor.derive.intervals import IntervalSet, complement, merge, union
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import Steady
from advisor.derive.steps import steps
from advisor.model import Run

_FRAMEWORK = (
    r"(^|[/\\])(torch|torchinductor\w*|apex|transformer_engine|deepspeed|megatron|accelerate)[/\\]|"
    r"^nn\.Module|^<(frozen|string|eval)"
)

# Python's garbage collector: its frame, or what tools that mark it write.
_COLLECTOR = r"^<built-in function collect>$|\bgc\.collect\b|^Python GC|(?i:garbage[ _]?collect)"


def main_thread(run: Run, judged: Steady) -> int:
    """Of the threads that drive the GPU the one that holds most Python frames: a backward thread holds none."""
    driving, table = driving_threads(run), run.table("python_frames")
    mine = (table["rank"] == judged.step.rank) & (table["process"] == judged.step.process)
    frames = thread_keys(table)[mine]
    keys, counts = np.unique(frames[np.isin(frames, driving)], return_counts=True)
    return int(keys[counts.argmax()]) if len(keys) else int(driving[0])


def collections(run: Run, judged: Steady, least_ns: float) -> IntervalSet:
    """When the garbage collector ran for that long on a thread that drives the GPU, as frames, ranges or operators tell."""
    parts = []
    for name in ("python_frames", "ranges", "host_ops"):
        table = run.table(name)
        rows = np.flatnonzero(np.isin(table["name"], matching_codes(run, table["name"], _COLLECTOR)))
        rows = rows[(table["rank"][rows] == judged.step.rank) & (table["process"][rows] == judged.step.process)]
        rows = rows[np.isin(thread_keys(table)[rows], driving_threads(run))]
        parts.append(union(table["start"][rows], table["end"][rows]))
    low, high = merge(*parts)
    long = high - low >= least_ns
    return low[long], high[long]


def gaps(run: Run, judged: Steady, least_ns: float) -> IntervalSet:
    """Stretches of at least `least_ns` without an operator, CUDA call, data loader or garbage collection on the driving threads,
    in all steps."""
    side, threads = judged.side, driving_threads(run)
    busy = [union(side.start, side.end), collections(run, judged, least_ns)]
    for name in ("host_ops", "ranges"):
        table = run.table(name)
        rows = np.arange(len(table)) if name == "host_ops" else loader_ranges(run)
        rows = rows[np.isin(thread_keys(table)[rows], threads)]
        rows = rows[(table["rank"][rows] == side.rank) & (table["process"][rows] == side.process)]
        busy.append(union(table["start"][rows], table["end"][rows]))
    found = steps(run)
    own = found.of(side.rank, side.process)
    low, high = complement(merge(*busy), int(found.start[own].min()), int(found.end[own].max()))
    long = high - low >= least_ns
    return low[long], high[long]


def of_the_user(run: Run, when: IntervalSet, thread: int) -> IntervalSet:
    """Those gaps in most of whose time Python code other than the framework's ran.

    The framework's own Python (modules, optimizers, the entry to the backward pass, compiled code) is part of issuing work.
    """
    if not len(when[0]):
        return when
    moments, weights = middles(when)
    forest, names = frame_forest(run), run.table("python_frames")["name"]
    row = forest.innermost(np.full(len(moments), thread), moments)
    builtin = np.isin(names, matching_codes(run, names, r"^<built-in"))
    while True:
        up = (row >= 0) & builtin[np.maximum(row, 0)]
        if not up.any():
            break
        row = np.where(up, forest.parent[np.maximum(row, 0)], row)
    framework = np.isin(names, matching_codes(run, names, _FRAMEWORK))
    own = (row >= 0) & ~framework[np.maximum(row, 0)]
    gap = np.searchsorted(when[0], moments, side="right") - 1
    spent = np.bincount(gap, weights=weights * own, minlength=len(when[0]))
    keep = spent >= 0.5 * (when[1] - when[0])
    return when[0][keep], when[1][keep]


def running(run: Run, when: IntervalSet, thread: int, most: int = 6) -> list[tuple[str, int]]:
    """(function, ns) of the innermost functions that ran in the gaps, those that took most of the time first."""
    moments, weights = middles(when)
    row = frame_forest(run).innermost(np.full(len(moments), thread), moments)
    names, inverse = np.unique(run.table("python_frames")["name"][row[row >= 0]], return_inverse=True)
    spent = np.bincount(inverse, weights=weights[row >= 0], minlength=len(names))
    order = sorted(range(len(names)), key=lambda i: (-spent[i], run.strings[int(names[i])]))[:most]
    return [(run.strings[int(names[i])], int(spent[i])) for i in order]


def middles(when: IntervalSet, most: int = 2000) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Moments inside the gaps, several in each, and the length that each stands for: to ask what was running then."""
    count = np.clip((when[1] - when[0]) // 100_000, 1, max(most // max(len(when[0]), 1), 1))
    owner = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    length = (when[1] - when[0])[owner]
    return when[0][owner] + ((place + 0.5) * length / count[owner]).astype(np.int64), length / count[owner]
