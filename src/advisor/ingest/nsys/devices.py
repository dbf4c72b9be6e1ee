"""The GPUs of a capture."""

from __future__ import annotations

from typing import Any

from advisor.ingest.nsys.export import Export, grouped
from advisor.model import Device, Table

_MIB_BELOW = 1 << 24  # a memory size below this is given in MiB: no GPU has less than 16 MiB
_GPU = {
    "id": "id",
    "cuDevice": "cuDevice",
    "deviceId": "deviceId",
    "name": "name",
    "memory": "totalMemory",
    "bandwidth": "memoryBandwidth",
    "clock": "clockRate",
    "sms": "smCount",
    "uuid": "uuid",
    "major": "computeMajor",
    "minor": "computeMinor",
    "registers": "maxRegistersPerSm",
    "shared": "maxShmemPerSm",
    "warps": "maxWarpsPerSm",
    "threads_per_warp": "threadsPerWarp",
}
_CUDA_GPU = {
    "deviceId": "deviceId",
    "pid": "pid",
    "name": "name",
    "memory": "globalMemorySize",
    "bandwidth": "globalMemoryBandwidth",
    "clock": "coreClockRate",
    "sms": "numMultiprocessors",
    "major": "computeCapabilityMajor",
    "minor": "computeCapabilityMinor",
    "registers": "maxRegistersPerMultiprocessor",
    "shared": "maxSharedMemoryPerMultiprocessor",
    "warps": "maxWarpsPerMultiprocessor",
    "threads_per_warp": "numThreadsPerWarp",
}


class Gpus:
    """What the export says of the machine's GPUs, and which CUDA ordinal of which process each of them is."""

    def __init__(self, export: Export) -> None:
        self._listed = _rows(export, "TARGET_INFO_GPU", _GPU)
        self._old = _rows(export, "TARGET_INFO_CUDA_GPU", _CUDA_GPU)
        self._mapped = {
            (pid, cuda): gpu for gpu, cuda, pid in export.database.rows("TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid"])
        }

    def ordinals(self) -> dict[int, int]:
        """The profiler's number of a GPU -> its CUDA ordinal, where that is one and the same in every process."""
        pairs = [(gpu["id"], gpu["cuDevice"]) for gpu in self._listed]
        pairs += [(number, cuda) for (_, cuda), number in self._mapped.items()]
        found: dict[int, set[int]] = {}
        for number, cuda in pairs:
            if _is_count(number) and _is_count(cuda):
                found.setdefault(number, set()).add(cuda)
        single = {number: next(iter(cudas)) for number, cudas in found.items() if len(cudas) == 1}
        return single if len(set(single.values())) == len(single) else {}

    def used(self, tables: list[Table]) -> list[Device]:
        """One device a (process, ordinal) that has rows in `tables`; where none has, every GPU of the machine."""
        pairs: set[tuple[int, int]] = set()
        for table in tables:
            pairs |= {(process, device) for process, device in grouped(table["process"], table["device"])[0] if device >= 0}
        if not pairs:
            return self._idle()
        several = len({process for process, _ in pairs}) > 1
        return [
            _device(device, self._candidates(process, device), process if several else None) for process, device in sorted(pairs)
        ]

    def _candidates(self, process: int, ordinal: int) -> list[dict[str, Any]]:
        """The descriptions that fit a CUDA ordinal of a process; several where the export does not tell them apart."""
        number = self._mapped.get((process, ordinal))
        if number is not None:
            return [gpu for gpu in self._listed if gpu.get("id") == number]
        old = [gpu for gpu in self._old if gpu.get("deviceId") == ordinal]
        old = [gpu for gpu in old if gpu.get("pid") == process] or old
        if old:
            return old
        known = [gpu for gpu in self._listed if gpu.get("cuDevice") is not None]
        if known:
            return [gpu for gpu in known if gpu["cuDevice"] == ordinal]
        return [gpu for gpu in self._listed if gpu.get("deviceId") == ordinal] or (self._listed if len(self._listed) == 1 else [])

    def _idle(self) -> list[Device]:
        devices = []
        for place, gpu in enumerate(self._listed or self._old):
            ids = [gpu[key] for key in ("cuDevice", "deviceId", "id") if _is_count(gpu.get(key))]
            devices.append(_device(ids[0] if ids else place, [gpu], None))
        return sorted(devices, key=lambda device: device.index)


def _rows(export: Export, table: str, columns: dict[str, str]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in export.database.rows(table, list(columns.values()), 1024)]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 31


def _device(index: int, candidates: list[dict[str, Any]], process: int | None) -> Device:
    """A field is known where all candidates agree on it."""

    def agreed(key: str, kind: type) -> Any:
        values = {gpu[key] for gpu in candidates if isinstance(gpu.get(key), kind)}
        return values.pop() if len(values) == 1 else None

    def count(key: str) -> int | None:
        value = agreed(key, int)
        return value if value is not None and 0 < value < 1 << 62 else None

    major, minor, warps, lanes = count("major"), agreed("minor", int), count("warps"), count("threads_per_warp") or 32
    memory, clock, bandwidth = count("memory"), count("clock"), count("bandwidth")
    if memory is not None and memory < _MIB_BELOW:
        memory <<= 20
    if bandwidth is not None and bandwidth < 10**10:  # no GPU of CUDA 10 or later is below 10 GB/s: kB/s
        bandwidth *= 1000
    if clock is not None:  # Hz, kHz in files before 2022
        clock_mhz: float | None = clock / 1e6 if clock > 50_000_000 else clock / 1e3
    else:
        clock_mhz = None
    return Device(
        index=index,
        name=agreed("name", str),
        process=process,
        compute_capability=(major, minor) if major is not None and minor is not None else None,
        sm_count=count("sms"),
        memory_bytes=memory,
        memory_bandwidth=float(bandwidth) if bandwidth is not None else None,
        max_clock=clock_mhz,
        registers_per_sm=count("registers"),
        shared_memory_per_sm=count("shared"),
        threads_per_sm=warps * lanes if warps is not None else None,
        uuid=agreed("uuid", str),
    )
