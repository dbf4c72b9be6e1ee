"""All work of the GPUs in one table, and which GPU did it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.intervals import IntervalSet, union
from advisor.derive.nesting import distinct_rows
from advisor.model import CopyKind, Device, Run

KERNEL, COPY, GRAPH = 0, 1, 2


@dataclass(frozen=True)
class Gpu:
    """One GPU that did work, as one process saw it. `rank` is -1 where unknown."""

    rank: int
    process: int
    device: int


@dataclass(frozen=True)
class GpuWork:
    """Kernels, copies and whole-graph executions, ordered by start.

    source: KERNEL, COPY or GRAPH; row: row in that table; gpu: index into `gpus`; the rest as in the schema.
    """

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    source: npt.NDArray[np.int8]
    row: npt.NDArray[np.int64]
    gpu: npt.NDArray[np.int32]
    stream: npt.NDArray[np.int64]
    correlation: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int32]
    process: npt.NDArray[np.int64]
    gpus: list[Gpu]

    def __len__(self) -> int:
        return len(self.start)

    def of(self, gpu: int) -> npt.NDArray[np.int64]:
        """Positions of the work of one GPU."""
        return np.flatnonzero(self.gpu == gpu)

    def busy(self, gpu: int) -> IntervalSet:
        """When the GPU did anything."""
        rows = self.of(gpu)
        return union(self.start[rows], self.end[rows])


def gpu_work(run: Run) -> GpuWork:
    return run.derived(_gpu_work)


def _gpu_work(run: Run) -> GpuWork:
    tables = [run.table("kernels"), run.table("copies"), run.table("graph_executions")]

    def joined(column: str) -> npt.NDArray[np.int64]:
        return np.concatenate([table[column] for table in tables])

    start, end = joined("start"), joined("end")
    source = np.repeat(np.array([KERNEL, COPY, GRAPH], np.int8), [len(table) for table in tables])
    row = np.concatenate([np.arange(len(table)) for table in tables])
    rank, process, device = joined("rank"), joined("process"), joined("device")
    distinct, index = distinct_rows(rank, process, device)
    order = np.argsort(start, kind="stable")
    return GpuWork(
        start=start[order],
        end=end[order],
        source=source[order],
        row=row[order],
        gpu=index[order],
        stream=joined("stream")[order],
        correlation=joined("correlation")[order],
        rank=rank[order].astype(np.int32),
        process=process[order],
        gpus=[Gpu(*row) for row in distinct],
    )


def work_by_row(work: GpuWork, source: int, rows: int) -> npt.NDArray[np.int64]:
    """Position in `work` of each row of the source table, which has that many rows."""
    place = np.full(rows, -1, np.int64)
    chosen = np.flatnonzero(work.source == source)
    place[work.row[chosen]] = chosen
    return place


def device_of(run: Run, gpu: Gpu) -> Device | None:
    """What is known of the GPU's model."""
    same = [d for d in run.devices if d.index == gpu.device]
    for device in same:
        if device.rank == (None if gpu.rank < 0 else gpu.rank) and device.process in (None, gpu.process):
            return device
    return same[0] if same else (run.devices[0] if len(run.devices) == 1 else None)


def main_device(run: Run) -> Device | None:
    """The GPU that did most of the work; without GPU work the first that the input lists."""
    return run.derived(_main_device)


def _main_device(run: Run) -> Device | None:
    work = gpu_work(run)
    if not len(work):
        return run.devices[0] if run.devices else None
    spent = np.bincount(work.gpu, weights=work.end - work.start, minlength=len(work.gpus))
    return device_of(run, work.gpus[int(spent.argmax())])


def is_memset(run: Run) -> npt.NDArray[np.bool_]:
    """For each row of `copies`: whether it sets memory instead of copying it."""
    return np.asarray(run.table("copies")["kind"] == int(CopyKind.MEMSET), bool)
