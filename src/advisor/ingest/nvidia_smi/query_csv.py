"""nvidia-smi --query-gpu and --query-compute-apps as CSV, and the CSV that scripts make of it."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence

from advisor.ingest.nvidia_smi.collect import PROCESSES, SAMPLES, Collector
from advisor.ingest.nvidia_smi.fields import Field, is_query_name, normal, own_field, query_field
from advisor.ingest.nvidia_smi.grid import Grid
from advisor.ingest.nvidia_smi.stamps import Clock, parse

FORMAT = "nvidia-smi-csv"
_LONGEST_HEADER = 16_384
_MOST_LINES = 64  # of one quoted record

_INDEX = query_field("index")


_LIKELY = re.compile(r"util|mem|power|clock|temp|pstate|index|pci|ecc|fan|draw|pid|vram|load", re.I)
_SEPARATED = re.compile(r"[.,;\t]")


class Header:
    """The fields of a header line, and what separates them."""

    def __init__(self, line: str, cells: list[str], delimiter: str, table: str, fields: list[Field | None]) -> None:
        self.line = line.strip()
        self.cells = cells
        self.delimiter = delimiter
        self.table = table
        self.fields = fields


def _split(line: str) -> tuple[list[str], str]:
    delimiter = max(",;\t", key=line.count)
    cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), []) if '"' in line else line.split(delimiter)
    return [cell.strip() for cell in cells], delimiter


def header(line: str) -> Header | None:
    """The header that `line` is, or None. Names of nvidia-smi count at once, those of scripts only where they are many."""
    if len(line) > _LONGEST_HEADER or line.lstrip()[:1] in "0123456789#|+<{=" or not _SEPARATED.search(line):
        return None
    if not _LIKELY.search(line):
        return None
    try:
        cells, delimiter = _split(line)
    except csv.Error:
        return None
    while cells and not cells[-1]:
        cells.pop()
    names = [normal(cell)[0] for cell in cells]
    if not any(names) or not all(names[1:]):  # pandas leaves the first name empty
        return None
    processes = "pid" in names and any(name in ("process_name", "used_memory", "used_gpu_memory") for name in names)
    official = [query_field(cell, processes) for cell in cells]
    known = sum(is_query_name(cell) for cell in cells)
    sure = any(is_query_name(cell) and ("." in name or "[" in cell) for cell, name in zip(cells, names, strict=True))
    fields = official if processes else [field or own_field(cell) for field, cell in zip(official, cells, strict=True)]
    measures = {field.meaning.column for field in fields if field is not None} - _NO_MEASURES
    if processes or sure:
        right = known * 2 >= len(cells) and (processes or bool(measures) or known == len(cells))
    elif known == len(cells) and len(cells) > 1 and "timestamp" in names:
        right = True  # only keys were asked for
    else:
        filled = sum(field is not None for field in fields)
        right = len(measures) >= 2 and filled * 2 > len(cells) and re.search(r"gpu|sm|mem|util|vram", " ".join(names)) is not None
    return Header(line, cells, delimiter, PROCESSES if processes else SAMPLES, fields) if right else None


_NO_MEASURES = {"date", "stamp", "index", "uuid", "bus", "name", "capability", "driver", "cuda"}

_UNIT = re.compile(r"\d+(?:\.\d+)? (?:%|MiB|W|MHz)")
_STAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}")
_UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{20,30}", re.I)
_BUS = re.compile(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]", re.I)


def is_headless_row(line: str) -> bool:
    """True for a row as --format=csv,noheader prints it, whatever was asked for."""
    if "," not in line or len(line) > _LONGEST_HEADER:
        return False
    cells = [cell.strip() for cell in line.split(",")]
    if any(_UUID.fullmatch(cell) or _BUS.fullmatch(cell) for cell in cells):
        return True
    return sum(_UNIT.fullmatch(cell) is not None for cell in cells) + 2 * any(_STAMP.fullmatch(cell) for cell in cells) >= 3


HEADLESS = (
    "a log of nvidia-smi without its header line, so what its {n} columns mean is unknown: record it with "
    "nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used,power.draw --format=csv, "
    "or put the list that was given to --query-gpu= into the file as its first line"
)


class CsvSection:
    """The rows that follow one header line."""

    format = FORMAT

    def __init__(self, collector: Collector, head: Header) -> None:
        self._collector = collector
        self._head = head
        self.delimiter = head.delimiter
        self._width = len(head.cells)
        self._grid = Grid(collector, head.table, head.fields)
        self._folded: Grid | None = None
        self._open: list[str] = []  # lines of a quoted record that is not closed yet
        self._stamp_at = next((i for i, f in enumerate(head.fields) if f and f.meaning.column in ("stamp", "date")), -1)
        first = normal(head.cells[0])[0]
        self._first = first if is_query_name(head.cells[0]) else ""

    def feed(self, lines: Sequence[str], at: int, opens: Callable[[str], bool]) -> int:
        """Takes rows from `lines[at:]` up to a line that opens something else; returns where that is."""
        rows: list[str | list[str]] = []  # a row that was taken apart already is a list
        i, end, commas, delimiter = at, len(lines), self._width - 1, self.delimiter
        while i < end:
            line = lines[i]
            if not line[:1].isdigit() and not self._open:  # a header, another format, or a row that begins with a name
                if not line.strip() or line.strip() == self._head.line:
                    i += 1
                    continue
                if self._may_open(line, delimiter) and opens(line):
                    break
            i += 1
            if self._open or '"' in line:
                self._quoted(line, rows)
                continue
            if line.count(delimiter) == commas:
                rows.append(line)
            elif cells := self._fit(line.split(delimiter)):
                rows.append(delimiter.join(cells))
        self._add(rows)
        return i

    def _add(self, rows: list[str | list[str]]) -> None:
        """Rows to the grid; as one split and slices of it where no row was quoted, which takes a third of the time."""
        if not rows:
            return
        width, delimiter = self._width, self.delimiter
        try:
            cells = delimiter.join(rows).split(delimiter)  # type: ignore[arg-type]
        except TypeError:
            self._grid.add([row.split(delimiter) if isinstance(row, str) else row for row in rows])
        else:
            self._grid.add_columns([cells[i::width] for i in range(width)])

    def _may_open(self, line: str, delimiter: str) -> bool:
        """Quickly told: a line with as many cells as a row opens something else only if it is a header itself."""
        if line.count(delimiter) != self._width - 1 or self._width < 3:
            return True
        return normal(line.split(delimiter, 1)[0])[0] in ("timestamp", "index", "name", "uuid", self._first)

    def _fit(self, cells: list[str]) -> list[str]:
        """A row of another width: one that has a second stamp or empty cells more is mended, others are left out."""
        spare = len(cells) - self._width
        at = self._stamp_at
        if spare > 0 and at >= 0 and all(parse(cell).clock != Clock.NONE for cell in cells[at : at + spare + 1]):
            return cells[:at] + cells[at + spare :]  # nvidia-smi's own stamp stands last
        if spare > 0 and not any(cell.strip() for cell in cells[-spare:]):
            return cells[: self._width]
        self._collector.counts["rows-skipped" if len(cells) > 1 else "lines-skipped"] += 1
        return []

    def _quoted(self, line: str, rows: list[str | list[str]]) -> None:
        self._open.append(line)
        text = "\n".join(self._open)
        if text.count('"') % 2:
            if len(self._open) >= _MOST_LINES:
                self._give_up(rows)
            return
        self._open = []
        try:
            lines = (part + "\n" for part in text.split("\n"))
            record = next(csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True))
        except (csv.Error, StopIteration):
            self._collector.counts["rows-skipped"] += 1
            return
        unfolded = _unfold(record, self._width, self.delimiter)
        if len(unfolded) > 1:
            self._add(rows)
            rows.clear()
            self._add_folded(unfolded)
        elif len(record) == self._width or (record := self._fit(record)):
            rows.append(record)

    def _give_up(self, rows: list[str | list[str]]) -> None:
        """A quote that nothing closes is damage: the lines after it are rows of their own."""
        lines, self._open = self._open, []
        self._collector.counts["rows-skipped"] += 1
        for line in lines[1:]:
            cells = line.split(self.delimiter)
            if len(cells) == self._width or (cells := self._fit(cells)):
                rows.append(cells)

    def _add_folded(self, rows: list[list[str]]) -> None:
        """Rows of several GPUs that stood in one record: their order is their index, where no column states it."""
        keyed = any(f is not None and f.meaning.column in ("index", "uuid", "bus") for f in self._head.fields)
        if self._folded is None:
            self._folded = self._grid if keyed else Grid(self._collector, self._head.table, [*self._head.fields, _INDEX])
        self._folded.add(rows if keyed else [[*row, str(i)] for i, row in enumerate(rows)])

    def close(self) -> None:
        if self._open:
            rows: list[str | list[str]] = []
            self._give_up(rows)
            self._add(rows)


def last_value_is_cut(line: str, before: str, delimiter: str) -> bool:
    """Whether a last line without its line end seems to break off inside its last cell, by the line before it."""
    mine, other = line.rsplit(delimiter, 1)[-1].strip(), before.rsplit(delimiter, 1)[-1].strip()
    if line.count(delimiter) != before.count(delimiter) or not mine[:1].isdigit() or not other[:1].isdigit():
        return False
    unit = re.sub(r"^[\d.,\s]+", "", other)
    return not mine.endswith(unit) if unit else len(mine) < len(other)


def _unfold(cells: list[str], width: int, delimiter: str) -> list[list[str]]:
    """A record whose cells hold a line for each of several GPUs -> one row for each."""
    parts = [cell.strip().splitlines() or [""] for cell in cells]
    most = max(map(len, parts))
    if most == 1:
        return [cells]
    if any(len(part) not in (1, most) for part in parts):
        return [cells]
    rows = []
    for i in range(most):
        row = []
        for part in parts:
            row += [part[0]] if len(part) == 1 else part[i].split(delimiter) if len(cells) != width else [part[i]]
        rows.append(row)
    return rows if all(len(row) == width for row in rows) else [cells]
