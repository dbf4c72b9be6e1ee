"""Makes recordings of any size: one simulated training loop as a torch.profiler trace, an Nsight Systems export, or an
nvidia-smi log. The same seed gives the same bytes; memory stays that of one step.

    python benchmarks/generate.py trace.json --megabytes 1000
    python benchmarks/generate.py trace.json.gz --megabytes 1000 --stacks --shapes
    python benchmarks/generate.py export.sqlite --rows 2000000
    python benchmarks/generate.py smi.csv --hours 24 --gpus 8
"""

from __future__ import annotations

import argparse
import gzip
import random
import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

from loop import PROCESS, STREAM, Loop, Row

BASE_NS = 1_790_857_026_000_000_000  # torch.profiler writes times relative to such a base
START_NS = 5_197_484_990_000_000  # and they are large all the same

# -- torch.profiler ------------------------------------------------------------------------------------------------------

HEAD = """
  {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84942979072,
      "computeMajor": 9, "computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": 132
    }
    ],
    "record_shapes": %d,
    "with_stack": %d,
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": %d,
  "traceEvents": [
"""
TAIL = """  {
    "ph": "X", "cat": "Trace", "ts": %s, "dur": %s, "pid": "Spans", "tid": "PyTorch Profiler",
    "name": "PyTorch Profiler (0)", "args": { "Op count": 0 }
  }
  ],
  "traceName": "trace.json"
}
"""
COPY_NAMES = {"HtoD": "Memcpy HtoD (Pinned -> Device)", "DtoH": "Memcpy DtoH (Device -> Pinned)"}


def _microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _complete(category: str, row: Row, args: str, process: int = PROCESS, name: str = "") -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name or row.name}", "pid": {process}, "tid": {row.thread},\n'
        f'    "ts": {_microseconds(START_NS + row.start)}, "dur": {_microseconds(row.duration)},\n'
        f'    "args": {{\n      {args}\n    }}\n  }},\n'
    )


def _flow(phase: str, category: str, number: int, row: Row, process: int = PROCESS) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    when = _microseconds(START_NS + row.start)
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {process}, "tid": {row.thread}, "ts": {when},\n'
        f'    "cat": "{category}", "name": "{category}"{end}\n  }},\n'
    )


def event_text(row: Row, shapes: bool) -> str:
    """The row as Kineto writes it, flows included."""
    if row.kind == "op":
        args = f'"External id": {row.op},"Record function id": 0, '
        if row.detail and row.detail[0]:
            args += f'"Sequence number": {row.detail[0]}, "Fwd thread id": {int(row.detail[1])}, '
        if shapes:
            args += (
                '"Concrete Inputs": ["", "", ""], "Input type": ["c10::BFloat16", "c10::BFloat16", ""], '
                f'"Input Strides": [[1048576, 1024, 1], [1, {1024 + row.op % 7 * 512}], []], '
                f'"Input Dims": [[8, 1024, 1024], [1024, {1024 + row.op % 7 * 512}], []], '
            )
        return _complete("cpu_op", row, f'{args}"Ev Idx": {row.op}')
    if row.kind == "call":
        category, cbid = ("cuda_driver", 652) if row.name.startswith("cuL") else ("cuda_runtime", 211)
        args = f'"External id": {row.op}, "cbid": {cbid}, "correlation": {row.correlation}'
        return _complete(category, row, args) + _flow("s", "ac2g", row.correlation, row)
    if row.kind in ("kernel", "memcpy", "memset"):
        args = f'"External id": {row.op}, "device": 0, "context": 1, "stream": {STREAM}, "correlation": {row.correlation}, '
        name = row.name
        if row.kind == "kernel":
            blocks, block, registers = row.detail
            args = (
                f'"queued": 0, {args}"registers per thread": {registers}, "shared memory": 0, '
                f'"blocks per SM": {blocks / 132:.6f}, '
                f'"warps per SM": {blocks * block / 32 / 132:.6f}, "grid": [{blocks}, 1, 1], "block": [{block}, 1, 1], '
                '"est. achieved occupancy %": 42'
            )
        else:
            args += f'"bytes": {row.detail}, "memory bandwidth (GB/s)": {row.detail / row.duration}'
            name = COPY_NAMES.get(row.name, row.name)
        category = row.kind if row.kind == "kernel" else f"gpu_{row.kind}"
        return _complete(category, row, args, 0, name) + _flow("f", "ac2g", row.correlation, row, 0)
    if row.kind == "range":
        return _complete("user_annotation", row, '"External id": 0,"Record function id": 0, "Ev Idx": 0')
    if row.kind == "frame":
        parent = row.correlation or "null"
        return _complete("python_function", row, f'"Python parent id": {parent}, "Python id": {row.op}, "Ev Idx": {row.op}')
    return _flow("s" if row.kind == "forward" else "f", "fwdbwd", row.correlation, row)


def _open(path: Path) -> IO[bytes]:
    return gzip.GzipFile(path, "wb", compresslevel=3, mtime=0) if path.suffix == ".gz" else open(path, "wb")


def write_trace(
    path: Path, megabytes: float, *, layers: int = 12, seed: int = 0, stacks: bool = False, shapes: bool = False
) -> int:
    """Writes steps until the text is that large (at least two); gzip if the name ends in .gz. Returns the bytes of text."""
    written = 0
    loop = Loop(layers, seed, stacks)
    with _open(path) as out:

        def put(text: str) -> None:
            nonlocal written
            written += out.write(text.encode())

        put(HEAD % (shapes, stacks, BASE_NS))
        for number, rows in enumerate(loop.steps()):
            put("".join(event_text(row, shapes) for row in rows))
            if written >= megabytes * 1e6 and number:
                break
        put(TAIL % (_microseconds(START_NS), _microseconds(loop.gpu_free)))
    return written


# -- Nsight Systems ------------------------------------------------------------------------------------------------------

END = ' "end" '  # a keyword of SQL
GLOBAL = 1 << 48 | PROCESS << 24
TABLES = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "META_DATA_CAPTURE": "name TEXT, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, totalMemory INTEGER,"
    " memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,"
    " demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,"
    " registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,"
    " blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,"
    " dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,"
    " gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,"
    " copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,"
    " globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL,"
    " eventId INTEGER NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,"
    " color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER",
}  # fmt: skip


def write_export(path: Path, rows: int, *, layers: int = 12, seed: int = 0) -> int:
    """Writes steps until the event tables hold that many rows (at least two steps). Returns the number of event rows."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode=OFF")
        database.execute("PRAGMA synchronous=OFF")
        for name, columns in TABLES.items():
            database.execute(f"CREATE TABLE {name} ({columns.replace(' end ', END)})")
        strings: dict[str, int] = {}

        def text(value: str) -> int:
            return strings.setdefault(value, len(strings) + 1)

        def insert(table: str, values: list[tuple[Any, ...]]) -> int:
            if values:
                database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values[0]))})", values)
            return len(values)

        insert("META_DATA_EXPORT", [("EXPORT_SCHEMA_VERSION", "3.11.1"), ("EXPORT_PRODUCT_VERSION", "2024.2.3")])
        insert("META_DATA_CAPTURE", [("CAPTURE_EVENT_TYPE", "Cuda"), ("CAPTURE_EVENT_TYPE", "NvtxEvents")])
        insert("TARGET_INFO_SESSION_START_TIME", [(BASE_NS + START_NS, None, None)])
        gpu = (1, 0, "NVIDIA H100 80GB HBM3", "0000:01:00.0", 84942979072, 3351000000000, 1980000000, 132, 0, 9, 0)
        insert("TARGET_INFO_GPU", [gpu])
        done = 0
        for number, step in enumerate(Loop(layers, seed).steps()):
            tables: dict[str, list[tuple[Any, ...]]] = {}
            for row in step:
                for table, values in _export_rows(row, text):
                    tables.setdefault(table, []).append(values)
            done += sum(insert(table, values) for table, values in tables.items())
            if done >= rows and number:
                break
        insert("StringIds", [(code, value) for value, code in strings.items()])
    database.close()
    return done


def _export_rows(row: Row, text: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    end = row.start + row.duration
    if row.kind == "kernel":
        blocks, block, registers = row.detail
        name = text(row.name)
        yield "CUPTI_ACTIVITY_KIND_KERNEL", (
            row.start, end, 0, 1, None, STREAM, row.correlation, GLOBAL, name, name, None, 1, 0, registers, blocks, 1, 1,
            block, 1, 1, 0, 0, 0, 0, row.correlation, 0, None, 0,
        )  # fmt: skip
    elif row.kind == "memcpy":
        kinds = (1, 1, 2) if row.name == "HtoD" else (2, 2, 1)
        yield "CUPTI_ACTIVITY_KIND_MEMCPY", (row.start, end, 0, 1, STREAM, row.correlation, GLOBAL, row.detail, *kinds, None)
    elif row.kind == "memset":
        yield "CUPTI_ACTIVITY_KIND_MEMSET", (row.start, end, 0, 1, STREAM, row.correlation, GLOBAL, 0, row.detail, None, 2)
    elif row.kind == "call":
        driver = row.name.startswith("cuL")
        name = text(row.name if driver else row.name + "_v3020")
        yield "CUPTI_ACTIVITY_KIND_RUNTIME", (row.start, end, int(driver), GLOBAL | row.thread, row.correlation, name, 0, None)
        if row.name == "cudaStreamSynchronize":
            yield "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", (row.start, end, 0, 1, STREAM, row.correlation, GLOBAL, 3, 0)
    elif row.kind == "range":
        label = row.name.replace("ProfilerStep#", "step ")
        yield "NVTX_EVENTS", (row.start, end, 59, None, None, None, label, GLOBAL | row.thread, None, None, 0)


# -- nvidia-smi ----------------------------------------------------------------------------------------------------------

SMI_HEAD = (
    "timestamp, index, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], power.draw [W],"
    " temperature.gpu, clocks.current.sm [MHz], clocks.max.sm [MHz], clocks_event_reasons.active\n"
)


def write_smi(path: Path, hours: float, *, gpus: int = 8, seed: int = 0) -> int:
    """One row a second and GPU, as `nvidia-smi --query-gpu=... --format=csv -l 1` prints them. Returns the number of rows."""
    source = random.Random(seed)
    begin = datetime(2026, 1, 15, 8)
    seconds = max(1, round(hours * 3600))
    with open(path, "w", encoding="ascii") as out:
        out.write(SMI_HEAD)
        for second in range(seconds):
            stamp = (begin + timedelta(seconds=second)).strftime("%Y/%m/%d %H:%M:%S")
            for index in range(gpus):
                load = 0 if second % 600 < 20 else source.randrange(85, 101)
                out.write(
                    f"{stamp}.{source.randrange(1000):03d}, {index}, NVIDIA H100 80GB HBM3, {load} %, {load // 2} %, "
                    f"{61000 + source.randrange(900)} MiB, 81559 MiB, {120 + load * 5.5:.2f} W, {40 + load // 4}, "
                    f"{1980 if load < 99 else 1755} MHz, 1980 MHz, 0x{0 if load < 99 else 4:016x}\n"
                )
    return seconds * gpus


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a recording of any size; its kind follows from the file's name.")
    parser.add_argument("path", type=Path, help="*.json, *.json.gz, *.sqlite or *.csv")
    parser.add_argument("--megabytes", type=float, default=100, help="text of a JSON trace, before compression (1e6 bytes)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="event rows of a SQLite export")
    parser.add_argument("--hours", type=float, default=24, help="length of a csv log, one sample a second")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs in a csv log")
    parser.add_argument("--layers", type=int, default=12, help="layers of the model: size of one step")
    parser.add_argument("--stacks", action="store_true", help="with Python frames")
    parser.add_argument("--shapes", action="store_true", help="with input shapes")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path: Path = options.path
    if path.suffix == ".csv":
        print(write_smi(path, options.hours, gpus=options.gpus, seed=options.seed), "rows")
    elif path.suffix == ".sqlite":
        print(write_export(path, options.rows, layers=options.layers, seed=options.seed), "event rows")
    else:
        common = {"layers": options.layers, "seed": options.seed, "stacks": options.stacks, "shapes": options.shapes}
        print(write_trace(path, options.megabytes, **common), "bytes of text")


if __name__ == "__main__":
    main()
