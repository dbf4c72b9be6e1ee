"""The GPU stands still while the training loop waits for its next batch."""

from __future__ import annotations

import numpy as np

from advisor.derive.activity import loader_ranges
from advisor.derive.attribution import locations, matching_codes
from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.host import driving_threads
from advisor.derive.intervals import IntervalSet, covered, intersect, length, union
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import Steady, steadies, steady
from advisor.detectors.input.loading import Loading, change, edits, edits_of, evidence, gain, loading
from advisor.detectors.words import time_text
from advisor.model import CopyKind, Run
from advisor.rules.contract import Context, Draft, NotApplicable

# Functions that hand out, read or assemble a batch, as frames name them.
_LOADER_FRAMES = (
    r"(?i)data_?(load|set|pipe|source|iter)|sampler|collate|__next__|__getitem__|(load|fetch|read|next|get)_?(batch|data|sample)|"
    r"webdataset|tfrecord|[/\\]dali[/\\]|[/\\]PIL[/\\]"
)


def detect(ctx: Context) -> Draft | None:
    judged = steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    found = loading(ctx.run, judged)
    if found is not None:
        return _by_ranges(ctx, judged, found)
    if len(loader_ranges(ctx.run)):
        return None  # on threads of its own: it holds nobody up
    return _between_steps(ctx, judged)


def _by_ranges(ctx: Context, judged: Steady, found: Loading) -> Draft | None:
    gone = found.gone(judged, ctx.threshold("handover_ns"))
    if gain(judged, gone) < ctx.threshold("gain_share"):
        return None
    share = found.wait_ns / max(judged.step.step_ns, 1)
    ranges = ctx.run.table("ranges")
    name = ctx.run.strings[int(ranges["name"][found.rows[0]])]
    return Draft(
        title=f"Each step waits {time_text(found.wait_ns)} for its batch, {share:.0%} of the step",
        confidence="high",
        edits=edits(ctx.run),
        change=gone,
        subject=[name],
        facts={
            "loader_ns": found.wait_ns,
            "loader_frac": round(share, 4),
            "gpu_idle_ns": found.idle_ns,
            "range": name,
        },
        evidence=[evidence(judged, found.when, f"Waiting in {name[:60]}")],
        locations=locations(ctx.run, thread_keys(ranges)[found.rows], ranges["start"][found.rows] - 1),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
    )


def _between_steps(ctx: Context, judged: Steady) -> Draft | None:
    """Nothing marks a loader: judge the time between the last CUDA call of a step and the first of the next."""
    if judged.source == "none":
        raise NotApplicable("no range marks a data loader and no steps are marked")
    gaps, firsts = _gaps(judged)
    # Where steps are inferred, a step begins with its first launch, and the gap lies at the end of the step before.
    idle = covered(judged.idle, *gaps) if judged.count else np.empty(0, np.int64)
    if len(idle) < max(judged.count - 1, 1):
        return None
    typical = int(np.median(idle))
    wait = judged.host_within(gaps)
    gone = change(judged, wait, typical, ctx.threshold("handover_ns"))
    if typical < ctx.threshold("unmarked_gap_ns") or gain(judged, gone) < ctx.threshold("unmarked_share"):
        return None
    if _something_else(ctx.run, judged, gaps):
        return None
    copied = _copy_follows(ctx.run, judged, firsts)
    then = " and then copies to the GPU" if copied else ""
    return Draft(
        title=f"The host spends {time_text(typical)} between steps outside CUDA calls{then}: most often this is data loading",
        confidence="low",
        edits=edits_of(ctx.run, [(one, _gaps(one)[0]) for one in steadies(ctx.run)]),
        change=gone,
        subject=["between steps"],
        facts={"gap_ns": typical, "loader_ns": wait, "gpu_idle_ns": typical, "copy_follows": copied},
        evidence=[evidence(judged, gaps, "Host time without CUDA calls at the begin of steady steps")],
        locations=locations(ctx.run, _keys(ctx.run, judged, firsts), (gaps[0] + gaps[1]) // 2),
        scope={"ranks": [judged.step.rank]} if judged.step.rank >= 0 else {},
        caveats=[
            "Nothing in the recording tells the loader from other work of the host. A record_function or NVTX range around "
            "next(batch) would."
        ],
    )


def _something_else(run: Run, judged: Steady, gaps: IntervalSet) -> bool:
    """Whether Python frames were recorded and show no loader in most of the gaps: then python-gap names what it is."""
    frames = run.table("python_frames")
    mine = (frames["rank"] == judged.step.rank) & (frames["process"] == judged.step.process)
    mine &= np.isin(thread_keys(frames), driving_threads(run))
    if not mine.any():
        return False
    rows = np.flatnonzero(mine & np.isin(frames["name"], matching_codes(run, frames["name"], _LOADER_FRAMES)))
    loading = intersect(union(frames["start"][rows], frames["end"][rows]), gaps)
    return length(loading) < 0.5 * length(gaps)


def _gaps(judged: Steady) -> tuple[IntervalSet, np.ndarray]:
    """The segment before the first CUDA call of each ordinary step, and the positions of those calls."""
    side = judged.side
    first = np.flatnonzero((judged.at >= 0) & np.concatenate(([True], judged.at[1:] != judged.at[:-1])))
    first = first[side.before[first] > 0]
    return union(side.start[first] - side.before[first], side.start[first]), first


def _keys(run: Run, judged: Steady, firsts: np.ndarray) -> np.ndarray:
    return thread_keys(run.table("runtime_calls"))[judged.side.call[firsts]]


def _copy_follows(run: Run, judged: Steady, firsts: np.ndarray) -> bool:
    """Whether the GPU's first work after most gaps is a copy from the host."""
    work, copies = gpu_work(run), run.table("copies")
    mine = np.flatnonzero((work.rank == judged.step.rank) & (work.process == judged.step.process))
    after = np.searchsorted(work.start[mine], judged.side.start[firsts])
    after = mine[np.minimum(after, len(mine) - 1)]
    is_copy = work.source[after] == COPY
    to_device = np.zeros(len(after), bool)
    to_device[is_copy] = copies["kind"][work.row[after[is_copy]]] == int(CopyKind.HOST_TO_DEVICE)
    return bool(len(after)) and float(to_device.mean()) > 0.5
