"""What the samples say of each GPU, as plain data: of use above all where there is no trace."""

from __future__ import annotations

from typing import Any

from advisor.derive.health import device_health
from advisor.model import Run


def gpu_samples(run: Run) -> list[dict[str, Any]]:
    """One entry a sampled GPU. Means and peaks are of the samples under load; None: not recorded, or never under load."""
    return [
        {
            "device": one.device if one.device >= 0 else None,
            "name": one.name or None,
            "samples": one.samples,
            "busy_samples": one.busy_samples,
            "busy_span_s": round(one.span_s, 3),
            "utilization_percent": _rounded(one.utilization),
            "memory_used_bytes": one.memory_used_max,
            "memory_total_bytes": one.memory_total,
            "power_w": _rounded(one.power),
            "power_limit_w": _rounded(one.power_limit),
            "temperature_max_c": _rounded(one.temperature_max),
            "sm_clock_mhz": _rounded(one.sm_clock),
            "sm_clock_max_mhz": _rounded(one.sm_clock_max),
        }
        for one in device_health(run)
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
