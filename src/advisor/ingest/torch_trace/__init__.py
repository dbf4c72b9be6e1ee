"""Chrome traces as torch.profiler (Kineto) writes them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from advisor.ingest.source import Source
from advisor.ingest.torch_trace import assemble, metadata, parallel
from advisor.ingest.torch_trace.events import as_int
from advisor.ingest.torch_trace.parts import local
from advisor.ingest.torch_trace.recognise import claims, refusal
from advisor.ingest.torch_trace.scan import EventText, Window
from advisor.ingest.torch_trace.share import NeedsOneProcess, read_alone
from advisor.model import InputError, Trace

FORMAT = "torch-trace"
_USUAL_LOSS = 0.01  # share of GPU rows without a launch that is no news: both ends of a window cut some off
_EPOCH = 1_000_000_000_000_000_000  # ns; a later time is taken for one since 1970


def read(source: Source, *, processes: int | None = None) -> Trace:
    """The trace in `source`. `processes`: how many may read; None: as many as pay.

    Raises InputError if it is no such trace, or holds no event of a GPU or of the host program.
    """
    processes = parallel.suitable(source) if processes is None else min(processes, parallel.MOST_ASKED)
    try:
        if processes > 1 and parallel.POSSIBLE:
            return _read(source, processes)
    except NeedsOneProcess:
        pass
    return _read(source, 1)


def _read(source: Source, processes: int) -> Trace:
    head = metadata.Members()
    with source.open() as stream:
        window = Window(stream)
        metadata.read_head(window, head)
        if not head.in_events:
            raise InputError(_refused(source, "text without trace events"))
        if processes > 1:
            with parallel.read_together(EventText(window, head.bare), source, processes) as parts:
                merged = assemble.merge(parts)
        else:
            share = read_alone(EventText(window, head.bare))
            share.pair_halves()
            merged = assemble.merge([local(share)])
    trace = Trace(source.path, FORMAT)
    values = head.values | (merged.tail.values if merged.tail else {})
    _fill(trace, values, merged)
    if not trace.tables:
        raise InputError(_refused(source, "a Chrome trace without GPU or host events of a profiler we know"))
    _tell(trace, head, merged, source)
    return trace


def _refused(source: Source, otherwise: str) -> str:
    return f"this is {refusal(source.head()) or otherwise}"


def _fill(trace: Trace, values: dict[str, Any], merged: assemble.Merged) -> None:
    tables = merged.tables
    merged.dropped["at time 0"] += assemble.drop_zero_times(tables)
    zero = assemble.zero_of(tables)
    if zero is None:
        return
    assemble.shift(tables, zero)
    epoch = zero + (as_int(values.get("baseTimeNanoseconds")) or 0)
    trace.epoch_ns = epoch if _EPOCH <= epoch < 1 << 63 else None
    process = assemble.host_process(tables)
    assemble.give_processes(tables, process)
    assemble.copy_sizes(tables, merged.copied)
    assemble.forward_backward(tables)
    trace.strings = merged.strings
    for name in sorted(tables):
        table = assemble.to_table(name, tables.pop(name))
        if len(table):
            trace.tables[name] = table
    used = {int(d) for name in ("kernels", "copies") for d in np.unique(trace.table(name)["device"]) if d >= 0}
    metadata.apply(values, trace, sorted(used), process)
    operators, frames = trace.table("host_ops"), trace.table("python_frames")
    seen = {
        "cuda": bool(used) or len(trace.table("runtime_calls")) > 0,
        "stacks": len(frames) > 0 or operators.has("stack"),
        "shapes": operators.has("shapes"),
        "memory": len(trace.table("memory_events")) > 0,
    }
    trace.capture = metadata.capture(values, seen)


def _tell(trace: Trace, head: metadata.Members, merged: assemble.Merged, source: Source) -> None:
    """Notices for all that was lost, repaired or is missing."""
    tail = merged.tail
    if head.damaged or (tail is not None and tail.damaged):
        trace.notice("metadata-damaged", "some of the text beside the events is no JSON; job and devices may be unknown for that")
    if source.damage or tail is None or not (tail.complete or tail.damaged):
        trace.notice("input-cut-short", f"{source.damage or 'the text ends early'}; the complete events before that were read")
    if tail is not None and tail.more:
        trace.notice("text-after-end", "another text follows the trace in the same file; it was left out")
    if dropped := +merged.dropped:
        trace.notice("events-dropped", f"{_plural(dropped.total(), 'event')} left out: {_listing(dropped)}")
    if merged.repaired:
        trace.notice("events-repaired", f"{_plural(merged.repaired, 'event')} read although not quite JSON")
    if merged.others:
        trace.notice(
            "other-categories", f"{_plural(merged.others.total(), 'event')} of other kinds left out: {_listing(merged.others)}"
        )
    if merged.left_out:
        trace.notice(
            "texts-left-out", f"{_plural(merged.left_out, 'long argument')} (shapes, inputs, stacks) left out to save memory"
        )
    rows, alone = assemble.without_launch(trace.table("kernels"), trace.table("copies"), trace.table("runtime_calls"))
    if alone > rows * _USUAL_LOSS:
        trace.notice(
            "gpu-rows-without-launch",
            f"{alone:,} of {_plural(rows, 'GPU row')} without a recorded launch: host records lost or cut",
        )


def _plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _listing(counts: Counter[str]) -> str:
    first = [f"{n:,} {what[:40]}" for what, n in counts.most_common(4)]
    return ", ".join(first) + (", ..." if len(counts) > 4 else "")


__all__ = ["claims", "read", "refusal"]
