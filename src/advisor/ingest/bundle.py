"""Reader for the manifest of a recorded run (`advisor-run-*/rank-N/manifest.json`), which `advisor.hook` writes.

It tells what no trace can: how long the steps took that nothing recorded, where the steps of a window lie whose operators
were not recorded, and what the program ran on. The windows beside it are read by the readers of their own formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Annotated, Any

import msgspec
import numpy as np

from advisor.ingest.source import Source
from advisor.model import Device, InputError, Notice, Table, Trace
from advisor.model.run import PERFORMANCE_VARIABLES
from advisor.model.schema import TABLES, StepState

__all__ = ["claims", "one_recording", "read"]

_SCHEMA = "advisor.bundle/1"
_MOST_BYTES = 64 << 20
_LONGEST = 1 << 53  # ns
_FACTS = {"torch": "torch_version", "nccl": "nccl_version", "cuda": "cuda_runtime_version"}


# What no run reaches: a hostile manifest must not take memory and time without end.
_Count = Annotated[int, msgspec.Meta(ge=0, le=_LONGEST)]
_Small = Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]
_PerStep = Annotated[list[int], msgspec.Meta(max_length=1 << 20)]


class _Steps(msgspec.Struct):
    count: _Count = 0
    first: _Count = 0
    begin_ns: int = 0
    durations_ns: _PerStep = msgspec.field(default_factory=list)
    states: _PerStep = msgspec.field(default_factory=list)


class _Window(msgspec.Struct):
    file: str = ""
    recording: _Small = 0
    first_step: _Count = 0
    step_edges_ns: Annotated[list[int], msgspec.Meta(max_length=1 << 16)] = msgspec.field(default_factory=list)


class _Device(msgspec.Struct):
    index: _Small = 0
    name: str | None = None
    compute_capability: str | None = None
    sm_count: _Small | None = None
    memory_bytes: _Count | None = None


class _Surroundings(msgspec.Struct):
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    devices: Annotated[list[_Device], msgspec.Meta(max_length=1024)] = msgspec.field(default_factory=list)
    torch: str | None = None
    nccl: str | None = None
    cuda: str | None = None


class _Allocator(msgspec.Struct):
    device: int = -1
    summary: dict[str, int] | None = None


class _Companions(msgspec.Struct):
    allocator: _Allocator | None = None


class _Notice(msgspec.Struct):
    code: str
    message: str


class _Manifest(msgspec.Struct):
    schema: str
    rank: _Small = 0
    world_size: Annotated[int, msgspec.Meta(ge=1, lt=1 << 20)] = 1
    process: Annotated[int, msgspec.Meta(ge=-1, le=_LONGEST)] = -1
    finished: bool = True
    start_epoch_ns: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] | None = None
    surroundings: _Surroundings = msgspec.field(default_factory=_Surroundings)
    windows: Annotated[list[_Window], msgspec.Meta(max_length=10_000)] = msgspec.field(default_factory=list)
    steps: _Steps = msgspec.field(default_factory=_Steps)
    companions: _Companions = msgspec.field(default_factory=_Companions)
    notices: Annotated[list[_Notice], msgspec.Meta(max_length=1000)] = msgspec.field(default_factory=list)


def claims(head: bytes) -> bool:
    return b'"' + _SCHEMA.encode() + b'"' in head[:4096]


def read(source: Source, *, processes: int | None = None) -> Trace:
    """The manifest as a trace whose only table is `step_times`. Raises InputError if it is damaged."""
    with source.open() as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InputError(f"a manifest of more than {_MOST_BYTES >> 20} MiB")
    try:
        found = msgspec.json.decode(content, type=_Manifest)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"not a manifest of a recorded run: {error}") from error
    if found.schema != _SCHEMA:
        raise InputError(f"a manifest of kind {found.schema[:40]!r}; this version reads {_SCHEMA}")
    trace = Trace(source.path, "advisor-bundle", _SCHEMA.rpartition("/")[2])
    # A process alone has no rank in its traces either.
    trace.rank = found.rank if found.world_size > 1 else None
    trace.world_size, trace.epoch_ns = found.world_size, found.start_epoch_ns
    about = found.surroundings
    trace.environment = {name: value for name, value in about.variables.items() if name in PERFORMANCE_VARIABLES}
    trace.facts = {fact: value for name, fact in _FACTS.items() if (value := getattr(about, name))}
    trace.devices = [_device(device, trace.rank, found.process) for device in about.devices]
    trace.tables = {"step_times": _step_times(found), "allocator_summaries": _summary(found.companions.allocator)}
    trace.recordings = {window.file.removesuffix(".gz"): window.recording for window in found.windows}
    for notice in found.notices:
        trace.notice(f"hook-{notice.code}" if not notice.code.startswith("hook") else notice.code, notice.message)
    strange = sum(not _possible(window, found.start_epoch_ns or 0) for window in found.windows)
    if strange:
        trace.notice("hook-window-times", f"the step times of {strange} windows cannot be and are left out")
    if not found.finished:
        trace.notice("hook-unfinished", "the program ended before its recording was closed; what was written until then is used")
    return trace


def one_recording(traces: Sequence[Trace], notices: list[Notice]) -> list[Trace]:
    """Without the windows of all but one of the recordings of a run: the last that every rank has.

    Windows of one recording lie side by side in time on all ranks; those of different ones must not be mixed.
    """
    number = {}  # of a trace, by its place
    manifests = {_folder(trace): trace.recordings for trace in traces if trace.recordings}
    for place, trace in enumerate(traces):
        found = manifests.get(_folder(trace), {}).get(PurePath(trace.path.replace("::", "/")).name.removesuffix(".gz"))
        if found is not None:
            number[place] = found
    if len(set(number.values())) < 2:
        return list(traces)
    there = [{number[place] for place in number if _folder(traces[place]) == folder} for folder in manifests]
    common = set.intersection(*(each for each in there if each)) or set(number.values())
    used = max(common)
    text = f"the run was recorded {len(set(number.values()))} times; recording {used + 1} is used (name its files to see another)"
    notices.append(Notice("recordings", text))
    return [trace for place, trace in enumerate(traces) if number.get(place, used) == used]


def _folder(trace: Trace) -> str:
    return str(PurePath(trace.path.replace("::", "/")).parent)


def _device(device: _Device, rank: int | None, process: int) -> Device:
    parts = (device.compute_capability or "").split(".")
    capability = (int(parts[0]), int(parts[1])) if len(parts) == 2 and all(p.isdecimal() and len(p) < 4 for p in parts) else None
    return Device(
        device.index, device.name, rank, process if process >= 0 else None, capability, device.sm_count, device.memory_bytes
    )


def _summary(allocator: _Allocator | None) -> Table:
    """The allocator's statistics at the end; counts that no allocator shows are left out."""
    if allocator is None or not allocator.summary:
        return Table("allocator_summaries")
    possible = {name: [value] for name, value in allocator.summary.items() if 0 <= value < 1 << 62}
    known = {column.name for column in TABLES["allocator_summaries"].columns} - {"rank", "device"}
    device = allocator.device if 0 <= allocator.device < 1 << 15 else -1
    return Table("allocator_summaries", {"device": [device], **{k: v for k, v in possible.items() if k in known}})


def _possible(window: _Window, zero: int) -> bool:
    """Do the edges of its steps follow one another? A wall clock may have been set meanwhile."""
    edges = window.step_edges_ns
    return all(a <= b for a, b in pairwise(edges)) and all(abs(edge - zero) <= _LONGEST for edge in edges)


def _step_times(found: _Manifest) -> Table:
    """Every step once: those that a window keeps by the wall clock of its trace, the others by their durations."""
    steps, zero = found.steps, found.start_epoch_ns or 0
    kept: dict[int, tuple[int, int]] = {}
    for window in found.windows if zero else ():
        edges = window.step_edges_ns if _possible(window, zero) else []
        kept.update({window.first_step + i: (a - zero, b - zero) for i, (a, b) in enumerate(pairwise(edges))})
    rows = [(start, end, number, int(StepState.RECORDED)) for number, (start, end) in kept.items()]
    begin = steps.begin_ns
    for number, (taken, state) in enumerate(zip(steps.durations_ns, steps.states, strict=False), steps.first):
        if number not in kept:
            rows.append((begin, begin + taken, number, min(max(state, 0), int(StepState.TOUCHED))))
        begin += taken
    if any(abs(value) > _LONGEST for row in rows for value in row) or any(end < start for start, end, *_ in rows):
        raise InputError("a manifest with steps that took no possible time")
    columns: dict[str, Any] = {
        name: np.array([row[place] for row in rows], np.int64) for place, name in enumerate(("start", "end", "number", "state"))
    }
    columns["rank"] = np.full(len(rows), found.rank if found.world_size > 1 else -1, np.int32)
    columns["process"] = np.full(len(rows), found.process, np.int64)
    return Table("step_times", columns).ordered() if rows else Table("step_times")
