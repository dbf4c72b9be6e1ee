"""Signs that a capture holds less than what happened."""

from __future__ import annotations

import re

import numpy as np

from advisor.ingest.nsys.export import Calls, Export, distinct
from advisor.model import Strings, Table
from advisor.model.tables import Array

LAUNCH = re.compile(r"^cu(?:da)?Launch(?:Kernel(?:Ex|ExC)?|CooperativeKernel\w*)?$")
GRAPH_LAUNCH = re.compile(r"^cu(?:da)?GraphLaunch$")
_SHARE = 0.02  # of launches without a kernel: a window's edges cut off a few in complete captures too
_MOST_CAPTURES = 1000  # graph captures looked at


def judge(export: Export) -> None:
    """Adds notices about GPU work that was not recorded."""
    trace = export.trace
    calls, work = trace.table("runtime_calls"), [trace.table(n) for n in ("kernels", "copies", "graph_executions")]
    if not any(len(table) for table in work):
        if trace.capture.cuda and not len(calls):
            trace.notice(
                "no-cuda-rows",
                "CUDA was traced but the export has no CUDA rows: the program used no GPU, or the exporter is older than the "
                "profiler (then export with the nsys version that captured)",
            )
        else:
            trace.notice("no-gpu-work", "no GPU work was recorded; capture with `nsys profile -t cuda,nvtx` while training runs")
    names = trace.strings
    values, inverse = distinct(calls["name"])
    launch = np.array([bool(LAUNCH.match(names[code])) for code in values.tolist()], bool)[inverse]
    graph = np.array([bool(GRAPH_LAUNCH.match(names[code])) for code in values.tolist()], bool)[inverse]
    joined = _joined(calls, work)
    if graph.any() and not joined[graph].any():
        trace.notice(
            "graph-work-not-recorded",
            f"{int(graph.sum())} CUDA graph launches have no GPU rows: their work was not recorded, the GPU was not idle; "
            "capture with `--cuda-graph-trace=node`",
        )
    elif len(trace.table("graph_executions")):
        trace.notice(
            "graph-kernels-not-recorded",
            "CUDA graphs were recorded as a whole; for their kernels capture with `--cuda-graph-trace=node`",
        )
    launch &= ~_while_capturing(calls, names)
    total, lost = int(launch.sum()), int((launch & ~joined).sum())
    if len(work[0]) and lost > max(1, _SHARE * total):
        trace.notice(
            "launches-without-kernels",
            f"{lost} of {total} kernel launches have no kernel: GPU rows are missing, so that idle shares are upper bounds",
        )


def _joined(calls: Table, work: list[Table]) -> Array:
    """True for each call that has GPU work."""
    found = np.zeros(len(calls), bool)
    index = Calls(calls["process"], calls["correlation"])
    for table in work:
        rows = index.find(table["process"], table["correlation"])
        found[rows[rows >= 0]] = True
    return found


def _while_capturing(calls: Table, names: Strings) -> Array:
    """True for calls made while their thread captured a CUDA graph: such a launch only adds a node to it."""
    inside = np.zeros(len(calls), bool)
    begins, ends = (
        np.flatnonzero((calls["name"] == names.find(f"cudaStream{what}Capture")) & (names.find(f"cudaStream{what}Capture") >= 0))
        for what in ("Begin", "End")
    )
    for begin in begins.tolist()[:_MOST_CAPTURES]:
        thread = calls["thread"][begin]
        later = ends[(ends > begin) & (calls["thread"][ends] == thread)]
        end = int(later[0]) if len(later) else len(calls)
        inside[begin:end] |= calls["thread"][begin:end] == thread
    return inside
