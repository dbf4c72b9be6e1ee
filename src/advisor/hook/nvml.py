"""GPUs as NVML tells them (package nvidia-ml-py), and the same as rows of `nvidia-smi --query-gpu=... --format=csv`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

MIB = 1 << 20


class NoDriver(Exception):
    """No NVIDIA driver or no nvidia-ml-py. The message is one line."""


@dataclass(frozen=True)
class Reading:
    """One GPU at one moment; None for what this GPU does not tell. Names and units follow the table `device_samples`."""

    index: int
    name: str | None = None
    utilization: int | None = None  # %
    memory_utilization: int | None = None  # %
    memory_used: int | None = None  # bytes
    memory_total: int | None = None  # bytes
    power: float | None = None  # W
    power_limit: float | None = None  # W
    temperature: int | None = None  # C
    sm_clock: int | None = None  # MHz
    sm_clock_max: int | None = None  # MHz
    memory_clock: int | None = None  # MHz
    throttle_reasons: int | None = None  # bits
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    ecc_uncorrected: int | None = None
    pcie_receive: int | None = None  # bytes/s
    pcie_transmit: int | None = None  # bytes/s
    nvlink_receive: int | None = None  # bytes since the driver was loaded, over all links
    nvlink_transmit: int | None = None  # bytes


# Header of nvidia-smi, field of the reading, and how nvidia-smi writes it. The last four are not nvidia-smi's own.
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("index", "index", str),
    ("name", "name", str),
    ("utilization.gpu [%]", "utilization", "{} %".format),
    ("utilization.memory [%]", "memory_utilization", "{} %".format),
    ("memory.used [MiB]", "memory_used", lambda v: f"{v // MIB} MiB"),
    ("memory.total [MiB]", "memory_total", lambda v: f"{v // MIB} MiB"),
    ("power.draw [W]", "power", "{:.2f} W".format),
    ("enforced.power.limit [W]", "power_limit", "{:.2f} W".format),
    ("temperature.gpu", "temperature", str),
    ("clocks.current.sm [MHz]", "sm_clock", "{} MHz".format),
    ("clocks.max.sm [MHz]", "sm_clock_max", "{} MHz".format),
    ("clocks.current.memory [MHz]", "memory_clock", "{} MHz".format),
    ("clocks_event_reasons.active", "throttle_reasons", "0x{:016x}".format),
    ("pcie.link.gen.current", "pcie_generation", str),
    ("pcie.link.gen.max", "pcie_generation_max", str),
    ("pcie.link.width.current", "pcie_width", str),
    ("pcie.link.width.max", "pcie_width_max", str),
    ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected", str),
)
TRAFFIC: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("pcie.rx [MB/s]", "pcie_receive", lambda v: f"{v / 1e6:.1f} MB/s"),
    ("pcie.tx [MB/s]", "pcie_transmit", lambda v: f"{v / 1e6:.1f} MB/s"),
    ("nvlink.rx [MiB]", "nvlink_receive", lambda v: f"{v // MIB} MiB"),
    ("nvlink.tx [MiB]", "nvlink_transmit", lambda v: f"{v // MIB} MiB"),
)


def csv_header(traffic: bool = False) -> str:
    return ", ".join(["timestamp", *(name for name, *_ in (*_COLUMNS, *(TRAFFIC if traffic else ())))])


def csv_row(at: datetime, reading: Reading, traffic: bool = False) -> str:
    """One line as nvidia-smi prints it, with the local time, and its zone if `at` has one, which nvidia-smi never tells.

    A comma inside a name would shift the columns.
    """
    values = [f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03d}{at:%z}"]
    for _, field, text in (*_COLUMNS, *(TRAFFIC if traffic else ())):
        value = getattr(reading, field)
        values.append("[N/A]" if value is None else text(value).replace(",", " "))
    return ", ".join(values)


class Nvml:
    """The library, started. Every question that a GPU does not answer gives None."""

    def __init__(self, library: Any) -> None:
        self._n = library

    def count(self) -> int:
        return int(self._n.nvmlDeviceGetCount())

    def index_of(self, pci_bus_id: str) -> int | None:
        """NVML's index of the GPU at this PCI address: CUDA's ordinal differs under CUDA_VISIBLE_DEVICES."""
        handle = self._ask(self._n.nvmlDeviceGetHandleByPciBusId, pci_bus_id.encode())
        return None if handle is None else self._ask(self._n.nvmlDeviceGetIndex, handle)

    def read(self, index: int, traffic: bool = False) -> Reading:
        """traffic: also PCIe and NVLink, for which NVML measures 20 ms on each PCIe direction.

        A GPU that fell off the bus gives a reading with nothing in it.
        """
        n = self._n
        handle = self._ask(n.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return Reading(index)
        load = self._ask(n.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(n.nvmlDeviceGetMemoryInfo, handle)
        power = self._ask(n.nvmlDeviceGetPowerUsage, handle)
        limit = self._ask(n.nvmlDeviceGetEnforcedPowerLimit, handle)
        name = self._ask(n.nvmlDeviceGetName, handle)
        links = self._nvlink(handle) if traffic else (None, None)
        pcie = [self._ask(n.nvmlDeviceGetPcieThroughput, handle, side) if traffic else None for side in (1, 0)]
        return Reading(
            index=index,
            name=name.decode() if isinstance(name, bytes) else name,
            utilization=load.gpu if load else None,
            memory_utilization=load.memory if load else None,
            memory_used=int(memory.used) if memory else None,
            memory_total=int(memory.total) if memory else None,
            power=power / 1000 if power is not None else None,
            power_limit=limit / 1000 if limit is not None else None,
            temperature=self._ask(n.nvmlDeviceGetTemperature, handle, n.NVML_TEMPERATURE_GPU),
            sm_clock=self._ask(n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_SM),
            sm_clock_max=self._ask(n.nvmlDeviceGetMaxClockInfo, handle, n.NVML_CLOCK_SM),
            memory_clock=self._ask(n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_MEM),
            throttle_reasons=self._throttle(handle),
            pcie_generation=self._ask(n.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            pcie_generation_max=self._ask(n.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            pcie_width=self._ask(n.nvmlDeviceGetCurrPcieLinkWidth, handle),
            pcie_width_max=self._ask(n.nvmlDeviceGetMaxPcieLinkWidth, handle),
            ecc_uncorrected=self._ask(
                n.nvmlDeviceGetTotalEccErrors, handle, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, n.NVML_VOLATILE_ECC
            ),
            pcie_receive=None if pcie[0] is None else pcie[0] * 1000,
            pcie_transmit=None if pcie[1] is None else pcie[1] * 1000,
            nvlink_receive=links[0],
            nvlink_transmit=links[1],
        )

    def processes(self, index: int) -> dict[int, int | None]:
        """Bytes of device memory by process id, of the processes that compute on the GPU; None where they are not told."""
        handle = self._ask(self._n.nvmlDeviceGetHandleByIndex, index)
        found = [] if handle is None else self._ask(self._n.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return {process.pid: process.usedGpuMemory for process in found}

    def driver(self) -> str | None:
        version = self._ask(self._n.nvmlSystemGetDriverVersion)
        return version.decode() if isinstance(version, bytes) else version

    def _throttle(self, handle: Any) -> int | None:
        modern = getattr(self._n, "nvmlDeviceGetCurrentClocksEventReasons", None)
        found = self._ask(modern, handle) if modern else None
        return found if found is not None else self._ask(self._n.nvmlDeviceGetCurrentClocksThrottleReasons, handle)

    def _nvlink(self, handle: Any) -> tuple[int | None, int | None]:
        """KiB counters summed by the driver over the links (scope 0xFFFFFFFF), as bytes."""
        n = self._n
        every = 0xFFFFFFFF
        asked = [(n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, every), (n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, every)]
        found = self._ask(n.nvmlDeviceGetFieldValues, handle, asked)
        if not found or any(value.nvmlReturn != n.NVML_SUCCESS for value in found):
            return None, None
        return int(found[0].value.ullVal) * 1024, int(found[1].value.ullVal) * 1024

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._n.NVMLError:
            return None


@contextmanager
def nvml() -> Iterator[Nvml]:
    """NVML, started and in the end shut down. NoDriver where there is none."""
    try:
        import pynvml
    except ImportError as error:
        raise NoDriver("the package nvidia-ml-py is not installed: pip install nvidia-ml-py") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoDriver(f"no NVIDIA driver answers on this machine ({error})") from error
    try:
        yield Nvml(pynvml)
    finally:
        pynvml.nvmlShutdown()


FIELDS = tuple(field.name for field in fields(Reading))
