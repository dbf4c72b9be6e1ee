"""Chrome traces as Kineto writes them, told event by event, in any era's spelling and any layout of the text.

    k = Kineto()
    k.op("aten::mm", 1_000, 9_000, external=1)
    k.launch("gemm", 2_000, 3_000, 20_000, 5_000, correlation=7, external=1)
    path.write_bytes(k.text("indented"))

Times are nanoseconds since `zero`, the wall clock in ns of the recording's begin. How they are written is the choice of
`times`: "decimal" with a base (today's way), "integer" (microseconds of the wall clock, before 2024), "epoch" (decimals of the
wall clock) or "string" (the same as text).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

BASE_NS = 1_790_857_026_000_000_000
ZERO_NS = BASE_NS + 5_197_696_396_023_307  # wall clock of time 0
LAYOUTS = ("kineto", "newer", "one line", "spaced", "indented", "lines", "late metadata", "split metadata", "crlf", "bom", "list")
TIMES = ("decimal", "integer", "epoch", "string")
_TIME = re.compile(r'"@ns(-?\d+)"')
_DURATION = re.compile(r'"@dur(-?\d+)"')


class Kineto:
    """Events of one process. `metadata` are further top-level members."""

    def __init__(self, zero: int = ZERO_NS, pid: int = 1187, **metadata: Any) -> None:
        self.zero, self.pid = zero, pid
        self.metadata: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
            "displayTimeUnit": "ms",
            **metadata,
        }
        self.events: list[dict[str, Any]] = []

    def complete(self, cat: str | None, name: str, start: int, duration: int | None, **fields: Any) -> dict[str, Any]:
        """A row with a duration. `fields` replace pid, tid and args."""
        event: dict[str, Any] = (
            {"ph": "X"} | ({} if cat is None else {"cat": cat}) | {"name": name, "pid": self.pid, "tid": self.pid}
        )
        event["ts"] = f"@ns{start}"
        if duration is not None:
            event["dur"] = f"@dur{duration}"
        event |= fields
        self.events.append(event)
        return event

    def op(
        self, name: str, start: int, duration: int, *, external: int = 0, cat: str = "cpu_op", tid: Any = None, **args: Any
    ) -> None:
        self.complete(cat, name, start, duration, tid=tid or self.pid, args={"External id": external, "Ev Idx": 0, **args})

    def range(self, name: str, start: int, duration: int, *, cat: str = "user_annotation") -> None:
        self.complete(cat, name, start, duration, args={"External id": 1, "Record function id": 0})

    def frame(self, name: str, start: int, duration: int, *, number: int, parent: int | None = None) -> None:
        args = {"Python parent id": parent, "Python id": number, "Ev Idx": number}
        self.complete("python_function", name, start, duration, args=args)

    def call(self, name: str, start: int, duration: int, *, correlation: int, cat: str = "cuda_runtime", **args: Any) -> None:
        self.complete(cat, name, start, duration, args={"External id": 1, "cbid": 211, "correlation": correlation, **args})

    def gpu(self, cat: str, name: str, start: int, duration: int, *, correlation: int, stream: int = 7, **args: Any) -> None:
        place = {"External id": 1, "device": 0, "context": 1, "stream": stream, "correlation": correlation}
        self.complete(cat, name, start, duration, pid=0, tid=stream, args=place | args)

    def kernel(self, name: str, start: int, duration: int, *, correlation: int, **args: Any) -> None:
        shape = {"registers per thread": 32, "shared memory": 1024, "grid": [4, 2, 1], "block": [128, 1, 1]}
        self.gpu("kernel", name, start, duration, correlation=correlation, **(shape | {"est. achieved occupancy %": 50} | args))

    def launch(self, name: str, at: int, took: int, start: int, duration: int, *, correlation: int) -> None:
        """A call, its kernel and the arrow between both."""
        self.call("cudaLaunchKernel", at, took, correlation=correlation)
        self.kernel(name, start, duration, correlation=correlation)
        self.flow("ac2g", correlation, (at, self.pid, self.pid), (start, 0, 7))

    def flow(self, cat: str, number: Any, start: tuple[int, Any, Any] | None, end: tuple[int, Any, Any] | None) -> None:
        """An arrow between two places (time, pid, tid), or one end of it."""
        for phase, place in (("s", start), ("f", end)):
            if place is not None:
                at, pid, tid = place
                event = {"ph": phase, "id": number, "pid": pid, "tid": tid, "ts": f"@ns{at}", "cat": cat, "name": cat}
                self.events.append(event | ({"bp": "e"} if phase == "f" else {}))

    def memory(self, at: int, size: int, *, device: int = 0, address: int = 4096, total: int = 0) -> None:
        args = {"Device Type": int(device >= 0), "Device Id": device, "Bytes": size, "Addr": address}
        args |= {"Total Allocated": total, "Total Reserved": 2 * total}
        event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": self.pid, "tid": self.pid}
        self.events.append(event | {"ts": f"@ns{at}", "args": args})

    def name_process(self, name: str = "python3") -> None:
        self.events.append({"name": "process_name", "ph": "M", "ts": "@ns0", "pid": self.pid, "tid": 0, "args": {"name": name}})

    def text(self, layout: str = "kineto", times: str = "decimal") -> bytes:
        head = dict(self.metadata)
        if times == "decimal":
            head["baseTimeNanoseconds"] = BASE_NS
        dumped = _dump(head, self.events, layout)
        dumped = _TIME.sub(lambda m: self._time(int(m[1]), times), dumped)
        dumped = _DURATION.sub(lambda m: microseconds(int(m[1])) if times != "integer" else str(int(m[1]) // 1000), dumped)
        return dumped.encode()

    def _time(self, at: int, times: str) -> str:
        wall = self.zero + at
        if times == "decimal":
            return microseconds(wall - BASE_NS)
        if times == "integer":
            return str(wall // 1000)
        return microseconds(wall) if times == "epoch" else f'"{microseconds(wall)}"'


def microseconds(ns: int) -> str:
    """123456 -> 123.456, exactly."""
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03}"


def _dump(head: Mapping[str, Any], events: list[dict[str, Any]], layout: str) -> str:
    everything = {**head, "traceEvents": events, "traceName": "/tmp/a]}, {b.json"}
    if layout == "list":
        return json.dumps(events)
    if layout == "one line":
        return json.dumps(everything, separators=(",", ":"))
    if layout == "spaced":
        return " " + json.dumps(everything, separators=(" , ", " : "))
    if layout == "indented":
        return json.dumps(everything, indent=4)
    if layout == "crlf":
        return json.dumps(everything, indent=2).replace("\n", "\r\n")
    if layout == "bom":
        return "\ufeff" + json.dumps(everything)
    members = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
    first, last = {"late metadata": ([], members), "split metadata": (members[:2], members[2:])}.get(layout, (members, []))
    between = {"newer": ",", "lines": ",\n"}.get(layout, ",\n  ")
    write = _several_lines if layout == "kineto" else json.dumps
    array = "[\n" + between.join(map(write, events)) + "\n]"
    return "\n{\n" + ",\n".join([*first, f'"traceEvents": {array}', *last, '"traceName": "a.json"']) + "\n}\n"


def _several_lines(event: dict[str, Any]) -> str:
    parts = [f'"{key}": {json.dumps(value)}' for key, value in event.items()]
    return (
        "{\n    " + ", ".join(parts[:5]) + ",\n    " + ", ".join(parts[5:]) + "\n  }"
        if len(parts) > 5
        else "{ " + ", ".join(parts) + " }"
    )


def training_step(k: Kineto, index: int, start: int) -> None:
    """All kinds of rows that a step of today has, 100 us long."""
    number = 100 * index
    k.range(f"ProfilerStep#{index}", start, 100_000)
    k.frame("train.py(10): step", start + 500, 98_000, number=number, parent=None if index == 0 else 1)
    k.op("aten::mm", start + 1_000, 9_000, external=number + 1, **shapes([[64, 32], [32, 16]], ["float", "float"]))
    k.launch("void gemm<float, {lambda()#1}>(int, char*)", start + 2_000, 3_000, start + 7_500, 20_125, correlation=number + 1)
    k.call("cudaMemcpyAsync", start + 12_000, 2_000, correlation=number + 2)
    k.gpu("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", start + 30_000, 4_000, correlation=number + 2, bytes=4096)
    k.call("cuLaunchKernelEx", start + 15_000, 1_000, correlation=number + 3, cat="cuda_driver")
    k.kernel("nvjet_tst", start + 34_000, 10_001, correlation=number + 3, stream=13)
    k.gpu("gpu_memset", "Memset (Device)", start + 50_000, 1_000, correlation=number + 4, bytes=64)
    k.gpu("gpu_user_annotation", f"ProfilerStep#{index}", start + 7_000, 50_000, correlation=0)
    k.memory(start + 3_000, 512, total=4096)
    k.memory(start + 4_000, -512, total=3584)
    k.flow("fwdbwd", number + 1, (start + 1_000, k.pid, k.pid), (start + 60_000, k.pid, k.pid + 1))
    k.op(
        "MmBackward0", start + 60_000, 5_000, tid=k.pid + 1, external=number + 5, **{"Sequence number": index, "Fwd thread id": 1}
    )
    k.complete("overhead", "Buffer Flush", start + 70_000, 1_500, pid=-1, tid=0)


def shapes(dims: list[Any], types: list[str]) -> dict[str, Any]:
    return {
        "Input Dims": dims,
        "Input type": types,
        "Input Strides": [[1] * len(d) for d in dims],
        "Concrete Inputs": [""] * len(dims),
    }


def training(steps: int = 3, **metadata: Any) -> Kineto:
    """A recording of several steps, 120 us apart."""
    k = Kineto(**metadata)
    k.name_process()
    for index in range(steps):
        training_step(k, index, 1_000_000 + index * 120_000)
    k.complete("Trace", "PyTorch Profiler (0)", 900_000, 500_000, pid="Spans", tid="PyTorch Profiler", args={"Op count": 0})
    return k
