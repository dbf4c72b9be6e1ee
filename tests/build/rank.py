"""One process of a synthetic training run; `workload` says how to use it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from advisor.model import TABLES, CopyKind, Device, MemoryKind, MemorySource, RangeKind

H200 = Device(
    index=0,
    name="NVIDIA H200",
    compute_capability=(9, 0),
    sm_count=132,
    memory_bytes=150_109_880_320,
    registers_per_sm=65_536,
    shared_memory_per_sm=233_472,
    threads_per_sm=2048,
)
V100 = replace(H200, name="Tesla V100-SXM2-16GB", compute_capability=(7, 0), sm_count=80, memory_bytes=16_945_512_448)
T4 = replace(H200, name="Tesla T4", compute_capability=(7, 5), sm_count=40, memory_bytes=15_843_721_216, threads_per_sm=1024)
A100 = replace(H200, name="NVIDIA A100-SXM4-80GB", compute_capability=(8, 0), sm_count=108, memory_bytes=85_899_345_920)

LATENCY_US = 1.0  # from the end of a launch call to its kernel, when the stream is free
WAKE_UP_US = 5.0  # from the end of the GPU's work to the return of the call that waits for it
RATES = {"pageable": 12e9, "pinned": 50e9, "device": 3e12}  # bytes/s of copies without a duration
DIRECTIONS = {
    "HtoD": (CopyKind.HOST_TO_DEVICE, "pinned", "device"),
    "DtoH": (CopyKind.DEVICE_TO_HOST, "device", "pinned"),
    "DtoD": (CopyKind.DEVICE_TO_DEVICE, "device", "device"),
    "PtoP": (CopyKind.PEER_TO_PEER, "device", "device"),
}
SYNC_CALLS = {"stream": "cudaStreamSynchronize", "device": "cudaDeviceSynchronize", "event": "cudaEventSynchronize"}


def ns(us: float) -> int:
    return round(us * 1000)


def us(ns_: int | float) -> float:
    return ns_ / 1000


@dataclass
class Work:
    """One piece of GPU work that was launched, ns."""

    start: int
    end: int
    correlation: int


class Rank:
    """One process: its threads share one cursor, since forward and autograd threads hand over to each other."""

    def __init__(self, number: int, tool: str, device: Device, start_us: float) -> None:
        self.number, self.tool, self.device = number, tool, device
        self.process = 1000 + max(number, 0)
        self.current_thread = self.process
        self.now = ns(start_us)
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.free: dict[int, int] = defaultdict(int)  # when each stream is free
        self.allocated = self.reserved = 0
        self._open_ops: list[int] = []
        self._open_frames: list[int] = []
        self._ids = {"op": 0, "correlation": 0, "frame": 0, "step": 0}

    # Rows

    def row(self, table: str, **columns: Any) -> dict[str, Any]:
        """One row of any table; rank and process are filled in, text is given as text."""
        names = {column.name for column in TABLES[table].columns}
        filled = {"rank": self.number, "process": self.process, "thread": self.current_thread}
        row = {**{key: value for key, value in filled.items() if key in names}, **columns}
        self.rows[table].append(row)
        return row

    def _next(self, kind: str) -> int:
        self._ids[kind] += 1
        return self._ids[kind]

    @property
    def _op(self) -> int:
        return self._open_ops[-1] if self._open_ops else -1

    @contextmanager
    def _span(self, table: str, **columns: Any) -> Iterator[dict[str, Any]]:
        row = self.row(table, start=self.now, end=self.now, **columns)
        yield row
        row["end"] = self.now

    # Host

    def host(self, us: float) -> None:
        """The thread works outside any recorded operator or call."""
        self.now += ns(us)

    @contextmanager
    def op(
        self,
        name: str,
        us: float = 2.0,
        *,
        shapes: Any = None,
        types: Any = None,
        strides: Any = None,
        inputs: Any = None,
        stack: Sequence[str] = (),
        sequence: int = -1,
    ) -> Iterator[None]:
        """A framework operator around what is inside, with `us` of its own work before that."""
        number = self._next("op")
        texts = {"shapes": shapes, "types": types, "strides": strides, "inputs": inputs}
        columns: dict[str, Any] = {key: json.dumps(value) for key, value in texts.items() if value is not None}
        if stack:
            columns["stack"] = ";".join(stack)
        if self.tool == "nsys":
            self.host(us)
            yield
            return
        with self._span("host_ops", name=name, op=number, sequence=sequence, **columns):
            self._open_ops.append(number)
            self.host(us)
            yield
            self._open_ops.pop()

    def leaf(self, name: str, us: float = 2.0, **columns: Any) -> None:
        """An operator that launches nothing."""
        with self.op(name, us, **columns):
            pass

    @contextmanager
    def frame(self, text: str, us: float = 0.0) -> Iterator[None]:
        """A Python frame, 'train.py(12): main'."""
        number = self._next("frame")
        parent = self._open_frames[-1] if self._open_frames else -1
        if self.tool == "nsys":
            self.host(us)
            yield
            return
        with self._span("python_frames", name=text, frame=number, parent=parent):
            self._open_frames.append(number)
            self.host(us)
            yield
            self._open_frames.pop()

    @contextmanager
    def range(self, label: str, us: float = 0.0, *, nvtx: bool = False) -> Iterator[None]:
        """A record_function range, or an NVTX range that Nsight Systems sees too."""
        if self.tool == "nsys" and not nvtx:
            self.host(us)
            yield
            return
        kind = RangeKind.PUSH_POP if nvtx else RangeKind.RECORD_FUNCTION
        with self._span("ranges", name=label, kind=int(kind)):
            self.host(us)
            yield

    @contextmanager
    def thread(self, number: int, *, aside: bool = False) -> Iterator[None]:
        """What is inside happens on another thread; `aside`: at the same time as what follows, so the cursor goes back."""
        before, self.current_thread = self.current_thread, number
        now = self.now
        yield
        self.current_thread = before
        if aside:
            self.now = now

    @contextmanager
    def backward(self) -> Iterator[None]:
        """On the autograd thread."""
        with self.thread(self.process + 6):
            yield

    def overhead(self, name: str, us: float) -> None:
        """The profiler held the thread."""
        with self._span("overheads", name=name):
            self.host(us)

    # CUDA

    def call(self, name: str, us: float = 1.0) -> int:
        """A CUDA call on the host; returns its correlation."""
        return int(self._call(name, us)["correlation"])

    def _call(self, name: str, us: float) -> dict[str, Any]:
        number = self._next("correlation")
        with self._span("runtime_calls", name=name, correlation=number, op=self._op) as row:
            self.host(us)
        return row

    def _place(self, stream: int, gpu_us: float, start_us: float | None) -> tuple[int, int]:
        begin = max(self.free[stream], self.now + ns(LATENCY_US)) if start_us is None else ns(start_us)
        end = begin + ns(gpu_us)
        self.free[stream] = max(self.free[stream], end)
        return begin, end

    def _gpu(self, device: int, stream: int, correlation: int, start: int, end: int) -> dict[str, Any]:
        return {
            "start": start, "end": end, "device": device, "context": 1 + device, "stream": stream,
            "correlation": correlation, "op": self._op,
        }  # fmt: skip

    def launch(
        self,
        kernel: str,
        gpu_us: float = 10.0,
        us: float = 4.0,
        *,
        stream: int = 7,
        device: int = 0,
        grid: tuple[int, int, int] = (132, 1, 1),
        block: tuple[int, int, int] = (256, 1, 1),
        registers: int = 32,
        shared_memory: int = 0,
        start_us: float | None = None,
        blocking: bool = False,
        api: str = "cudaLaunchKernel",
    ) -> Work:
        """A launch call of `us` and its kernel. `blocking`: the call returns only after the kernel."""
        call = self._call(api, us)
        start, end = self._place(stream, gpu_us, start_us)
        self._kernel(kernel, grid, block, registers, shared_memory, **self._gpu(device, stream, call["correlation"], start, end))
        if blocking:
            call["end"] = self.now = max(self.now, end + ns(WAKE_UP_US))
        return Work(start, end, call["correlation"])

    def _kernel(
        self,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        registers: int,
        shared_memory: int,
        **gpu: Any,
    ) -> dict[str, Any]:
        sizes = {f"grid_{axis}": size for axis, size in zip("xyz", grid, strict=True)}
        sizes |= {f"block_{axis}": size for axis, size in zip("xyz", block, strict=True)}
        return self.row("kernels", name=name, registers=registers, shared_memory=shared_memory, **sizes, **gpu)

    def graph(self, kernels: Sequence[tuple[str, float]], us: float = 10.0, *, stream: int = 7, device: int = 0) -> None:
        """One launch of a CUDA graph with these kernels, recorded one by one."""
        call = self._call("cudaGraphLaunch", us)
        for node, (name, gpu_us) in enumerate(kernels):
            start, end = self._place(stream, gpu_us, None)
            gpu = self._gpu(device, stream, call["correlation"], start, end)
            self._kernel(name, (132, 1, 1), (256, 1, 1), 32, 0, graph_node=node, **gpu)

    def copy(
        self,
        direction: str,
        bytes: int,
        gpu_us: float | None = None,
        us: float = 5.0,
        *,
        source: str | None = None,
        target: str | None = None,
        blocking: bool | None = None,
        stream: int = 7,
        device: int = 0,
    ) -> Work:
        """cudaMemcpyAsync, "HtoD", "DtoH", "DtoD" or "PtoP". From or to "pageable" memory the call waits for the copy."""
        kind, *ends = DIRECTIONS[direction]
        source, target = source or str(ends[0]), target or str(ends[1])
        kinds = {source, target}
        slowest = "pageable" if "pageable" in kinds else "pinned" if "pinned" in kinds else "device"
        taken = bytes / RATES[slowest] * 1e6 + 1 if gpu_us is None else gpu_us
        call = self._call("cudaMemcpyAsync", us)
        start, end = self._place(stream, taken, None)
        memory = {"source": int(MemoryKind[source.upper()]), "target": int(MemoryKind[target.upper()])}
        gpu = self._gpu(device, stream, call["correlation"], start, end)
        self.row("copies", kind=int(kind), bytes=bytes, **memory, **gpu)
        if blocking or (blocking is None and slowest == "pageable"):
            call["end"] = self.now = max(self.now, end + ns(WAKE_UP_US))
        return Work(start, end, call["correlation"])

    def memset(self, bytes: int, gpu_us: float | None = None, us: float = 4.0, *, stream: int = 7, device: int = 0) -> Work:
        call = self._call("cudaMemsetAsync", us)
        start, end = self._place(stream, bytes / RATES["device"] * 1e6 + 1 if gpu_us is None else gpu_us, None)
        gpu = self._gpu(device, stream, call["correlation"], start, end)
        self.row("copies", kind=int(CopyKind.MEMSET), target=int(MemoryKind.DEVICE), bytes=bytes, **gpu)
        return Work(start, end, call["correlation"])

    def sync(self, what: str = "stream", us: float = 2.0, *, stream: int = 7) -> int:
        """Wait for a stream, the whole "device" or an "event" (all of the stream so far); returns the call's length in ns."""
        until = max(self.free.values(), default=0) if what == "device" else self.free[stream]
        call = self._call(SYNC_CALLS[what], us)
        if until > self.now:
            call["end"] = self.now = until + ns(WAKE_UP_US)
        return int(call["end"] - call["start"])

    def stream_wait(self, stream: int, *, on: int, us: float = 1.0) -> None:
        """Later work of one stream waits for all so far of another; the host does not."""
        self.call("cudaEventRecord", us)
        self.call("cudaStreamWaitEvent", us)
        self.free[stream] = max(self.free[stream], self.free[on])

    def item(self, *, stream: int = 7) -> None:
        """tensor.item(): four bytes to the host and a wait for them."""
        with self.op("aten::item"), self.op("aten::_local_scalar_dense"):
            self.copy("DtoH", 4, 1.5, stream=stream)
            self.sync("stream", stream=stream)

    # Loop

    def steps(self, count: int) -> Iterator[int]:
        for _ in range(count):
            with self.step() as number:
                yield number

    @contextmanager
    def step(self) -> Iterator[int]:
        """One marked step on the current thread."""
        number = self._next("step") - 1
        label, nvtx = (f"step {number}", True) if self.tool == "nsys" else (f"ProfilerStep#{number}", False)
        with self.range(label, nvtx=nvtx):
            yield number

    def loader(self, us: float, *, workers: bool = False) -> None:
        """The iterator of torch.utils.data.DataLoader hands out a batch."""
        kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        with self.range(f"enumerate(DataLoader)#{kind}.__next__"):
            self.host(us)

    @contextmanager
    def optimizer(self, name: str = "AdamW") -> Iterator[None]:
        with self.range(f"Optimizer.step#{name}.step"):
            yield

    # Other

    def alloc(self, bytes: int, *, device: int = 0, source: MemorySource = MemorySource.FRAMEWORK) -> None:
        """A memory event with the running totals; a negative size releases."""
        self.allocated += bytes
        self.reserved = max(self.reserved, self.allocated)
        totals = {"allocated": self.allocated, "reserved": self.reserved}
        self.row("memory_events", time=self.now, device=device, source=int(source), bytes=bytes, **totals)

    def release(self, bytes: int, *, device: int = 0, source: MemorySource = MemorySource.FRAMEWORK) -> None:
        self.alloc(-bytes, device=device, source=source)

    def sample(self, device: int = 0, **columns: Any) -> None:
        """A row of `device_samples` at the cursor."""
        self.row("device_samples", time=self.now, device=device, name=self.device.name or "", **columns)
