"""What torch.cuda.memory_summary() prints: a table a device; units differ from cell to cell."""

from __future__ import annotations

import re
from collections.abc import Iterable

from advisor.ingest.memory_text.sizes import size

HEADER = re.compile(r"PyTorch CUDA memory summary, device ID (\d{1,4})")
_COUNTS = re.compile(r"CUDA OOMs: (\d{1,15})\s*\|\s*cudaMalloc retries: (\d{1,15})")
_ROW = re.compile(r"\|\s*([A-Za-z][\w -]{1,40}?)\s*\|([^|]{1,40})\|([^|]{1,40})\|([^|]{1,40})\|([^|]{1,40})\|")
# Metric -> columns for its current, peak, total and freed cells.
_METRICS: dict[str, tuple[str | None, ...]] = {
    "Allocated memory": ("allocated", "allocated_peak", None, None),
    "Requested memory": ("requested", None, None, None),
    "GPU reserved memory": ("reserved", "reserved_peak", None, None),
    "Non-releasable memory": ("non_releasable", "non_releasable_peak", None, None),
    "GPU reserved segments": ("segments", None, None, "segments_freed"),
}
COLUMNS = ("device", "ooms", "retries", *(name for names in _METRICS.values() for name in names if name))
_MOST = 10_000

Row = dict[str, int]


def rows(lines: Iterable[str]) -> list[Row]:
    """A row of `allocator_summaries` for each table that tells more than its header, in order."""
    found: list[Row] = []
    for line in lines:
        if header := HEADER.search(line):
            if len(found) > _MOST:
                break
            found.append({**dict.fromkeys(COLUMNS, -1), "device": int(header[1])})
        elif found and (counts := _COUNTS.search(line)):
            found[-1]["ooms"], found[-1]["retries"] = int(counts[1]), int(counts[2])
        elif found and (row := _ROW.search(line)) and row[1] in _METRICS:
            for name, cell in zip(_METRICS[row[1]], row.groups()[1:], strict=True):
                if name and found[-1][name] < 0:
                    found[-1][name] = size(cell.strip())
    return [row for row in found if any(value >= 0 for name, value in row.items() if name != "device")]
