"""Why a database is not used: another program's, or an export without any event."""

from __future__ import annotations

from advisor.ingest.nsys.export import Export
from advisor.model import InputError

# Tables whose rows are events. Rows of other tables describe the machine, the processes or the profiler itself.
_READ = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "NVTX_EVENTS",
    "GPU_METRICS",
    "GENERIC_EVENTS",
    "MPI_P2P_EVENTS",
    "MPI_COLLECTIVES_EVENTS",
    "MPI_START_WAIT_EVENTS",
    "MPI_OTHER_EVENTS",
)
_UNREAD = ("OSRT_API", "CUDNN_EVENTS", "CUBLAS_EVENTS", "SCHED_EVENTS", "COMPOSITE_EVENTS", "NET_NIC_METRIC")
_EMPTY = "no GPU or host events: the export holds tables about the machine only; export the report again"
_OURS = ("StringIds", "TARGET_INFO_", "META_DATA_", "EXPORT_META_DATA", "CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "ANALYSIS_DETAILS")


def refuse_unusable(export: Export) -> None:
    """Raises InputError, in one line, where nothing can be read from the database."""
    tables = export.database.tables
    lower = {name.lower() for name in tables}
    if "stringtable" in lower and any(name.startswith("cupti_activity_kind_") for name in lower):
        raise InputError(
            "not an Nsight Systems export but a database of nvprof (.nvvp, .nvprof), which is not read; record with nsys"
        )
    if not any(name.startswith(_OURS) for name in tables):
        if {"expert_systems_feedback", "read_only_op_instances"} & lower:
            raise InputError("not an Nsight Systems export but DLProf's own database; give the nsys export that lies beside it")
        if export.database.damaged:
            raise InputError("the SQLite database is damaged or cut short: export the report again")
        raise InputError("not a trace: an SQLite database, but not one of Nsight Systems")
    if not any(export.table(name) for name in (*_READ, *_UNREAD)):
        if export.database.damaged:
            raise InputError("cut short before the first event, or damaged: export the report again")
        traced = export.database.rows("META_DATA_CAPTURE", ["name", "value"], 200_000)
        if ("CAPTURE_EVENT_TYPE", "Cuda") in traced:
            raise InputError(
                "no GPU or host events: CUDA was traced but no rows were exported; export with the nsys version that captured"
            )
        raise InputError(_EMPTY)


def refuse_empty(export: Export) -> None:
    """Raises InputError where the tables of events held none: only names and domains of NVTX, say."""
    read = (len(table) for name, table in export.trace.tables.items() if name != "overheads")
    if not any(read) and not any(export.table(name) for name in _UNREAD):
        raise InputError("cut short before the first event, or damaged" if export.database.damaged else _EMPTY)
