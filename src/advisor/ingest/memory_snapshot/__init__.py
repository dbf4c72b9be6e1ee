"""Memory snapshots of PyTorch (torch.cuda.memory._dump_snapshot), of all ages, plain or gzip.

Tables filled: `allocator_events`, `allocator_ranges`, `memory_segments`, `memory_blocks`. Settings of the allocator are facts
of the trace (`allocator_...`). The file is a pickle; it is read by `machine`, which can build plain data and nothing else.
"""

from __future__ import annotations

import re

from advisor.ingest.memory_snapshot.machine import HISTORY, Machine
from advisor.ingest.memory_snapshot.tables import History, first_mark, ranges, segments
from advisor.ingest.source import GZIP_MAGIC, Source, UnknownKind
from advisor.model import Capture, Device, InputError, Strings, Trace

FORMAT = "cuda-memory-snapshot"

_RATIO, _HARMLESS = 100, 1 << 26  # a snapshot packs to a twentieth; up to 64 MiB any ratio does no harm
_OLD = re.compile(rb"[(\]}]")  # how a dict or list begins in protocols 0 and 1
_KEYS = (b"segments", b"device_traces", b"total_size", b"segment_type")
_SETTINGS = {
    "expandable_segments": "allocator_expandable_segments",
    "max_split_size": "allocator_max_split_size",
    "garbage_collection_threshold": "allocator_garbage_collection_threshold",
}
_CONF = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_CONF_TEXT = re.compile(r"[\w.,:\[\]>; -]{1,300}")  # what the variable may hold; anything else is not shown


def claims(head: bytes) -> bool:
    """True for a pickle of any protocol, if of an old one only where it speaks of segments."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return True
    return _OLD.match(head) is not None and b"\0" not in head[:1] and head[1:2] in b"lpdq(" and any(key in head for key in _KEYS)


def read(source: Source, *, processes: int | None = None) -> Trace:
    """The snapshot as a Trace. One process reads it, whatever `processes` says.

    Raises UnknownKind for a pickle that is no snapshot or asks for more than data, InputError for one without a segment or
    event, or beyond all bounds.
    """
    strings = Strings()
    history = History(strings)
    with source.open() as stream:
        packed = stream.peek(2)[:2] == GZIP_MAGIC or _packed(source)
        most = max(_HARMLESS, (_RATIO if packed else 1) * source.size)
        machine = Machine(stream, history.take, most)
        top = machine.run()
    entries, rest = (top, {}) if isinstance(top, list) else (top.get("segments"), top) if type(top) is dict else (None, {})
    if HISTORY not in rest and not _of_segments(entries):
        raise UnknownKind("this is a Python pickle that holds no memory snapshot")
    shared = rest.get(HISTORY)
    for number, events in enumerate(shared if type(shared) is list else []):
        history.take(number, events if type(events) is list else [])  # a writer that shares lists in its own way
    trace = Trace(source.path, FORMAT, strings=strings, capture=Capture(tool="torch.cuda.memory"))
    state, blocks, strange = segments(entries, history.stacks)
    marks = rest.get("external_annotations")
    first = [moment for moment in (history.zero(), first_mark(marks)) if moment is not None]
    zero = min(first, default=0)
    trace.epoch_ns = zero if first else None
    trace.tables = {
        "allocator_events": history.table(zero),
        "allocator_ranges": ranges(marks, zero, strings),
        "memory_segments": state,
        "memory_blocks": blocks,
    }
    if not len(history) and not len(state):
        raise InputError("cut short before the first segment" if machine.cut else "a memory snapshot without a segment or event")
    trace.format_version = _version(rest, trace, top)
    trace.devices = [Device(index) for index in sorted({*history.devices, *state["device"].tolist()} - {-1})]
    _settings(rest.get("allocator_settings"), trace)
    _notices(source, trace, history, strange, machine.cut)
    return trace


def _packed(source: Source) -> bool:
    if source.member is not None:
        return True  # the limit of an archive's member is that of a packed file
    with open(source.file, "rb") as file:
        return file.read(2) == GZIP_MAGIC


def _of_segments(entries: object) -> bool:
    return isinstance(entries, list) and (not entries or (type(entries[0]) is dict and "total_size" in entries[0]))


def _version(rest: dict[str, object], trace: Trace, top: object) -> str:
    """Which of the layouts it has; torch does not number them."""
    if isinstance(top, list):
        return "list of segments"
    if "external_annotations" in rest or "allocator_settings" in rest:
        return "with settings and annotations"
    return "with times" if trace.table("allocator_events").has("time") else "without times"


def _settings(settings: object, trace: Trace) -> None:
    if type(settings) is not dict:
        return
    for key, fact in _SETTINGS.items():
        value = settings.get(key)
        if isinstance(value, bool | int | float) and abs(value) < 1 << 60:
            trace.facts[fact] = int(value) if isinstance(value, bool) else value
    for key in _CONF:
        value = settings.get(key)
        if isinstance(value, str) and _CONF_TEXT.fullmatch(value):
            trace.environment[key] = value


def _notices(source: Source, trace: Trace, history: History, strange: int, cut: bool) -> None:
    if source.damage or cut:
        trace.notice("cut-short", f"{source.damage or 'the snapshot is cut short'}: what could be read is used")
    if history.unknown:
        count = sum(history.unknown.values())
        trace.notice("actions-unknown", f"{count:,} events of kinds that are not known here: {history.unknown_names()}")
    if strange + history.strange:
        trace.notice("entries-skipped", f"{strange + history.strange:,} entries that are no event, segment or block are left out")
    if not len(history):
        trace.notice(
            "no-history", "no history was recorded: torch.cuda.memory._record_memory_history() before the part of interest"
        )
    elif not trace.table("allocator_events").has("time"):
        trace.notice("no-times", "the events carry no times: their order alone is known")


__all__ = ["claims", "read"]
