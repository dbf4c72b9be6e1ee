"""degraded-pcie-link, shared-gpu, ecc-errors, uneven-gpus: what samples of the driver tell about the machine."""

from __future__ import annotations

from typing import Any

import pytest

from build.judge import judge
from build.workload import Workload

PCIE, SHARED, ECC, UNEVEN = "degraded-pcie-link", "shared-gpu", "ecc-errors", "uneven-gpus"


def sampled(count: int = 10, *, devices: int = 1, **columns: Any) -> Workload:
    """Samples once a second; a list gives each device its value, a function of the sample's number what it says then."""
    w = Workload(closing_sync=False)
    for number in range(count):
        for device in range(devices):
            row = {
                name: value[device] if isinstance(value, list) else value(number) if callable(value) else value
                for name, value in columns.items()
            }
            w.sample(device, **row)
        w.host(1_000_000)
    return w


LINK = {"pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16}


def test_a_link_that_is_slow_under_load() -> None:
    """One of four GPUs at generation 2 x16: 8 instead of 63 GB/s, at full utilisation and without an error."""
    w = sampled(devices=4, utilization=100.0, pcie_generation=[5, 5, 2, 5], **LINK)
    finding = judge(w.to_run(), PCIE).finding
    assert finding.title == "GPU 2 runs at PCIe 2 x16 under load instead of PCIe 5 x16: 8 of 63 GB/s"
    assert finding.scope["devices"] == [2] and finding.severity == "medium" and finding.confidence == "medium"
    assert finding.facts["samples_under_load"] == 10 and "-i 2" in finding.fixes[0].snippet


@pytest.mark.parametrize("utilization", [0.0, 29.0])
def test_an_idle_gpu_saves_power(utilization: float) -> None:
    w = sampled(utilization=utilization, pcie_generation=1, **LINK)
    assert judge(w.to_run(), PCIE).outcome == "not-applicable"


def test_a_link_that_wakes_up_with_the_load() -> None:
    """Generation 1 while idle, and in the first sample under load."""
    w = sampled(12, utilization=lambda n: 0.0 if n % 4 < 2 else 95.0, pcie_generation=lambda n: 1 if n % 4 < 3 else 5, **LINK)
    assert judge(w.to_run(), PCIE).outcome == "clean"


def test_lanes_count_too_and_few_samples_are_unsure() -> None:
    w = sampled(2, utilization=90.0, pcie_generation=4, pcie_generation_max=4, pcie_width=8, pcie_width_max=16)
    finding = judge(w.to_run(), PCIE).finding
    assert finding.confidence == "low" and finding.facts["rate_gb_per_s"] == 15.8 and finding.facts["possible_gb_per_s"] == 31.5


def test_copies_of_a_trace_get_shorter_with_the_link() -> None:
    w = Workload()
    for _ in w.steps(6):
        w.copy("HtoD", 1 << 27, 4000)
        w.launch("gemm", gpu_us=4000)
        w.item()
        w.sample(utilization=90.0, pcie_generation=4, pcie_generation_max=5, pcie_width=16, pcie_width_max=16)
    found = judge(w.to_run(), PCIE)
    # Half the rate: 2 of 8 ms, if the copy is bound by the link.
    assert found.part() == pytest.approx(0.25, abs=0.03) and found.part("low") == 0


def test_links_without_their_possible_rate() -> None:
    assert judge(sampled(utilization=90.0, pcie_generation=2).to_run(), PCIE).outcome == "not-applicable"


def processes(*rows: tuple[int, str, int | None, float | None], kind: str = "C", samples: int = 3) -> Workload:
    w = Workload(closing_sync=False)
    for _ in range(samples):
        for process, command, memory, sm in rows:
            columns: dict[str, Any] = {"memory_used": memory, "sm": sm}
            known = {name: value for name, value in columns.items() if value is not None}
            w.row("device_processes", time=w.now, device=0, process=process, type=kind, command=command, **known)
        w.host(1_000_000)
    return w


def test_two_programs_compute_on_a_gpu() -> None:
    w = processes((11, "python", 20_000_000_000, 60.0), (12, "python3", 4_000_000_000, 35.0))
    finding = judge(w.to_run(), SHARED).finding
    assert finding.title == "2 processes compute on GPU 0 (24 GB in all)" and finding.severity == "medium"
    assert [row[1] for row in finding.evidence[0].rows] == [11, 12] and finding.fixes[0].id == "other-gpu"


def test_a_context_that_only_holds_memory() -> None:
    w = processes((11, "python", 20_000_000_000, 60.0), (12, "python", 500_000_000, 0.0))
    finding = judge(w.to_run(), SHARED).finding
    assert finding.title.startswith("2 processes hold memory on GPU 0") and finding.severity == "low"
    assert finding.fixes[0].id == "own-device"


@pytest.mark.parametrize(("memory", "outcome"), [(199_999_999, "clean"), (200_000_000, "found")])
def test_tools_that_watch_do_not_count(memory: int, outcome: str) -> None:
    w = processes((11, "python", 20_000_000_000, 60.0), (12, "watcher", memory, 0.0))
    assert judge(w.to_run(), SHARED).outcome == outcome


def test_a_desktop_is_not_shared() -> None:
    w = processes((11, "browser", None, None), (12, "shell", None, None), kind="C+G")
    assert judge(w.to_run(), SHARED).outcome == "clean"


def test_one_process_after_another() -> None:
    w = Workload(closing_sync=False)
    for process in (11, 12):
        w.row("device_processes", time=w.now, device=0, process=process, type="C", command="python", sm=90.0)
        w.host(1_000_000)
    assert judge(w.to_run(), SHARED).outcome == "clean"
    assert judge(sampled(utilization=90.0).to_run(), SHARED).outcome == "not-applicable"


def test_uncorrected_errors() -> None:
    w = sampled(devices=2, utilization=90.0, ecc_uncorrected=[0, 3], ecc_corrected=[0, 40])
    finding = judge(w.to_run(), ECC).finding
    assert finding.title == "GPU 1 counted 3 uncorrected memory errors since its driver was loaded"
    assert finding.severity == "high" and finding.saving is None and finding.scope["devices"] == [1]


@pytest.mark.parametrize(("last", "outcome"), [(9, "clean"), (10, "found")])
def test_corrected_errors_matter_when_they_rise(last: int, outcome: str) -> None:
    w = sampled(11, utilization=90.0, ecc_uncorrected=0, ecc_corrected=lambda n: 100 + n * last // 10)
    found = judge(w.to_run(), ECC)
    assert found.outcome == outcome
    if outcome == "found":
        assert found.finding.severity == "low" and "10 of them while it was watched" in found.finding.title


def test_gpus_without_ecc() -> None:
    assert judge(sampled(utilization=90.0).to_run(), ECC).outcome == "not-applicable"


def test_gpus_that_draw_unequal_power() -> None:
    w = sampled(20, devices=3, utilization=[100.0, 100.0, 96.0], power=[500.0, 350.0, 480.0])
    finding = judge(w.to_run(), UNEVEN).finding
    assert finding.title == "GPU 1 works 100 % of the time at 350 W, GPU 0 100 % at 500 W"
    assert finding.saving is None and finding.severity == "low"


def test_a_gpu_that_waits_at_full_utilisation_is_no_sign() -> None:
    w = sampled(20, devices=2, utilization=[78.0, 100.0], power=[520.0, 480.0])
    assert judge(w.to_run(), UNEVEN).outcome == "clean"


@pytest.mark.parametrize(("other", "outcome"), [(70.0, "found"), (71.0, "clean")])
def test_utilisation_decides_without_power(other: float, outcome: str) -> None:
    assert judge(sampled(20, devices=2, utilization=[95.0, other]).to_run(), UNEVEN).outcome == outcome


def test_a_gpu_that_never_works_is_not_part_of_the_job() -> None:
    w = sampled(20, devices=2, utilization=[95.0, 0.0], power=[500.0, 80.0])
    assert judge(w.to_run(), UNEVEN).outcome == "not-applicable"
    assert judge(sampled(9, devices=2, utilization=[95.0, 20.0]).to_run(), UNEVEN).outcome == "not-applicable"
