"""Small traces in memory, and small recordings on disk, for the tests of reading and joining."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from advisor.model import Capture, Strings, Table, Trace

MS = 1_000_000
S = 1_000_000_000


def program_trace(
    path: str = "trace.json",
    *,
    rank: int | None = None,
    epoch_ns: int | None = None,
    kernels: int = 4,
    ops: int = 8,
    frames: int = 0,
    shapes: bool = False,
    memory: int = 0,
    start: int = 0,
    device: int = 0,
    name: str = "gemm",
    **more: Any,
) -> Trace:
    """A trace of `kernels` kernels of 1 ms, one every 2 ms, under `ops` operators."""
    strings = Strings(["unused", name, "aten::mm", "[[2, 2]]", "train.py(1): step"])
    at = start + 2 * MS * np.arange(kernels)
    gpu = {"start": at, "end": at + MS, "device": np.full(kernels, device), "correlation": np.arange(kernels)}
    op_at = start + 2 * MS * kernels * np.arange(ops) // max(ops, 1)
    op = {"start": op_at, "end": op_at + 1000, "name": np.full(ops, 2), "op": np.arange(ops)}
    if shapes:
        op["shapes"] = np.full(ops, 3)
    frame_at = np.full(frames, start)
    memory_at = np.full(memory, start)
    return Trace(
        path,
        "torch-trace",
        tables={
            "kernels": Table("kernels", {**gpu, "name": np.full(kernels, 1)}),
            "host_ops": Table("host_ops", op),
            "python_frames": Table("python_frames", {"start": frame_at, "end": frame_at + 1, "name": np.full(frames, 4)}),
            "memory_events": Table(
                "memory_events",
                {"time": memory_at, "device": memory_at * 0, "source": memory_at * 0, "bytes": memory_at * 0 + 512},
            ),
        },
        strings=strings,
        rank=rank,
        epoch_ns=epoch_ns,
        capture=Capture(tool="torch.profiler"),
        **more,
    )


def sample_trace(path: str, epoch_ns: int | None, seconds: int, *, local_clock: bool = True) -> Trace:
    """One sample a second of GPU 0, `seconds` + 1 of them."""
    at = S * np.arange(seconds + 1)
    table = Table("device_samples", {"time": at, "device": at * 0, "utilization": np.full(len(at), 50.0)})
    return Trace(path, "nvidia-smi-csv", tables={"device_samples": table}, epoch_ns=epoch_ns, local_clock=local_clock)


def kineto(*, rank: int | None = None, steps: int = 2, kernels: int = 3, at_us: float = 1e9, device: int = 0) -> dict[str, Any]:
    """A torch.profiler trace: steps of 10 ms with `kernels` operators, launches and kernels of 1 ms each."""
    events: list[dict[str, Any]] = []

    def event(cat: str, name: str, ts: float, dur: float, pid: int = 100, tid: int = 100, **args: Any) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})

    for step in range(steps):
        begin = at_us + 10_000 * step
        event("user_annotation", f"ProfilerStep#{step}", begin, 10_000)
        for i in range(kernels):
            number, ts = step * kernels + i + 1, begin + 100 + 2_000 * i
            event("cpu_op", "aten::mm", ts, 50, **{"External id": number})
            event("cuda_runtime", "cudaLaunchKernel", ts + 10, 10, **{"External id": number, "correlation": number})
            where = {"device": device, "stream": 7, "correlation": number, "External id": number}
            event("kernel", "gemm_kernel", ts + 30, 1_000, device, 7, **where)
    document: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": device, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
    }
    if rank is not None:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    return {**document, "traceEvents": events}


def as_bytes(document: Mapping[str, Any], compress: bool = False) -> bytes:
    data = json.dumps(document).encode()
    return gzip.compress(data, mtime=0) if compress else data


def write_kineto(path: Path, **options: Any) -> Path:
    """A trace on disk, compressed if the name ends in .gz; `options` are those of `kineto`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_bytes(kineto(**options), path.suffix == ".gz"))
    return path


def write_smi(path: Path, begin: str = "2026/01/05 10:00:0", rows: int = 5) -> Path:
    """An nvidia-smi CSV log of one GPU, one sample a second; `begin` lacks the last digit of the seconds."""
    lines = ["timestamp, index, name, utilization.gpu [%], memory.used [MiB]"]
    lines += [f"{begin}{second}.000, 0, NVIDIA H200, 90 %, 1000 MiB" for second in range(rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def write_tar(path: Path, members: Mapping[str, bytes], mode: str = "w") -> Path:
    """A tar archive; `mode` as tarfile has it ("w", "w:gz")."""
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path
