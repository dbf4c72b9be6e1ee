"""What the samples say of each GPU, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.model import Report
from advisor.report import text as t

COLUMNS = ["GPU", "samples", "under load", "utilisation", "memory", "power", "hottest", "SM clock"]
MOST_ROWS = 16


def gpu_rows(report: Report) -> list[list[str]]:
    """A row of texts a sampled GPU, under `COLUMNS`; empty without samples."""
    samples = report.extra.get("gpu_samples")
    if not isinstance(samples, (list, tuple)):
        return []
    return [_row(one) for one in samples if isinstance(one, Mapping)]


def _row(one: Mapping[str, Any]) -> list[str]:
    return [
        str(one.get("device")) if one.get("device") is not None else "",
        f"{one.get('samples', 0):,}",
        f"{one.get('busy_samples', 0):,}",
        _of(one.get("utilization_percent"), None, "%"),
        " of ".join(t.size(one[key]) for key in ("memory_used_bytes", "memory_total_bytes") if one.get(key)),
        _of(one.get("power_w"), one.get("power_limit_w"), "W"),
        _of(one.get("temperature_max_c"), None, "C"),
        _of(one.get("sm_clock_mhz"), one.get("sm_clock_max_mhz"), "MHz"),
    ]


def _of(value: float | None, most: float | None, unit: str) -> str:
    if value is None:
        return ""
    return (
        f"{t.significant(value, 3)} {unit}" if most is None else f"{t.significant(value, 3)} of {t.significant(most, 3)} {unit}"
    )
