"""Chrome traces as torch.profiler (Kineto) writes them."""

from __future__ import annotations

from typing import Any

from advisor.ingest.source import Source
from advisor.ingest.torch_trace import assemble, metadata
from advisor.ingest.torch_trace.events import as_int
from advisor.ingest.torch_trace.recognise import claims, refusal
from advisor.ingest.torch_trace.scan import EventText, Window
from advisor.ingest.torch_trace.share import Share, read_alone
from advisor.model import InputError, Trace

FORMAT = "torch-trace"
_EPOCH = 1_000_000_000_000_000_000  # ns; a later time is taken for one since 1970


def read(source: Source, *, processes: int | None = None) -> Trace:
    """The trace in `source`. `processes`: how many may read; None: as many as pay.

    Raises InputError if it is no such trace, or holds no event of a GPU or of the host program.
    """
    members = metadata.Members()
    with source.open() as stream:
        window = Window(stream)
        metadata.read_head(window, members)
        if not members.in_events:
            raise InputError(refusal(source.head()) or "a JSON text without trace events")
        share = read_alone(EventText(window))
        if share.rest is not None:
            members.in_events = False
            metadata.read_members(share.rest, members)
    trace = Trace(source.path, FORMAT)
    _fill(trace, members.values, share)
    if not trace.tables:
        raise InputError(refusal(source.head()) or "a Chrome trace that holds no GPU or host events of a profiler we know")
    _tell(trace, share, source)
    return trace


def _fill(trace: Trace, values: dict[str, Any], share: Share) -> None:
    builder = share.builder
    share.mended.dropped["begin or end without the other"] += assemble.pair_halves(builder)
    tables = {name: assemble.as_arrays(growing.columns) for name, growing in builder.tables.items()}
    share.mended.dropped["at time 0"] += assemble.drop_zero_times(tables)
    zero = assemble.zero_of(tables)
    if zero is None:
        return
    assemble.shift(tables, zero)
    base = as_int(values.get("baseTimeNanoseconds"))
    epoch = zero if base is None else base + zero
    trace.epoch_ns = epoch if epoch >= _EPOCH else None
    process = assemble.host_process(tables)
    assemble.give_processes(tables, process)
    assemble.copy_sizes(tables, builder.copied)
    assemble.forward_backward(tables)
    trace.strings = builder.strings
    for name in sorted(tables):
        table = assemble.to_table(name, tables.pop(name))
        if len(table):
            trace.tables[name] = table
    used = {int(d) for name in ("kernels", "copies") for d in set(trace.table(name)["device"].tolist()) if d >= 0}
    metadata.apply(values, trace, sorted(used), process)
    operators, frames = trace.table("host_ops"), trace.table("python_frames")
    seen = {
        "cuda": bool(used) or len(trace.table("runtime_calls")) > 0,
        "stacks": len(frames) > 0 or operators.has("stack"),
        "shapes": operators.has("shapes"),
        "memory": len(trace.table("memory_events")) > 0,
    }
    trace.capture = metadata.capture(values, seen)


def _tell(trace: Trace, share: Share, source: Source) -> None:
    dropped = share.mended.dropped + share.builder.dropped
    if source.damage or (share.rest is None):
        trace.notice("input-cut-short", f"{source.damage or 'the text ends early'}; the complete events before it were read")
    if dropped:
        parts = ", ".join(f"{n:,} {reason}" for reason, n in dropped.most_common())
        trace.notice("events-dropped", f"{dropped.total():,} events were left out: {parts}")


__all__ = ["claims", "read", "refusal"]
