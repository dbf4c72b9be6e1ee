"""Driver allocations and releases inside steady steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.attribution import locations
from advisor.derive.bounds import two_sided
from advisor.derive.memory import DriverAllocations, driver_allocations
from advisor.derive.nesting import thread_keys
from advisor.derive.steps import steps
from advisor.detectors.memory.allocator_settings import against_holes, allocator_settings
from advisor.detectors.words import count_text, time_text
from advisor.model import Evidence, Run
from advisor.replay.changes import GONE, Edit
from advisor.rules.contract import Change, Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    run, pace = ctx.run, two_sided(ctx.run)
    if pace is None or steps(run).source == "none":
        raise NotApplicable("without steps, allocations of the start-up cannot be told from those of the loop")
    everywhere = driver_allocations(run)
    found = next((a for a in everywhere if (a.rank, a.process) == (pace.rank, pace.process)), None)
    if found is None or found.own_ns + found.wait_ns < ctx.threshold("min_share") * pace.step_ns:
        return None
    both = found.own_ns + found.wait_ns
    settings = allocator_settings(run)
    growing = [name for name in against_holes(settings) if name == "expandable-segments"]
    calls = run.table("runtime_calls")
    gone = np.zeros(len(calls), bool)
    for one in everywhere:  # a fix of the program frees all ranks
        gone[one.calls] = True
    return Draft(
        title=f"{count_text(found.mallocs, 'allocation')} and {count_text(found.frees, 'release')} of memory "
        f"in every step take {time_text(both)}",
        edits=[Edit(calls=gone, own=GONE, waits=False)],
        change=Change(host_ns=found.own_ns, wait_ns=found.wait_ns, limit_ns=both),
        facts={
            "mallocs_per_step": round(found.mallocs, 1),
            "frees_per_step": round(found.frees, 1),
            "own_ns": found.own_ns,
            "wait_ns": found.wait_ns,
            **settings.facts,
        },
        fixes=["no-empty-cache", *growing, "largest-first"],
        evidence=[_by_name(run, found)],
        locations=locations(
            run,
            thread_keys(calls)[found.calls],
            calls["start"][found.calls],
            (calls["end"] - calls["start"])[found.calls].astype(float),
        ),
        subject=["cudaMalloc", "cudaFree"],
    )


def _by_name(run: Run, found: DriverAllocations) -> Evidence:
    calls = run.table("runtime_calls")
    names, inverse = np.unique(calls["name"][found.calls], return_inverse=True)
    length = (calls["end"] - calls["start"])[found.calls]
    rows: list[list[Any]] = [
        [run.strings[int(code)], int((inverse == i).sum()), int(length[inverse == i].sum()), int(length[inverse == i].max())]
        for i, code in enumerate(names)
    ]
    return Evidence(
        "Memory calls of the driver in all steady steps, as recorded",
        ["call", "calls", "total_ns", "longest_ns"],
        sorted(rows, key=lambda row: (-row[2], row[0]))[:8],
    )
