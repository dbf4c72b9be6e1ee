"""Typed events of a Chrome trace as Kineto writes it, and lenient forms of them for rows that are not quite right.

One struct per phase; `cat` groups rows for the column builders: the category of a complete event, a Mark for the others.
"""

from __future__ import annotations

import functools
import math
import operator
from enum import Enum
from types import GenericAlias
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct, defstruct, field

NO_TEXT = Raw(b"")
Id = int | str | float | None  # ids are numbers, text ("stream 7", "25738") or null
_INT64 = 1 << 63
_IGNORED = "MCPtbenNODRcSTFpvV(){}="  # phases of other tools, and metadata


def _named(name: str, default: Any = -1) -> Any:
    return field(default=default, name=name)


class Args(Struct, gc=False):
    """The arguments that become columns, in about the order in which files hold them. -1 and empty: not there."""

    external: Id = _named("External id")
    record: Id = _named("Record function id")  # unused; naming it is cheaper than searching all names for it
    sequence: Id = _named("Sequence number")
    forward_thread: Id = _named("Fwd thread id")
    inputs: Raw = _named("Concrete Inputs", NO_TEXT)
    types: Raw = _named("Input type", NO_TEXT)
    strides: Raw = _named("Input Strides", NO_TEXT)
    shapes: Raw = _named("Input Dims", NO_TEXT)
    stack: Raw = _named("Call stack", NO_TEXT)
    parent: Id = _named("Python parent id")
    frame: Id = _named("Python id")
    module: Id = _named("Python module id")
    index: Id = _named("Ev Idx")  # unused, as `record`
    cbid: Id = -1  # unused, as `record`
    queued: Id = -1  # unused, as `record`
    device: Id = -1
    context: Id = -1
    stream: Id = -1
    correlation: Id = -1
    external_old: Id = _named("external id")
    registers: Id = _named("registers per thread")
    shared_memory: Id = _named("shared memory")
    grid: list[int] | str | None = None
    block: list[int] | str | None = None
    occupancy: Id = _named("est. achieved occupancy %", float("nan"))
    occupancy_old: Id = _named("theoretical occupancy %", float("nan"))
    bytes: Id = -1
    size: Id = -1
    graph_node: Id = _named("graph node id")
    sync_kind: str = _named("cuda_sync_kind", "")
    wait_stream: Id = _named("wait_on_stream")
    wait_event: Id = _named("wait_on_cuda_event_id")
    wait_correlation: Id = _named("wait_on_cuda_event_record_corr_id")
    collective: str = _named("Collective name", "")
    dtype: str = ""
    elements_in: Id = _named("In msg nelems")
    elements_out: Id = _named("Out msg nelems")
    size_in: Id = _named("In msg size")
    size_out: Id = _named("Out msg size")
    group_size: Id = _named("Group size")
    group: Raw = _named("Process Group Name", NO_TEXT)
    group_ranks: Raw = _named("Process Group Ranks", NO_TEXT)


class MemoryArgs(Struct, gc=False):
    """Arguments of a `[memory]` instant."""

    reserved: Id = _named("Total Reserved")
    allocated: Id = _named("Total Allocated")
    bytes: Id = _named("Bytes", None)
    device: Id = _named("Device Id")
    device_type: Id = _named("Device Type", 0)
    address: Id = _named("Addr")


class Mark(Enum):
    """Stands for a category where rows of a phase belong together whatever their category is."""

    IGNORED = 0
    HALF = 1
    INSTANT = 2
    FLOW_START = 3
    FLOW_END = 4


def _phases(time: Any, no_time: Any, suffix: str) -> dict[str, type[Struct]]:
    """One struct per phase. `time` is the type of ts: a number or string, or the raw text where doubles are too coarse."""
    place = [("pid", Id, None), ("tid", Id, None), ("ts", time, no_time)]

    def phase(tag: str, fields: list[Any], key: Mark | None = None) -> type[Struct]:
        namespace: dict[str, Any] = {} if key is None else {"cat": key, "__annotations__": {"cat": ClassVar[Mark]}}
        name = f"Phase_{tag}_{suffix}"
        return defstruct(name, fields, tag_field="ph", tag=tag, gc=False, namespace=namespace)

    category = ("category", str | None, field(default=None, name="cat"))
    complete = [("cat", str | None, None), ("name", str, ""), *place, ("dur", Id, None)]
    complete.append(("args", Args, field(default_factory=Args)))
    half = [category, ("name", str, ""), *place, ("args", Args, field(default_factory=Args))]
    flow = [("id", Id, None), *place, category]
    instant = [("name", str, ""), *place, ("args", MemoryArgs, field(default_factory=MemoryArgs))]
    found = {
        "X": phase("X", complete),
        "B": phase("B", half, Mark.HALF),
        "E": phase("E", half, Mark.HALF),
        "s": phase("s", flow, Mark.FLOW_START),
        "f": phase("f", flow, Mark.FLOW_END),
        "i": phase("i", instant, Mark.INSTANT),
        "I": phase("I", instant, Mark.INSTANT),
    }
    for tag in _IGNORED:
        found[tag] = phase(tag, [], Mark.IGNORED)
    return found


PHASES = _phases(Id, None, "number")
PHASES_EXACT = _phases(Raw, NO_TEXT, "text")


def _decoders(phases: dict[str, type[Struct]]) -> tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]:
    """Of one event and of a list of events."""
    one = functools.reduce(operator.or_, phases.values())
    return msgspec.json.Decoder(one), msgspec.json.Decoder(GenericAlias(list, (one,)))


ONE, MANY = _decoders(PHASES)
ONE_EXACT, MANY_EXACT = _decoders(PHASES_EXACT)
ANY = msgspec.json.Decoder()
ANY_EXACT = msgspec.json.Decoder(float_hook=str)


def is_begin(event: Any) -> bool:
    """Whether a begin or end row is a begin."""
    return isinstance(event, PHASES["B"] | PHASES_EXACT["B"])


def as_int(value: Any) -> int | None:
    """An integer out of a number or numeric text, None if there is none. Wraps to 64 bits, signed."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        if isinstance(value, str):
            value = int(value, 16) if value[:2] in ("0x", "0X") else int(value)
        elif isinstance(value, float):
            value = int(value) if abs(value) < _INT64 else None
    except (ValueError, OverflowError):
        return None
    if not isinstance(value, int):
        return None
    return value if -_INT64 <= value < _INT64 else (value + _INT64) % (2 * _INT64) - _INT64


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _as_id(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | str | float) and not isinstance(value, bool) else None


def _as_ints(value: Any) -> list[int] | None:
    return [as_int(v) or 0 for v in value] if isinstance(value, list) else None


def _as_raw(value: Any) -> Raw | None:
    return None if value is None else Raw(msgspec.json.encode(value))


def _as_args(value: Any) -> Args:
    return lenient(Args, value)


def _as_memory_args(value: Any) -> MemoryArgs:
    return lenient(MemoryArgs, value)


_CONVERTERS: dict[Any, Any] = {
    str: _as_text,
    str | None: _as_text,
    Id: _as_id,
    list[int] | str | None: _as_ints,
    Raw: _as_raw,
    Args: _as_args,
    MemoryArgs: _as_memory_args,
}


@functools.cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, str, Any], ...]:
    return tuple((f.encode_name, f.name, _CONVERTERS[f.type]) for f in msgspec.structs.fields(kind))


def lenient(kind: type[Struct], value: Any) -> Any:
    """A struct out of an untyped object; fields of a wrong type are left out."""
    if not isinstance(value, dict):
        return kind()
    given = {}
    for key, name, convert in _fields(kind):
        if key in value and (converted := convert(value[key])) is not None:
            given[name] = converted
    return kind(**given)


def event(value: Any, exact: bool) -> Any:
    """A typed event out of an untyped object, None if it is no event."""
    phase = value.get("ph") if isinstance(value, dict) else None
    kind = (PHASES_EXACT if exact else PHASES).get(phase) if isinstance(phase, str) else None
    return None if kind is None else lenient(kind, value)
