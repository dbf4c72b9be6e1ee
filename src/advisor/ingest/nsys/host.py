"""What host threads did: API calls, and the profiler's own time."""

from __future__ import annotations

import re

import numpy as np

from advisor.ingest.nsys.export import Export, distinct, process, thread
from advisor.model import Strings, Table
from advisor.model.tables import Array

# eventClass of a row of CUPTI_ACTIVITY_KIND_RUNTIME. 67 repeats a call (with its correlation id) for its backtrace.
_RUNTIME, _DRIVER = 0, 1

_SUFFIX = re.compile(r"(?:_pt(?:sz|ds))?(?:_v\d+)?(?:_pt(?:sz|ds))?$")

# CUpti_ActivityOverheadKind as Nsight Systems numbers it in overheadType.
_OVERHEADS = {
    2: "Driver JIT Compilation",
    3: "Buffer Flush",
    4: "Instrumentation",
    5: "Resource Management",
    6: "Runtime Triggered Module Loading",
    7: "Lazy Function Loading",
    8: "Command Buffer Full",
}
_LABELS = {label.lower(): label for label in _OVERHEADS.values()}
_CUPTI = re.compile(r"^CUPTI:? ")


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


def overheads(export: Export) -> Table:
    """Time that the profiler took, and CUDA's own start-up work."""
    parts = []
    for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
        found = export.read_timed(table, {"globalTid": "int64", "correlationId": "id", "nameId": "id", "overheadType": "int32"})
        if found is None:
            continue
        names = _overhead_names(export, found)
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


def _overhead_names(export: Export, found: dict[str, Array]) -> Array:
    """One spelling for all versions: "CUPTI: Buffer flush", "CUPTI Buffer flush" and type 3 are the same."""
    strings = export.trace.strings
    recorded, inverse = distinct(export.names(found["nameId"]))
    names = []
    for code in recorded.tolist():
        text = _CUPTI.sub("", strings[code]) if code >= 0 else "Unknown"
        names.append(strings.code(_LABELS.get(text.lower(), text)))
    codes = np.array(names, np.int32)[inverse]
    for number, label in _OVERHEADS.items():
        rows = found["overheadType"] == number
        if rows.any():
            codes[rows] = strings.code(label)
    return codes
