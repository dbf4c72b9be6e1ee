"""All traces of one call as one `Run`: one row of tables, one list of strings, one time line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.ingest.bundle import one_recording
from advisor.ingest.clocks import named, place
from advisor.ingest.ranks import assign, assign_beside, choose
from advisor.model import Capture, Device, Notice, Options, Run, Strings, Table, Trace, device_table

# A trace with a row in one of these records the program; any other was taken beside it.
_OF_THE_PROGRAM = (
    "kernels",
    "copies",
    "graph_executions",
    "runtime_calls",
    "host_ops",
    "python_frames",
    "ranges",
    "sync_events",
    "hardware_metrics",
)


def join(traces: Sequence[Trace], options: Options | None = None) -> Run:
    """The run that these traces are recordings of. Raises InputError if `options` leave nothing of it.

    Times count from the first event of the program, else from the first sample; samples taken earlier have negative times.
    The traces in `Run.traces` are stripped of their tables, which the run holds.
    """
    options = options or Options()
    notices: list[Notice] = []
    traces = one_recording(traces, notices)
    events = [trace for trace in traces if any(len(trace.table(name)) for name in _OF_THE_PROGRAM)]
    beside = [trace for trace in traces if not any(trace is event for event in events)]
    ranked = assign(events, options.rank, notices)
    beside = assign_beside(beside, ranked, options.rank, notices)
    light, full = choose(ranked, notices)
    run = _merged(light, beside, options)
    run.notices = notices + run.notices
    if full:
        run.fuller = _merged(full, beside, options)
    runs = [run, *([run.fuller] if run.fuller else [])]
    # A trace of both runs stays one object.
    stripped = {id(trace): replace(trace, tables={}, strings=Strings()) for each in runs for trace in each.traces}
    for each in runs:
        each.traces = [stripped[id(trace)] for trace in each.traces]
    return run


def _merged(events: Sequence[Trace], beside: Sequence[Trace], options: Options) -> Run:
    traces = [*events, *beside]
    placement = place(events, beside)
    strings = traces[0].strings if len(traces) == 1 else Strings()
    parts: dict[str, list[Table]] = {}
    for trace, offset in zip(traces, placement.offsets, strict=True):
        codes = None if strings is trace.strings else np.append(strings.merge(trace.strings), np.int32(-1))
        for name, table in trace.tables.items():
            if len(table):
                parts.setdefault(name, []).append(_moved(table, offset, trace.rank, codes))
    return Run(
        traces=traces,
        tables={name: Table.concat(name, tables) for name, tables in parts.items()},
        strings=strings,
        devices=_as_told(_devices(traces), options.gpu),
        ranks=_ranks(events, parts),
        world_size=max((trace.world_size for trace in traces if trace.world_size is not None), default=None),
        epoch_ns=placement.epoch_ns,
        capture=_capture(events),
        environment=_first_of(trace.environment for trace in traces),
        facts=_first_of(trace.facts for trace in traces),
        notices=_collected(traces) + placement.notices,
        options=options,
    )


def _moved(table: Table, offset: int, rank: int | None, codes: npt.NDArray[np.int32] | None) -> Table:
    """The table with its times, its rank and its text codes as the run has them. The code -1 maps to the last of `codes`."""
    changed: dict[str, Any] = {}
    for column in table.spec.columns:
        values = table[column.name]
        if column.unit == "ns" and offset and column.missing is None:
            changed[column.name] = values + offset
        elif column.unit == "ns" and offset and table.has(column.name):
            changed[column.name] = np.where(table.known(column.name), values + offset, values)
        elif column.name == "rank" and rank is not None:
            changed[column.name] = np.where(table.known("rank"), values, np.int32(rank))
        elif column.unit == "text" and codes is not None and table.has(column.name):
            changed[column.name] = codes[values]
    return table.replace(**changed) if changed else table


def _ranks(events: Sequence[Trace], parts: dict[str, list[Table]]) -> list[int | None]:
    """Ranks in order; [None] if the program was recorded and its rank is unknown; empty without a recording of it."""
    found: set[int] = {trace.rank for trace in events if trace.rank is not None}
    for name in _OF_THE_PROGRAM:
        for table in parts.get(name, []):
            found.update(np.unique(table["rank"][table.known("rank")]).tolist())
    return [*sorted(found)] if found else [None] if events else []


def _devices(traces: Sequence[Trace]) -> list[Device]:
    """Every device once; what one trace leaves open, another of the same device may tell."""
    merged: dict[tuple[int | None, int | None, int], Device] = {}
    for trace in traces:
        for device in trace.devices:
            rank = trace.rank if device.rank is None else device.rank
            device = replace(device, rank=rank)
            key = (rank, device.process, device.index)
            if rank is None and key not in merged:  # a log of one machine tells more about a device that a rank uses
                same = [k for k, d in merged.items() if k[2] == device.index and device.name and d.name == device.name]
                for k in same:
                    merged[k] = _completed(merged[k], device)
                if same:
                    continue
            merged[key] = _completed(merged[key], device) if key in merged else device
    return list(merged.values())


def _as_told(devices: list[Device], gpu: str | None) -> list[Device]:
    """Devices that the input does not name get the model that the user names."""
    spec = device_table.find(gpu)
    if spec is None:
        return devices
    told = Device(0, spec.name, None, None, spec.capability, spec.sm_count, spec.memory_bytes)
    if not devices:
        return [told]
    return [device if device.name else _completed(device, told) for device in devices]


def _completed(device: Device, other: Device) -> Device:
    if device.name is not None and other.name is not None and device.name != other.name:
        return device  # an index of one tool need not be the ordinal of another
    missing = {
        f.name: getattr(other, f.name)
        for f in fields(Device)
        if getattr(device, f.name) is None and f.name not in ("rank", "process")
    }
    return replace(device, **missing)


def _capture(events: Sequence[Trace]) -> Capture:
    """A thing counts as recorded if any trace recorded it, as not recorded if all say so."""
    merged = Capture(tool=events[0].capture.tool if events else "")
    for name in (f.name for f in fields(Capture) if f.name != "tool"):
        stated = [getattr(trace.capture, name) for trace in events]
        setattr(merged, name, True if any(stated) else False if stated and all(s is False for s in stated) else None)
    return merged


def _first_of(dictionaries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for dictionary in dictionaries:
        for key, value in dictionary.items():
            merged.setdefault(key, value)
    return merged


def _collected(traces: Sequence[Trace]) -> list[Notice]:
    """The notices of all traces; with the file's name where there are several, and once where several say the same."""
    said: dict[Notice, list[str]] = {}
    for trace in traces:
        for notice in trace.notices:
            said.setdefault(notice, []).append(trace.path)
    if len(traces) == 1:
        return list(said)
    return [Notice(notice.code, f"{named(paths)}: {notice.message}") for notice, paths in said.items()]
