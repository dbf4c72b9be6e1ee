"""Traces with clocks of their own on one time line.

Zero is the first event of the run. What cannot be placed (no wall clock, or a local one that never meets the trace) keeps a
line of its own that starts at zero, and a notice says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from advisor.model import Notice, Trace

_QUARTER = 15 * 60 * 1_000_000_000  # every zone of the world is a multiple of 15 minutes from UTC
_ZONES = range(-14 * 4, 12 * 4 + 1)  # what to add to a local time, in quarters: UTC+14 to UTC-12


@dataclass
class Placement:
    """`offsets`: what to add to the times of each trace, ns. `epoch_ns`: wall clock (UTC) of zero, None if unknown."""

    offsets: list[int]
    epoch_ns: int | None = None
    notices: list[Notice] = field(default_factory=list)


def named(paths: Sequence[str]) -> str:
    """Files in a sentence: the first one's name, and how many more there are."""
    paths = list(dict.fromkeys(paths))
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return PurePath(paths[0]).name + more


def bounds(trace: Trace) -> tuple[int, int] | None:
    """First and last time in the trace, in its own ns. None if it holds no times."""
    first, last = [], []
    for table in trace.tables.values():
        names = {column.name for column in table.spec.columns if column.unit == "ns" and table.has(column.name)}
        if names and len(table):
            known = slice(None) if "start" in names else table.known("time")
            first.append(int(table["start" if "start" in names else "time"][known].min()))
            last.append(int(table["end" if "end" in names else "start" if "start" in names else "time"][known].max()))
    return (min(first), max(last)) if first else None


def place(events: Sequence[Trace], samples: Sequence[Trace]) -> Placement:
    """Offsets for `events` (recordings of the program), then for `samples` (what was seen beside it)."""
    traces = [*events, *samples]
    spans = [_absolute(trace) for trace in traces]
    leading = _leading(events, samples)
    stated = [spans[i] for i in leading]
    reference = (min(first for first, _ in stated), max(last for _, last in stated)) if stated else None
    result = Placement([], reference[0] if reference and not traces[leading[0]].local_clock else None)
    timed = [bounds(trace) is not None for trace in traces]
    said: dict[Notice, list[str]] = {}
    for i, trace in enumerate(traces):
        if i in leading and reference is not None:
            shift: int | None = 0
        else:
            shift, notice = _shift(trace, spans[i], reference)
            if notice is not None and timed[i] and sum(timed) > 1:
                said.setdefault(notice, []).append(trace.path)
        zero = spans[i][0] if shift is None or reference is None else reference[0] - shift
        result.offsets.append((trace.epoch_ns or 0) - zero)
    result.notices = [Notice(notice.code, f"{named(paths)}: {notice.message}") for notice, paths in said.items()]
    if len(events) > 1 and stated and max(first for first, _ in stated) > min(last for _, last in stated):
        text = "the recordings do not overlap in time: ranks cannot be compared moment by moment"
        result.notices.append(Notice("ranks-not-concurrent", text))
    return result


def _absolute(trace: Trace) -> tuple[int, int]:
    first, last = bounds(trace) or (0, 0)
    return (trace.epoch_ns or 0) + first, (trace.epoch_ns or 0) + last


def _leading(events: Sequence[Trace], samples: Sequence[Trace]) -> list[int]:
    """Positions of the traces that set the time line: those of the program, else samples that share one kind of clock."""
    candidates = [i for i, trace in enumerate(events or samples) if trace.epoch_ns is not None]
    if events or not candidates:
        return candidates
    kind = samples[candidates[0]].local_clock
    return [i for i in candidates if samples[i].local_clock == kind]


def _shift(trace: Trace, span: tuple[int, int], reference: tuple[int, int] | None) -> tuple[int | None, Notice | None]:
    """What to add to the wall clock of a trace that does not lead, None for a line of its own; and what to say about it."""
    if trace.epoch_ns is None or reference is None:
        return None, Notice("clock-unknown", "no time of day is stated; the times begin with the run")
    if not trace.local_clock:
        outside = span[1] < reference[0] or span[0] > reference[1]
        return 0, Notice("samples-outside-trace", "not taken during the trace") if outside else None
    overlap = {
        q * _QUARTER: min(span[1] + q * _QUARTER, reference[1]) - max(span[0] + q * _QUARTER, reference[0]) for q in _ZONES
    }
    best = max(overlap.values())
    if best < 0:
        text = "not taken during the trace, whatever the time zone; kept on a time line of its own"
        return None, Notice("samples-not-aligned", text)
    # UTC first, then the nearest zone: the same input gives the same answer on every machine.
    fitting = sorted((shift for shift, length in overlap.items() if length == best), key=lambda shift: (abs(shift), shift))
    minutes = -fitting[0] // _QUARTER * 15
    zone = f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60}:{abs(minutes) % 60:02}"
    more = f", though {len(fitting) - 1} other zones do, too" if len(fitting) > 1 else ""
    text = f"no time zone is stated; taken as {zone}, which meets the trace{more}"
    return fitting[0], Notice("clock-zone-guessed", text)
