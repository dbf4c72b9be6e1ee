"""A run as Trace Event JSON, which ui.perfetto.dev and chrome://tracing open, with our tracks beside the recorded ones.

The events are those of the tables, whatever format they were read from, in the layout of torch.profiler; times are
microseconds with nanoseconds as decimals. Lines are written as they are made: beyond the run, memory is that of one chunk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from advisor.export import own_tracks
from advisor.export.places import Places
from advisor.export.rows import Writer
from advisor.export.selection import Selection
from advisor.model import Report, Run
from advisor.pictures import highlights
from advisor.replay.changes import Edit

# The tables that are drawn.
TABLES = (
    "kernels",
    "copies",
    "graph_executions",
    "runtime_calls",
    "host_ops",
    "python_frames",
    "ranges",
    "sync_events",
    "memory_events",
)
_BUFFER = 1 << 20  # bytes of text that are handed on together


@dataclass(frozen=True)
class Written:
    """events: how many; cut: host events that were cut to the one around them, since viewers need rows to nest."""

    events: int
    cut: int


def write(
    run: Run,
    report: Report,
    changes: Mapping[str, Sequence[Edit]],
    selection: Selection,
    out: IO[bytes],
    clean: Callable[[str], str] = str,
) -> Written:
    """Write the selection as one JSON document.

    changes: what the fix of each finding changes, by fingerprint; clean: makes a recorded text fit to be shown.
    """
    places = Places(run)
    rows = Writer(run, selection, places, clean)
    found = highlights.Places(run, changes, lambda code: clean(run.strings[code]))
    head = json.dumps(_head(run, report, selection, clean))[:-1]
    out.write(f'{head},\n"traceEvents":[\n'.encode())
    count = 0
    for text in _joined(_all(run, report, selection, places, rows, found)):
        count += text[1]
        out.write(text[0].encode())
    out.write(b"\n]}\n")
    return Written(count, rows.cut)


def _all(run: Run, report: Report, selection: Selection, places: Places, rows: Writer, found: highlights.Places) -> Iterator[str]:
    yield from rows.lines()
    yield from own_tracks.lines(run, report, selection, places, found)
    for event in places.metadata():
        yield json.dumps(event, separators=(",", ":"))


def _joined(lines: Iterator[str]) -> Iterator[tuple[str, int]]:
    """Lines with commas between them, in pieces of some size, and how many lines each holds."""
    piece: list[str] = []
    size, first = 0, True
    for line in lines:
        piece.append(line)
        size += len(line)
        if size > _BUFFER:
            yield ("" if first else ",\n") + ",\n".join(piece), len(piece)
            piece, size, first = [], 0, False
    if piece:
        yield ("" if first else ",\n") + ",\n".join(piece), len(piece)


def _head(run: Run, report: Report, selection: Selection, clean: Callable[[str], str]) -> dict[str, Any]:
    """What readers of torch.profiler's traces look for, and what was selected."""
    known = [rank for rank in run.ranks if rank is not None]
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [
            {
                "id": device.index,
                "name": clean(device.name or ""),
                **({"totalGlobalMem": device.memory_bytes} if device.memory_bytes is not None else {}),
                **({"numSms": device.sm_count} if device.sm_count is not None else {}),
                **(
                    {"computeMajor": device.compute_capability[0], "computeMinor": device.compute_capability[1]}
                    if device.compute_capability is not None
                    else {}
                ),
            }
            for device in {device.index: device for device in reversed(run.devices)}.values()
        ],
        "record_shapes": int(run.table("host_ops").has("shapes")),
        "with_stack": int(len(run.table("python_frames")) > 0 or run.table("host_ops").has("stack")),
        "profile_memory": int(len(run.table("memory_events")) > 0),
        "displayTimeUnit": "ms",
        "otherData": {"written by": f"advisor {report.version}", "selection": selection.said},
    }
    if len(known) == 1:
        head["distributedInfo"] = {"rank": known[0], "world_size": run.world_size or 1}
    if run.epoch_ns is not None:
        head["baseTimeNanoseconds"] = run.epoch_ns
    return head
