"""A synthetic run as Nsight Systems exports it to SQLite: one file, its processes told apart by their ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from advisor.model import CopyKind, RangeKind
from build.nsys import NsysExport

if TYPE_CHECKING:
    from build.rank import Rank
    from build.workload import Workload


def write(workload: Workload, path: Path) -> Path:
    """CUDA calls, kernels, copies and NVTX ranges of all ranks."""
    export = NsysExport("2024.2", process=workload.process)
    device = workload.device
    major, minor = device.compute_capability or (0, 0)
    export.gpu(name=device.name, smCount=device.sm_count, totalMemory=device.memory_bytes, computeMajor=major, computeMinor=minor)
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=workload.process)
    for rank in workload.ranks:
        export.process = rank.process
        _write_rank(export, rank)
    return export.write(path)


def _write_rank(export: NsysExport, rank: Rank) -> None:
    for row in rank.rows.get("runtime_calls", []):
        export.call(row["name"], row["start"], row["end"], thread=row["thread"], correlation=row["correlation"])
    for row in rank.rows.get("kernels", []):
        sizes = {f"{kind}{axis.upper()}": row[f"{kind}_{axis}"] for kind in ("grid", "block") for axis in "xyz"}
        more = {"registersPerThread": row["registers"], "dynamicSharedMemory": row["shared_memory"], **sizes}
        place = {"correlation": row["correlation"], "stream": row["stream"], "device": row["device"]}
        export.kernel(row["name"], row["start"], row["end"], **place, **more)
    for row in rank.rows.get("copies", []):
        place = {"size": row["bytes"], "correlation": row["correlation"]}
        if row["kind"] == CopyKind.MEMSET:
            export.memset(row["start"], row["end"], **place)
        else:
            ends = {"source": row["source"], "target": row["target"]}
            export.copy(row["kind"], row["start"], row["end"], **ends, **place)
            export.rows["CUPTI_ACTIVITY_KIND_MEMCPY"][-1] |= {"streamId": row["stream"], "deviceId": row["device"]}
    for row in rank.rows.get("ranges", []):
        if row["kind"] == RangeKind.PUSH_POP:
            export.range(row["name"], row["start"], row["end"], thread=row["thread"])
