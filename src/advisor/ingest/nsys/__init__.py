"""Reads what `nsys export --type sqlite` writes, of every exporter version since 2020."""

from __future__ import annotations

import numpy as np

from advisor.ingest.nsys.about import describe, mpi_ranks
from advisor.ingest.nsys.completeness import judge
from advisor.ingest.nsys.database import MAGIC, Database
from advisor.ingest.nsys.devices import Gpus
from advisor.ingest.nsys.export import Export
from advisor.ingest.nsys.gpu import copies, graph_executions, kernels, memory_events
from advisor.ingest.nsys.host import event_records, overheads, runtime_calls, sync_events
from advisor.ingest.nsys.metrics import hardware_metrics
from advisor.ingest.nsys.nvtx import ranges
from advisor.ingest.nsys.refusal import refuse_unusable
from advisor.ingest.source import Source
from advisor.model import Table, Trace


def claims(head: bytes) -> bool:
    """True if the first bytes are those of an SQLite database, of whatever content."""
    return head.startswith(MAGIC)


def read(source: Source, *, processes: int | None = None) -> Trace:
    """The trace of an Nsight Systems SQLite export. Raises InputError where it is none or holds no event."""
    database = Database(source.local_file())
    try:
        trace = Trace(source.path, "nsys-sqlite")
        export = Export(database, trace)
        refuse_unusable(export)
        describe(export)
        trace.tables = _tables(export)
        gpus = Gpus(export)
        trace.tables["hardware_metrics"] = hardware_metrics(export, gpus.ordinals())
        work = [trace.tables[name] for name in ("kernels", "copies", "graph_executions")]
        trace.devices = gpus.used(work)
        _set_ranks(trace, mpi_ranks(export))
        judge(export)
        if database.damaged or source.damage:
            trace.notice(
                "input-damaged", f"{source.damage or 'the database is damaged or cut short'}; what could be read was used"
            )
        return trace
    finally:
        database.close()


def _tables(export: Export) -> dict[str, Table]:
    calls, records = runtime_calls(export), event_records(export)
    return {
        "kernels": kernels(export),
        "copies": copies(export),
        "graph_executions": graph_executions(export),
        "runtime_calls": calls,
        "event_records": records,
        "sync_events": sync_events(export, calls, records),
        "ranges": ranges(export),
        "memory_events": memory_events(export),
        "overheads": overheads(export),
    }


def _set_ranks(trace: Trace, ranks: dict[int, int]) -> None:
    """One rank is the trace's; several go into the rows, by process."""
    if len(set(ranks.values())) == 1:
        trace.rank = next(iter(ranks.values()))
    elif ranks:
        trace.rank = None
        for name, table in trace.tables.items():
            if len(table) and "process" in table.column_names:
                rank = np.full(len(table), -1, np.int32)
                for process, number in ranks.items():
                    rank[table["process"] == process] = number
                trace.tables[name] = table.replace(rank=rank)
