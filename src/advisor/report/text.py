"""Wording and number formats that all formats for people share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from advisor.model import Evidence, Finding, Fix, Report, Saving

FORMAT_NAMES = {
    "torch-trace": "torch.profiler trace",
    "nsys-sqlite": "Nsight Systems export",
    "nsys-report": "Nsight Systems report",
    "nvidia-smi-csv": "nvidia-smi log",
    "nvidia-smi-dmon": "nvidia-smi dmon log",
    "nvidia-smi-pmon": "nvidia-smi pmon log",
    "nvidia-smi-query": "nvidia-smi -q",
    "nvidia-smi-xml": "nvidia-smi -q -x",
    "nvidia-smi-table": "nvidia-smi table",
    "nvidia-smi-topology": "nvidia-smi topology",
    "cuda-memory-snapshot": "CUDA memory snapshot",
    "cuda-oom-message": "out-of-memory message",
    "torch-memory-summary": "PyTorch memory summary",
    "advisor-bundle": "manifest of advisor's recording",
}
STEP_SOURCES = {
    "profiler-step": "by ProfilerStep# marks",
    "nvtx": "by NVTX ranges",
    "user-pattern": "by the pattern given",
    "inferred": "inferred from repeating kernels",
    "none": "no step found: the whole window counts as one",
}
# Parts of a step in which the GPU works, in the order in which they claim time; and what an idle GPU waits for.
BUSY_PARTS = {
    "compute": "compute",
    "communication": "exposed communication",
    "communication_wait": "waiting for other ranks",
    "copy": "exposed copies",
}
IDLE_CAUSES = {
    "dataloader": "data loading",
    "host-sync": "host synchronisation",
    "launch": "kernel launches",
    "python": "Python between launches",
    "memory-management": "memory management",
    "unexplained": "unexplained",
}
SAFETY_MEANING = {
    "same-numerics": "same results",
    "changes-numerics": "results change slightly",
    "changes-memory": "memory use changes",
    "operational": "outside the program",
}
CONFIDENCE_MEANING = {
    "high": "seen directly",
    "medium": "seen directly, size less certain",
    "low": "inferred from names or partial data",
}
BASIS_MEANING = {
    "replay": "the step was replayed without it",
    "bound": "bounded, not replayed",
    "none": "no saving is promised",
}
LONGEST, LONGEST_BLOCK = 4000, 40_000  # characters of a line, and of a piece of code
_UNITS = {
    "gpu": "GPU",
    "cpu": "CPU",
    "sm": "SM",
    "sms": "SMs",
    "mhz": "MHz",
    "gb/s": "GB/s",
    "tflop/s": "TFLOP/s",
    "gib": "GiB",
    "w": "W",
    "c": "C",
}
_DURATIONS = (
    (3_600_000_000_000, "h"),
    (60_000_000_000, "min"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "µs"),
    (1, "ns"),
)
_COMMON = re.compile(r"at::native::|\(anonymous namespace\)::|<unnamed>::")
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def clean(text: object) -> str:
    """One printable line: text from a trace may hold escape sequences, line breaks or characters that turn the line around.

    Nobody reads a line of megabytes, and wrapping one takes minutes: of a longer one the middle is left out.
    """
    line = shorten(str(text), LONGEST)
    if line.isprintable():
        return line
    return "".join(character if character.isprintable() else _visible(character) for character in line)


def _visible(character: str) -> str:
    if character.isspace():
        return " "
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def clean_block(text: str) -> list[str]:
    """Lines of code, each printable, without blank lines at either end; not more than anybody would paste."""
    lines = [clean(line.expandtabs(4)).rstrip() for line in text[:LONGEST_BLOCK].replace("\r\n", "\n").split("\n")]
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return lines


def shorten(text: str, limit: int, ellipsis: str = "…") -> str:
    """The text, its middle left out where it is longer than `limit` characters: both ends tell kernels and paths apart."""
    if len(text) <= limit:
        return text
    keep = max(limit - len(ellipsis), 0)
    head = keep - keep // 2
    return text[:head] + ellipsis + text[len(text) - keep // 2 :]


def significant(value: float, digits: int = 2) -> str:
    """Decimal text with so many significant digits, but all of the integer part and no zeros at the end: 4.6, 132, 2."""
    if not math.isfinite(value):
        return "unknown"
    if value == 0:
        return "0"
    if not 1e-6 < abs(value) < 1e15:
        return f"{value:.{digits - 1}e}"
    magnitude = math.floor(math.log10(abs(value)))
    decimals = max(digits - 1 - magnitude, 0)
    rounded = round(value, decimals)
    if rounded and math.floor(math.log10(abs(rounded))) > magnitude:  # 9.96 has become 10.0
        decimals = max(decimals - 1, 0)
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(ns: float | None, digits: int = 2) -> str:
    """4_600_000 -> '4.6 ms'. At least three digits from 10 units on: '16.5 ms'."""
    return "unknown" if ns is None else _scaled(ns, _DURATIONS, digits)


def size(count: float | None) -> str:
    """150_109_880_320 -> '140 GiB'."""
    return "unknown" if count is None else _scaled(count, _BYTES, 2)


def _scaled(value: float, units: tuple[tuple[int, str], ...], digits: int) -> str:
    if not math.isfinite(value):
        return "unknown"
    for factor, unit in units:
        amount = value / factor
        if factor == 1:
            return f"{amount:,.0f} {unit}"
        if abs(amount) >= 1:
            return f"{significant(amount, digits if abs(amount) < 10 else max(digits, 3))} {unit}"
    raise AssertionError("the last unit fits every value")


def percent(share: float | None) -> str:
    """0.284 -> '28 %'; below 10 % two digits: '3.4 %'."""
    return "unknown" if share is None else f"{_percent_number(share)} %"


def _percent_number(share: float) -> str:
    value = share * 100
    if not math.isfinite(value):
        return "unknown"
    if 0 < abs(value) < 0.095:
        return "<0.1" if value > 0 else ">-0.1"
    return significant(value, 2) if abs(value) >= 0.95 else significant(value, 1)


def percent_range(low: float | None, high: float | None) -> str:
    """'19 to 36 %', or one figure where both read the same."""
    if low is None or high is None:
        return "unknown"
    first, last = _percent_number(low), _percent_number(high)
    return f"{first} %" if first == last else f"{first} to {last} %"


def duration_range(low: int, high: int, digits: int = 2) -> str:
    """'3.1 to 5.9 ms'; both units where they differ."""
    first, last = duration(low, digits), duration(high, digits)
    if first == last:
        return first
    amount, unit = first.rsplit(" ", 1)
    if low == 0:
        return f"0 to {last}"
    return f"{amount} to {last}" if last.endswith(f" {unit}") else f"{first} to {last}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """'1 step', '1,185 kernels'."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ordinal(number: int) -> str:
    """'second', '7th'."""
    return {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}.get(number, f"{number}th")


def money(amount: float) -> str:
    """1234.5 -> '1,234', 3.456 -> '3.46', 0.004 -> '<0.01'. The unit is that of the price, which nobody told."""
    if not math.isfinite(amount):
        return "unknown"
    if 0 < amount < 0.01:
        return "<0.01"
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.2f}"


def join(words: list[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""


def cell(column: str, value: Any) -> str:
    """A value of an evidence table: the column's suffix (_ns, _bytes, _frac) tells its unit."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        if column == "ns" or column.endswith("_ns"):
            return duration(value)
        if column == "bytes" or column.endswith("_bytes"):
            return size(value)
        if column.endswith("_frac"):
            return percent(value)
        return number(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(cell("", item) for item in value)
    return kernel_name(clean(value)) if column in ("kernel", "kernels") else clean(value)


def evidence_table(evidence: Evidence) -> Evidence:
    """The evidence without columns in which no row has a value (the rank, where only one process was recorded)."""
    told = [i for i in range(len(evidence.columns)) if any(i < len(row) and row[i] is not None for row in evidence.rows)]
    if not told or len(told) == len(evidence.columns):
        return evidence
    rows = [[row[i] for i in told if i < len(row)] for row in evidence.rows]
    return replace(evidence, columns=[evidence.columns[i] for i in told], rows=rows)


def kernel_name(name: str) -> str:
    """A kernel's name without what most names begin with."""
    return _COMMON.sub("", name.removeprefix("void ")) or name


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else significant(value, 3)


def heading(column: str) -> str:
    """Column name for people: the suffix that tells the unit is dropped, since cells print it."""
    for suffix in ("_ns", "_bytes", "_frac"):
        if column.endswith(suffix) and column != suffix:
            column = column.removesuffix(suffix)
            break
    words = clean(column.replace("_per_", "/").replace("_", " ")).split(" ")
    return " ".join(_UNITS.get(word, word) for word in words)


def sentence(text: str) -> str:
    """The text with a capital at its begin, unless it begins with a name (cudaMalloc, aten::mm, smi.csv)."""
    text = clean(text)
    first = text.split(" ", 1)[0].rstrip(",:;")
    return text[0].upper() + text[1:] if first.isalpha() and first.islower() and first.isascii() else text


def place(file: str, line: int | None, function: str | None) -> str:
    """'train.py:148 forward'."""
    where = clean(file) if line is None else f"{clean(file)}:{line}"
    return f"{where} {clean(function)}" if function else where


def file_name(path: str) -> str:
    """Last component of a path as this or another operating system writes it."""
    return clean(PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name) or clean(path)


def short_path(path: str, limit: int) -> str:
    """The last components of a path, as many as fit into `limit` characters, but at least the file's name."""
    parts = path.replace("\\", "/").split("/")
    for i in range(len(parts)):
        rest = "/".join(parts[i:])
        if len(rest) + (4 if i else 0) <= limit or i == len(parts) - 1:
            return f".../{rest}" if i else path
    return path


def sections(report: Report) -> tuple[list[Finding], list[Finding]]:
    """Findings that promise a saving worth an action on direct evidence, and those that stand apart as hints."""
    main = [finding for finding in report.findings if _promises(finding)]
    return main, [finding for finding in report.findings if not _promises(finding)]


def _promises(finding: Finding) -> bool:
    return finding.saving is not None and finding.confidence != "low" and finding.severity != "info"


def confidence(finding: Finding) -> str:
    """'Confidence high: seen directly; the step was replayed without it'."""
    basis = BASIS_MEANING[finding.saving.basis if finding.saving else "none"]
    return f"Confidence {finding.confidence}: {CONFIDENCE_MEANING[finding.confidence]}; {basis}"


def fix_kind(fix: Fix) -> str:
    """'minutes; same results'."""
    return "; ".join(clean(word) for word in (fix.effort, SAFETY_MEANING.get(fix.safety, fix.safety)) if word)


def saving_short(saving: Saving | None, step_ns: int | None) -> str:
    """'4.6 ms, 28 % (19 to 36 %)' or 'no promise'."""
    if saving is None:
        return "no promise"
    shares = saving.to_dict(step_ns or 0)
    if shares["expected_frac"] is None:
        return duration(saving.expected_ns)
    spread, share = percent_range(shares["low_frac"], shares["high_frac"]), percent(shares["expected_frac"])
    return f"{duration(saving.expected_ns)}, {share}" + (f" ({spread})" if spread != share else "")


def step_source(report: Report) -> str:
    """Where the steps of a report come from, "" where there are none."""
    steps = report.run.get("steps")
    return str(steps.get("source")) if isinstance(steps, Mapping) else ""


def per_step(report: Report) -> str:
    """What times refer to: "a step", or the whole recording where none was found in it."""
    return "of the recording" if step_source(report) == "none" else "a step"


def breakdown_title(per: str) -> str:
    return "Where a step goes" if per == "a step" else "Where the time goes"


def saving_title(per: str) -> str:
    return "Saving per step" if per == "a step" else f"Saving {per}"


def saving_long(saving: Saving, step_ns: int | None, per: str = "a step") -> str:
    """'4.6 ms a step, 28 % (3.1 to 5.9 ms, 19 to 36 %)', or 'nothing by itself, at most 394 µs a step (11 %)'."""
    shares = saving.to_dict(step_ns or 0)
    known = shares["expected_frac"] is not None
    if saving.expected_ns == 0:
        return f"nothing by itself, at most {duration(saving.high_ns)} {per}" + (
            f" ({percent(shares['high_frac'])})" if known else ""
        )
    text = f"{duration(saving.expected_ns)} {per}" + (f", {percent(shares['expected_frac'])}" if known else "")
    if duration(saving.low_ns) == duration(saving.high_ns):  # a range that reads as one figure is none
        return text
    spread = duration_range(saving.low_ns, saving.high_ns)
    return f"{text} ({spread}, {percent_range(shares['low_frac'], shares['high_frac'])})" if known else f"{text} ({spread})"
