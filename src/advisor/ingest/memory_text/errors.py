"""Out-of-memory messages of PyTorch 1.0 and newer, on CUDA and ROCm, alone or inside a log; wrapped lines are joined."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from advisor.ingest.memory_text.sizes import SIZE, size

BEGIN = re.compile(r"(?:CUDA|HIP|XPU) out of memory\b", re.IGNORECASE)
_ASKED = re.compile(rf"Tried to allocate ({SIZE})")
_RANK = re.compile(r"\[rank ?(\d{1,5})\]", re.IGNORECASE)
_PREFIX = re.compile(r"^\s*(?:\[rank ?\d{1,5}\]:?|\(\S{1,40} pid=\d{1,9}\))\s*", re.IGNORECASE)
_OLD = re.compile(
    rf"\(GPU (\d{{1,4}}); ({SIZE}) total capacity; ({SIZE}) already allocated; ({SIZE}) free;"
    rf"(?: ({SIZE}) (?:cached|reserved in total by PyTorch))?"
)
_TOTAL = re.compile(rf"GPU (\d{{1,4}}) has a total capaci?ty of ({SIZE}) of which ({SIZE}) is free")
_MINE = re.compile(rf"this process has ({SIZE}) memory in use")
_PROCESS = re.compile(rf"Process \d{{1,10}} has ({SIZE}) memory in use")
_ALLOCATED = re.compile(rf"({SIZE}) is allocated by PyTorch")
_UNALLOCATED = re.compile(rf"({SIZE}) is reserved by PyTorch but unallocated")
_MOST_LINES, _LONGEST = 30, 6000  # of one message
_MOST_MESSAGES = 10_000

Row = dict[str, int]


def messages(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(line where it begins, the whole message on one line) of each error in a log."""
    first, parts, length = "", [], 0  # type: str, list[str], int
    for line in lines:
        begins = BEGIN.search(line) is not None
        if parts and (begins or len(parts) >= _MOST_LINES or length > _LONGEST):
            yield first, " ".join(parts)
            parts = []
        if begins:
            first, parts, length = line, [], 0
        if begins or parts:
            text = " ".join(_PREFIX.sub("", line[:_LONGEST]).split())
            parts.append(text)
            length += len(text)
    if parts:
        yield first, " ".join(parts)


def rows(lines: Iterable[str]) -> list[Row]:
    """A row of `out_of_memory` for each message that states what was asked for; one that is printed twice counts once."""
    found: list[Row] = []
    for first, message in messages(lines):
        row = parse(message)
        if row is None:
            continue
        rank = _RANK.search(first)
        row["rank"] = int(rank[1]) if rank else -1
        if not found or found[-1] != row:
            found.append(row)
        if len(found) >= _MOST_MESSAGES:
            break
    return [{"sequence": number, **row} for number, row in enumerate(found)]


def parse(message: str) -> Row | None:
    """The numbers of one message, bytes; -1 where it does not state one. None if it is no such message."""
    message = message[BEGIN.search(message).start() :] if BEGIN.search(message) else ""  # type: ignore[union-attr]
    asked = _ASKED.search(message)
    if not asked:
        return None
    row = dict.fromkeys(("capacity", "free", "allocated", "reserved", "process_used", "others_used"), -1)
    row |= {"requested": size(asked[1]), "device": -1}
    if old := _OLD.search(message):
        row["device"] = int(old[1])
        row["capacity"], row["allocated"], row["free"], held = (size(text) for text in old.groups()[1:])
        if held >= 0:  # torch 1.0 stated what was cached beside it, all later ones what was held with it
            row["reserved"] = held if held >= row["allocated"] else held + row["allocated"]
        return row
    if total := _TOTAL.search(message):
        row["device"], row["capacity"], row["free"] = int(total[1]), size(total[2]), size(total[3])
    allocated, unallocated = (
        size(found[1]) if found else -1 for found in (f.search(message) for f in (_ALLOCATED, _UNALLOCATED))
    )
    row["allocated"] = allocated
    if allocated >= 0 and unallocated >= 0:
        row["reserved"] = allocated + unallocated
    used = [size(text) for text in _PROCESS.findall(message)]
    if mine := _MINE.search(message):
        row["process_used"] = size(mine[1])
    elif used and row["reserved"] >= 0:
        # In a container the process is listed under another number: the smallest that can hold what it reserved is it.
        own = min((each for each in used if each >= row["reserved"]), default=None)
        if own is not None:
            used.remove(own)
            row["process_used"] = own
    if used or row["process_used"] >= 0:
        row["others_used"] = sum(each for each in used if each >= 0)
    return row
