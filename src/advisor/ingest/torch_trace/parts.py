"""A share's columns as the merger takes them: in this process, or left by another one in an anonymous file."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from advisor.ingest.torch_trace.metadata import Members
from advisor.ingest.torch_trace.share import Share

Column = npt.NDArray[Any]
_PLACE = struct.Struct("<Q")


@dataclass
class Part:
    """What one share found. `columns`: names by table; `load` gives a column and lets go of it.

    `marks`: (unit, rows of each table after it); `dropped`: (unit, how many events of it are missing and why).
    """

    columns: dict[str, list[str]]
    load: Callable[[str, str], Column]
    strings: list[str]
    marks: list[tuple[int, dict[str, int]]]
    dropped: list[tuple[int, dict[str, int]]]
    others: dict[str, int]
    copied: dict[int, int]
    repaired: int
    left_out: int
    tail: Members | None


def local(share: Share) -> Part:
    """A part in this process. The share must not grow any more."""
    tables = {name: growing.filled() for name, growing in share.builder.tables.items()}

    def load(table: str, name: str) -> Column:
        column = tables[table].pop(name)
        return np.frombuffer(column, column.typecode)

    return Part({table: list(columns) for table, columns in tables.items()}, load, **_findings(share))


def _findings(share: Share) -> dict[str, Any]:
    builder = share.builder
    return {
        "strings": builder.strings.values,
        "marks": share.marks,
        "dropped": share.dropped,
        "others": builder.others,
        "copied": builder.copied,
        "repaired": share.repaired,
        "left_out": builder.texts_left_out,
        "tail": share.tail,
    }


def leave(share: Share, descriptor: int) -> None:
    """Write the part into an empty file, for `collect`."""
    places: dict[str, dict[str, tuple[int, int, str]]] = {}
    at = 0
    for table, growing in share.builder.tables.items():
        places[table] = {}
        for name, column in growing.filled().items():
            places[table][name] = at, len(column), column.typecode
            _write(descriptor, memoryview(column).cast("B"))
            at += len(column) * column.itemsize
    findings = msgspec.msgpack.encode({"places": places, **_findings(share)})
    _write(descriptor, memoryview(findings))
    _write(descriptor, memoryview(_PLACE.pack(len(findings))))


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class _Findings(msgspec.Struct):
    places: dict[str, dict[str, tuple[int, int, str]]]
    strings: list[str]
    marks: list[tuple[int, dict[str, int]]]
    dropped: list[tuple[int, dict[str, int]]]
    others: dict[str, int]
    copied: dict[int, int]
    repaired: int
    left_out: int
    tail: Members | None


def collect(descriptor: int) -> Part:
    """The part that `leave` wrote. The file has to stay open until its columns are loaded."""
    size = os.fstat(descriptor).st_size - _PLACE.size
    (length,) = _PLACE.unpack(os.pread(descriptor, _PLACE.size, size))
    found = msgspec.msgpack.decode(_read(descriptor, size - length, length), type=_Findings)
    places = found.places

    def load(table: str, name: str) -> Column:
        at, count, typecode = places[table][name]
        return np.frombuffer(_read(descriptor, at, count * np.dtype(typecode).itemsize), typecode)

    findings = {f.name: getattr(found, f.name) for f in msgspec.structs.fields(found) if f.name != "places"}
    return Part({table: list(columns) for table, columns in places.items()}, load, **findings)


def _read(descriptor: int, at: int, length: int) -> bytearray:
    data = bytearray(length)
    rest = memoryview(data)
    while rest:
        read = os.preadv(descriptor, [rest], at)
        if not read:
            raise EOFError("a reading process left less than it promised")
        at, rest = at + read, rest[read:]
    return data
