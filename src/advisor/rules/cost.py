"""What findings are worth in money: the share of the step that each saves, of what the job's GPUs cost a day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.derive.gpus import gpu_work
from advisor.derive.health import device_health
from advisor.model import Finding, Run, Saving

HOURS = 24


def priced(run: Run, findings: Sequence[Finding], combined: Saving | None, step_ns: int) -> dict[str, Any]:
    """Fills `cost_per_day` of the findings; returns the report's "cost" object. Nothing without a price of the GPU hour.

    A job that runs all day spends the saved share of its price for nothing. The unit is that of the price.
    """
    price = run.options.gpu_hour_cost
    if price is None:
        return {}
    gpus = gpus_of(run)
    day = price * HOURS * gpus if gpus else None

    def share(saving: Saving | None) -> float | None:
        if saving is None or day is None or step_ns <= 0:
            return None
        return round(day * saving.expected_ns / step_ns, 2)

    for finding in findings:
        finding.cost_per_day = share(finding.saving)
    return {
        "cost": {
            "gpu_hour": price,
            "gpus": gpus,
            "per_day": None if day is None else round(day, 2),
            "combined_per_day": share(combined),
        }
    }


def gpus_of(run: Run) -> int | None:
    """GPUs of the whole job: those that worked, and as many for each rank that was not recorded; None if none are known."""
    used = len(gpu_work(run).gpus)
    if used:
        recorded = max(len({gpu.rank for gpu in gpu_work(run).gpus}), 1)
        return max(used, round(used / recorded * run.world_size)) if run.world_size else used
    working = sum(health.busy_samples > 0 for health in device_health(run))
    return max(working, run.world_size or 0) or None
