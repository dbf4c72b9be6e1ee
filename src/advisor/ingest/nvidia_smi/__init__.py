"""Everything that nvidia-smi writes: query CSV, dmon, pmon, tables, -q text and XML, topology; told apart by content.

Tables filled: `device_samples`, `device_processes`, `links`; the GPUs are listed in `Trace.devices`. Stamps without a time zone
are taken as they are (`Trace.local_clock`). Process paths, host and user names are never kept.
"""

from __future__ import annotations

from advisor.ingest.nvidia_smi.log import Log, refusal, scan
from advisor.ingest.nvidia_smi.text import LineReader, head_lines
from advisor.ingest.source import Source
from advisor.model import InputError, Trace

_BINARY = bytes(range(1, 8)) + bytes(range(14, 27))


def claims(head: bytes) -> str | None:
    """Name of the format of which most lines of the first bytes are (nvidia-smi-csv, -dmon, -pmon, -query, -xml, -table,
    -topology), else None."""
    if len(head.translate(None, _BINARY)) < len(head) - len(head) // 50:
        return None
    lines = [line for line in head_lines(head) if line.strip()]
    first = next((line.lstrip()[:1] for line in lines), "")
    if first == "<":
        return "nvidia-smi-xml" if b"nvidia_smi_log" in head.replace(b"\0", b"") else None
    if first in ("", "{", "["):
        return None
    try:
        log = scan([lines])
    except InputError:
        return "nvidia-smi-xml" if b"nvidia_smi_log" in head.replace(b"\0", b"") else None
    strange = log.unknown_lines + log.collector.counts["lines-skipped"]
    return log.format if strange * 2 <= len(lines) else None


def read(source: Source, *, processes: int | None = None) -> Trace:
    """The log as a Trace. One process reads it, whatever `processes` says.

    Raises InputError for a log without a sample: an error that nvidia-smi printed, rows without a header, no such log at all.
    """
    log = Log()
    with source.open() as stream:
        reader = LineReader(stream)
        for lines in reader:
            log.feed(lines, cut=not reader.terminated)
    log.finish()
    error = refusal(log)
    if error is not None:
        raise error
    log.collector.counts["lines-skipped"] += log.unknown_lines
    if not log.collector.counts["lines-skipped"]:
        del log.collector.counts["lines-skipped"]
    trace = log.collector.trace(source.path, log.format or "nvidia-smi-csv")
    if source.damage:
        trace.notice("cut-short", f"{source.damage}: what could be read is used")
    if log.headless:
        trace.notice("rows-without-header", "rows before the first header line are left out: what their columns mean is unknown")
    return trace


__all__ = ["claims", "read"]
