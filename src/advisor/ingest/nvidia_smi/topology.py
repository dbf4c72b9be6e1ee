"""nvidia-smi topo -m (which link joins which devices) and the list of GPUs that -L and nvlink -s print."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from advisor.ingest.nvidia_smi import values
from advisor.ingest.nvidia_smi.collect import Collector

FORMAT = "nvidia-smi-topology"

_DEVICE = re.compile(r"(?:GPU|NIC)\d+|mlx\d+_\d+|hfi\d+_\d+")
_CELL = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|X")
_LISTED = re.compile(r"GPU (\d{1,4}): (.+?) \(UUID: ([^)]*)\)\s*")
_PORT = re.compile(r"\s*Link \d+: |\s*(?:MIG )\S+ .*Device +\d+: ")
_LEGEND = re.compile(r"\s*(?:(?:NIC )?Legend:|(?:X|SYS|SOC|NODE|PHB|PXB|PIX|NV#|PSB)\s+= |NIC\d+: )")


def opens(line: str) -> bool:
    """True for the header of the matrix, or a line of a list of GPUs."""
    if _LISTED.fullmatch(line):
        return True
    names = line.split()[:2]
    return bool(names) and names[0] == "GPU0" and line[:1].isspace() and (len(names) == 1 or _header_word(names[1]))


def _header_word(word: str) -> bool:
    return _DEVICE.fullmatch(word) is not None or word == "CPU"


class TopologySection:
    """A matrix of links: header, one line a device, legend."""

    format = FORMAT

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._columns: list[str] = []

    def feed(self, lines: Sequence[str], at: int, opens_other: Callable[[str], bool]) -> int:
        """Takes lines from `lines[at:]` up to one that belongs to something else; returns where that is."""
        for i in range(at, len(lines)):
            line = lines[i]
            words = line.split()
            if listed := _LISTED.fullmatch(line):
                self._collector.declare(int(listed[1]), values.name(listed[2]), values.uuid(listed[3]))
            elif opens(line):
                self._columns = [word for word in words if _DEVICE.fullmatch(word)]
            elif words and self._columns and _DEVICE.fullmatch(words[0]) and len(words) > 1 and _CELL.fullmatch(words[1]):
                self._read(words)
            elif words and not (_LEGEND.match(line) or _PORT.match(line)):
                return i
        return len(lines)

    def _read(self, words: list[str]) -> None:
        """A line of the matrix: no cell of a link is ever empty, only the columns after them."""
        device, cells = words[0], words[1 : len(self._columns) + 1]
        if device not in self._columns:
            return
        own = self._columns.index(device)
        if device.startswith("GPU") and int(device[3:]) < 4096:
            self._collector.declare(int(device[3:]), None, None)
        for other, cell in list(zip(self._columns, cells, strict=False))[own + 1 :]:
            if _CELL.fullmatch(cell) and cell != "X" and len(self._collector.links) < 1_000_000:
                self._collector.links.append((device, other, cell))

    def close(self) -> None:
        """Nothing is held back."""
