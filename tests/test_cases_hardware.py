"""Diagnosed cases, part 5: the state of the machine, from logs of nvidia-smi. Part 1 says how to read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from build.cases import logged

POWER_CAP = 0x4


def test_a_degraded_link(tmp_path: Path) -> None:
    """A38: one of four GPUs at generation 2 x16 under full load, 8 instead of 63 GB/s, and no error. Nobody measured the gain."""
    case = logged(tmp_path, 4, pcie__link__gen__current=lambda second, gpu: 2 if gpu == 2 else 5)
    assert case.rules == ["degraded-pcie-link"]
    assert case.first.title == "GPU 2 runs at PCIe 2 x16 under load instead of PCIe 5 x16: 8 of 63 GB/s"
    assert case.first.saving is None and case.first.scope["devices"] == [2]
    assert [fix.id for fix in case.first.fixes] == ["look", "repair"] and "reseat" in case.words()


@pytest.mark.parametrize("generation", [lambda second, gpu: 1, lambda second, gpu: 5 if second % 3 == 0 else 1])
def test_links_of_idle_gpus(tmp_path: Path, generation: Callable[[float, int], float]) -> None:
    """N10: an idle GPU lowers its link, for good or now and then."""
    assert logged(tmp_path, 2, utilization__gpu=0, pcie__link__gen__current=generation).report.findings == []


def test_a_link_that_follows_the_load(tmp_path: Path) -> None:
    """N10: low while the GPU is idle and in the first sample of each load."""
    case = logged(
        tmp_path, 2, utilization__gpu=lambda second, gpu: 0 if second % 10 < 2 else 100,
        pcie__link__gen__current=lambda second, gpu: 1 if second % 10 < 3 else 5,
    )  # fmt: skip
    assert case.report.findings == []


def test_a_power_cap_in_a_memory_bound_phase(tmp_path: Path) -> None:
    """N8: the cap holds in all samples, the SM clock 11 % below its maximum, memory at its full clock: nothing is promised."""
    case = logged(tmp_path, clocks__current__sm=1762, utilization__memory=95, clocks_event_reasons__active=POWER_CAP)
    assert case.rules == []
    assert [(finding.rule, finding.saving) for finding in case.report.findings] == [("power-cap", None)]
    assert any("memory bandwidth" in text for text in case.first.caveats)
