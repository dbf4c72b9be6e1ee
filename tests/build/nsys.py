"""A small writer of SQLite files as the exporters of Nsight Systems make them, of several generations of the schema.

export = NsysExport("2024.2")
launch = export.call("cudaLaunchKernel_v7000", 100, 110)
export.kernel("gemm", 200, 300, correlation=launch)
export.range("step 0", 0, 400)
export.write(tmp_path / "report.sqlite")
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

from advisor.model import Trace

GENERATIONS = ("2020", "2022.2", "2022.4", "2023.4", "2024.2", "2025.1", "2025.5", "2026.2")
_SCHEMAS = {
    "2022.2": "2.9.1",
    "2022.4": "3.0.0",
    "2023.4": "3.7.2",
    "2024.2": "3.11.1",
    "2025.1": "3.17.2",
    "2025.5": "3.24.0",
    "2026.2": "3.25.0",
}
_GPU = "start end deviceId contextId 2023.4:greenContextId streamId correlationId globalPid"
# Table -> columns in order; "GENERATION:NAME" is there from that generation on, "-GENERATION:NAME" up to before it.
_COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"""{_GPU} demangledName shortName 2022.2:mangledName launchType cacheConfig registersPerThread
        gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId
        sharedMemoryExecuted graphNodeId 2022.2:sharedMemoryLimitConfig 2025.5:graphId 2025.5:clusterX""",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"""{_GPU} bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId
        dstContextId 2022.2:migrationCause graphNodeId 2022.2:virtualAddress 2025.1:copyCount""",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_GPU} value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_GPU} graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue 2022.2:callchainId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_GPU} 2025.1:deprecatedSyncType syncType eventId 2025.1:eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": """2026.2:timestamp deviceId contextId 2023.4:greenContextId streamId correlationId
        globalPid eventId 2025.1:eventSyncId""",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "start end eventClass globalTid correlationId nameId overheadType",
    "PROFILER_OVERHEAD": "start end globalTid -2022.2:correlationId nameId -2025.5:returnValue 2025.5:overheadType",
    "NVTX_EVENTS": """start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value
        int64Value doubleValue uint32Value int32Value floatValue jsonTextId jsonText 2025.1:binaryData""",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": """start globalPid deviceId contextId address pc bytes memKind memoryOperationType name
        correlationId""",
    "GPU_METRICS": "timestamp typeId metricId value",
    "TARGET_INFO_GPU_METRICS": "typeId sourceId typeName metricId metricName",
    "GENERIC_EVENTS": "rawTimestamp timestamp typeId data",
    "GENERIC_EVENT_TYPES": "typeId sourceId data",
    "GENERIC_EVENT_SOURCES": "sourceId data",
    "MPI_RANKS": "globalTid rank",
    "MPI_COLLECTIVES_EVENTS": "start end globalTid textId",
    "OSRT_API": "start end eventClass globalTid nameId returnValue nestingLevel callchainId",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "TARGET_INFO_GPU": """vmId id name busLocation isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount uuid
        cuDevice maxShmemPerSm maxRegistersPerSm threadsPerWarp maxWarpsPerSm computeMajor computeMinor""",
    "TARGET_INFO_CUDA_GPU": """vmId name pciBusId globalMemoryBandwidth globalMemorySize coreClockRate numMultiprocessors
        numThreadsPerWarp maxWarpsPerMultiprocessor computeCapabilityMajor computeCapabilityMinor deviceId pid""",
    "META_DATA_CAPTURE": "name value",
    "META_DATA_EXPORT": "name value",
    "EXPORT_META_DATA": "name value",
    "ThreadNames": "nameId priority globalTid",
}
_REAL = {"doubleValue", "floatValue"}
_TEXT = {"text", "name", "value", "data", "jsonText", "typeName", "metricName", "busLocation", "uuid", "utcTime", "localTime"}
PUSH_POP, START_END, DOMAIN = 59, 60, 75


def global_id(process: int, thread: int = 0, hardware: int = 0) -> int:
    """globalPid (thread 0) or globalTid as SQLite stores it: a signed 64-bit integer."""
    number = hardware << 56 | 1 << 48 | process << 24 | thread
    return number - (1 << 64) if number >= 1 << 63 else number


def columns_of(table: str, generation: str) -> list[str]:
    """Columns that an exporter of that generation writes."""
    found = []
    for entry in _COLUMNS[table].split():
        since, _, name = entry.rpartition(":")
        if not since or (generation < since[1:] if since.startswith("-") else generation >= since):
            found.append(name)
    return found


class NsysExport:
    """Rows that are written at the end. Methods that add GPU work or calls return its correlation id."""

    def __init__(self, generation: str = "2024.2", *, process: int = 100, lazy: bool = True) -> None:
        self.generation, self.process, self.lazy = generation, process, lazy
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.strings: dict[str, int] = {}
        self.hardware = 0
        self._correlation = 0
        if generation in _SCHEMAS:
            table = "META_DATA_EXPORT" if generation >= "2023.4" else "EXPORT_META_DATA"
            self.add(table, name="EXPORT_PRODUCT_VERSION", value=f"{generation}.3.38-1")
            self.add(table, name="EXPORT_SCHEMA_VERSION", value=_SCHEMAS[generation])

    def add(self, table: str, **values: Any) -> None:
        self.rows[table].append(values)

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 5)

    def _next(self, correlation: int | None) -> int:
        self._correlation += 1
        return self._correlation if correlation is None else correlation

    def _place(self, start: int, end: int, correlation: int, device: int, stream: int, process: int | None) -> dict[str, Any]:
        pid = global_id(self.process if process is None else process, hardware=self.hardware)
        return {
            "start": start,
            "end": end,
            "deviceId": device,
            "contextId": 1,
            "streamId": stream,
            "correlationId": correlation,
            "globalPid": pid,
        }

    def call(
        self,
        name: str,
        start: int,
        end: int,
        *,
        thread: int = 7,
        process: int | None = None,
        correlation: int | None = None,
        event_class: int = 0,
    ) -> int:
        correlation = self._next(correlation)
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=event_class,
            correlationId=correlation,
            globalTid=global_id(self.process if process is None else process, thread, self.hardware),
            nameId=self.string(name),
            returnValue=0,
        )
        return correlation

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        *,
        correlation: int | None = None,
        device: int = 0,
        stream: int = 7,
        process: int | None = None,
        **more: Any,
    ) -> int:
        correlation = self._next(correlation)
        shape = {f"{kind}{axis}": 1 for kind in ("grid", "block") for axis in "XYZ"}
        memory = {"staticSharedMemory": 0, "dynamicSharedMemory": 0, "registersPerThread": 32}
        names = {"demangledName": self.string(name), "shortName": self.string("Kernel")}
        place = self._place(start, end, correlation, device, stream, process)
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", **{**place, **shape, **memory, **names, **more})
        return correlation

    def copy(
        self, kind: int, start: int, end: int, *, source: int = 1, target: int = 2, size: int = 64, correlation: int | None = None
    ) -> int:
        correlation = self._next(correlation)
        place = self._place(start, end, correlation, 0, 7, None)
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", **place, copyKind=kind, srcKind=source, dstKind=target, bytes=size)
        return correlation

    def memset(self, start: int, end: int, *, size: int = 64, correlation: int | None = None) -> int:
        correlation = self._next(correlation)
        place = self._place(start, end, correlation, 0, 7, None)
        self.add("CUPTI_ACTIVITY_KIND_MEMSET", **place, value=0, bytes=size, memKind=2)
        return correlation

    def sync(self, start: int, end: int, *, correlation: int, kind: int = 1, stream: int = 0xFFFFFFFF, event: int = 0xFFFFFFFF,
             event_sync: int | None = None) -> None:  # fmt: skip
        place = self._place(start, end, correlation, 0, stream, None)
        self.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **place, syncType=kind, eventId=event, eventSyncId=event_sync)

    def event(self, event: int, *, correlation: int, stream: int = 7, event_sync: int | None = None) -> None:
        place = self._place(0, 0, correlation, 0, stream, None)
        del place["start"], place["end"]
        self.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **place, eventId=event, eventSyncId=event_sync)

    def range(
        self,
        name: str | None,
        start: int,
        end: int | None,
        *,
        kind: int = PUSH_POP,
        thread: int = 7,
        process: int | None = None,
        domain: int = 0,
        registered: bool = False,
        **more: Any,
    ) -> None:
        label = {"textId": self.string(name)} if registered and name is not None else {"text": name}
        tid = global_id(self.process if process is None else process, thread, self.hardware)
        self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=tid, domainId=domain, **{**label, **more})

    def metadata(self, name: str, value: str) -> None:
        self.add("META_DATA_CAPTURE", name=name, value=value)

    def gpu(self, **values: Any) -> None:
        usual = {
            "vmId": 1 << 48,
            "id": 0,
            "cuDevice": 0,
            "name": "NVIDIA Test GPU",
            "totalMemory": 80_000_000_000,
            "memoryBandwidth": 2_000_000_000_000,
            "clockRate": 1_410_000_000,
            "smCount": 108,
            "uuid": "00000000-0000-0000-0000-000000000000",
            "computeMajor": 8,
            "computeMinor": 0,
            "maxWarpsPerSm": 64,
            "threadsPerWarp": 32,
            "maxRegistersPerSm": 65_536,
            "maxShmemPerSm": 167_936,
        }
        self.add("TARGET_INFO_GPU", **{**usual, **values})

    def write(self, path: Path, *, rename: dict[str, str] | None = None) -> Path:
        """Writes the file. `rename` gives tables other names, as a later exporter might."""
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(
                "CREATE TABLE StringIds (\n -- Repeated texts.\n id INTEGER NOT NULL PRIMARY KEY,\n value TEXT NOT NULL)"
            )
            connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, text) for text, i in self.strings.items()])
            for table in self.rows if self.lazy else {**dict.fromkeys(_COLUMNS), **self.rows}:
                columns = columns_of(table, self.generation)
                declared = ", ".join(f'"{column}" {_affinity(table, column)} -- about it\n' for column in columns)
                name = (rename or {}).get(table, table)
                connection.execute(f"CREATE TABLE {name} ({declared})")
                marks = ", ".join("?" * len(columns))
                rows = ([row.get(column) for column in columns] for row in self.rows.get(table, ()))
                connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        connection.close()
        return path


def _affinity(table: str, column: str) -> str:
    if table == "GPU_METRICS":
        return "INTEGER"
    return "TEXT" if column in _TEXT else "REAL" if column in _REAL else "INTEGER"


def texts(trace: Trace, table: str, column: str = "name") -> list[str]:
    """Texts of a column."""
    return [trace.strings[code] for code in trace.table(table)[column].tolist()]


def column(trace: Trace, table: str, name: str) -> list[int]:
    return trace.table(table)[name].tolist()


def codes(trace: Trace) -> list[str]:
    return [notice.code for notice in trace.notices]
