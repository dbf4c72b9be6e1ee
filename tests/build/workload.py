"""A small training run told in a few lines, as the tables that readers make or as files that they read.

    w = Workload()
    for _ in w.steps(4):
        w.loader(800)
        with w.op("aten::mm", shapes=[[64, 64], [64, 64]], types=["float", "float"]):
            w.launch("sgemm", gpu_us=50)
        w.sync()
    run = w.to_run()              # advisor.model.Run
    paths = w.write_kineto(tmp)   # torch.profiler JSON, one file a rank
    path = w.write_nsys(tmp / "report.sqlite")      # Nsight Systems export

Every method speaks at the cursor `w.now` (ns) of the current thread and moves it on. Times are given in microseconds. The
GPU follows by itself: work starts when its stream is free and its launch is through, or at `start_us`.

    host: host(us), op(...), leaf(name, us), frame(text), range(label), thread(id), backward(), overhead(name, us)
    CUDA: call(name, us), launch(kernel, gpu_us), graph([(kernel, gpu_us), ...]), copy("HtoD", bytes), memset(bytes),
          sync("stream" | "device" | "event"), stream_wait(7, on=17), item()
    loop: steps(n), step(), loader(us, workers=False), optimizer()
    other: alloc(bytes), release(bytes), sample(utilization=50, ...), row(table, **columns)

Several ranks: `w = Workload(ranks=2)` is itself rank 0, `w.ranks` are all; each has its own cursor. `w.collective(...)` issues
one collective on every rank, `w.hand_on(0, 1)` a send and its receive; they end when the last has come and the transfer is done:
build ranks in lock step up to it.

`Workload(tool="nsys")` keeps what Nsight Systems would have seen: no operators, frames or record_function ranges, steps as
NVTX "step N". `Workload(env={...}, facts={...}, device=Device(...))` state what the input tells besides.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.model import TABLES, Capture, Device, Run, Strings, Table, Trace
from build.rank import A100, H200, T4, V100, Rank, Work, ns, us

__all__ = ["A100", "H200", "T4", "V100", "Rank", "Work", "Workload", "ns", "us"]


class Workload(Rank):
    """A run; itself rank 0. With one rank and no world size the rank is unknown, as in a recording of one process."""

    def __init__(
        self,
        ranks: int = 1,
        *,
        tool: str = "torch",
        device: Device = H200,
        env: dict[str, str] | None = None,
        facts: dict[str, str | int | float] | None = None,
        world_size: int | None = None,
        closing_sync: bool = True,
        start_us: float = 100.0,
    ) -> None:
        """`tool`: "torch" or "nsys". `closing_sync`: the profiler waits for the device after the last step, as it does."""
        known = ranks > 1 or world_size is not None
        super().__init__(0 if known else -1, tool, device, start_us)
        self.ranks: list[Rank] = [self, *(Rank(number, tool, device, start_us) for number in range(1, ranks))]
        self.env, self.facts = dict(env or {}), dict(facts or {})
        self.world_size = world_size or (ranks if known else None)
        self._closing = closing_sync

    def collective(
        self,
        kind: str = "allreduce",
        elements: int = 1 << 20,
        gpu_us: float = 100.0,
        *,
        dtype: str = "Float",
        elements_out: int | None = None,
        stream: int = 17,
        group_size: int | None = None,
        group: str = "0",
        kernel: str | None = None,
        us: float = 5.0,
        wait_us: float = 0.0,
    ) -> None:
        """One collective on every rank: from each one's arrival to `gpu_us` after the last one's (plus `wait_us`)."""
        words = {
            "allreduce": "AllReduce_Sum_f32_RING_LL",
            "allgather": "AllGather_RING_LL",
            "reduce_scatter": "ReduceScatter_Sum_f32_RING_LL",
        }
        name = kernel or f"ncclDevKernel_{words.get(kind, kind)}(ncclDevKernelArgsStorage<4096ul>)"
        size = group_size or self.world_size or 2
        arrivals = []
        for rank in self.ranks:
            with rank.op(f"nccl:{kind}"):
                work = rank.launch(name, 0.0, us, stream=stream, grid=(24, 1, 1), block=(640, 1, 1), registers=96)
            arrivals.append((rank, work, rank.rows["kernels"][-1]))
        end = max(work.start for _, work, _ in arrivals) + ns(gpu_us + wait_us)
        for rank, work, row in arrivals:
            row["end"] = rank.free[stream] = end
            rank.row(
                "collective_calls", start=work.start, correlation=work.correlation, collective=kind, dtype=dtype,
                elements_in=elements, elements_out=elements if elements_out is None else elements_out,
                group_size=size, group=group, group_ranks=json.dumps(list(range(size))),
            )  # fmt: skip

    def hand_on(
        self,
        source: int,
        target: int,
        gpu_us: float = 20.0,
        *,
        elements: int = 1 << 20,
        group_size: int | None = None,
        named: bool = True,
        stream: int = 17,
    ) -> None:
        """One rank sends to another: from each one's arrival to `gpu_us` after the later one's."""
        size, ends = group_size or len(self.ranks), []
        for number, kind in ((source, "send"), (target, "recv")):
            rank = self.ranks[number]
            with rank.op(f"nccl:{kind}"), rank.range("ncclSend" if kind == "send" else "ncclRecv", nvtx=True):
                work = rank.launch("ncclDevKernel_SendRecv(T)", 0.0, 5.0, stream=stream, grid=(8, 1, 1))
            ends.append((rank, work, rank.rows["kernels"][-1], kind))
        end = max(work.start for _, work, _, _ in ends) + ns(gpu_us)
        for rank, work, row, kind in ends:
            row["end"] = rank.free[stream] = end
            if named:
                rank.row(
                    "collective_calls", start=work.start, correlation=work.correlation, collective=kind, dtype="BFloat16",
                    elements_in=elements, elements_out=elements, group_size=size, group="pp",
                    group_ranks=json.dumps(list(range(size))),
                )  # fmt: skip

    def close(self) -> None:
        """The profiler's closing wait, once; called by the methods below."""
        if self._closing:
            self._closing = False
            for rank in self.ranks:
                rank.host(300)
                rank.sync("device")

    def to_run(self) -> Run:
        """All ranks in one Run, as after reading and joining."""
        self.close()
        strings = Strings()
        tables = {}
        for name in sorted({name for rank in self.ranks for name in rank.rows}):
            tables[name] = Table.concat(name, [_table(name, rank.rows[name], strings) for rank in self.ranks])
        numbers: list[int | None] = [None if rank.number < 0 else rank.number for rank in self.ranks]
        devices = [replace(rank.device, rank=n, process=rank.process) for rank, n in zip(self.ranks, numbers, strict=True)]
        capture = Capture(
            tool=self.tool,
            stacks="python_frames" in tables,
            shapes="host_ops" in tables and tables["host_ops"].has("shapes"),
            memory="memory_events" in tables,
            cuda=True,
        )
        traces = [
            Trace(path=f"rank{max(rank.number, 0)}", format=self.tool, rank=n)
            for rank, n in zip(self.ranks, numbers, strict=True)
        ]
        return Run(
            traces=traces, tables=tables, strings=strings, devices=devices, ranks=numbers, world_size=self.world_size,
            capture=capture, environment=dict(self.env), facts=dict(self.facts),
        )  # fmt: skip

    def write_kineto(self, folder: Path) -> list[Path]:
        """One `rankN.pt.trace.json` a rank, as torch 2.x writes it."""
        from build.workload_kineto import write

        self.close()
        return [write(self, rank, folder) for rank in self.ranks]

    def write_nsys(self, path: Path) -> Path:
        """One SQLite export with all ranks; for a workload of tool "nsys"."""
        from build.workload_nsys import write

        self.close()
        return write(self, path)


def _table(name: str, rows: list[dict[str, Any]], strings: Strings) -> Table:
    """Columns from rows; a column that some rows lack holds its missing value there."""
    columns: dict[str, list[Any]] = {}
    for column in TABLES[name].columns:
        if any(column.name in row for row in rows):
            values = [row.get(column.name, column.missing) for row in rows]
            if column.unit == "text":
                values = [strings.code(value) if isinstance(value, str) else -1 for value in values]
            columns[column.name] = values
    return Table(name, columns, length=len(rows))
