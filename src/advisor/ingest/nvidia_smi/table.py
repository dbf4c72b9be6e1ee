"""The table that plain `nvidia-smi` prints, once or in a loop (-l, watch). Read by its cells, since widths differ by driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from advisor.ingest.nvidia_smi import values
from advisor.ingest.nvidia_smi.collect import PROCESSES, SAMPLES, Collector

FORMAT = "nvidia-smi-table"
_LONGEST = 1000

_VERSIONS = re.compile(r"\|\s*NVIDIA-SMI\s+\S+\s+(?:\S+ Version:\s*(\S+))?(?:\s+CUDA (?:\w+ )?Version:\s*(\S+))?")
_GPU = re.compile(r"\s*(\d{1,4})\s+(\S.*?)(?:\s+(?:On|Off|N/A|TCC|WDDM|MCDM|ERR!|Enabled|Disabled))?\s*")
_BUS = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
_STATE = re.compile(r"\s*(\S+(?:\s?%)?)\s+(\S+)\s+(P\d+|N/A|ERR!|Unknown)\s+(\S+)\s*/\s*(\S+)\s*")
_MEMORY = re.compile(r"(\S+)\s*/\s*(\S+)")
_PROCESS = re.compile(
    r"\s*(?P<gpu>\d{1,4})\s+(?:(?P<gi>\d+|N/A|-)\s+(?P<ci>\d+|N/A|-)\s+)?(?P<pid>\d+)\s+"
    r"(?:(?P<type>C\+G|G\+C|M\+C|[CGM])\s+)?(?P<name>.*?)\s+(?P<memory>\d+\s?[KMG]?i?B|N/A|\[?Not Supported\]?|\[?N/A\]?)\s*"
)


def opens(line: str) -> bool:
    """True for a line that begins a table: its frame or its line of versions."""
    text = line.strip()
    return text.startswith("+--") or "| NVIDIA-SMI " in text


def _cells(line: str) -> list[str]:
    return line.strip().strip("|").split("|")


class TableSection:
    """Tables, up to a line of another format. A table's rows are handed on when the next begins: its processes come last."""

    format = FORMAT

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._begin()

    def _begin(self) -> None:
        self._gpus: dict[int, dict[str, float | str]] = {}
        self._processes: list[dict[str, float | str]] = []
        self._current: dict[str, float | str] | None = None
        self._lists_processes = False
        self._in_mig = False

    def feed(self, lines: Sequence[str], at: int, opens_other: Callable[[str], bool]) -> int:
        """Takes tables from `lines[at:]` up to a line that opens something else; returns where that is."""
        for i in range(at, len(lines)):
            line = lines[i].strip()
            if not line or line.startswith("+") or len(line) > _LONGEST:
                continue
            if not line.startswith("|"):
                return i
            if "| NVIDIA-SMI " in line:
                self.close()
                self._read_versions(line)
            else:
                self._read(line)
        return len(lines)

    def _read_versions(self, line: str) -> None:
        part = _VERSIONS.search(line)
        for group, fact in ((1, "driver_version"), (2, "cuda_driver_version")):
            if part and part[group] and re.fullmatch(r"\d[\d.]*", part[group]):
                self._collector.facts[fact] = part[group]

    def _read(self, line: str) -> None:
        if "Processes:" in line or "Compute processes:" in line:
            self._lists_processes, self._current = True, None
        elif "MIG devices:" in line:
            self._in_mig, self._current = True, None
        elif self._lists_processes:
            self._read_process(line)
        elif self._in_mig:
            self._collector.counts["mig-devices"] += re.match(r"\|\s*\d+\s+\d+\s+\d+\s+\d+\s*\|", line) is not None
        else:
            self._read_gpu(_cells(line))

    def _read_gpu(self, cells: list[str]) -> None:
        if len(cells) != 3:
            return
        gpu, bus = _GPU.fullmatch(cells[0]), _BUS.search(cells[1])
        if gpu and bus:
            self._current = self._gpus[int(gpu[1])] = {"index": int(gpu[1])}
            texts = {"name": values.name(gpu[2]), "bus": values.bus_id(bus[0])}
            self._current |= {key: text for key, text in texts.items() if text is not None}
            self._put("ecc_uncorrected", cells[2], "errors")
        elif self._current is not None and (state := _STATE.fullmatch(cells[0])):
            memory = _MEMORY.search(cells[1])
            self._put("fan", state[1], "%")
            self._put("temperature", state[2], "C")
            self._put("performance_state", state[3], "state")
            self._put("power", state[4], "W")
            self._put("power_limit", state[5], "W")
            if memory:
                self._put("memory_used", memory[1], "bytes")
                self._put("memory_total", memory[2], "bytes")
            self._put("utilization", (cells[2].split() or [""])[0], "%")

    def _put(self, column: str, text: str, kind: str) -> None:
        value = values.number(text, kind)
        if value == value and self._current is not None:
            self._current[column] = value

    def _read_process(self, line: str) -> None:
        part = _PROCESS.fullmatch(line.strip("|"))
        if part is None or int(part["pid"]) >= 2**31:
            return
        row: dict[str, float | str] = {"index": int(part["gpu"]), "process": int(part["pid"])}
        memory = values.number(part["memory"], "bytes")
        command = values.command(part["name"])
        row |= {} if memory != memory else {"memory_used": memory}
        row |= {} if command is None else {"command": command}
        row |= {"type": part["type"]} if part["type"] else {}
        self._processes.append(row)

    def close(self) -> None:
        """Hands on the table that was being read. Its moment is the date line before it, if there is one."""
        gpus = {index: row for index, row in self._gpus.items() if row.keys() - {"index", "name", "bus", "ecc_uncorrected"}}
        if gpus:
            self._collector.beat += 1
            for index, row in gpus.items():
                if self._lists_processes:
                    row["processes"] = sum(process["index"] == index for process in self._processes)
                self._collector.add_row(SAMPLES, row)
            for process in self._processes:
                self._collector.add_row(PROCESSES, process)
        self._begin()
