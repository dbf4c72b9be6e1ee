"""underfilled-gpu: SMs without a block while kernels run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model import Device
from build.judge import judge
from build.workload import H200, T4, Workload

RULE = "underfilled-gpu"


def loop(blocks: int, few_us: float, *, full_us: float = 1000, host_us: float = 5, device: Device = H200) -> Workload:
    """Each step: kernels that fill the GPU, and ten of so many blocks."""
    w = Workload(device=device)
    for _ in w.steps(5):
        w.host(host_us)
        w.launch("wide_kernel", full_us, grid=(1056, 1, 1))
        for _ in range(10):
            w.launch("narrow_kernel", few_us / 10, grid=(blocks, 1, 1))
        w.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 500, grid=(8, 1, 1), stream=17)
    return w


def test_a_quarter_of_the_sms_for_half_of_the_time() -> None:
    found = judge(loop(33, 1000).to_run(), RULE)
    finding = found.finding
    # Three quarters of the SMs stand empty for half of the time; the collective does not count.
    assert finding.facts["empty_sm_time_frac"] == pytest.approx(0.375, abs=0.001)
    assert finding.saving is None and finding.severity == "info" and finding.confidence == "medium"
    assert (
        finding.title == "38% of the SMs' time is empty while kernels run; 10 kernels a step with fewer blocks than the 132 SMs"
    )
    assert finding.evidence[0].rows == [["narrow_kernel", 33, 0.25, 10.0, 1_000_000]]
    # 1056 blocks of 8 warps fill all 64 slots of an SM, 33 blocks an eighth of a quarter.
    assert finding.facts["warp_slots_filled_frac"] == pytest.approx((1 + 8 / 64 / 4) / 2, abs=0.001)
    assert "at most 38%" in finding.caveats[0]


@pytest.mark.parametrize(("few_us", "outcome"), [(130, "clean"), (170, "found")])
def test_the_threshold(few_us: float, outcome: str) -> None:
    """A tenth of the SMs' time: kernels of 33 blocks for 0.15 of 1.15 ms."""
    assert judge(loop(33, few_us).to_run(), RULE).outcome == outcome


def test_nearly_full_kernels_count_for_little() -> None:
    assert judge(loop(128, 5000).to_run(), RULE).outcome == "clean"


def test_a_host_bound_loop_gains_more_per_item() -> None:
    found = judge(loop(33, 1000, host_us=20_000).to_run(), RULE)
    assert found.finding.facts["gain_per_item_frac"] > 0.9
    assert "the host sets the pace" in found.finding.caveats[0]


def test_the_gpu_decides() -> None:
    """44 blocks fill a T4 with its 40 SMs, not an H200."""
    assert judge(loop(44, 1000, device=T4).to_run(), RULE).outcome == "clean"
    assert judge(loop(44, 1000).to_run(), RULE).outcome == "found"


def sampled(active: float, blocks: int = 1056, metric: str = "SMs Active [Throughput %]") -> Workload:
    """Samples every 100 us; in pauses of the GPU they say 0."""
    w = loop(blocks, 4000)
    end = w.now // 1000
    for sample in range(200, end, 100):
        w.row("hardware_metrics", time=sample * 1000, device=0, metric=metric, value=active)
        w.row("hardware_metrics", time=sample * 1000, device=0, metric="Unallocated Warps in Active SMs", value=3.0)
    return w


def test_samples_rule_over_launch_sizes() -> None:
    """Wide launches with most blocks done at once: the counters see it."""
    w = Workload()
    for _ in w.steps(5):
        w.launch("wide_kernel", 5000, grid=(1056, 1, 1))
        w.sync()
    for sample in range(200, w.now // 1000, 100):
        w.row("hardware_metrics", time=sample * 1000, device=0, metric="SMs Active [Throughput %]", value=55.0)
    found = judge(w.to_run(), RULE)
    assert found.finding.facts["sampled_sm_active_frac"] == pytest.approx(0.55)
    assert found.finding.title.startswith("45% of the SMs' time") and found.finding.confidence == "high"
    for row in w.rows["hardware_metrics"]:
        row["value"] = 96.0
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_samples_of_pauses_do_not_count() -> None:
    w = Workload()
    for _ in w.steps(5):
        w.launch("wide_kernel", 3000, grid=(1056, 1, 1))
        w.sync()
        w.host(5000)
    kernels = w.rows["kernels"]
    for sample in range(200, w.now // 1000, 100):
        busy = any(row["start"] <= sample * 1000 - 100_000 and sample * 1000 <= row["end"] for row in kernels)
        w.row("hardware_metrics", time=sample * 1000, device=0, metric="SM Active", value=98.0 if busy else 10.0)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_cannot_judge() -> None:
    unknown = judge(loop(33, 1000, device=replace(H200, name="NVIDIA Unheard-Of", sm_count=None)).to_run(), RULE)
    assert unknown.outcome == "not-applicable" and "number of SMs" in unknown.reason
    w = loop(33, 1000)
    for row in w.rows["kernels"]:
        for axis in "xyz":
            row[f"grid_{axis}"] = -1
    assert judge(w.to_run(), RULE).outcome == "not-applicable"
    empty = judge(Workload().to_run(), RULE)
    assert empty.outcome == "not-applicable" and empty.report.rules[0].capture
