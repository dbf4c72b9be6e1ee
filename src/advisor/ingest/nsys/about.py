"""What the export says of itself and its capture: versions, options, clock, environment, rank, diagnostics."""

from __future__ import annotations

import re

from advisor.ingest.nsys.export import Export
from advisor.model import Capture, Trace
from advisor.model.run import PERFORMANCE_VARIABLES

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
_WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
_VERSION = re.compile(r"\d+(?:\.\d+){1,2}")
_YEAR_2200_NS = 7_258_118_400 * 10**9

# Diagnostics that say something about the data. They are told in our words: the recorded text can name files and users.
_WARNING = 2
_MAYBE_MISSING, _NEWER_DRIVER = "cuda-events-may-be-missing", "driver-newer-than-profiler"
UNSURE = (_MAYBE_MISSING, _NEWER_DRIVER)  # warnings that complete captures carry too
_DIAGNOSTICS = (
    (re.compile(r"Not all CUDA events might have been collected"), _MAYBE_MISSING,
     "Nsight Systems warns that it may not have collected all CUDA events"),
    (re.compile(r"driver version \(([\d.]+)\) is not supported"), _NEWER_DRIVER,
     "the CUDA driver ({0}) is newer than this Nsight Systems supports; a newer version records more reliably"),
    (re.compile(r"were lost(?! \(including Perf)"), "events-lost",
     "Nsight Systems lost some events while recording; what depends on them may be incomplete"),
    (re.compile(r"CUPTI_ERROR|ActivityFlushAll returned"), "cupti-error",
     "CUPTI reported errors while recording; GPU activity may be incomplete"),
)  # fmt: skip


def describe(export: Export) -> None:
    """Fills the trace's format_version, capture, epoch_ns, environment, rank and notices about the recording."""
    trace = export.trace
    trace.format_version = _version(export)
    options = _options(export)
    trace.capture = _capture(export, options)
    trace.epoch_ns = _epoch(export)
    _environment(options, trace)
    _repeat_diagnostics(export)


def _version(export: Export) -> str | None:
    values: dict[object, object] = {}
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        values.update(export.database.rows(table, ["name", "value"]))
    product = _VERSION.search(str(values.get("EXPORT_PRODUCT_VERSION", "")))
    schema = _VERSION.search(str(values.get("EXPORT_SCHEMA_VERSION", "")))
    if not product and not schema:
        return None
    return ", ".join(part for part in (f"nsys {product[0]}" if product else "", f"schema {schema[0]}" if schema else "") if part)


def _options(export: Export) -> dict[str, list[str]]:
    """META_DATA_CAPTURE, a multi-map."""
    found: dict[str, list[str]] = {}
    for name, value in export.database.rows("META_DATA_CAPTURE", ["name", "value"], 200_000):
        if isinstance(name, str):
            found.setdefault(name, []).append(str(value))
    return found


def _capture(export: Export, options: dict[str, list[str]]) -> Capture:
    traced = {kind.lower() for kind in options.get("CAPTURE_EVENT_TYPE", ())}

    def option(suffix: str) -> set[str]:
        return {value.lower() for name, values in options.items() if name.endswith(suffix) for value in values}

    def flag(present: bool, kinds: set[str], suffix: str) -> bool | None:
        if present or traced & kinds:
            return True
        stated = option(suffix)
        return ("true" in stated) if stated or traced else None

    modes = option("CUDA_GRAPH_TRACE_OPTIONS:MODE")
    has = export.table
    memory = option("COLLECT_GPU_MEMORY_USAGE")
    return Capture(
        tool="nsys",
        stacks=True if has("CUDA_CALLCHAINS") else None,
        memory=True if has("CUDA_GPU_MEMORY_USAGE_EVENTS") else ("true" in memory if memory else None),
        cuda=flag(bool(has("CUPTI_ACTIVITY_KIND_KERNEL") or has("CUPTI_ACTIVITY_KIND_RUNTIME")), {"cuda"}, "COLLECT_CUDA_TRACE"),
        nvtx=flag(bool(has("NVTX_EVENTS")), {"nvtxevents", "nvtx"}, "COLLECT_NVTX_TRACE"),
        gpu_metrics=True if has("GPU_METRICS") or any(name.startswith("GPU_METRICS_OPTIONS") for name in options) else None,
        graph_nodes="node" in modes if modes else None,
    )


def _epoch(export: Export) -> int | None:
    """Wall clock (UTC) of time zero: the start of profiling."""
    for (value,) in export.database.rows("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"], 1):
        if isinstance(value, int) and 0 < value < _YEAR_2200_NS:
            return value
    return None


def _environment(options: dict[str, list[str]], trace: Trace) -> None:
    """Keeps the variables that change how fast training runs, and the rank; all others are dropped here."""
    ranks: dict[str, set[int]] = {name: set() for name in (*_RANK_VARIABLES, *_WORLD_VARIABLES)}
    kept: dict[str, set[str]] = {}
    for name, values in options.items():
        if not name.endswith("ENVIRONMENT_VARIABLE"):
            continue
        for entry in values:
            key, _, value = entry.partition("=")
            if key in PERFORMANCE_VARIABLES:
                kept.setdefault(key, set()).add(value[:200])
            elif key in ranks and value.isascii() and value.isdigit() and len(value) < 8:
                ranks[key].add(int(value))
    trace.environment = {key: values.pop() for key, values in sorted(kept.items()) if len(values) == 1}
    for attribute, names in (("rank", _RANK_VARIABLES), ("world_size", _WORLD_VARIABLES)):
        stated = next((ranks[name] for name in names if ranks[name]), set())
        if len(stated) == 1:
            setattr(trace, attribute, stated.pop())


def mpi_ranks(export: Export) -> dict[int, int]:
    """Process id -> rank, from MPI_RANKS."""
    found = {}
    for thread, rank in export.database.rows("MPI_RANKS", ["globalTid", "rank"]):
        if isinstance(thread, int) and isinstance(rank, int) and 0 <= rank < 1 << 31:
            found[(thread >> 24) & 0xFFFFFF] = rank
    return found


def _repeat_diagnostics(export: Export) -> None:
    said = set()
    for severity, text in export.database.rows("DIAGNOSTIC_EVENT", ["severity", "text"]):
        if not isinstance(severity, int) or severity not in (_WARNING, _WARNING + 1) or not isinstance(text, str):
            continue
        for pattern, code, message in _DIAGNOSTICS:
            match = pattern.search(text)
            if match and code not in said:
                said.add(code)
                if code == _NEWER_DRIVER:
                    export.trace.facts["cuda_driver_version"] = match[1]
                export.trace.notice(code, message.format(*match.groups()))
