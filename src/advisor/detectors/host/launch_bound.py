"""The host cannot issue work as fast as the GPU finishes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import loader_ranges
from advisor.derive.attribution import calls_in_ranges, matching_codes, op_of_call
from advisor.derive.calls import LAUNCHES, SYNCS, CallKind
from advisor.derive.host import HostSide, host_sides
from advisor.derive.intervals import covered, union
from advisor.derive.steady import Steady, steady
from advisor.detectors.words import time_text
from advisor.model import Evidence, Run
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

_COMPILED = r"^Torch-Compiled Region|CompiledFxGraph|^CompiledFunction"
_OPTIMIZER = r"^Optimizer\.(step|zero_grad)#"
_STACKS = "record without Python stacks (with_stack=False)"


@dataclass(frozen=True)
class Parts:
    """Host work of an ordinary step without waits and without what the profiler added, by what it is for, ns.

    capture: operators and launches that a CUDA graph or compiled code would take over; the rest stays.
    launches: launch calls per step; launch_rows: their positions in `Steady.side`; captured: the calls, a mask over
    `runtime_calls`, which with the segments before them make up `capture`.
    """

    capture: int
    optimizer: int
    loader: int
    pauses: int
    graphs: int
    other: int
    launches: float
    launch_rows: npt.NDArray[np.int64]
    captured: npt.NDArray[np.bool_]

    @property
    def issuing(self) -> int:
        return self.capture + self.optimizer + self.graphs + self.other


def detect(ctx: Context) -> Draft | None:
    judged = steady(ctx.run)
    if judged is None:
        raise NotApplicable("the input holds no steps with CUDA calls and GPU work")
    if judged.side.launches_block:
        raise NotApplicable(
            "launches wait for their kernels, so nothing tells what issuing alone costs",
            "unset CUDA_LAUNCH_BLOCKING and record again",
        )
    parts = _parts(ctx.run, judged, ctx.threshold("pause_ns"))
    step = judged.step
    idle = max(parts.issuing - step.gpu_ns, 0) / max(step.step_ns, 1)
    kernel_ns = _median_kernel(ctx.run, judged)
    few = parts.launches < ctx.threshold("least_launches")
    if few or idle < ctx.threshold("idle_share") or kernel_ns > ctx.threshold("kernel_ns"):
        return None
    compiled = _compiled(ctx.run)
    frames = len(ctx.run.table("python_frames")) / max(judged.count, 1)
    if compiled and frames > ctx.threshold("frames_per_step"):
        raise NotApplicable("Python stacks slow compiled code by an amount that the recording does not tell", _STACKS)
    left, most_left = ctx.threshold("left_share"), ctx.threshold("most_left_share")
    gone = Change(
        host_ns=int(parts.capture * (1 - left)),
        limit_ns=int(parts.capture * (1 - ctx.threshold("least_left_share"))),
    )
    each = int(parts.issuing / parts.launches) if parts.launches else 0
    draft = Draft(
        title=f"The GPU is idle {idle:.0%} of the time because launches come too slowly: {parts.launches:.0f} {judged.per}, "
        f"median kernel {time_text(kernel_ns)}",
        confidence="low" if judged.unmarked else "medium",
        edits=[Edit(calls=parts.captured, host=Factor(most_left, left, ctx.threshold("least_left_share")))],
        change=gone,
        subject=["launches"],
        facts={
            "launches_per_step": round(parts.launches),
            "median_kernel_ns": kernel_ns,
            "host_per_launch_ns": each,
            "idle_frac": round(idle, 4),
            "captured_ns": parts.capture,
            "host_ns": parts.issuing,
            "gpu_ns": step.gpu_ns,
        },
        evidence=[_by_part(judged, parts), _by_operator(ctx.run, judged, parts)],
        scope={"ranks": [step.rank]} if step.rank >= 0 else {},
    )
    if parts.graphs or compiled:
        draft.confidence = "low"
        draft.caveats.append(
            f"{'CUDA graphs are' if parts.graphs else 'Compiled code is'} in use already: {time_text(parts.capture)} a step "
            f"of issuing lie outside, and {time_text(parts.issuing - parts.capture)} stay."
        )
    return draft


@dataclass(frozen=True)
class _Groups:
    """Masks over the calls of a host side, each call with the segment before it; `pause`: that segment is a long one."""

    loading: npt.NDArray[np.bool_]
    optimizer: npt.NDArray[np.bool_]
    graphs: npt.NDArray[np.bool_]
    stays: npt.NDArray[np.bool_]
    pause: npt.NDArray[np.bool_]

    @property
    def captured(self) -> npt.NDArray[np.bool_]:
        return ~self.loading & ~self.optimizer & ~self.graphs & ~self.stays


def _groups(run: Run, side: HostSide, pause_ns: float) -> _Groups:
    ranges = run.table("ranges").take(loader_ranges(run))
    own = (ranges["rank"] == side.rank) & (ranges["process"] == side.process)
    loader_set = union(ranges["start"][own], ranges["end"][own])
    loading = covered(loader_set, side.start - side.before, side.start) > side.before // 2
    return _Groups(
        loading=loading,
        optimizer=calls_in_ranges(run, _OPTIMIZER)[side.call],
        graphs=side.kind == CallKind.GRAPH_LAUNCH,
        # Waits, allocations and copies from or to the host are no launches: no graph takes them over.
        stays=np.isin(side.kind, (*SYNCS, CallKind.MALLOC, CallKind.FREE, CallKind.COPY, CallKind.MODULE)),
        pause=(side.deflated_before >= pause_ns) & ~loading,
    )


def _parts(run: Run, judged: Steady, pause_ns: float) -> Parts:
    side, inside = judged.side, judged.at >= 0
    work, groups = side.deflated_before + side.deflated_own, _groups(run, side, pause_ns)
    launch = np.isin(side.kind, LAUNCHES) & inside
    gap_only = np.where(groups.pause, side.deflated_own, work)
    return Parts(
        capture=judged.each(gap_only, groups.captured),
        optimizer=judged.each(gap_only, groups.optimizer & ~groups.loading & ~groups.graphs & ~groups.stays),
        loader=judged.each(work, groups.loading),
        pauses=judged.each(side.deflated_before, groups.pause),
        graphs=judged.each(gap_only, groups.graphs & ~groups.loading),
        other=judged.each(gap_only, groups.stays & ~groups.loading & ~groups.graphs),
        launches=int(launch.sum()) / max(judged.count, 1),
        launch_rows=np.flatnonzero(launch),
        captured=_on_all_ranks(run, pause_ns),
    )


def _on_all_ranks(run: Run, pause_ns: float) -> npt.NDArray[np.bool_]:
    """The calls that a graph takes over on every rank; long segments before them stay."""
    mask = np.zeros(len(run.table("runtime_calls")), bool)
    for side in host_sides(run).values():
        groups = _groups(run, side, pause_ns)
        mask[side.call[groups.captured & ~groups.pause]] = True
    return mask


def _median_kernel(run: Run, judged: Steady) -> int:
    kernels = run.table("kernels")
    mine = (kernels["rank"] == judged.step.rank) & (kernels["process"] == judged.step.process)
    return int(np.median((kernels["end"] - kernels["start"])[mine])) if mine.any() else 0


def _compiled(run: Run) -> bool:
    """Whether compiled regions ran: marked as operators or ranges, or kernels of the code generator."""
    tables = (("host_ops", _COMPILED), ("ranges", _COMPILED), ("kernels", r"^triton_"))
    return any(len(matching_codes(run, run.table(name)["name"], pattern)) > 0 for name, pattern in tables)


def _by_part(judged: Steady, parts: Parts) -> Evidence:
    step = max(judged.step.step_ns, 1)
    rows: list[tuple[str, int]] = [
        ("operators and launches", parts.capture),
        ("optimizer", parts.optimizer),
        ("data loader", parts.loader),
        ("pauses without CUDA calls", parts.pauses),
        ("CUDA graph launches", parts.graphs),
        ("copies, waits and allocations", parts.other),
        ("GPU work", judged.step.gpu_ns),
    ]
    kept = [[name, ns, round(ns / step, 4)] for name, ns in rows if ns > 0]
    return Evidence("Host and GPU in a steady step, without the profiler", ["part", "per_step_ns", "step_frac"], kept)


def _by_operator(run: Run, judged: Steady, parts: Parts) -> Evidence:
    """Who launches most."""
    calls, ops, n = run.table("runtime_calls"), run.table("host_ops"), max(judged.count, 1)
    rows = judged.side.call[parts.launch_rows]
    if len(ops):
        op = op_of_call(run)[rows]
        names, column = np.where(op >= 0, ops["name"][np.maximum(op, 0)], -1), "operator"
    else:
        names, column = calls["name"][rows], "call"
    time = (judged.side.deflated_before + judged.side.deflated_own)[parts.launch_rows]
    distinct, group = np.unique(names, return_inverse=True)
    count, spent = np.bincount(group), np.bincount(group, weights=time)
    order = np.argsort(-count, kind="stable")[:7]
    table = [[run.strings[int(distinct[i])] or None, round(count[i] / n, 1), int(spent[i]) // n] for i in order]
    return Evidence("Launches per steady step", [column, "launches", "host_ns"], table)
