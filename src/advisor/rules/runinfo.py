"""The report's "run" object: what was read and how long its steps take."""

from __future__ import annotations

from typing import Any

from advisor.derive.bounds import TwoSided
from advisor.derive.gpus import gpu_work
from advisor.derive.steps import step_time, steps
from advisor.model import Device, Run
from advisor.model.report import fraction


def run_info(run: Run, step: TwoSided | None) -> dict[str, Any]:
    """The contract's "run" object."""
    return {
        "sources": [
            {"path": trace.path, "format": trace.format, "format_version": trace.format_version, "rank": trace.rank}
            for trace in [*run.traces, *(run.fuller.traces if run.fuller else [])]
        ],
        "ranks": list(run.ranks),
        "world_size": run.world_size,
        "devices": [_device(device) for device in run.devices],
        "steps": _steps(run, step),
        "replay": {"error_frac": None, "basis": "bound"} if step else None,
        "window_ns": _window(run),
        "profiler_overhead": _overhead(run, step),
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "rank": device.rank,
        "index": device.index,
        "name": device.name,
        "compute_capability": device.capability_text,
        "sm_count": device.sm_count,
        "memory_bytes": device.memory_bytes,
    }


def _steps(run: Run, step: TwoSided | None) -> dict[str, Any] | None:
    """None without a trace. p10 and p90 are recorded ones, brought to the time without the profiler like the median."""
    if step is None:
        return None
    recorded = step_time(run)
    if recorded is None:
        return {
            "count": 0,
            "source": "none",
            "median_ns": step.step_ns,
            "recorded_median_ns": _window(run),
            "p10_ns": None,
            "p90_ns": None,
        }
    ratio = step.step_ns / recorded.step_ns if recorded.step_ns else 1.0
    found = steps(run)
    mine = found.of(recorded.rank, recorded.process)
    return {
        "count": len(mine),
        "source": found.source,
        "median_ns": step.step_ns,
        "recorded_median_ns": recorded.step_ns,
        "p10_ns": round(recorded.p10_ns * ratio),
        "p90_ns": round(recorded.p90_ns * ratio),
    }


def _window(run: Run) -> int | None:
    """From the first step's begin to the last one's end; without steps the span of all GPU work."""
    found = steps(run)
    if len(found):
        return int(found.end.max() - found.start.min())
    work = gpu_work(run)
    return int(work.end.max() - work.start.min()) if len(work) else None


def _overhead(run: Run, step: TwoSided | None) -> dict[str, Any]:
    recorded = step_time(run)
    frac = fraction(recorded.step_ns - step.step_ns, recorded.step_ns) if recorded and step else None
    return {
        "stacks": run.capture.stacks,
        "shapes": run.capture.shapes,
        "memory": run.capture.memory,
        "estimated_frac": None if frac is None else max(frac, 0.0),
    }
