"""Readings of NVML as nvidia-smi's CSV: what is written is read back by the reader of nvidia-smi's logs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import advisor
import advisor.hook.nvml as hook_nvml
from advisor.hook.nvml import NoDriver, Nvml, Reading, csv_header, csv_row, nvml

FULL = Reading(
    index=3,
    name="NVIDIA H200, PCIe",
    utilization=94,
    memory_utilization=31,
    memory_used=10433 << 20,
    memory_total=143771 << 20,
    power=224.97,
    power_limit=700.0,
    temperature=47,
    sm_clock=1980,
    sm_clock_max=1980,
    memory_clock=3201,
    throttle_reasons=0x4,
    pcie_generation=5,
    pcie_generation_max=5,
    pcie_width=16,
    pcie_width_max=16,
    ecc_uncorrected=2,
    pcie_receive=603_000_000,
    pcie_transmit=482_000_000,
)
AT = datetime(2026, 11, 30, 16, 14, 33, 997_400)


def test_rows_are_nvidia_smi_s() -> None:
    assert csv_header().startswith("timestamp, index, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB]")
    assert csv_row(AT, FULL) == (
        "2026/11/30 16:14:33.997, 3, NVIDIA H200  PCIe, 94 %, 31 %, 10433 MiB, 143771 MiB, 224.97 W, 700.00 W, 47, 1980 MHz, "
        "1980 MHz, 3201 MHz, 0x0000000000000004, 5, 5, 16, 16, 2"
    )
    assert csv_row(AT, Reading(0)).count("[N/A]") == 17


@pytest.mark.parametrize("traffic", [False, True])
def test_what_is_written_is_read_back(tmp_path: Path, traffic: bool) -> None:
    file = tmp_path / "smi.csv"
    times = [AT + timedelta(seconds=i) for i in range(4)]
    readings = [FULL, FULL, Reading(3), FULL]
    rows = [csv_row(at, reading, traffic) for at, reading in zip(times, readings, strict=True)]
    file.write_text("\n".join([csv_header(traffic), *rows, ""]))
    samples = advisor.load([file]).table("device_samples")
    assert samples["device"].tolist() == [3] * 4
    assert (samples["time"] - samples["time"][0]).tolist() == [i * 10**9 for i in range(4)]
    whole = ("utilization", "memory_utilization", "temperature", "sm_clock", "sm_clock_max", "memory_clock")
    for column in (*whole, "pcie_width", "pcie_width_max", "pcie_generation_max", "ecc_uncorrected"):
        assert samples[column][0] == getattr(FULL, column), column
        assert samples.known(column).tolist() == [True, True, False, True], column
    assert samples["memory_used"][0] == FULL.memory_used and samples["throttle_reasons"][0] == 4
    assert samples["power"][0] == pytest.approx(224.97)
    if traffic:
        assert samples["pcie_receive"][0] == pytest.approx(603e6) and samples["pcie_transmit"][0] == pytest.approx(482e6)


def test_a_zone_is_told_and_read(tmp_path: Path) -> None:
    zone = timezone(timedelta(hours=-7))
    row = csv_row(AT.replace(tzinfo=zone), FULL)
    assert row.startswith("2026/11/30 16:14:33.997-0700, 3,")
    file = tmp_path / "smi.csv"
    file.write_text("\n".join([csv_header(), row, ""]))
    run = advisor.load([file])
    assert run.epoch_ns == int(datetime(2026, 11, 30, 23, 14, 33, tzinfo=UTC).timestamp()) * 10**9 + 997_000_000
    assert not run.traces[0].local_clock


class NVMLError(Exception):
    pass


class Library:
    """Stands in for pynvml on a machine without a driver: it answers nothing but what a test sets."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_SUCCESS = 0, 1, 2, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 1, 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any) -> Any:
            raise NVMLError("Not Supported")

        return refuse


def test_what_a_gpu_does_not_tell_is_missing() -> None:
    library: Any = Library()
    assert Nvml(library).read(2, traffic=True) == Reading(2)
    library.nvmlDeviceGetPowerUsage = lambda handle: 439_744
    library.nvmlDeviceGetName = lambda handle: b"NVIDIA H200"
    library.nvmlDeviceGetPcieThroughput = lambda handle, side: {0: 7, 1: 603}[side]
    assert Nvml(library).read(2) == Reading(2, name="NVIDIA H200", power=439.744)
    assert Nvml(library).read(2, traffic=True).pcie_receive == 603_000


def test_every_question_exists_in_the_real_library() -> None:
    pynvml = pytest.importorskip("pynvml")
    source = Path(hook_nvml.__file__).read_text()
    asked = set(re.findall(r"\b(?:nvml[A-Z]\w+|NVML_\w+)", source)) - {"nvmlReturn"}
    assert len(asked) > 20 and [name for name in sorted(asked) if not hasattr(pynvml, name)] == []


def test_no_driver_is_one_line() -> None:
    try:
        with nvml() as library:
            assert library.count() >= 0
    except NoDriver as error:
        assert "\n" not in str(error) and ("driver" in str(error) or "nvidia-ml-py" in str(error))
