"""What PyTorch prints about the memory of a GPU: out-of-memory errors and torch.cuda.memory_summary(), also inside logs.

Tables filled: `out_of_memory`, `allocator_summaries`. Names, paths and process numbers of the log are not kept.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from advisor.ingest.memory_text import errors, summary
from advisor.ingest.source import Source
from advisor.model import Capture, Device, InputError, Table, Trace

ERRORS, SUMMARY = "cuda-oom-message", "torch-memory-summary"
_LONGEST_LINE = 1 << 16
_BINARY = bytes(range(1, 8)) + bytes(range(14, 27))


def claims(head: bytes) -> str | None:
    """The format that the first bytes show, else None. A log whose error comes later is cut to it by its owner."""
    if head[:1] in (b"{", b"[", b"<", b"\0") and not head.startswith(b"[rank"):
        return None
    if len(head.translate(None, _BINARY)) < len(head) - len(head) // 50:
        return None
    text = head.decode("utf-8", "replace")
    if errors.BEGIN.search(text) and errors.rows(text.splitlines()):
        return ERRORS
    return SUMMARY if summary.HEADER.search(text) else None


def read(source: Source, *, processes: int | None = None) -> Trace:
    """The errors and summaries of the file as a Trace. One process reads it, whatever `processes` says.

    Raises InputError for a file whose tables are cut off behind their header.
    """
    with source.open() as stream:
        found = errors.rows(_lines(stream))
    with source.open() as stream:
        tables = summary.rows(_lines(stream))
    if not found and not tables:
        raise InputError("the memory summary is cut short before its first number")
    trace = Trace(source.path, ERRORS if found else SUMMARY, capture=Capture(tool="torch"))
    trace.tables = {"out_of_memory": _table("out_of_memory", found), "allocator_summaries": _table("allocator_summaries", tables)}
    sizes = {row["device"]: row["capacity"] for row in found if row["capacity"] > 0}
    indices = {row["device"] for row in (*found, *tables)} - {-1}
    trace.devices = [Device(index, memory_bytes=sizes.get(index)) for index in sorted(indices)]
    if source.damage:
        trace.notice("cut-short", f"{source.damage}: what could be read is used")
    return trace


def _table(name: str, rows: list[dict[str, int]]) -> Table:
    return Table(name, {column: [row[column] for row in rows] for column in rows[0]}) if rows else Table(name)


def _lines(stream: io.BufferedReader) -> Iterator[str]:
    """Lines of text, none longer than any message: of a longer one its parts."""
    while line := stream.readline(_LONGEST_LINE):
        yield line.decode("utf-8", "replace")


__all__ = ["claims", "read"]
