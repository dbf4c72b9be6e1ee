"""The document of `advisor info` (schema advisor.info/1) as text. Plain on purpose: it reads the same without colour."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from advisor.report.json_document import plain

_WIDTH = 100
_LABELS = {
    "kernels": "kernels",
    "copies": "copies",
    "runtime_calls": "runtime calls",
    "host_ops": "host ops",
    "python_frames": "Python frames",
    "ranges": "ranges",
    "memory_events": "memory events",
    "collectives": "collectives",
    "device_samples": "device samples",
    "steps": "steps",
    "memory_segments": "memory segments",
    "memory_blocks": "memory blocks",
    "allocator_summaries": "allocator summaries",
    "out_of_memory": "failed allocations",
}
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))


def to_json(document: Mapping[str, Any]) -> str:
    """Pure ASCII, as the report: no name in a recording steers the terminal, and half a character is none."""
    return json.dumps(plain(document), indent=2, ensure_ascii=True, allow_nan=False)


def to_text(document: Mapping[str, Any]) -> str:
    """One block a file, then what is to be said about all of them."""
    blocks = ["\n".join(_file(entry)) for entry in document["files"]]
    general = "\n".join(line for notice in document["notices"] for line in _wrapped(f"note: {notice['message']}", ""))
    return "\n\n".join([*blocks, *([general] if general else [])])


def _file(entry: Mapping[str, Any]) -> Iterator[str]:
    yield printable(entry["path"])
    kind = entry["format"] + (f" ({entry['format_version']})" if entry["format_version"] else "")
    ranks = entry["ranks"]
    rank = f", rank {ranks[0]}" if len(ranks) == 1 else f", ranks {', '.join(map(str, ranks))}" if ranks else ""
    steps = entry["steps"]
    marked = f", {steps['count']:,} step{'s' if steps['count'] != 1 else ''} ({steps['source']})" if steps["count"] else ""
    yield from _wrapped(printable(kind) + rank + marked)
    counts = [f"{count:,} {_LABELS[name]}" for name, count in entry["tables"].items() if count and name != "steps"]
    yield from _wrapped(", ".join(counts) or "no events")
    for gpu in entry["gpu"]:
        name = next((f" ({printable(d['name'])})" for d in entry["devices"] if d["index"] == gpu["device"] and d["name"]), "")
        process = f", process {gpu['process']}" if gpu.get("process") is not None else ""
        span = gpu["last_ns"] - gpu["first_ns"]
        busy, kernels = (_time(gpu[key]) + _share(gpu[key], span) for key in ("busy_ns", "kernel_busy_ns"))
        yield from _wrapped(f"GPU {gpu['device']}{process}{name}: busy {busy} of {_time(span)}; kernels {kernels}")
    used = {gpu["device"] for gpu in entry["gpu"]}
    others = [d for d in entry["devices"] if d["index"] not in used]
    if others:
        yield from _wrapped("listed, without work here: " + ", ".join(_device(d) for d in others))
    for notice in entry["notices"]:
        yield from _wrapped(f"note: {notice['message']}")


def _device(device: Mapping[str, Any]) -> str:
    return f"GPU {device['index']}" + (f" ({printable(device['name'])})" if device["name"] else "")


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _time(ns: int) -> str:
    """Three figures and a unit."""
    factor, unit = next(((f, u) for f, u in _UNITS if abs(ns) >= f), (1, "ns"))
    value = ns / factor
    return f"{value:.0f} {unit}" if factor == 1 or value >= 99.95 else f"{value:.{2 if value < 9.995 else 1}f} {unit}"


def _share(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f} %)" if whole > 0 else ""


def printable(text: str) -> str:
    """Without control characters: a name in a recording must not steer the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
