"""A synthetic rank as the JSON that torch.profiler of torch 2.x exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.model import CopyKind, MemoryKind, SyncKind

if TYPE_CHECKING:
    from build.rank import Rank
    from build.workload import Workload

BASE_NS = 1_790_857_026_000_000_000  # what the profiler subtracts from the wall clock
OFFSET_NS = 5_197_000_000_000_000  # what stays in the time stamps nevertheless
_DIRECTION = {
    CopyKind.HOST_TO_DEVICE: "HtoD",
    CopyKind.DEVICE_TO_HOST: "DtoH",
    CopyKind.DEVICE_TO_DEVICE: "DtoD",
    CopyKind.PEER_TO_PEER: "PtoP",
}
_OP_TEXTS = {"shapes": "Input Dims", "types": "Input type", "strides": "Input Strides", "inputs": "Concrete Inputs"}


def write(workload: Workload, rank: Rank, folder: Path) -> Path:
    """Write one rank; returns the file's path."""
    head = {
        "schemaVersion": 1,
        "deviceProperties": [_device(rank)],
        **{key: value for key, value in workload.facts.items() if key.startswith("cuda_")},
        "with_stack": int(bool(rank.rows.get("python_frames"))),
        "record_shapes": int(any("shapes" in row for row in rank.rows.get("host_ops", []))),
    }
    if rank.number >= 0:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank.number, "world_size": workload.world_size}
    document = {
        **head,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": [event for table, rows in rank.rows.items() for row in rows for event in _events(rank, table, row)],
        "traceName": "trace.json",
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank{max(rank.number, 0)}.pt.trace.json"
    path.write_text("\n" + json.dumps(document))
    return path


def _device(rank: Rank) -> dict[str, Any]:
    device = rank.device
    major, minor = device.compute_capability or (0, 0)
    return {
        "id": 0,
        "name": device.name,
        "totalGlobalMem": device.memory_bytes,
        "computeMajor": major,
        "computeMinor": minor,
        "maxThreadsPerMultiprocessor": device.threads_per_sm,
        "warpSize": 32,
        "numSms": device.sm_count,
        "regsPerMultiprocessor": device.registers_per_sm,
        "sharedMemPerMultiprocessor": device.shared_memory_per_sm,
    }


def _us(time: int) -> float:
    return time / 1000


def _events(rank: Rank, table: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    writer = _WRITERS.get(table)
    return [] if writer is None else writer(rank, row)


def _complete(category: str, name: str, pid: Any, tid: Any, row: dict[str, Any], args: dict[str, Any] | None) -> dict[str, Any]:
    event = {
        "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid,
        "ts": _us(row["start"] + OFFSET_NS), "dur": _us(row["end"] - row["start"]),
    }  # fmt: skip
    return event if args is None else {**event, "args": args}


def _host_op(rank: Rank, row: dict[str, Any]) -> list[dict[str, Any]]:
    args: dict[str, Any] = {"External id": row["op"], "Record function id": 0, "Ev Idx": row["op"]}
    if row["sequence"] >= 0:
        args |= {"Sequence number": row["sequence"], "Fwd thread id": row.get("forward_thread", 0)}
    args |= {key: json.loads(row[name]) for name, key in _OP_TEXTS.items() if name in row}
    if "stack" in row:
        args["Call stack"] = row["stack"]
    return [_complete("cpu_op", row["name"], row["process"], row["thread"], row, args)]


def _frame(rank: Rank, row: dict[str, Any]) -> list[dict[str, Any]]:
    parent = None if row["parent"] < 0 else row["parent"]
    args = {"Python id": row["frame"], "Python parent id": parent, "Ev Idx": row["frame"]}
    return [_complete("python_function", row["name"], row["process"], row["thread"], row, args)]


def _range(rank: Rank, row: dict[str, Any]) -> list[dict[str, Any]]:
    return [_complete("user_annotation", row["name"], row["process"], row["thread"], row, {"Ev Idx": 0})]


def _overhead(rank: Rank, row: dict[str, Any]) -> list[dict[str, Any]]:
    return [_complete("overhead", row["name"], -1, 0, row, None)]


def _call(rank: Rank, row: dict[str, Any]) -> list[dict[str, Any]]:
    driver = row["name"].startswith("cu") and not row["name"].startswith("cuda")
    args = {"cbid": 211, "correlation": row["correlation"], **_external(row)}
    return [_complete("cuda_driver" if driver else "cuda_runtime", row["name"], row["process"], row["thread"], row, args)]


def _external(row: dict[str, Any]) -> dict[str, Any]:
    return {"External id": row["op"]} if row.get("op", -1) >= 0 else {}


def _gpu_args(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **_external(row),
        "device": row["device"],
        "context": row["context"],
        "stream": row["stream"],
        "correlation": row["correlation"],
    }


def _kernel(rank: Rank, row: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = row["grid_x"] * row["grid_y"] * row["grid_z"]
    args = {
        **_gpu_args(row),
        "queued": 0,
        "registers per thread": row["registers"],
        "shared memory": row["shared_memory"],
        "blocks per SM": blocks / (rank.device.sm_count or 1),
        "grid": [row[f"grid_{axis}"] for axis in "xyz"],
        "block": [row[f"block_{axis}"] for axis in "xyz"],
    }
    if "graph_node" in row:
        args["graph node id"] = row["graph_node"]
    for call in rank.rows.get("collective_calls", []):
        if call.get("correlation") == row["correlation"]:
            args |= {
                "Collective name": call["collective"],
                "dtype": call["dtype"],
                "In msg nelems": call["elements_in"],
                "Out msg nelems": call["elements_out"],
                "Group size": call["group_size"],
                "Process Group Name": call["group"],
                "Process Group Ranks": call["group_ranks"],
            }
    return [_complete("kernel", row["name"], row["device"], row["stream"], row, args)]


def _copy(rank: Rank, row: dict[str, Any]) -> list[dict[str, Any]]:
    args = {**_gpu_args(row), "bytes": row["bytes"]}
    if row["kind"] == CopyKind.MEMSET:
        return [_complete("gpu_memset", "Memset (Device)", row["device"], row["stream"], row, args)]
    ends = " -> ".join(MemoryKind(row[end]).name.capitalize() for end in ("source", "target"))
    name = f"Memcpy {_DIRECTION[CopyKind(row['kind'])]} ({ends})"
    return [_complete("gpu_memcpy", name, row["device"], row["stream"], row, args)]


def _sync(rank: Rank, row: dict[str, Any]) -> list[dict[str, Any]]:
    kind = {SyncKind.DEVICE: "Context Sync", SyncKind.STREAM: "Stream Sync", SyncKind.EVENT: "Event Sync"}[SyncKind(row["kind"])]
    args = {"cuda_sync_kind": kind, "stream": row.get("stream", -1), "correlation": row.get("correlation", -1), "device": 0}
    return [_complete("cuda_sync", kind, 0, row.get("stream", -1), row, args)]


def _memory(rank: Rank, row: dict[str, Any]) -> list[dict[str, Any]]:
    args = {
        "Device Type": 0 if row["device"] < 0 else 1,
        "Device Id": row["device"],
        "Bytes": row["bytes"],
        "Addr": row.get("address", 0),
        "Total Allocated": row.get("allocated", 0),
        "Total Reserved": row.get("reserved", 0),
    }
    return [
        {
            "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": row["process"], "tid": row["thread"],
            "ts": _us(row["time"] + OFFSET_NS), "args": args,
        }
    ]  # fmt: skip


_WRITERS = {
    "host_ops": _host_op,
    "python_frames": _frame,
    "ranges": _range,
    "overheads": _overhead,
    "runtime_calls": _call,
    "kernels": _kernel,
    "copies": _copy,
    "sync_events": _sync,
    "memory_events": _memory,
}
