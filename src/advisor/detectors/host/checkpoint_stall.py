"""Steps that stop for a checkpoint: the model goes to the host, and to a file, while training waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import activities
from advisor.derive.attribution import locations, matching_codes
from advisor.derive.bounds import TwoSided, two_sided
from advisor.derive.calls import links
from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.host import HostSide, host_sides
from advisor.derive.intervals import IntervalSet, clip, covered, merge, union
from advisor.derive.nesting import thread_keys
from advisor.derive.steps import Steps, steps
from advisor.detectors.words import count_text, time_text
from advisor.model import CopyKind, Evidence, Location, Run, Saving
from advisor.rules.contract import Change, Context, Draft, NotApplicable

# From this many ordinary steps on, the report's step is one that stalls have lengthened.
_INCLUDES = 1.3
# Functions that write a checkpoint, as frames and ranges name them.
_SAVING = r"serialization\.py\(\d+\): _?save|distributed[/\\]checkpoint[/\\]|save_checkpoint|save_pretrained|save_file"


@dataclass(frozen=True)
class Stall:
    """One stop: positions of its steps, what it takes beyond ordinary steps, and what it copied to the host."""

    steps: list[int]
    excess_ns: int
    bytes: int
    copies: int
    longest_ns: int


def detect(ctx: Context) -> Draft | None:
    run, found = ctx.run, steps(ctx.run)
    step = two_sided(run)
    if step is None or found.source == "none":
        raise NotApplicable("the input holds no steps")
    own = found.of(step.rank, step.process)
    own = own[~found.hitch[own]]
    side = host_sides(run).get((step.rank, step.process))
    if side is None or len(own) < ctx.threshold("least_steps"):
        raise NotApplicable(
            "too few steps to tell a stall from a step", "record at least as many steps as lie between checkpoints"
        )
    # Stalls may be half of the recorded steps: the lower quartile is an ordinary step, the median need not be.
    middle = int(np.quantile(found.time()[own], 0.25, method="lower"))
    taken = _held(found, own)
    stalls = _stalls(ctx, side, own, taken, middle)
    if not stalls:
        return None
    interval, known = _interval(stalls, own)
    excess = int(np.mean([stall.excess_ns for stall in stalls]))
    each = excess // interval
    size = int(np.mean([stall.bytes for stall in stalls]))
    draft = Draft(
        title=f"A checkpoint stops training for {time_text(excess)}"
        + (f" every {count_text(interval, 'step')}" if known else f", once in {count_text(len(own), 'recorded step')}"),
        confidence="medium" if known else "low",
        subject=["checkpoint"],
        facts={
            "stall_ns": excess,
            "stalls": len(stalls),
            "interval_steps": interval if known else None,
            "bytes": size,
            "ordinary_step_ns": middle,
            "per_step_ns": each,
        },
        evidence=[_evidence(found.number, own, taken, stalls)],
        locations=_places(run, side, found.start[own], found.end[own], stalls, own),
        scope={"ranks": [step.rank]} if step.rank >= 0 else {},
    )
    if step.recorded_ns > _INCLUDES * middle:
        draft.change = _change(run, side, step, own, stalls)
    else:
        # The median step of the report leaves stalls out: what they cost comes on top of it, spread over their interval.
        draft.saving = Saving(0, each, each, "bound")
        draft.caveats.append(f"The step of {time_text(middle)} is the one between checkpoints; the stall comes on top of it.")
    if not known:
        draft.caveats.append(
            f"The recording holds one stall, so how often it recurs is unknown: the saving holds for the {len(own)} recorded "
            "steps. If checkpoints are rarer than that, it shrinks in proportion."
        )
    return draft


def _held(found: Steps, own: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How long the host stayed in each step after the GPU had finished the one before.

    A host that ran ahead waits for the GPU first, and the step after a stall is late only because of it: neither counts.
    """
    before = np.concatenate(([0], found.gpu_end[own][:-1]))
    return np.maximum(found.end[own] - np.maximum(found.start[own], before), 0)


def _stalls(ctx: Context, side: HostSide, own: npt.NDArray[np.int64], taken: npt.NDArray[np.int64], middle: int) -> list[Stall]:
    """Long steps that copy much to the host; a long step right after one belongs to it (what was left of writing)."""
    found, result = steps(ctx.run), []
    long = taken > ctx.threshold("times_ordinary") * middle
    least = ctx.threshold("least_bytes")
    saving = _saving(ctx.run, side)
    place = 0
    while place < len(own):
        if not long[place]:
            place += 1
            continue
        start, end = int(found.start[own[place]]), int(found.end[own[place]])
        size, copies, pause = _what(ctx.run, side, start, end)
        if size < least and not len(clip(saving, start, end)[0]):
            place += 1
            continue
        members = [place]
        while members[-1] + 1 < len(own) and long[members[-1] + 1] and own[members[-1] + 1] == own[members[-1]] + 1:
            after = members[-1] + 1
            if _what(ctx.run, side, int(found.start[own[after]]), int(found.end[own[after]]))[0] >= least:
                break
            members.append(after)
        excess = int((taken[members] - middle).sum())
        result.append(Stall(members, excess, size, copies, pause))
        place = members[-1] + 1
    return result


def _saving(run: Run, side: HostSide) -> IntervalSet:
    """When Python frames or ranges say that something is saved."""
    parts = []
    for name in ("python_frames", "ranges"):
        table = run.table(name)
        rows = np.isin(table["name"], matching_codes(run, table["name"], _SAVING))
        rows &= (table["rank"] == side.rank) & (table["process"] == side.process)
        parts.append(union(table["start"][rows], table["end"][rows]))
    return merge(*parts)


def _what(run: Run, side: HostSide, start: int, end: int) -> tuple[int, int, int]:
    """(bytes copied to the host, copies, longest host segment without CUDA calls in ns) of the calls that begin in a span."""
    calls = side.between(start, end)
    work, copies = gpu_work(run), run.table("copies")
    last = links(run).last_work[side.call[calls]]
    last = last[last >= 0]
    rows = work.row[last[work.source[last] == COPY]]
    rows = rows[copies["kind"][rows] == int(CopyKind.DEVICE_TO_HOST)]
    near = slice(calls.start, calls.stop + 1)  # the last segment of a step ends at the first call of the next
    inside = np.minimum(side.start[near], end) - np.maximum(side.start[near] - side.before[near], start)
    pause = int(inside.max(initial=0))
    return int(np.maximum(copies["bytes"][rows], 0).sum()), len(rows), pause


def _interval(stalls: list[Stall], own: npt.NDArray[np.int64]) -> tuple[int, bool]:
    """(steps from one stall to the next, whether the recording tells)."""
    if len(stalls) < 2:
        return len(own), False
    first = own[[stall.steps[0] for stall in stalls]]
    return max(int(np.median(np.diff(first))), 1), True


def _change(run: Run, side: HostSide, step: TwoSided, own: npt.NDArray[np.int64], stalls: list[Stall]) -> Change:
    """The report's step contains the stalls: it becomes an ordinary one on the host, on the GPU and in waits."""
    found = steps(run)
    stalled = {place for stall in stalls for place in stall.steps}
    ordinary = own[[place for place in range(len(own)) if place not in stalled]]
    host = []
    for row in ordinary:
        calls = side.between(int(found.start[row]), int(found.end[row]))
        host.append(int(side.deflated_before[calls].sum() + side.deflated_own[calls].sum()))
    timed = ordinary[found.gpu_period[ordinary] > 0]
    busy = merge(*(a.busy for a in activities(run) if (a.gpu.rank, a.gpu.process) == (step.rank, step.process)))
    gpu = covered(busy, found.gpu_end[timed] - found.gpu_period[timed], found.gpu_end[timed])
    host_ns = max(step.host_ns - int(np.median(host)), 0) if host else 0
    gpu_ns = max(step.gpu_ns - int(np.median(gpu)), 0) if len(gpu) else 0
    return Change(host_ns=host_ns, gpu_ns=gpu_ns, wait_ns=step.wait_ns, limit_ns=host_ns + gpu_ns + step.wait_ns)


def _evidence(
    number: npt.NDArray[np.int64], own: npt.NDArray[np.int64], taken: npt.NDArray[np.int64], stalls: list[Stall]
) -> Evidence:
    first = {stall.steps[0]: stall for stall in stalls}
    shown = sorted({p for stall in stalls for p in (stall.steps[0] - 1, *stall.steps) if 0 <= p < len(own)})[:8]
    rows = [
        [
            int(number[own[place]]),
            int(taken[place]),
            first[place].copies if place in first else 0,
            first[place].bytes if place in first else 0,
            first[place].longest_ns if place in first else None,
        ]
        for place in shown
    ]
    columns = ["step", "held_ns", "copies_to_host", "copied_bytes", "longest_pause_ns"]
    return Evidence("How long the host stayed in stalled steps, and in those before them", columns, rows)


def _places(
    run: Run,
    side: HostSide,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    stalls: list[Stall],
    own: npt.NDArray[np.int64],
) -> list[Location]:
    """The lines that were executing in the long segments of the stalled steps."""
    keys = thread_keys(run.table("runtime_calls"))[side.call]
    rows = []
    for stall in stalls:
        for place in stall.steps:
            calls = side.between(int(start[place]), int(end[place]))
            rows.append(np.arange(calls.start, min(calls.stop + 1, len(side))))
    picked = np.concatenate(rows)
    picked = picked[side.before[picked] > 0]
    middle = side.start[picked] - side.before[picked] // 2
    return locations(run, keys[picked], middle, side.before[picked].astype(float))
