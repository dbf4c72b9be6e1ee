"""The state of the GPUs while they worked, from their samples: utilisation, clocks, power, heat, throttling."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from advisor.model import Run, Table, ThrottleReason

# A sample counts as busy from this utilisation on; a GPU that does nothing lowers its clocks and its link by design.
BUSY_UTILIZATION = 5.0
# Gaps longer than this many usual intervals are pauses of the logger, not time that a sample speaks for.
_LONGEST_GAP = 10


@dataclass(frozen=True)
class DeviceHealth:
    """One GPU over the samples in which it was busy. Clocks in MHz, power in W, temperature in C; None: not recorded.

    samples, busy_samples: counts; span_s: from first to last busy sample; utilization: mean % over that span, idle samples
    between busy ones included; clock_ratio: mean SM clock over its maximum; reasons: for each ThrottleReason the share of
    busy time in which it held; violation: mean % of time below the asked clock because of power and of heat.
    """

    device: int
    uuid: str
    name: str
    samples: int
    busy_samples: int
    span_s: float
    interval_s: float
    utilization: float | None
    sm_clock: float | None
    sm_clock_max: float | None
    clock_ratio: float | None
    power: float | None
    power_limit: float | None
    temperature_max: float | None
    memory_used_max: int | None
    memory_total: int | None
    pcie_generation: int | None
    pcie_generation_max: int | None
    pcie_width: int | None
    pcie_width_max: int | None
    ecc_uncorrected: int | None
    reasons: dict[ThrottleReason, float] = field(default_factory=dict)
    power_violation: float | None = None
    thermal_violation: float | None = None


def device_health(run: Run) -> list[DeviceHealth]:
    """One entry a sampled GPU, in order of index; GPUs are told apart by UUID where there is one."""
    return run.derived(_device_health)


def _device_health(run: Run) -> list[DeviceHealth]:
    samples = run.table("device_samples")
    if not len(samples):
        return []
    keys = np.stack([samples["device"].astype(np.int64), samples["uuid"].astype(np.int64)])
    distinct, owner = np.unique(keys, axis=1, return_inverse=True)
    return [_one(run, samples.take(np.flatnonzero(owner.reshape(-1) == i))) for i in range(distinct.shape[1])]


def _one(run: Run, rows: Table) -> DeviceHealth:
    utilization = rows["utilization"]
    busy = np.nan_to_num(utilization, nan=100.0) >= BUSY_UTILIZATION
    time = rows["time"]
    interval = float(np.median(np.diff(time))) if len(rows) > 1 else 0.0
    weight = _weights(time, interval)
    where = np.flatnonzero(busy)
    between = slice(int(where[0]), int(where[-1]) + 1) if len(where) else slice(0, 0)
    clock, highest = _mean(rows["sm_clock"], busy, weight), _top(rows["sm_clock_max"])
    return DeviceHealth(
        device=int(rows["device"][0]),
        uuid=run.strings[int(rows["uuid"][0])],
        name=run.strings[int(rows["name"][0])],
        samples=len(rows),
        busy_samples=len(where),
        span_s=float(time[where[-1]] - time[where[0]]) * 1e-9 if len(where) else 0.0,
        interval_s=interval * 1e-9,
        utilization=_mean(utilization[between], np.ones(len(utilization[between]), bool), weight[between]),
        sm_clock=clock,
        sm_clock_max=highest,
        clock_ratio=clock / highest if clock is not None and highest else None,
        power=_mean(rows["power"], busy, weight),
        power_limit=_top(rows["power_limit"]),
        temperature_max=_top(rows["temperature"][busy]),
        memory_used_max=_top_int(rows["memory_used"]),
        memory_total=_top_int(rows["memory_total"]),
        pcie_generation=_top_int(rows["pcie_generation"][busy]),
        pcie_generation_max=_top_int(rows["pcie_generation_max"]),
        pcie_width=_top_int(rows["pcie_width"][busy]),
        pcie_width_max=_top_int(rows["pcie_width_max"]),
        ecc_uncorrected=_top_int(rows["ecc_uncorrected"]),
        reasons=_reasons(rows, busy, weight),
        power_violation=_mean(rows["power_violation"], busy, weight),
        thermal_violation=_mean(rows["thermal_violation"], busy, weight),
    )


def _weights(time: npt.NDArray[np.int64], interval: float) -> npt.NDArray[np.float64]:
    """How long each sample speaks for: until the next one, at most a few usual intervals."""
    if len(time) < 2 or interval <= 0:
        return np.ones(len(time))
    ahead = np.append(np.diff(time), interval)
    return np.clip(ahead.astype(float), 0.0, _LONGEST_GAP * interval)


def _mean(values: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> float | None:
    chosen = mask & ~np.isnan(values)
    if not chosen.any() or not weight[chosen].sum():
        return None
    return float(np.average(values[chosen].astype(float), weights=weight[chosen]))


def _top(values: npt.NDArray[np.float32]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None


def _top_int(values: npt.NDArray[np.int64]) -> int | None:
    known = values[values >= 0]
    return int(known.max()) if len(known) else None


def _reasons(rows: Table, busy: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> dict[ThrottleReason, float]:
    known = busy & rows.known("throttle_reasons")
    total = float(weight[known].sum())
    if not total:
        return {}
    bits = rows["throttle_reasons"][known]
    return {reason: float(weight[known][(bits & int(reason)) > 0].sum()) / total for reason in ThrottleReason}
