"""The report's "run" object: what was read and how long its steps take."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.bounds import TwoSided
from advisor.derive.capture import capture_quality
from advisor.derive.gpus import gpu_work
from advisor.derive.steps import Steps, paced_times, step_time, steps
from advisor.derive.unprofiled import unprofiled_step
from advisor.model import Device, Notice, Run
from advisor.replay.engine import MOST_ERROR
from advisor.rules.measured import measured
from advisor.rules.pace import Pace
from advisor.rules.plain import plain_text
from advisor.rules.program import program_info

_TRACED = ("runtime_calls", "host_ops", "ranges", "python_frames")  # what only a trace holds
MOST_SAMPLES = 200  # step times in a report: enough for an interval, and a report stays small
_FEW_STEPS = 3
_STALLED = 2.0  # a long step against a short one from which on their alternation is told
_REGULAR = 0.8  # share of equal distances between long steps
_SLOWED = 0.05  # share of the recorded step that the profiler added


def run_info(run: Run, paced: Pace) -> dict[str, Any]:
    """The contract's "run" object."""
    step = paced.step
    # Device logs belong to both recordings of a run: each file once.
    traces = {id(trace): trace for trace in [*run.traces, *(run.fuller.traces if run.fuller else [])]}
    return {
        "sources": [
            {"path": trace.path, "format": trace.format, "format_version": trace.format_version, "rank": trace.rank}
            for trace in traces.values()
        ],
        "ranks": list(run.ranks),
        "world_size": run.world_size,
        "devices": [_device(device) for device in run.devices],
        "steps": _steps(run, step),
        "replay": _replay(paced),
        "window_ns": _window(run),
        "profiler_overhead": _overhead(run, step),
        "program": program_info(run),
        "measured": measured(run),
    }


def _replay(paced: Pace) -> dict[str, Any] | None:
    if paced.step is None:
        return None
    error = None if paced.error is None else round(paced.error, 6)
    return {"error_frac": error, "basis": "replay" if paced.replay else "bound"}


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
    recorded = step_time(run)
    if step is None or recorded is None:
        return None
    ratio = step.step_ns / recorded.step_ns if recorded.step_ns else 1.0
    found = steps(run)
    own = found.of(recorded.rank, recorded.process)
    return {
        "count": len(own),
        "source": found.source,
        "median_ns": step.step_ns,
        "recorded_median_ns": recorded.step_ns,
        "p10_ns": round(recorded.p10_ns * ratio),
        "p90_ns": round(recorded.p90_ns * ratio),
        "paced_by": "gpu" if step.gpu_bound else "host",
        **_samples(found, recorded.rank, recorded.process),
        **_timed(run),
        **_stalls(found, own[found.steady[own]]),
    }


def _samples(found: Steps, rank: int, process: int) -> dict[str, Any]:
    """The steady steps one by one, as recorded; of many the means of so many consecutive ones each (batch means)."""
    times = paced_times(found, rank, process)
    if found.source == "none":
        return {"samples_ns": [], "steps_per_sample": 1}
    size = max(-(-len(times) // MOST_SAMPLES), 1)
    whole = times[: len(times) // size * size].reshape(-1, size)
    return {"samples_ns": [int(one) for one in whole.mean(axis=1)], "steps_per_sample": size}


def _timed(run: Run) -> dict[str, Any]:
    """The step as the program's hook timed it outside windows: then `median_ns` is no estimate."""
    timed = unprofiled_step(run)
    if timed is None:
        return {}
    return {"timed": {"median_ns": timed.step_ns, "p10_ns": timed.low_ns, "p90_ns": timed.high_ns, "count": timed.steps}}


def _stalls(found: Steps, own: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Steps that come back regularly and take much longer than those between: how often, and the medians, as recorded."""
    # Seen on one side: the longer of both in each step would make the short ones long.
    periods = found.gpu_period[own]
    taken = periods if (periods > 0).all() else (found.end - found.start)[own]
    if len(taken) < 2 * _FEW_STEPS:
        return {}
    low, high = (float(np.quantile(taken, share)) for share in (0.1, 0.9))
    long = taken > (low + high) / 2
    places = np.flatnonzero(long)
    if high < _STALLED * low or len(places) < _FEW_STEPS:
        return {}
    every, times = np.unique(np.diff(places), return_counts=True)
    best = int(times.argmax())
    if every[best] < 2 or times[best] < _REGULAR * times.sum():
        return {}
    middle = (int(np.median(taken[mask])) for mask in (long, ~long))
    return {"stalls": {"every": int(every[best]), **dict(zip(("long_ns", "short_ns"), middle, strict=True))}}


def _window(run: Run) -> int | None:
    """From the first step's begin to the last one's end."""
    found = steps(run)
    return int(found.end.max() - found.start.min()) if len(found) else None


def _overhead(run: Run, step: TwoSided | None) -> dict[str, Any]:
    return {
        "stacks": run.capture.stacks,
        "shapes": run.capture.shapes,
        "memory": run.capture.memory,
        "estimated_frac": round(step.profiler_share, 4) if step else None,
    }


def run_notices(run: Run, paced: Pace) -> list[Notice]:
    """What limits the judgement of this run, beyond what the readers said."""
    notices, step = [], paced.step
    if paced.error is not None and paced.replay is None and paced.error > MOST_ERROR:
        text = f"replayed unchanged, the recorded steps come out {paced.error:.0%} off: savings are bounds instead"
        notices.append(Notice("replay-inexact", text))
    if paced.fault is not None:
        text = f"the steps could not be replayed ({plain_text(paced.fault)}): savings are bounds instead"
        notices.append(Notice("replay-failed", text))
    if not len(gpu_work(run)):
        if any(len(run.table(name)) for name in _TRACED) and not any(n.code == "no-gpu-work" for n in run.notices):
            text = (
                "no GPU work was recorded; record it with ProfilerActivity.CUDA in torch.profiler, or nsys profile -t cuda,nvtx"
            )
            notices.append(Notice("no-gpu-work", text))
        return notices
    quality = capture_quality(run)
    if quality.source == "none":
        text = (
            "no step is marked and the kernels show no period: all GPU work counts as one step (--step-pattern tells the steps)"
        )
        notices.append(Notice("no-steps", text))
    elif quality.steady < _FEW_STEPS:
        notices.append(Notice("few-steps", f"only {quality.steady} steady steps were recorded; record at least {_FEW_STEPS}"))
    if quality.hitches:
        text = f"{quality.hitches} of {quality.steps} steps were held up by the profiler itself and are left out"
        notices.append(Notice("profiler-hitches", text))
    if quality.incomplete:
        notices.append(Notice("steps-incomplete", f"{quality.incomplete} steps lost GPU records and are left out"))
    if step and step.profiler_share >= _SLOWED and quality.source != "none":
        without = "without the profiler an estimated" if unprofiled_step(run) is None else "outside the recording"
        text = f"recording slowed the host: a step took {step.recorded_ns / 1e6:.1f} ms, {without} {step.step_ns / 1e6:.1f} ms"
        notices.append(Notice("profiler-slows-host", text))
    return notices
