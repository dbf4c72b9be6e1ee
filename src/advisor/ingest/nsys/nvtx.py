"""NVTX ranges; MPI calls, which older exporters wrote as NVTX ranges; and the operators that PyTorch marks by NVTX."""

from __future__ import annotations

import numpy as np

from advisor.ingest.nsys.database import NULL
from advisor.ingest.nsys.export import Export, distinct, grouped, process, thread
from advisor.model import RangeKind, Strings, Table
from advisor.model.tables import Array

# eventType, as ENUM_NSYS_EVENT_TYPE of the exports lists them.
_CATEGORY, _PUSH_POP, _START_END, _DOMAIN = 33, 59, 60, 75
_PAYLOADS = ("uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue")
_MPI = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")


def ranges(export: Export) -> Table:
    """Ranges with a begin and an end. Marks, names and ranges that were still open are left out."""
    return Table.concat("ranges", [_nvtx(export), *(_mpi(export, table) for table in _MPI)])


def _nvtx(export: Export) -> Table:
    texts = Strings()  # of all rows, thread names and marks among them; only those of ranges go on
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
        texts,
    )
    if found is None:
        return Table("ranges")
    kind = found["eventType"]
    closed = ((kind == _PUSH_POP) | (kind == _START_END)) & (found["start"] != NULL) & (found["end"] != NULL)
    closed &= found["end"] >= found["start"]
    domains = _labels(export, texts, found, kind == _DOMAIN, ["domainId"])
    categories = _labels(export, texts, found, kind == _CATEGORY, ["domainId", "category"])
    found = {name: values[closed] for name, values in found.items()}
    found["name"] = _names(export, texts, found)
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


def _names(export: Export, texts: Strings, found: dict[str, Array]) -> Array:
    """Codes of each row's own text, else of its registered string; -1 where it has neither."""
    values, inverse = distinct(found["text"])
    own = np.array([export.trace.strings.code(texts[code]) if code >= 0 else -1 for code in values.tolist()], np.int32)[inverse]
    return np.where(own < 0, export.names(np.where(own < 0, found["textId"], -1)), own)


def _labels(export: Export, texts: Strings, found: dict[str, Array], rows: Array, keys: list[str]) -> dict[tuple[int, ...], int]:
    """(process, ids...) -> code of the label that the rows declare."""
    declared = {name: values[rows] for name, values in found.items()}
    columns = [process(declared["globalTid"]), *(declared[key] for key in keys), _names(export, texts, declared)]
    return {tuple(ids): code for *ids, code in zip(*(column.tolist() for column in columns), strict=True)}


def _apply(found: dict[str, Array], labels: dict[tuple[int, ...], int], keys: list[str]) -> Array:
    """Code of the label of each row, -1 where none was declared."""
    combinations, group = grouped(process(found["globalTid"]), *(found[key] for key in keys))
    return np.array([labels.get(ids, -1) for ids in combinations], np.int32)[group]


def _domains(export: Export, found: dict[str, Array], declared: dict[tuple[int, ...], int]) -> Array:
    """Domain of each range. One whose declaration is lacking (a cut-out of a capture) is called by its number."""
    codes = _apply(found, declared, ["domainId"])
    strings = export.trace.strings
    nameless = (codes < 0) & (found["domainId"] > 0)
    numbers, position = distinct(found["domainId"][nameless])
    names, which = distinct(found["name"][nameless])
    nccl = np.array([code >= 0 and strings[code].startswith("nccl") for code in names.tolist()], bool)[which]
    others = np.bincount(position[~nccl], minlength=len(numbers))
    labels = ["NCCL" if not count else f"domain {number}" for number, count in zip(numbers.tolist(), others, strict=True)]
    codes[nameless] = strings.codes(labels)[position]
    return codes


def _payload(found: dict[str, Array]) -> Array:
    value = np.full(len(found["start"]), np.nan)
    for column in _PAYLOADS:
        value = np.where(np.isnan(value), found[column], value)
    return value


def operators(export: Export, annotated: Table) -> Table:
    """The ranges of torch.autograd.profiler.emit_nvtx, "name, seq = 4, op_id = 7, sizes = [[2, 3]]", as host_ops."""
    strings = export.trace.strings
    values, inverse = distinct(annotated["name"])
    parsed = [_operator(strings[code]) for code in values.tolist()]
    if not any(parsed):
        return Table("host_ops")
    none = ("", -1, -1, "")
    names, sequences, ops, shapes = zip(*(found or none for found in parsed), strict=True)
    rows = np.array([found is not None for found in parsed])[inverse]
    columns = {
        "start": annotated["start"],
        "end": annotated["end"],
        "process": annotated["process"],
        "thread": annotated["thread"],
        "name": strings.codes(names)[inverse],
        "op": np.array(ops, np.int64)[inverse],
        "sequence": np.array(sequences, np.int64)[inverse],
        "shapes": np.array([strings.code(text) if text else -1 for text in shapes], np.int32)[inverse],
    }
    return Table("host_ops", columns).take(rows)


def _operator(label: str) -> tuple[str, int, int, str] | None:
    """(name, sequence, op id, shapes) of an operator's label; None for a range of another kind."""
    label, _, _ = label.partition(", input_op_ids = ")
    label, _, shapes = label.partition(", sizes = ")
    label, _, op = label.partition(", op_id = ")
    name, _, sequence = label.partition(", seq = ")
    numbers = [text for text in (op, sequence) if text]
    if not name or not numbers or not all(text.isascii() and text.isdigit() and len(text) < 19 for text in numbers):
        return None
    return name, int(sequence or -1), int(op or -1), shapes


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
