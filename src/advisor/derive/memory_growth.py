"""What an allocator's history shows to be kept from step to step and never given up."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from advisor.derive.allocation_sites import BACKWARD, Site, site
from advisor.derive.allocator import History, Ints, histories
from advisor.derive.steps import steps
from advisor.model import Run

_LEAST_STEPS = 3  # below that nothing repeats
_SHARE = 0.8  # of the steps in which something is kept: a leak leaves something in nearly all of them
# Ranges that are one a step, the surest first; then whatever range comes most often.
_STEP_RANGES = (re.compile(r"^ProfilerStep#?"), re.compile(r"^Optimizer\.step#"))
_BACKWARD_FRAME = re.compile(
    r"torch[/\\](autograd[/\\](__init__|graph|function)|_tensor)\.py\(\d+\): (backward|_engine_run_backward)$"
    r"|torch[/\\]optim[/\\].*\): step$"
)


@dataclass(frozen=True)
class Kept:
    """What one site keeps: in how many of the steps it left something, blocks and bytes in all of them."""

    site: Site
    steps: int
    blocks: int
    bytes: int


@dataclass(frozen=True)
class StepGrowth:
    """Memory of one device from step to step. ends: position of the last event of each step; levels: bytes in use there.

    kept: sites that keep something in nearly every step, the most first; what the last step holds counts for none.
    """

    rank: int
    device: int
    ends: Ints
    levels: Ints
    told_by: str
    kept: list[Kept]

    @property
    def each(self) -> float:
        """Bytes a step by which the level rises."""
        return float(np.polyfit(np.arange(len(self.levels)), self.levels.astype(float), 1)[0])


def step_growth(run: Run) -> list[StepGrowth]:
    """One entry a device whose history shows several steps."""
    return run.derived(_step_growth)


def _step_growth(run: Run) -> list[StepGrowth]:
    result = []
    for history in histories(run):
        found = _step_ends(run, history)
        if found is not None:
            ends, told_by = found
            levels = history.allocated()[ends]
            result.append(StepGrowth(history.rank, history.device, ends, levels, told_by, _kept(run, history, ends)))
    return result


def _kept(run: Run, history: History, ends: Ints) -> list[Kept]:
    """Sites whose blocks survive to the end of the history from nearly every whole step but the last."""
    blocks = history.blocks
    step = np.searchsorted(ends, blocks.begin, side="left")
    stays = (blocks.end >= len(history)) & (blocks.begin >= 0) & (step < len(ends) - 1)
    codes, slot = np.unique(blocks.stack[stays], return_inverse=True)
    sizes = np.zeros(len(codes), np.int64)
    np.add.at(sizes, slot, blocks.bytes[stays])
    pairs = np.unique(np.stack([slot, step[stays]]), axis=1)
    in_steps, many = np.bincount(pairs[0], minlength=len(codes)), np.bincount(slot, minlength=len(codes))
    often = np.flatnonzero(in_steps >= _SHARE * (len(ends) - 1))
    result = [Kept(site(run, int(codes[i])), int(in_steps[i]), int(many[i]), int(sizes[i])) for i in often]
    return sorted(result, key=lambda one: (-one.bytes, one.site.text))


def _step_ends(run: Run, history: History) -> tuple[Ints, str] | None:
    """(position of the last event of each step, what tells the steps); None if nothing does."""
    for find in (_by_trace, _by_ranges, _by_backward):
        found = find(run, history)
        if found is not None:
            ends = np.unique(found[0][(found[0] >= 0) & (found[0] < len(history))])
            if len(ends) >= _LEAST_STEPS:
                return ends, found[1]
    return None


def _by_trace(run: Run, history: History) -> tuple[Ints, str] | None:
    found = steps(run)
    if history.time is None or not len(found) or found.source == "none":
        return None
    mine = [pair for pair in found.members if pair[0] == history.rank or len(found.members) == 1]
    if not mine:
        return None
    ends = np.sort(found.end[found.of(*mine[0])])
    ends = ends[(ends >= history.time[0]) & (ends <= history.time[-1])]
    return np.searchsorted(history.time, ends, side="right") - 1, "the trace"


def _by_ranges(run: Run, history: History) -> tuple[Ints, str] | None:
    table = run.table("allocator_ranges")
    mine = (table["device"] == history.device) & (table["rank"] == history.rank)
    if history.time is None or not mine.any():
        return None
    inside = mine & (table["end"] >= history.time[0]) & (table["start"] <= history.time[-1])
    labels = np.array([_label(run.strings[int(code)]) for code in table["name"]], object)
    counts = Counter(labels[inside].tolist())
    chosen = next((name for pattern in _STEP_RANGES for name in sorted(counts) if pattern.match(name)), None)
    if chosen is None:
        repeated = [name for name, count in counts.items() if count >= _LEAST_STEPS]
        chosen = min(repeated, key=lambda name: (-counts[name], name), default=None)
    if chosen is None:
        return None
    ends = np.sort(table["end"][inside & (labels == chosen)])
    return np.searchsorted(history.time, ends, side="right") - 1, f"the range {chosen.strip()!r}"


def _label(name: str) -> str:
    """The name of a range without the number of the step."""
    return re.sub(r"\d+\s*$", "", name) if name.startswith("ProfilerStep") else name


def _by_backward(run: Run, history: History) -> tuple[Ints, str] | None:
    """Each time the stacks pass from the backward pass or the optimizer to something else, a step is over."""
    codes = run.table("allocator_events")["stack"][history.rows]
    distinct = np.unique(codes)
    back = [code for code in distinct.tolist() if code >= 0 and _is_backward(run.strings[code])]
    if not back:
        return None
    known = np.flatnonzero(codes >= 0)
    inside = np.isin(codes[known], back)
    return known[:-1][inside[:-1] & ~inside[1:]], "the backward passes"


def _is_backward(stack: str) -> bool:
    return any(frame == BACKWARD or _BACKWARD_FRAME.search(frame) for frame in stack.split(";"))
