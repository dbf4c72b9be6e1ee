"""GPUs while they worked, from samples."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.derive.health import DeviceHealth, device_health
from advisor.model import Run, ThrottleReason
from build.workload import Workload, ns

SECOND = 1_000_000.0  # us


def log(rows: list[dict[str, Any]], seconds: list[float] | None = None, device: int = 0, w: Workload | None = None) -> Workload:
    """Samples of one GPU, one a second or at the given seconds."""
    w = w or Workload(closing_sync=False)
    for i, row in enumerate(rows):
        w.now = ns((seconds[i] if seconds else i) * SECOND)
        w.sample(device, **{"uuid": f"GPU-{device}", **row})
    return w


def only(w: Workload) -> DeviceHealth:
    (found,) = device_health(w.to_run())
    return found


def test_only_busy_samples_tell_about_clocks_heat_and_power() -> None:
    busy = {"utilization": 90, "sm_clock": 1500, "sm_clock_max": 2000, "power": 300, "temperature": 70, "memory_used": 5}
    idle = {"utilization": 0, "sm_clock": 210, "sm_clock_max": 2000, "power": 60, "temperature": 95, "memory_used": 9}
    found = only(log([idle, busy, idle, {**busy, "sm_clock": 1700}, idle, idle]))
    assert (found.samples, found.busy_samples, found.span_s, found.interval_s) == (6, 2, 2.0, 1.0)
    assert (found.sm_clock, found.sm_clock_max, found.clock_ratio) == (1600, 2000, 0.8)
    assert (found.power, found.temperature_max, found.memory_used_max) == (300, 70, 9)
    # Between the first and the last busy sample the GPU was idle once.
    assert found.utilization == pytest.approx(60)


def test_a_sample_speaks_until_the_next_one_but_not_through_a_pause() -> None:
    rows = [{"utilization": u} for u in (100, 100, 20, 100, 100)]
    assert only(log(rows)).utilization == pytest.approx(84)
    # The third sample speaks for 4 of 7 seconds; a pause of the logger of 1000 s counts as ten intervals.
    assert only(log(rows, [0, 1, 2, 6, 7])).utilization == pytest.approx((4 * 100 + 4 * 20) / 8)
    assert only(log(rows, [0, 1, 2, 1002, 1003])).utilization == pytest.approx((4 * 100 + 10 * 20) / 14)


def test_the_threshold_of_work() -> None:
    assert only(log([{"utilization": u} for u in (4, 5, 6, 4)])).busy_samples == 2


def test_without_utilisation_every_sample_counts() -> None:
    found = only(log([{"sm_clock": 1000}, {"sm_clock": 2000}]))
    assert (found.busy_samples, found.sm_clock, found.utilization, found.clock_ratio) == (2, 1500, None, None)


def test_reasons_are_shares_of_busy_time() -> None:
    cap, hot = int(ThrottleReason.SW_POWER_CAP), int(ThrottleReason.HW_THERMAL)
    rows = [{"utilization": 100, "throttle_reasons": r} for r in (cap, cap | hot, 0, cap)]
    rows += [{"utilization": 0, "throttle_reasons": hot}] * 3 + [{"utilization": 100}]
    found = only(log(rows))
    assert found.reasons[ThrottleReason.SW_POWER_CAP] == pytest.approx(3 / 4)
    assert found.reasons[ThrottleReason.HW_THERMAL] == pytest.approx(1 / 4)
    assert found.reasons[ThrottleReason.SW_THERMAL] == 0
    assert only(log([{"utilization": 100}])).reasons == {}


def test_links_are_judged_under_load_only() -> None:
    idle = {"utilization": 0, "pcie_generation": 1, "pcie_width": 16, "pcie_generation_max": 5, "pcie_width_max": 16}
    busy = {**idle, "utilization": 90, "pcie_generation": 5, "pcie_width": 8}
    found = only(log([idle, busy, idle]))
    assert (found.pcie_generation, found.pcie_generation_max, found.pcie_width, found.pcie_width_max) == (5, 5, 8, 16)
    assert only(log([idle])).pcie_generation is None


def test_gpus_are_told_apart_by_uuid() -> None:
    w = log([{"utilization": 50}] * 3, device=1)
    log([{"utilization": 90}] * 3, device=0, w=w)
    log([{"utilization": 70, "uuid": "GPU-other-machine"}] * 2, device=0, w=w)
    found = device_health(w.to_run())
    assert sorted((h.device, h.uuid, h.samples, h.utilization) for h in found) == [
        (0, "GPU-0", 3, 90), (0, "GPU-other-machine", 2, 70), (1, "GPU-1", 3, 50),
    ]  # fmt: skip
    assert [h.device for h in found] == [0, 0, 1]


def test_a_gpu_that_never_worked() -> None:
    found = only(log([{"utilization": 0, "sm_clock": 210, "sm_clock_max": 2000}] * 3))
    assert (found.busy_samples, found.span_s, found.utilization, found.sm_clock, found.clock_ratio) == (0, 0, None, None, None)


def test_one_sample_and_none() -> None:
    found = only(log([{"utilization": 80, "power": 100, "power_limit": 700, "ecc_uncorrected": 2}]))
    assert (found.interval_s, found.span_s, found.power, found.power_limit, found.ecc_uncorrected) == (0, 0, 100, 700, 2)
    assert only(log([{"utilization": 80, "ecc_uncorrected": 0}])).ecc_uncorrected == 0
    assert device_health(Run()) == []


def test_samples_at_one_moment_weigh_the_same() -> None:
    found = only(log([{"utilization": 100}, {"utilization": 50}], [1, 1]))
    assert found.utilization == 75


def test_violations() -> None:
    found = only(log([{"utilization": 100, "power_violation": 30, "thermal_violation": 0}] * 4))
    assert (found.power_violation, found.thermal_violation) == (30, 0)
