"""What a copy's name says: `Memcpy HtoD (Pageable -> Device)`, `Memset (Device)`."""

from __future__ import annotations

import re

from advisor.model import CopyKind, MemoryKind

_DIRECTIONS = {
    "HtoD": CopyKind.HOST_TO_DEVICE,
    "DtoH": CopyKind.DEVICE_TO_HOST,
    "HtoA": CopyKind.HOST_TO_ARRAY,
    "AtoH": CopyKind.ARRAY_TO_HOST,
    "AtoA": CopyKind.ARRAY_TO_ARRAY,
    "AtoD": CopyKind.ARRAY_TO_DEVICE,
    "DtoA": CopyKind.DEVICE_TO_ARRAY,
    "DtoD": CopyKind.DEVICE_TO_DEVICE,
    "HtoH": CopyKind.HOST_TO_HOST,
    "PtoP": CopyKind.PEER_TO_PEER,
}
_MEMORIES = {  # "Host" (HIP) says nothing about whether the memory is pinned
    "pageable": MemoryKind.PAGEABLE,
    "pinned": MemoryKind.PINNED,
    "device": MemoryKind.DEVICE,
    "array": MemoryKind.ARRAY,
    "managed": MemoryKind.MANAGED,
    "device static": MemoryKind.DEVICE_STATIC,
    "managed static": MemoryKind.MANAGED_STATIC,
}
_DIRECTION = re.compile(r"\b([HDAP]to[HDAP])\b")
_ENDS = re.compile(r"\(([^()>]*?)(?:\s*->\s*([^()>]*))?\)")


class CopyKinds(dict[str, tuple[int, int, int]]):
    """Name -> (CopyKind, source MemoryKind, target MemoryKind)."""

    def __missing__(self, name: str) -> tuple[int, int, int]:
        ends = _ENDS.search(name)
        first, second = (ends.group(1), ends.group(2)) if ends else ("", None)
        if name.lower().startswith("memset"):
            found = (CopyKind.MEMSET, MemoryKind.UNKNOWN, _memory(first))
        else:
            direction = _DIRECTION.search(name)
            kind = _DIRECTIONS.get(direction.group(1), CopyKind.UNKNOWN) if direction else CopyKind.UNKNOWN
            found = (kind, _memory(first), _memory(second or ""))
        if len(self) < 10_000:
            self[name] = found
        return found


def _memory(text: str) -> MemoryKind:
    return _MEMORIES.get(text.strip().lower(), MemoryKind.UNKNOWN)
