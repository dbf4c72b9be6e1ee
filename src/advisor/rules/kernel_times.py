"""GPU time of the kernels of a steady step, by name and by kind: small enough to travel with a report."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.activity import step_windows, window
from advisor.derive.gpus import KERNEL, gpu_work
from advisor.derive.kernel_classes import KernelClass, kernel_kinds
from advisor.model import Run
from advisor.rules.plain import plain_text

LISTED = 60  # kernels by name: of 300 names in a step, 60 hold nearly all of the time
LONGEST_NAME = 300  # names of C++ templates run to thousands of characters


def kernel_times(run: Run) -> dict[str, Any] | None:
    """The report's "kernels" object; None without kernels. All figures are means per steady step and GPU.

    distinct: different names; kinds: every kind of work, longest first; listed: the LISTED kernels that take longest,
    names cut to LONGEST_NAME characters; rest_ns: all others; least_ns: time from which on a kernel is in the list.
    """
    return run.derived(_kernel_times)


def _kernel_times(run: Run) -> dict[str, Any] | None:
    kernels, work, kinds = run.table("kernels"), gpu_work(run), kernel_kinds(run).kind
    if not len(kernels):
        return None
    inside, count = np.zeros(len(work), bool), 0
    for place, gpu in enumerate(work.gpus):
        start, end = step_windows(run, gpu)
        if not len(start):
            low, high = window(run)
            start, end = np.array([low]), np.array([high])
        mine = np.flatnonzero((work.gpu == place) & (work.source == KERNEL))
        if not len(mine):
            continue
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        at = np.searchsorted(start, work.start[mine], side="right") - 1
        inside[mine] = (at >= 0) & (work.start[mine] < end[np.maximum(at, 0)])
        count += len(start)
    rows = work.row[inside]
    if not len(rows):
        return None
    took = (kernels["end"] - kernels["start"])[rows]
    names: dict[str, list[int]] = {}
    codes, inverse = np.unique(kernels["name"][rows], return_inverse=True)
    time = np.bincount(inverse, took, len(codes)).astype(np.int64)
    calls = np.bincount(inverse, minlength=len(codes))
    kind_of = np.zeros(len(codes), np.int64)
    kind_of[inverse] = kinds[rows]
    for i, code in enumerate(codes):
        name = plain_text(run.strings[int(code)])[:LONGEST_NAME] if code >= 0 else ""
        entry = names.setdefault(name, [0, 0, int(kind_of[i])])
        entry[0] += int(time[i])
        entry[1] += int(calls[i])
    ranked = sorted(names.items(), key=lambda item: (-item[1][0], item[0]))
    listed, rest = ranked[:LISTED], ranked[LISTED:]
    return {
        "distinct": len(ranked),
        "total_ns": int(time.sum()) // count,
        "rest_ns": sum(entry[0] for _, entry in rest) // count,
        "least_ns": listed[-1][1][0] // count if rest else 0,
        "kinds": _by_kind(kind_of, time, calls, count),
        "listed": [
            {"name": name, "kind": KernelClass(kind).label, "ns": ns // count, "calls": round(n / count, 3)}
            for name, (ns, n, kind) in listed
        ],
    }


def _by_kind(kind_of: Any, time: Any, calls: Any, count: int) -> list[dict[str, Any]]:
    entries = []
    for kind in np.unique(kind_of):
        mine = kind_of == kind
        label, n = KernelClass(int(kind)).label, int(calls[mine].sum())
        entries.append({"kind": label, "ns": int(time[mine].sum()) // count, "calls": round(n / count, 3)})
    return sorted(entries, key=lambda entry: (-int(entry["ns"]), str(entry["kind"])))
