"""NVTX ranges, and MPI calls, which older exporters wrote as NVTX ranges of a domain of that name."""

from __future__ import annotations

import numpy as np

from advisor.ingest.nsys.database import NULL
from advisor.ingest.nsys.export import Export, process, thread
from advisor.model import RangeKind, Table
from advisor.model.tables import Array

# eventType, as ENUM_NSYS_EVENT_TYPE of the exports lists them.
_CATEGORY, _PUSH_POP, _START_END, _DOMAIN = 33, 59, 60, 75
_PAYLOADS = ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")
_MPI = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")


def ranges(export: Export) -> Table:
    """Ranges with a begin and an end. Marks, names and ranges that were still open are left out."""
    return Table.concat("ranges", [_nvtx(export), *(_mpi(export, table) for table in _MPI)])


def _nvtx(export: Export) -> Table:
    found = export.read(
        "NVTX_EVENTS",
        {
            "start": "int64",
            "end": "int64",
            "eventType": "int32",
            "text": "text",
            "textId": "id",
            "globalTid": "int64",
            "endGlobalTid": "int64",
            "domainId": "id",
            "category": "id",
            **dict.fromkeys(_PAYLOADS, "real"),
        },
    )
    if found is None:
        return Table("ranges")
    unread = found["text"] < 0
    found["name"] = np.where(unread, export.names(np.where(unread, found["textId"], -1)), found["text"])
    kind = found["eventType"]
    closed = ((kind == _PUSH_POP) | (kind == _START_END)) & (found["start"] != NULL) & (found["end"] != NULL)
    closed &= found["end"] >= found["start"]
    domains = _labels(found, kind == _DOMAIN, ["domainId"])
    categories = _labels(found, kind == _CATEGORY, ["domainId", "category"])
    found = {name: values[closed] for name, values in found.items()}
    end_thread = thread(found["endGlobalTid"])
    columns = {
        "start": found["start"],
        "end": found["end"],
        "process": process(found["globalTid"]),
        "thread": thread(found["globalTid"]),
        "name": found["name"],
        "domain": _domains(export, found, domains),
        "category": _apply(found, categories, ["domainId", "category"]),
        "kind": np.where(found["eventType"] == _PUSH_POP, RangeKind.PUSH_POP, RangeKind.START_END),
        "end_thread": np.where(end_thread == thread(found["globalTid"]), -1, end_thread),
        "payload": _payload(found),
    }
    return Table("ranges", columns).ordered()


def _labels(found: dict[str, Array], rows: Array, keys: list[str]) -> dict[tuple[int, ...], int]:
    """(process, ids...) -> code of the label that the rows declare."""
    columns = [process(found["globalTid"][rows]), *(found[key][rows] for key in keys), found["name"][rows]]
    return {tuple(ids): code for *ids, code in zip(*(column.tolist() for column in columns), strict=True)}


def _apply(found: dict[str, Array], labels: dict[tuple[int, ...], int], keys: list[str]) -> Array:
    """Code of the label of each row, -1 where none was declared."""
    codes = np.full(len(found["start"]), -1, np.int32)
    pid = process(found["globalTid"])
    for ids, code in labels.items():
        same = pid == ids[0]
        for key, value in zip(keys, ids[1:], strict=True):
            same &= found[key] == value
        codes[same] = code
    return codes


def _domains(export: Export, found: dict[str, Array], declared: dict[tuple[int, ...], int]) -> Array:
    """Domain of each range. One whose declaration is lacking (a cut-out of a capture) is called by its number."""
    codes = _apply(found, declared, ["domainId"])
    strings = export.trace.strings
    nameless = (codes < 0) & (found["domainId"] > 0)
    for number in np.unique(found["domainId"][nameless]).tolist():
        rows = nameless & (found["domainId"] == number)
        names = [strings[code] for code in np.unique(found["name"][rows]).tolist()]
        library = "NCCL" if all(name.startswith("nccl") for name in names) else f"domain {number}"
        codes[rows] = strings.code(library)
    return codes


def _payload(found: dict[str, Array]) -> Array:
    value = np.full(len(found["start"]), np.nan)
    for column in _PAYLOADS:
        value = np.where(np.isnan(value), found[column], value)
    return value


def _mpi(export: Export, table: str) -> Table:
    found = export.read_timed(table, {"globalTid": "int64", "textId": "id"})
    if found is None:
        return Table("ranges")
    columns = {
        "start": found["start"],
        "end": found["end"],
        "process": process(found["globalTid"]),
        "thread": thread(found["globalTid"]),
        "name": export.names(found["textId"]),
        "domain": np.full(len(found["start"]), export.trace.strings.code("MPI"), np.int32),
        "kind": np.full(len(found["start"]), RangeKind.PUSH_POP, np.int8),
    }
    return Table("ranges", columns)
