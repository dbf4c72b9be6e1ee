"""What host threads did: API calls, waits, recorded events, and the profiler's own time."""

from __future__ import annotations

import re

import numpy as np

from advisor.ingest.nsys.database import NULL
from advisor.ingest.nsys.export import PLACE, Calls, Export, distinct, place, process, stream, thread
from advisor.model import Strings, SyncKind, Table
from advisor.model.tables import Array

# eventClass of a row of CUPTI_ACTIVITY_KIND_RUNTIME. 67 repeats a call (with its correlation id) for its backtrace.
_RUNTIME, _DRIVER = 0, 1

_SUFFIX = re.compile(r"(?:_pt(?:sz|ds))?(?:_v\d+)?(?:_pt(?:sz|ds))?$")

_WAITS = (
    (re.compile(r"StreamWaitEvent"), SyncKind.STREAM_WAIT_EVENT),
    (re.compile(r"EventQuery"), SyncKind.EVENT_QUERY),
    (re.compile(r"EventSynchronize"), SyncKind.EVENT),
    (re.compile(r"StreamSynchronize"), SyncKind.STREAM),
    (re.compile(r"(?:Device|Ctx|Thread)Synchronize"), SyncKind.DEVICE),
)

# CUpti_ActivityOverheadKind as Nsight Systems numbers it in overheadType.
_OVERHEADS = {
    2: "Driver JIT Compilation",
    3: "Buffer Flush",
    4: "Instrumentation",
    5: "Resource",
    6: "Runtime Triggered Module Loading",
    7: "Lazy Function Loading",
    8: "Command Buffer Full",
}


def api_name(recorded: str) -> str:
    """Name of a CUDA API call without the suffix of its version and of its per-thread-stream form."""
    return _SUFFIX.sub("", recorded, count=1) or recorded


def _renamed(strings: Strings, codes: Array, unnamed: str) -> Array:
    """Codes of the API names for codes of recorded names."""
    values, inverse = distinct(codes)
    new = [strings.code(api_name(strings[code]) if code >= 0 else unnamed) for code in values.tolist()]
    return np.array(new, np.int32)[inverse]


def runtime_calls(export: Export) -> Table:
    """CUDA runtime and driver API calls."""
    found = export.read_timed(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        {"eventClass": "int32", "globalTid": "int64", "correlationId": "id", "nameId": "id"},
    )
    if found is None:
        return Table("runtime_calls")
    if export.has_column("CUPTI_ACTIVITY_KIND_RUNTIME", "eventClass"):
        calls = (found["eventClass"] == _RUNTIME) | (found["eventClass"] == _DRIVER)
        if not calls.all():
            found = {name: values[calls] for name, values in found.items()}
    return Table(
        "runtime_calls",
        {
            "start": found["start"],
            "end": found["end"],
            "process": process(found["globalTid"]),
            "thread": thread(found["globalTid"]),
            "correlation": found["correlationId"],
            "name": _renamed(export.trace.strings, export.names(found["nameId"]), "(call without a recorded name)"),
        },
    ).ordered()


def event_records(export: Export) -> Table:
    """Calls of cudaEventRecord, as CUPTI saw them."""
    found = export.read("CUPTI_ACTIVITY_KIND_CUDA_EVENT", {**PLACE, "eventId": "id"})
    if found is None:
        return Table("event_records")
    columns = {
        "process": process(found["globalPid"]),
        "device": found["deviceId"],
        "context": found["contextId"],
        "stream": stream(found["streamId"]),
        "correlation": found["correlationId"],
        "event": found["eventId"],
    }
    return Table("event_records", columns).ordered()


def sync_events(export: Export, calls: Table, records: Table) -> Table:
    """Synchronisations. Their kind comes from the API call: the meaning of syncType changed between versions."""
    found = export.read_timed("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", {**PLACE, "eventId": "id"})
    if found is None:
        return Table("sync_events")
    columns = place(found)
    index = Calls(calls["process"], calls["correlation"])
    call = index.find(columns["process"], columns["correlation"])
    kind = _kinds(export.trace.strings, calls["name"])[call] if len(calls) else np.zeros(len(call), np.int8)
    kind = np.where(call < 0, np.int8(SyncKind.UNKNOWN), kind)
    event = np.where((found["eventId"] == 0) | (found["eventId"] == 0xFFFFFFFF), -1, found["eventId"])
    columns |= {"kind": kind, "event": event}
    if len(records):
        columns |= _waited_for(columns, records, calls, index)
    return Table("sync_events", columns).ordered()


def _kinds(strings: Strings, names: Array) -> Array:
    """SyncKind of each call."""
    lookup = np.zeros(len(strings) + 1, np.int8)
    for code in distinct(names)[0].tolist():
        kinds = (kind for pattern, kind in _WAITS if pattern.search(strings[code]))
        lookup[code] = next(kinds, SyncKind.UNKNOWN)
    return lookup[names]


def _waited_for(waits: dict[str, Array], records: Table, calls: Table, index: Calls) -> dict[str, Array]:
    """Stream and correlation of the record that each wait for an event waits for: the last one before the wait."""
    call = index.find(records["process"], records["correlation"])
    when = np.where(call >= 0, calls["start"][call] if len(calls) else NULL, NULL)
    rows = np.flatnonzero(when != NULL)
    wait_stream = np.full(len(waits["start"]), -1, np.int64)
    wait_correlation = wait_stream.copy()
    if len(rows):
        pairs = np.stack(
            [
                np.concatenate([records["process"][rows], waits["process"]]),
                np.concatenate([records["event"][rows], waits["event"]]),
            ]
        )
        group = np.unique(pairs, axis=1, return_inverse=True)[1].ravel()
        time = np.concatenate([when[rows], waits["start"]])
        order = np.lexsort((time, group))
        is_record = order < len(rows)
        latest = np.maximum.accumulate(np.where(is_record, np.arange(len(order)), -1))
        ends = np.where(latest >= 0, order[np.maximum(latest, 0)], 0)
        same = (latest >= 0) & (group[ends] == group[order]) & ~is_record
        wait = order[same] - len(rows)
        record = rows[ends[same]]
        event_known = (waits["event"][wait] >= 0) & np.isin(
            waits["kind"][wait], (SyncKind.EVENT, SyncKind.STREAM_WAIT_EVENT, SyncKind.EVENT_QUERY)
        )
        wait, record = wait[event_known], record[event_known]
        wait_stream[wait] = records["stream"][record]
        wait_correlation[wait] = records["correlation"][record]
    return {"wait_stream": wait_stream, "wait_correlation": wait_correlation}


def overheads(export: Export) -> Table:
    """Time that the profiler took, and CUDA's own start-up work."""
    parts = []
    for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
        found = export.read_timed(table, {"globalTid": "int64", "correlationId": "id", "nameId": "id", "overheadType": "int32"})
        if found is None:
            continue
        names = export.names(found["nameId"])
        strings = export.trace.strings
        for number in np.unique(found["overheadType"]).tolist():
            label = _OVERHEADS.get(number)
            if label:
                names = np.where(found["overheadType"] == number, strings.code(label), names)
        names = np.where(names < 0, strings.code("(overhead without a recorded name)"), names)
        columns = {
            "start": found["start"],
            "end": found["end"],
            "process": process(found["globalTid"]),
            "thread": thread(found["globalTid"]),
            "name": names,
            "correlation": np.where(found["correlationId"] == 0, -1, found["correlationId"]),
        }
        parts.append(Table("overheads", columns))
    return Table.concat("overheads", parts)
