"""Signs that a capture holds less than what happened."""

from __future__ import annotations

import re

import numpy as np

from advisor.ingest.nsys.about import UNSURE
from advisor.ingest.nsys.export import Calls, Export, distinct
from advisor.model import Strings, Table, Trace
from advisor.model.tables import Array

_LAUNCH = re.compile(r"^cu(?:da)?Launch(?:Kernel(?:Ex|ExC)?|CooperativeKernel\w*)?$")
_GRAPH_LAUNCH = re.compile(r"^cu(?:da)?GraphLaunch$")
_SHARE = 0.02  # of launches or kernels without their other half: a window's edges cut off a few in complete captures too
_MOST_CAPTURES = 1000  # graph captures looked at


def judge(export: Export) -> None:
    """Adds notices about work that was not recorded, and takes back the profiler's own warning where nothing is missing."""
    trace = export.trace
    calls, kernels = trace.table("runtime_calls"), trace.table("kernels")
    work = [kernels, trace.table("copies"), trace.table("graph_executions")]
    names, inverse = distinct(calls["name"])
    labels = [trace.strings[code] for code in names.tolist()]
    launch, graph = (np.array([bool(p.match(label)) for label in labels], bool)[inverse] for p in (_LAUNCH, _GRAPH_LAUNCH))
    if not any(map(len, work)):
        _no_work(trace, calls, int(launch.sum()))
        return
    if not len(calls):
        trace.notice(
            "no-api-calls", "no CUDA API calls were recorded: the causes of idle time stay unknown; capture with `-t cuda`"
        )
        return
    joined, found = _joined(calls, work)
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
    launch &= ~_while_capturing(calls, trace.strings)
    total, lost = int(launch.sum()), int((launch & ~joined).sum())
    if not len(kernels):
        return
    if lost > max(1, _SHARE * total):
        trace.notice(
            "launches-without-kernels",
            f"{lost} of {total} kernel launches have no kernel: GPU rows are missing, so that idle shares are upper bounds",
        )
    else:
        trace.notices = [notice for notice in trace.notices if notice.code not in UNSURE]
    if len(kernels) - found > max(1, _SHARE * len(kernels)):
        trace.notice(
            "kernels-without-launch",
            f"{len(kernels) - found} of {len(kernels)} kernels have no launch call: what the host did before them is not known",
        )


def _no_work(trace: Trace, calls: Table, launches: int) -> None:
    if launches:
        what = f"{launches} kernel launches but no GPU work were recorded: another profiler may have held the GPU"
        trace.notice("no-gpu-work", f"{what}; capture again, or export with the nsys version that captured")
    elif trace.capture.cuda and not len(calls):
        trace.notice(
            "no-cuda-rows",
            "CUDA was traced but the export has no CUDA rows: the program used no GPU, or the exporter is older than the "
            "profiler (then export with the nsys version that captured)",
        )
    else:
        trace.notice("no-gpu-work", "no GPU work was recorded; capture with `nsys profile -t cuda,nvtx` while training runs")


def _joined(calls: Table, work: list[Table]) -> tuple[Array, int]:
    """True for each call that has GPU work, and how many rows of the first table have a call."""
    found = np.zeros(len(calls), bool)
    index = Calls(calls["process"], calls["correlation"])
    counts = []
    for table in work:
        rows = index.find(table["process"], table["correlation"])
        rows = rows[rows >= 0]
        found[rows] = True
        counts.append(len(rows))
    return found, counts[0]


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
