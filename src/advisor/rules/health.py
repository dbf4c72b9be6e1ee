"""What runs well, and how near the limits of the device: printed for every run, the only news of a healthy one."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.breakdown import breakdown
from advisor.derive.collectives import collectives
from advisor.derive.gpus import main_device
from advisor.derive.roofline import traffic, utilisation
from advisor.derive.sequence import sequence
from advisor.model import Run
from advisor.model.device_table import spec_of
from advisor.rules.pace import Pace

# From these shares of a limit on, nothing near is to be gained there: large GEMMs of vendors' libraries reach 0.6 to 0.8 of the
# dense peak, streaming kernels 0.8 to 0.92 of the bandwidth, and models that report a utilisation above 0.4 are well tuned.
_GOOD = {
    "gpu-busy": 0.95,
    "model-flops-utilisation": 0.4,
    "matrix-kernels": 0.6,
    "streaming-kernels": 0.7,
    "communication-hidden": 0.95,
}
# Pointwise kernels with known bytes must make up this much of the step before their rate says something.
_LEAST_SHARE = 0.02
_GPU_BOUND = 0.98
# A GPU that idles for most of the step is told by the breakdown and the findings.
_BUSY_ENOUGH = 0.5
# Peaks of wider types are no limit of the device where its tensor cores take these.
_NARROW = ("fp16", "bf16", "fp8", "int8")


def good_news(run: Run, pace: Pace) -> list[dict[str, Any]]:
    """One entry a limit: id, text for people, value and limit in `unit`, share_frac = value / limit, good.

    Empty without steps. What the recording cannot tell is left out; shapes may come from the fuller recording of the run.
    """
    if pace.step is None or pace.step.step_ns <= 0 or not len(sequence(run)):
        return []
    return [*_busy(pace), *_host(pace), *_matrix(run, pace), *_streaming(run, pace), *_communication(run)]


def _entry(id_: str, text: str, value: float, limit: float, unit: str) -> dict[str, Any]:
    share = min(value / limit, 1.0) if limit else 0.0
    return {
        "id": id_,
        "text": text,
        "value": round(value),
        "limit": round(limit),
        "unit": unit,
        "share_frac": round(share, 4),
        "good": bool(share >= _GOOD.get(id_, 1.0)),
    }


def _busy(pace: Pace) -> list[dict[str, Any]]:
    step = pace.step
    assert step is not None
    if step.gpu_ns < _BUSY_ENOUGH * step.step_ns:
        return []
    text = f"the GPU has work for {step.gpu_ns / step.step_ns:.0%} of the step"
    return [_entry("gpu-busy", text, step.gpu_ns, step.step_ns, "ns")]


def _host(pace: Pace) -> list[dict[str, Any]]:
    """How far ahead the host is, where the GPU sets the pace."""
    step = pace.step
    assert step is not None
    if step.gpu_ns < _GPU_BOUND * step.step_ns or not 0.01 * step.step_ns < step.host_ns < step.gpu_ns:
        return []
    spare = step.step_ns - step.host_ns
    text = f"the host needs {step.host_ns / step.step_ns:.0%} of the step and stays ahead of the GPU"
    return [{**_entry("host-ahead", text, spare, step.step_ns, "ns"), "good": True}]


def _matrix(run: Run, pace: Pace) -> list[dict[str, Any]]:
    used = utilisation(run) or (utilisation(run.fuller) if run.fuller is not None else None)
    if used is None or pace.step is None:
        return []
    rate = used.flops / (pace.step.step_ns * 1e-9)
    dtype, peak = used.dtype.upper(), f"{used.peak / 1e12:.3g} TFLOP/s"
    whole = f"the model's matrix work is {rate / 1e12:.3g} of {peak} ({dtype}, dense): {rate / used.peak:.0%} MFU"
    kernels = f"matrix kernels run at {used.rate / 1e12:.3g} TFLOP/s, {used.matrix_share:.0%} of the {dtype} peak"
    entries = [
        _entry("model-flops-utilisation", whole, rate, used.peak, "FLOP/s"),
        _entry("matrix-kernels", kernels, used.rate, used.peak, "FLOP/s"),
    ]
    return [{**entry, "good": entry["good"] and used.dtype in _NARROW} for entry in entries]


def _streaming(run: Run, pace: Pace) -> list[dict[str, Any]]:
    source = run if not np.isnan(traffic(run)).all() or run.fuller is None else run.fuller
    found, moved, device = sequence(source), traffic(source), main_device(source)
    spec = spec_of(device) if device else None
    known = ~np.isnan(moved)
    spent = int(found.gpu_ns[known].sum())
    if spec is None or pace.step is None or spent < _LEAST_SHARE * pace.step.step_ns * max(found.steps, 1):
        return []
    rate = float(moved[known].sum()) / (spent * 1e-9)
    if rate > spec.memory_bandwidth:  # served by the L2 cache, or broadcast inputs
        return []
    share = rate / spec.memory_bandwidth
    text = f"pointwise kernels move {rate / 1e12:.2g} of {spec.memory_bandwidth / 1e12:.2g} TB/s, {share:.0%} of the bandwidth"
    return [_entry("streaming-kernels", text, rate, spec.memory_bandwidth, "bytes/s")]


def _communication(run: Run) -> list[dict[str, Any]]:
    """That communication is hidden, in runs that communicate; where it is not, findings say what of it counts."""
    if not len(collectives(run)):
        return []
    parts = [part for part in breakdown(run) if part.step_ns > 0]
    if not parts:
        return []
    worst = max(parts, key=lambda part: part.exposed_communication_ns / part.step_ns)
    free = worst.step_ns - worst.exposed_communication_ns
    text = f"communication that nothing hides takes {1 - free / worst.step_ns:.1%} of the recorded step"
    entry = _entry("communication-hidden", text, free, worst.step_ns, "ns")
    return [entry] if entry["good"] else []
