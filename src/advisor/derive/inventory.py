"""What a run holds, counted over the whole recording and not over its steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.intervals import union_length
from advisor.derive.kernel_classes import KernelClass, kernel_kinds
from advisor.derive.marks import marked_steps
from advisor.derive.nesting import distinct_rows
from advisor.model import Device, Run, Table

COUNTED = ("kernels", "copies", "runtime_calls", "host_ops", "python_frames", "ranges", "memory_events", "device_samples")

# Listed only where there are any.
SELDOM = ("memory_segments", "memory_blocks", "allocator_summaries", "out_of_memory")


@dataclass(frozen=True)
class GpuWork:
    """The work of one GPU, ns. `process` is None unless other processes use the same ordinal.

    first, last: first start and last end of kernels and copies; kernel_sum: sum of kernel durations; kernel_busy: union of
    kernels over all streams; busy: union of kernels and copies.
    """

    device: int
    process: int | None
    first: int
    last: int
    kernel_sum: int
    kernel_busy: int
    busy: int


def table_counts(run: Run) -> dict[str, int]:
    """Rows of each table, communication kernels, and steps that are marked (each once)."""
    counts = {name: len(run.table(name)) for name in COUNTED}
    counts["memory_events"] += len(run.table("allocator_events"))
    counts |= {name: len(run.table(name)) for name in SELDOM if len(run.table(name))}
    counts["collectives"] = int(np.count_nonzero(kernel_kinds(run).of(KernelClass.COMMUNICATION)))
    counts["steps"] = len(marked_steps(run))
    return counts


def step_source(run: Run) -> str:
    """What marks the steps; "none" where nothing does."""
    return marked_steps(run).source


def gpu_totals(run: Run) -> list[GpuWork]:
    """One entry a device that did work; a device ordinal of another process is another entry."""
    kernels, copies = run.table("kernels"), run.table("copies")
    pairs = sorted({pair for table in (kernels, copies) for pair in distinct_rows(table["device"], table["process"])[0]})
    ordinals = [d for d, _ in pairs]
    result = []
    for d, p in pairs:
        k, c = (_of(table, d, p) for table in (kernels, copies))
        start, end = np.concatenate((k[0], c[0])), np.concatenate((k[1], c[1]))
        result.append(
            GpuWork(
                device=d,
                process=p if ordinals.count(d) > 1 and p >= 0 else None,
                first=int(start.min()),
                last=int(end.max()),
                kernel_sum=int((k[1] - k[0]).sum()),
                kernel_busy=union_length(*k),
                busy=union_length(start, end),
            )
        )
    return result


def _of(table: Table, device: int, process: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    rows = (table["device"] == device) & (table["process"] == process)
    return table["start"][rows], table["end"][rows]


def devices(run: Run) -> list[Device]:
    """Devices that the input lists, and those that did work without being listed, by index."""
    listed = list(run.devices)
    known = {device.index for device in listed}
    used = {work.device for work in gpu_totals(run)} - known - {-1}
    return sorted([*listed, *(Device(index) for index in used)], key=lambda d: (d.rank is not None, d.rank or 0, d.index))
