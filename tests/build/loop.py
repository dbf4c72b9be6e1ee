"""A made-up training loop as a `Run`: a host that launches, streams that execute, and the waits between them.

    loop = Loop()
    for _ in range(4):
        with loop.step():
            with loop.op("aten::mm", shapes="[[64, 64], [64, 64]]"):
                loop.kernel("gemm", 500 * US)
            loop.host(100 * US)          # Python work
            loop.sync()
    run = loop.run()

Host time only moves by what is called; a kernel starts when it was launched and its stream is free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from advisor.model import CopyKind, Device, RangeKind, Run, Strings, Table, Trace
from advisor.model.schema import TABLES

US = 1_000
MS = 1_000_000

H200 = Device(0, "NVIDIA H200", compute_capability=(9, 0), sm_count=132, memory_bytes=150_109_880_320)

_TEXT = {(table, column.name) for table, spec in TABLES.items() for column in spec.columns if column.unit == "text"}


class Loop:
    """One process. Several with different ranks make one run by `join`. `blocking`: launches return after their kernel."""

    LATENCY = 3 * US  # from a launch's begin to its kernel's, when the stream is free

    def __init__(self, rank: int = -1, process: int = 100, device: Device = H200, blocking: bool = False, start: int = 0) -> None:
        self.rank, self.process, self.device, self.blocking = rank, process, device, blocking
        self.now = start
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._free: dict[int, int] = defaultdict(lambda: start)
        self._id = self._steps = 0
        self._ops: list[int] = []

    def _host(self, table: str, start: int, thread: int = 1, **values: Any) -> dict[str, Any]:
        row = {"start": start, "end": self.now, "rank": self.rank, "process": self.process, "thread": thread, **values}
        self.rows[table].append(row)
        return row

    def host(self, ns: int) -> None:
        """Host work that nothing records."""
        self.now += ns

    @contextmanager
    def step(self) -> Iterator[None]:
        """One marked step."""
        with self.range(f"ProfilerStep#{self._steps}"):
            yield
        self._steps += 1

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        start = self.now
        yield
        self._host("ranges", start, name=name, kind=int(RangeKind.RECORD_FUNCTION))

    @contextmanager
    def op(self, name: str, **values: Any) -> Iterator[None]:
        """One operator; `values` are further columns of `host_ops` (shapes, stack, ...)."""
        start, self._id = self.now, self._id + 1
        self._ops.append(self._id)
        yield
        self._host("host_ops", start, name=name, op=self._ops.pop(), **values)

    def call(self, name: str, ns: int, **values: Any) -> dict[str, Any]:
        """One CUDA call of that length."""
        start = self.now
        self.now += ns
        return self._host("runtime_calls", start, name=name, op=self._ops[-1] if self._ops else -1, **values)

    def kernel(self, name: str, ns: int, launch_ns: int = 4 * US, stream: int = 7, **values: Any) -> int:
        """Launch a kernel of that length; returns when it ends."""
        return self._work("kernels", "cudaLaunchKernel", ns, launch_ns, stream, name=name, **values)

    def copy(self, kind: CopyKind, ns: int, launch_ns: int = 4 * US, stream: int = 7, wait: bool = False, **values: Any) -> int:
        """Launch a copy; with `wait` its call returns when it is done."""
        return self._work("copies", "cudaMemcpyAsync", ns, launch_ns, stream, wait=wait, kind=int(kind), **values)

    def _work(self, table: str, call: str, ns: int, launch_ns: int, stream: int, wait: bool = False, **values: Any) -> int:
        self._id += 1
        start = max(self.now + self.LATENCY, self._free[stream])
        self._free[stream] = end = start + ns
        launch = self.call(call, launch_ns, correlation=self._id)
        if wait or self.blocking:
            launch["end"] = self.now = max(self.now, end + 2 * US)
        where = {"rank": self.rank, "process": self.process, "device": self.device.index, "context": 1, "stream": stream}
        self.rows[table].append({"start": start, "end": end, "correlation": self._id, "op": launch["op"], **where, **values})
        return end

    def sync(self, name: str = "cudaStreamSynchronize", stream: int = 7) -> None:
        """Wait for a stream, or for all with cudaDeviceSynchronize."""
        until = max(self._free.values(), default=0) if "Device" in name else self._free[stream]
        self.call(name, max(until - self.now, 0) + 3 * US)

    def run(self, **values: Any) -> Run:
        """The recorded run; `values` are fields of `Run` (environment, facts, options, ...)."""
        return join([self], **values)


def join(loops: list[Loop], **values: Any) -> Run:
    """One run of several processes."""
    strings = Strings()
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for loop in loops:
        for name, added in loop.rows.items():
            rows[name] += added
    tables = {name: _table(name, added, strings) for name, added in rows.items()}
    ranks: list[int | None] = [loop.rank if loop.rank >= 0 else None for loop in loops]
    devices = [loop.device for loop in loops]
    traces = [Trace("trace.json", "torch-trace", rank=rank) for rank in ranks]
    fields = {"traces": traces, "devices": devices, "ranks": ranks, "tables": tables, "strings": strings}
    return Run(**{**fields, **values})


def _table(name: str, rows: list[dict[str, Any]], strings: Strings) -> Table:
    columns: dict[str, list[Any]] = {}
    for column in TABLES[name].columns:
        if any(column.name in row for row in rows):
            values = [row.get(column.name, column.missing) for row in rows]
            if (name, column.name) in _TEXT:
                values = [strings.code(value) if isinstance(value, str) else -1 for value in values]
            columns[column.name] = values
    return Table(name, columns).ordered()
