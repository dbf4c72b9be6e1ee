"""Compiled code in pieces: the compiler gave up at several places of the model, and Python runs between the pieces."""

from __future__ import annotations

import re

import numpy as np

from advisor.derive.attribution import locations, matching_codes, op_forest, ops_named
from advisor.derive.calls import links
from advisor.derive.intervals import IntervalSet, intersect, length, merge, subtract, union
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import Steady, steadies, steady
from advisor.detectors.words import count_text, time_text
from advisor.model import Evidence, Run
from advisor.model.tables import Array
from advisor.replay.changes import Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_REGION = r"^Torch-Compiled Region"
# Before each piece its guards are checked and its inputs are prepared.
_ENTRY = r"^(TorchDynamo Cache Lookup|Pregraph bytecode|AOTDispatcher Runtime Wrapper Prologue)$"
_FRAME = re.compile(r"Region: (\d+)/")


def detect(ctx: Context) -> Draft | None:
    run, judged = ctx.run, steady(ctx.run)
    if judged is None or judged.unmarked:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    if not ops_named(run, _REGION).any():
        raise NotApplicable("no regions of torch.compile were recorded (torch 2.3 and later mark them)")
    regions, broken = _regions(run, judged)
    n = max(judged.count, 1)
    each = len(broken) / n
    if each < ctx.threshold("least_breaks"):
        return None
    ops = run.table("host_ops")
    after = regions[broken + 1]
    between, entries = _between(run, regions, broken), _entries(run, after)
    gone = merge(between, entries)
    host = judged.host_within(gone)
    idle = length(intersect(gone, judged.idle)) // n
    names = sorted({run.strings[int(code)] for code in np.unique(ops["name"][regions])})
    return Draft(
        title=f"{count_text(each, 'graph break')} a step split the compiled model; between the pieces pass {time_text(host)}",
        confidence="medium",
        edits=[Edit(intervals=_gone(run, one), of=(one.step.rank, one.step.process)) for one in steadies(run)],
        change=Change(host_ns=host, wait_ns=min(judged.step.wait_ns, idle) if judged.step.gpu_bound else 0, limit_ns=host),
        facts={
            "breaks_per_step": round(each, 1),
            "pieces": len(names),
            "between_ns": judged.within(between),
            "entry_ns": judged.within(entries),
        },
        evidence=[_evidence(run, regions, n)],
        locations=locations(run, thread_keys(ops)[after], ops["start"][after] - 1),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        subject=["graph breaks"],
    )


def _gone(run: Run, judged: Steady) -> IntervalSet:
    regions, broken = _regions(run, judged)
    return merge(_between(run, regions, broken), _entries(run, regions[broken + 1]))


def _regions(run: Run, judged: Steady) -> tuple[Array, Array]:
    """(rows of `host_ops` of the outermost compiled regions in ordinary steps, in order of time; positions of those that are
    followed by other code in the same step)."""
    ops, forest, named = run.table("host_ops"), op_forest(run), ops_named(run, _REGION)
    above = np.where(forest.parent >= 0, forest.nearest(named)[np.maximum(forest.parent, 0)], -1)
    rows = np.flatnonzero(named & (above < 0) & (ops["rank"] == judged.step.rank) & (ops["process"] == judged.step.process))
    rows = rows[np.argsort(ops["start"][rows], kind="stable")]
    at = np.searchsorted(judged.start, ops["start"][rows], side="right") - 1
    at = np.where((at >= 0) & (ops["start"][rows] < judged.end[np.maximum(at, 0)]), at, -1)
    rows, at = rows[at >= 0], at[at >= 0]
    numbers = {}
    for code in np.unique(ops["name"][rows]):
        match = _FRAME.search(run.strings[int(code)])
        numbers[int(code)] = int(match[1]) if match else -1
    frame = np.array([numbers[int(code)] for code in ops["name"][rows]], np.int64)
    return rows, np.flatnonzero((at[1:] == at[:-1]) & (frame[1:] != frame[:-1]))


def _between(run: Run, regions: Array, broken: Array) -> IntervalSet:
    """From one piece to the next, without the calls that put eager work on the GPU there: that work stays."""
    calls, ops = run.table("runtime_calls"), run.table("host_ops")
    start, end = ops["end"][regions[broken]], ops["start"][regions[broken + 1]]
    issuing = np.flatnonzero(links(run).count > 0)
    return subtract(union(start, end), union(calls["start"][issuing], calls["end"][issuing]))


def _entries(run: Run, regions: Array) -> IntervalSet:
    """Checking guards and preparing inputs, inside or right before these regions."""
    ops, forest = run.table("host_ops"), op_forest(run)
    rows = np.flatnonzero(np.isin(ops["name"], matching_codes(run, ops["name"], _ENTRY)))
    owner = forest.nearest(np.isin(np.arange(len(ops)), regions))[rows]
    inside = rows[owner >= 0]
    return union(ops["start"][inside], ops["end"][inside])


def _evidence(run: Run, regions: Array, steps: int) -> Evidence:
    ops = run.table("host_ops")
    names, group = np.unique(ops["name"][regions], return_inverse=True)
    count = np.bincount(group)
    spent = np.bincount(group, weights=(ops["end"] - ops["start"])[regions])
    order = sorted(range(len(names)), key=lambda i: (-count[i], run.strings[int(names[i])]))[:8]
    rows = [[run.strings[int(names[i])], round(count[i] / steps, 1), int(spent[i]) // steps] for i in order]
    return Evidence("Pieces of compiled code per step", ["region", "calls", "host_ns"], rows)
