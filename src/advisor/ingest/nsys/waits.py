"""Synchronisations, and the event records they wait for."""

from __future__ import annotations

import re

import numpy as np

from advisor.ingest.nsys.export import PLACE, Calls, Export, distinct, place, process, stream
from advisor.model import Strings, SyncKind, Table
from advisor.model.tables import Array

_NO_EVENT = 0xFFFFFFFF
_KINDS = (
    (re.compile(r"StreamWaitEvent"), SyncKind.STREAM_WAIT_EVENT),
    (re.compile(r"EventQuery"), SyncKind.EVENT_QUERY),
    (re.compile(r"EventSynchronize"), SyncKind.EVENT),
    (re.compile(r"StreamSynchronize"), SyncKind.STREAM),
    (re.compile(r"(?:Device|Ctx|Thread)Synchronize"), SyncKind.DEVICE),
)


def waits(export: Export, calls: Table) -> tuple[Table, Table]:
    """`event_records` and `sync_events`.

    The kind of a synchronisation comes from its API call: what the numbers of syncType mean changed between versions.
    """
    records = export.read("CUPTI_ACTIVITY_KIND_CUDA_EVENT", {**PLACE, "eventId": "id", "eventSyncId": "id"})
    syncs = export.read_timed("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", {**PLACE, "eventId": "id", "eventSyncId": "id"})
    index = Calls(calls["process"], calls["correlation"])
    record_table = _records(records) if records is not None else Table("event_records")
    if syncs is None:
        return record_table.ordered(), Table("sync_events")
    columns = place(syncs)
    columns["event"] = _event(syncs)
    columns["kind"] = _kinds(export.trace.strings, calls, index.find(columns["process"], columns["correlation"]))
    if records is not None:
        record = _recorded_last(columns, record_table, calls, index)
        exact = Calls(record_table["process"], records["eventSyncId"]).find(columns["process"], syncs["eventSyncId"])
        record = np.where(exact >= 0, exact, record)
        of_event = np.isin(columns["kind"], (SyncKind.EVENT, SyncKind.STREAM_WAIT_EVENT, SyncKind.EVENT_QUERY))
        known = of_event & (record >= 0)
        columns["wait_stream"] = np.where(known, record_table["stream"][record], -1)
        columns["wait_correlation"] = np.where(known, record_table["correlation"][record], -1)
    return record_table.ordered(), Table("sync_events", columns).ordered()


def _event(found: dict[str, Array]) -> Array:
    return np.where(found["eventId"] == _NO_EVENT, -1, found["eventId"])


def _records(found: dict[str, Array]) -> Table:
    columns = {
        "process": process(found["globalPid"]),
        "device": found["deviceId"],
        "context": found["contextId"],
        "stream": stream(found["streamId"]),
        "correlation": found["correlationId"],
        "event": _event(found),
    }
    return Table("event_records", columns)


def _kinds(strings: Strings, calls: Table, call: Array) -> Array:
    """SyncKind for each row of `calls` in `call`; UNKNOWN for -1 and for calls that are no synchronisation by name."""
    names = np.where(call >= 0, calls["name"][call] if len(calls) else -1, -1)
    values, inverse = distinct(names)
    kinds = [
        next((kind for pattern, kind in _KINDS if code >= 0 and pattern.search(strings[code])), SyncKind.UNKNOWN)
        for code in values.tolist()
    ]
    return np.array(kinds, np.int8)[inverse]


def _recorded_last(syncs: dict[str, Array], records: Table, calls: Table, index: Calls) -> Array:
    """For each synchronisation the row of the last record of its event before it, -1 where there is none.

    A record has no time of its own before exporter 2026: it is that of its call.
    """
    call = index.find(records["process"], records["correlation"])
    rows = np.flatnonzero((call >= 0) & (records["event"] >= 0))
    found = np.full(len(syncs["start"]), -1, np.int64)
    if not len(rows):
        return found
    processes = np.concatenate([records["process"][rows], syncs["process"]])
    events = np.concatenate([records["event"][rows], syncs["event"]])
    times = np.concatenate([calls["start"][call[rows]], syncs["start"]])
    order = np.lexsort((times, events, processes))
    record = order < len(rows)
    latest = np.maximum.accumulate(np.where(record, np.arange(len(order)), -1))
    before = order[np.maximum(latest, 0)]
    same = (latest >= 0) & ~record & (processes[before] == processes[order]) & (events[before] == events[order])
    found[order[same] - len(rows)] = rows[before[same]]
    return found
