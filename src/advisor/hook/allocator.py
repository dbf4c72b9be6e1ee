"""The caching allocator's own counters, step by step, and a snapshot of it when it runs out of memory."""

from __future__ import annotations

import gzip
import io
import pickle
from pathlib import Path
from typing import Any

from advisor.hook.bundle import Bundle
from advisor.hook.guard import log, quietly

_COLUMNS = (
    "step",
    "allocated_bytes",
    "reserved_bytes",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "device_allocations",
    "retries",
    "ooms",
)
_STATISTICS = {  # name here -> torch's statistic and which value of it
    "allocated": ("allocated_bytes", "current"),
    "allocated_peak": ("allocated_bytes", "peak"),
    "requested": ("requested_bytes", "current"),
    "reserved": ("reserved_bytes", "current"),
    "reserved_peak": ("reserved_bytes", "peak"),
    "non_releasable": ("inactive_split_bytes", "current"),
    "non_releasable_peak": ("inactive_split_bytes", "peak"),
    "segments": ("segment", "current"),
    "segments_freed": ("segment", "freed"),
}
_MOST_ROWS = 2048
_EVERY = 8  # steps
_MOST_SNAPSHOTS = 3
_HISTORY = 100_000  # allocator events kept, with stacks


class Allocator:
    """Counters of the current device. Reading them waits for nothing but takes up to 40 us, so only some steps are read.

    Rows are thinned out when there are too many, so memory stays bounded; the peaks are the allocator's own and lose nothing.
    """

    name = "allocator"

    def __init__(self, bundle: Bundle, history: bool, snapshot_on_oom: bool) -> None:
        self._bundle, self._history, self._on_oom = bundle, history, snapshot_on_oom
        self._rows: list[tuple[int, ...]] = []
        self._every = _EVERY
        self._snapshots: list[dict[str, Any]] = []
        self._ended = False

    def begin(self) -> None:
        import torch

        self._torch = torch
        self._device = torch.cuda.current_device()
        if self._history:
            torch.cuda.memory._record_memory_history(max_entries=_HISTORY)
        if self._on_oom:
            torch._C._cuda_attach_out_of_memory_observer(self._out_of_memory)

    def end_step(self, count: int, window: str | None) -> None:
        if count % self._every:
            return
        self._rows.append((count, *self._read()))
        if len(self._rows) >= _MOST_ROWS:
            self._rows = self._rows[1::2]
            self._every *= 2

    def begin_step(self, count: int, window: str | None) -> None:
        pass

    def _read(self) -> tuple[int, ...]:
        stats = self._torch._C._cuda_memoryStats(self._device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return (
            allocated["current"],
            reserved["current"],
            allocated["peak"],
            reserved["peak"],
            stats.get("num_device_alloc", -1),
            stats["num_alloc_retries"],
            stats["num_ooms"],
        )

    def _out_of_memory(self, device: int, asked: int, allowed: int, free: int) -> None:
        """The allocator is about to raise: it may be caught, so training may go on."""
        if self._ended or len(self._snapshots) >= _MOST_SNAPSHOTS:
            return
        about = {"device": device, "asked_bytes": asked, "device_free_bytes": free}
        quietly(lambda: self.snapshot(f"snapshot-oom-{len(self._snapshots)}", about), "writing a snapshot of the allocator")

    def snapshot(self, name: str, about: dict[str, Any]) -> Path | None:
        """Write what `torch.cuda.memory._snapshot` gives as name.pickle.gz; a number is added to a name that is taken."""
        if not self._bundle.room():
            return None
        taken = {one["file"] for one in self._snapshots}
        names = (f"{name}{'' if i == 0 else f'-{i}'}.pickle.gz" for i in range(len(taken) + 1))
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as file:
            pickle.dump(self._torch.cuda.memory._snapshot(), file, protocol=4)
        place = self._bundle.write(next(each for each in names if each not in taken), packed.getvalue())
        self._snapshots.append({"file": place.name, **about})
        log.info("advisor: wrote a snapshot of the CUDA allocator: %s", place.name)
        return place

    def failed(self, error: BaseException) -> None:
        pass

    def end(self) -> None:
        self._ended = True  # the observer cannot be taken back
        if self._history:
            self._torch.cuda.memory._record_memory_history(enabled=None)

    def about(self) -> Any:
        return {
            "device": self._device,
            "columns": list(_COLUMNS),
            "rows": [list(row) for row in self._rows],
            "summary": quietly(self._summary, "reading the allocator's statistics"),
            "snapshots": self._snapshots,
        }

    def _summary(self) -> dict[str, int]:
        """Named as the columns of the table `allocator_summaries`; what this torch does not count is left out."""
        stats = self._torch._C._cuda_memoryStats(self._device)
        found = {"ooms": stats.get("num_ooms"), "retries": stats.get("num_alloc_retries")}
        for name, (key, value) in _STATISTICS.items():
            found[name] = stats.get(key, {}).get("all", {}).get(value)
        return {name: int(value) for name, value in found.items() if value is not None}
