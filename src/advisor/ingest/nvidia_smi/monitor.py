"""nvidia-smi dmon and pmon: columns of blanks (or CSV) under two lines that begin with '#' and come again on every page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.ingest.nvidia_smi.collect import PROCESSES, SAMPLES, Collector
from advisor.ingest.nvidia_smi.fields import monitor_field
from advisor.ingest.nvidia_smi.grid import Grid

DMON, PMON = "nvidia-smi-dmon", "nvidia-smi-pmon"


def _names(line: str) -> list[str]:
    """Cells of a '#' line, in lower case."""
    text = line.strip().lstrip("#").strip().lower()
    return [cell.strip() for cell in text.split(",")] if "," in text else text.split()


def header(line: str) -> str | None:
    """DMON or PMON if `line` is the first header line of one, else None."""
    if not line.lstrip().startswith("#") or len(line) > 4096:
        return None
    names = _names(line)
    if "gpu" not in names[:3] or len(names) < 2:
        return None
    if "pid" in names:
        return PMON if "command" in names or "type" in names else None
    return DMON if any((field := monitor_field(name, "", False)) and field.meaning.column != "index" for name in names) else None


class MonitorSection:
    """The rows that follow such a header."""

    def __init__(self, collector: Collector, line: str) -> None:
        self.format = header(line) or DMON
        self._collector = collector
        self._processes = self.format == PMON
        self._names: list[str] = []
        self._grid: Grid | None = None
        self._read_names(line)

    def _read_names(self, line: str) -> None:
        names = _names(line)
        self._comma = "," in line
        if names != self._names:  # the header that every page repeats keeps what the grid knows of the samples
            self._names, self._grid = names, None

    def _make_grid(self, units: list[str]) -> Grid:
        if len(units) != len(self._names):
            units = [""] * len(self._names)
        fields = [monitor_field(name, unit, self._processes) for name, unit in zip(self._names, units, strict=True)]
        return Grid(self._collector, PROCESSES if self._processes else SAMPLES, fields)

    def feed(self, lines: Sequence[str], at: int, opens: Callable[[str], bool]) -> int:
        """Takes rows from `lines[at:]` up to a line that opens something else; returns where that is."""
        rows: list[list[str]] = []
        i, end, width = at, len(lines), len(self._names)
        most = width - 1 if self._processes else -1  # the command, which comes last, may hold blanks
        while i < end:
            line = lines[i]
            text = line.strip()
            if text.startswith("#"):
                kind = header(text)
                if kind == self.format:
                    if _names(text) != self._names:
                        break
                elif kind is not None:
                    break
                elif self._grid is None:
                    self._grid = self._make_grid(_names(text))
                i += 1
                continue
            if text and not text[0].isdigit() and opens(line):
                break
            i += 1
            if not text:
                continue
            cells = text.split(",", most) if self._comma else text.split(None, most)
            if len(cells) == width and text[0].isdigit():
                rows.append(cells)
            elif self._processes and len(cells) == width - 1 and text[0].isdigit():
                rows.append([*cells, ""])
            else:
                self._collector.counts["rows-skipped" if text[0].isdigit() else "lines-skipped"] += 1
        if rows:
            self._grid = self._grid or self._make_grid([])
            if self._processes:
                rows = self._drop_empty(rows)
            self._grid.add(rows)
        return i

    def _drop_empty(self, rows: list[list[str]]) -> list[list[str]]:
        """Without the rows that say that a GPU has no process."""
        at = self._names.index("pid")
        return [row for row in rows if row[at].strip() != "-"]

    def close(self) -> None:
        """Nothing is held back."""
