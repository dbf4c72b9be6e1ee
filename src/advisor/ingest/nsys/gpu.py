"""What ran on the GPU: kernels, copies, whole graphs, and allocations by the driver."""

from __future__ import annotations

import numpy as np

from advisor.ingest.nsys.database import NULL
from advisor.ingest.nsys.export import PLACE, Export, place, process
from advisor.model import CopyKind, MemoryKind, MemorySource, Table
from advisor.model.tables import Array

_NAMES = ("demangledName", "mangledName", "shortName")  # the first that is known is taken
_UNNAMED = "(kernel without a recorded name)"
_FREED = 1  # memoryOperationType of a release; 0 is an allocation


def kernels(export: Export) -> Table:
    """Kernel executions, from CUPTI_ACTIVITY_KIND_KERNEL."""
    shape = dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread"), "int32")
    found = export.read_timed(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {
            **PLACE,
            **shape,
            **dict.fromkeys(_NAMES, "id"),
            "staticSharedMemory": "int32",
            "dynamicSharedMemory": "int32",
            "graphNodeId": "id",
        },
    )
    if found is None:
        return Table("kernels")
    static, dynamic = found["staticSharedMemory"], found["dynamicSharedMemory"]
    shared = np.where((static < 0) | (dynamic < 0), -1, np.minimum(static.astype(np.int64) + dynamic, 0x7FFFFFFF))
    columns = place(found)
    return Table(
        "kernels",
        {
            **columns,
            "name": _kernel_names(export, found),
            "graph_node": found["graphNodeId"],
            "grid_x": found["gridX"],
            "grid_y": found["gridY"],
            "grid_z": found["gridZ"],
            "block_x": found["blockX"],
            "block_y": found["blockY"],
            "block_z": found["blockZ"],
            "registers": found["registersPerThread"],
            "shared_memory": shared,
        },
    ).ordered()


def _kernel_names(export: Export, found: dict[str, Array]) -> Array:
    codes = np.full(len(found["start"]), -1, np.int32)
    for column in _NAMES:
        lacking = codes < 0
        if not lacking.any():
            return codes
        codes[lacking] = export.names(found[column][lacking])
    return np.where(codes < 0, np.int32(export.trace.strings.code(_UNNAMED)), codes)


def copies(export: Export) -> Table:
    """Memory copies and memory sets."""
    parts = []
    common = {**PLACE, "bytes": "id", "graphNodeId": "id"}
    found = export.read_timed("CUPTI_ACTIVITY_KIND_MEMCPY", {**common, "copyKind": "int8", "srcKind": "int8", "dstKind": "int8"})
    if found is not None:
        columns = {
            "kind": _among(found["copyKind"], CopyKind.PEER_TO_PEER + 3, CopyKind.UNKNOWN),
            "source": _among(found["srcKind"], MemoryKind.UNKNOWN, MemoryKind.UNKNOWN),
            "target": _among(found["dstKind"], MemoryKind.UNKNOWN, MemoryKind.UNKNOWN),
        }
        parts.append(Table("copies", {**place(found), **columns, "bytes": found["bytes"], "graph_node": found["graphNodeId"]}))
    found = export.read_timed("CUPTI_ACTIVITY_KIND_MEMSET", {**common, "memKind": "int8"})
    if found is not None:
        columns = {
            "kind": np.full(len(found["start"]), CopyKind.MEMSET, np.int8),
            "target": _among(found["memKind"], MemoryKind.UNKNOWN, MemoryKind.UNKNOWN),
        }
        parts.append(Table("copies", {**place(found), **columns, "bytes": found["bytes"], "graph_node": found["graphNodeId"]}))
    return Table.concat("copies", parts)


def _among(values: Array, highest: int, unknown: int) -> Array:
    return np.where((values < 0) | (values > highest), np.int8(unknown), values)


def graph_executions(export: Export) -> Table:
    """CUDA graphs that were traced as a whole (graph mode)."""
    found = export.read_timed("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {**PLACE, "graphId": "id", "graphExecId": "id"})
    if found is None:
        return Table("graph_executions")
    graph = np.where(found["graphId"] < 0, found["graphExecId"], found["graphId"])
    return Table("graph_executions", {**place(found), "graph": graph}).ordered()


def memory_events(export: Export) -> Table:
    """Allocations and releases of device memory as the driver did them."""
    found = export.read(
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        {
            "start": "int64",
            "globalPid": "int64",
            "deviceId": "int32",
            "address": "id",
            "bytes": "id",
            "memKind": "int8",
            "memoryOperationType": "int8",
        },
    )
    if found is None:
        return Table("memory_events")
    host = np.isin(found["memKind"], (MemoryKind.PAGEABLE, MemoryKind.PINNED))
    good = (found["start"] != NULL) & (found["bytes"] >= 0) & np.isin(found["memoryOperationType"], (0, _FREED))
    signed = np.where(found["memoryOperationType"] == _FREED, -found["bytes"], found["bytes"])
    return (
        Table(
            "memory_events",
            {
                "time": found["start"],
                "process": process(found["globalPid"]),
                "device": np.where(host, -1, found["deviceId"]),
                "source": np.full(len(host), MemorySource.DRIVER, np.int8),
                "bytes": signed,
                "address": found["address"],
            },
        )
        .take(good)
        .ordered()
    )
