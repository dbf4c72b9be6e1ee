"""How good the recording is: what it lacks, what the profiler added, and where records were lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.bounds import two_sided
from advisor.derive.calls import LAUNCHES, CallKind, is_kind, links
from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.steps import steps
from advisor.model import Run


@dataclass(frozen=True)
class CaptureQuality:
    """What limits the judgement.

    steps: recorded steps of the rank that has most; steady: usable ones; hitches: steps held up by the profiler;
    incomplete: steps whose GPU records are lost in part.
    unlinked_share: share of GPU operations without a recorded launch; empty_launch_share: share of launch calls without
    a recorded operation; profiler_share: share of the recorded step that the profiler added.
    lost_graphs: launches of CUDA graphs whose work was not recorded, see `lost_graph_launches`.
    lacks: what was not recorded, in words for people, most useful first.
    """

    steps: int
    steady: int
    hitches: int
    incomplete: int
    source: str
    kernels: int
    unlinked_share: float
    empty_launch_share: float
    profiler_share: float
    lost_graphs: int
    lacks: tuple[str, ...]


def capture_quality(run: Run) -> CaptureQuality:
    return run.derived(_capture_quality)


def _capture_quality(run: Run) -> CaptureQuality:
    found, work, link = steps(run), gpu_work(run), links(run)
    counts = [len(found.of(*member)) for member in found.members]
    steady = [int(found.steady[found.of(*member)].sum()) for member in found.members]
    launches = is_kind(run, *LAUNCHES)
    # Work launched before the recording began has no launch; only work inside the steps counts.
    inside = work.start >= _first_judged(run)
    sides = two_sided(run)
    return CaptureQuality(
        steps=max(counts, default=0) if found.source != "none" else 0,
        steady=max(steady, default=0) if found.source != "none" else 0,
        hitches=int(found.hitch.sum()),
        incomplete=int(found.incomplete.sum()),
        source=found.source,
        kernels=len(run.table("kernels")),
        unlinked_share=_share(link.call[inside] < 0),
        empty_launch_share=_share(link.count[launches] == 0),
        profiler_share=sides.profiler_share if sides else 0.0,
        lost_graphs=lost_graph_launches(run),
        lacks=tuple(_lacks(run)),
    )


def _first_judged(run: Run) -> int:
    """When the steps begin; where none is known, when the first operation begins that has its launch, ns."""
    found, work, call = steps(run), gpu_work(run), links(run).call
    if found.source != "none" and len(found):
        return int(found.start.min())
    return int(work.start[call >= 0].min()) if (call >= 0).any() else 0


def lost_graph_launches(run: Run) -> int:
    """Launches of CUDA graphs without any recorded work, if most graphs have none: nobody knows then when the GPU was busy.

    0 as well where as many GPU operations have no launch: the work of the graphs may be there without its link.
    """
    return run.derived(_lost_graph_launches)


def _lost_graph_launches(run: Run) -> int:
    graphs = is_kind(run, CallKind.GRAPH_LAUNCH)
    if not graphs.any():
        return 0
    link = links(run)
    lost, unlinked = int((link.count[graphs] == 0).sum()), int((link.call < 0).sum())
    return lost if 2 * lost > int(graphs.sum()) and unlinked < lost else 0


def _share(mask: npt.NDArray[np.bool_]) -> float:
    return float(mask.mean()) if len(mask) else 0.0


def _lacks(run: Run) -> list[str]:
    work = gpu_work(run)
    lacks = []
    if not len(run.table("kernels")):
        lacks.append("GPU kernels")
    if len(work) and not len(run.table("runtime_calls")):
        lacks.append("CUDA calls")
    if not len(run.table("host_ops")) and not len(run.table("ranges")):
        lacks.append("operators or ranges")
    if len(run.table("host_ops")) and not run.table("host_ops").has("shapes"):
        lacks.append("shapes")
    if not len(run.table("python_frames")) and not run.table("host_ops").has("stack"):
        lacks.append("source lines")
    copies = run.table("copies")
    if len(copies) and bool((work.source == COPY).any()) and not copies.has("source"):
        lacks.append("kind of host memory of copies")
    if not len(run.table("memory_events")):
        lacks.append("memory")
    if not len(run.table("device_samples")):
        lacks.append("clocks and power")
    return lacks
