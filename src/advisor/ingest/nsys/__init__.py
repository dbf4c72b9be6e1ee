"""Reads what `nsys export --type sqlite` writes, of every exporter version since 2020."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from advisor.ingest.nsys.about import describe, mpi_ranks
from advisor.ingest.nsys.completeness import judge
from advisor.ingest.nsys.convert import claims_report, exported
from advisor.ingest.nsys.database import MAGIC, Database
from advisor.ingest.nsys.devices import Gpus
from advisor.ingest.nsys.export import Export, distinct
from advisor.ingest.nsys.gpu import copies, graph_executions, kernels, memory_events
from advisor.ingest.nsys.host import overheads, runtime_calls
from advisor.ingest.nsys.metrics import hardware_metrics
from advisor.ingest.nsys.nvtx import operators, ranges
from advisor.ingest.nsys.refusal import refuse_empty, refuse_unusable
from advisor.ingest.nsys.waits import waits
from advisor.ingest.source import Source
from advisor.model import Table, Trace

__all__ = ["claims", "read", "read_report"]


def claims(head: bytes) -> bool:
    """True if the first bytes are those of an SQLite database (of whatever content), a report, or a raw recording."""
    return head.startswith(MAGIC) or claims_report(head)


def read(source: Source, *, processes: int | None = None) -> Trace:
    """The trace of an Nsight Systems SQLite export or report. Raises InputError where it is none or holds no event.

    `processes` is there because all readers are called alike; one process is fast enough.
    """
    if claims_report(source.head(64)):
        return read_report(source)
    return _read(source, source.local_file(), "nsys-sqlite")


def read_report(source: Source) -> Trace:
    """The trace of a .nsys-rep or .qdrep, by way of the user's own `nsys export`. Raises InputError where that fails."""
    file = exported(source)
    try:
        return _read(source, file, "nsys-report")
    finally:
        file.unlink(missing_ok=True)


def _read(source: Source, file: Path, form: str) -> Trace:
    database = Database(file)
    try:
        trace = Trace(source.path, form)
        export = Export(database, trace)
        refuse_unusable(export)
        describe(export)
        trace.tables = _tables(export)
        trace.capture.shapes = trace.tables["host_ops"].has("shapes")
        gpus = Gpus(export)
        trace.tables["hardware_metrics"] = hardware_metrics(export, gpus.ordinals())
        refuse_empty(export)
        trace.devices = gpus.used([trace.tables[name] for name in ("kernels", "copies", "graph_executions")])
        _set_ranks(trace, mpi_ranks(export))
        judge(export)
        if damage := _damage(source, file, database):
            trace.notice("input-damaged", f"{damage}; what could be read was used")
        return trace
    finally:
        database.close()


def _tables(export: Export) -> dict[str, Table]:
    calls, annotated = runtime_calls(export), ranges(export)
    records, syncs = waits(export, calls)
    return {
        "kernels": kernels(export),
        "copies": copies(export),
        "graph_executions": graph_executions(export),
        "runtime_calls": calls,
        "host_ops": operators(export, annotated),
        "ranges": annotated,
        "event_records": records,
        "sync_events": syncs,
        "memory_events": memory_events(export),
        "overheads": overheads(export),
    }


def _set_ranks(trace: Trace, ranks: dict[int, int]) -> None:
    """One rank is the trace's; several go into the rows, by process.

    The environment's rank is that of the program nsys started: a launcher's, where other processes drive the GPUs.
    """
    work = [trace.tables[name]["process"] for name in ("kernels", "copies", "graph_executions", "runtime_calls")]
    processes = distinct(np.concatenate(work))[0]
    if len(processes[processes >= 0]) > 1:
        trace.rank = None
    if len(set(ranks.values())) == 1:
        trace.rank = next(iter(ranks.values()))
    elif ranks:
        trace.rank = None
        for name, table in trace.tables.items():
            if len(table) and "process" in table.column_names:
                processes, position = distinct(table["process"])
                rank = np.array([ranks.get(process, -1) for process in processes.tolist()], np.int32)[position]
                trace.tables[name] = table.replace(rank=rank)


def _damage(source: Source, file: Path, database: Database) -> str | None:
    if source.damage or database.damaged:
        return source.damage or "the database is damaged or cut short"
    journal = Path(f"{file}-journal")
    if journal.is_file() and journal.stat().st_size:
        return "a rollback journal lies beside it: its export was cut off or still runs"
    return None
