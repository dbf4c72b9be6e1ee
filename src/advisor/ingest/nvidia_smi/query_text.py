"""nvidia-smi -q: `key : value` lines, nested by indentation. A value is known by its path, since keys repeat in many blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from advisor.ingest.nvidia_smi import values
from advisor.ingest.nvidia_smi.collect import PROCESSES, SAMPLES, Collector
from advisor.ingest.nvidia_smi.fields import PATHS, PROCESS_PATHS, Field
from advisor.ingest.nvidia_smi.stamps import NO_STAMP, words

FORMAT = "nvidia-smi-query"
_LONGEST = 1000

_DEVICE = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_KEYS = {"index", "name", "bus", "uuid_code", "driver", "cuda", "processes"}


class PathRow:
    """One GPU (or process) of -q or -q -x: values by their path, in the schema's columns."""

    def __init__(self, paths: dict[str, Field] = PATHS) -> None:
        self._paths = paths
        self._found: dict[str, tuple[int, float | str]] = {}
        self._reasons: int | None = None

    def put(self, path: str, text: str) -> None:
        field = self._paths.get(path)
        if field is None:
            return
        meaning = field.meaning
        column = "uuid_code" if meaning.column == "uuid" else meaning.column
        value: float | str | None
        if meaning.is_text:
            reader = {"text": values.name, "uuid": values.uuid, "bus": values.bus_id, "command": values.command}[meaning.kind]
            value = reader(text)
        else:
            value = values.number(text, meaning.kind)
        if value is None or value != value:
            return
        if meaning.kind == "flag":
            self._reasons = (self._reasons or 0) | (meaning.bit if value == 1 else 0)
            return
        before = self._found.get(column)
        if meaning.sum and before is not None:
            self._found[column] = field.place, float(before[1]) + float(value)
        elif before is None or field.place < before[0]:
            self._found[column] = field.place, value

    def row(self) -> dict[str, float | str]:
        row = {column: value for column, (_, value) in self._found.items()}
        if self._reasons is not None:
            row["throttle_reasons"] = self._reasons
        return row


class Document:
    """The GPUs and processes of one document of -q or -q -x on their way to the collector."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._gpu: PathRow | None = None
        self._bus: str | None = None
        self._head = PathRow()
        self._processes: list[PathRow] | None = None
        self._attached = 0
        self._blocks = 0
        self._rows: list[tuple[str, int, dict[str, float | str]]] = []  # table, number of the block, values
        self.stamp = NO_STAMP
        collector.beat += 1

    def head(self, path: str, text: str) -> None:
        """A value that stands before the first GPU."""
        if path == "timestamp":
            self.stamp = words(text)
        elif path in ("attached gpus", "attached_gpus"):
            self._attached = int(text) if text.isdecimal() and len(text) < 5 else 0
        else:
            self._head.put(path, text)
            for column, fact in (("driver", "driver_version"), ("cuda", "cuda_driver_version")):
                if column in self._head.row():
                    self._collector.facts[fact] = str(self._head.row()[column])

    def begin_gpu(self, bus: str | None) -> None:
        self.end_gpu()
        self._gpu, self._bus, self._processes = PathRow(), bus, None

    def put(self, path: str, text: str) -> None:
        if self._gpu is not None:
            self._gpu.put(path, text)

    def lists_processes(self) -> None:
        """The GPU states its processes, perhaps none."""
        self._processes = self._processes or []

    def begin_process(self) -> None:
        self.lists_processes()
        assert self._processes is not None
        self._processes.append(PathRow(PROCESS_PATHS))

    def put_process(self, path: str, text: str) -> None:
        if self._processes:
            self._processes[-1].put(path, text)

    def end_gpu(self) -> None:
        """The GPU that was being read is complete; it is left out if nothing is known of its state."""
        if self._gpu is None:
            return
        row = self._gpu.row()
        bus = row.get("bus") or (values.bus_id(self._bus) if self._bus else None)
        if bus is not None:
            row["bus"] = bus
        processes = [process for process in (p.row() for p in self._processes or []) if "process" in process]
        if self._processes is not None:
            row["processes"] = len(processes)
        if row.keys() - _KEYS:
            self._rows.append((SAMPLES, self._blocks, row))
        key = {name: row[name] for name in ("uuid_code", "bus") if name in row}
        self._rows += [(PROCESSES, self._blocks, process | key) for process in processes]
        self._blocks += 1
        self._gpu = self._processes = None

    def close(self) -> None:
        """Hands on everything. GPUs come in the order of their index: it is known where all of the machine are listed."""
        self.end_gpu()
        for table, block, row in self._rows:
            numbered = row | {"index": block} if self._blocks == self._attached else row
            self._collector.add_row(table, numbered, self.stamp)
        self._rows = []


def opens(line: str) -> bool:
    """True for the title of such a document."""
    return line.startswith("=") and "NVSMI LOG" in line


class QuerySection:
    """Documents of -q, one after another."""

    format = FORMAT

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._document: Document | None = None
        self._stack: list[tuple[int, str]] = []

    def feed(self, lines: Sequence[str], at: int, opens_other: Callable[[str], bool]) -> int:
        """Takes lines from `lines[at:]` up to one that opens something else; returns where that is."""
        for i in range(at, len(lines)):
            line = lines[i].rstrip()
            if not line or len(line) > _LONGEST:
                continue
            if opens(line):
                self.close()
                self._document = Document(self._collector)
            elif line[0] != " " and opens_other(line):
                return i
            else:
                self._read(line)
        return len(lines)

    def _read(self, line: str) -> None:
        document = self._document
        if document is None:
            return
        line = line.replace("\t", "    ")
        if device := _DEVICE.fullmatch(line):
            document.begin_gpu(device[1])
            self._stack = []
            return
        indent = len(line) - len(line.lstrip())
        before, colon, text = line.partition(":")
        key, text = before.strip().lower(), text.strip()
        if not colon or not key or (" :" not in line and not line.endswith(":")):
            block = line.strip().lower()
            self._nest(indent, block)
            if self._path() in ("processes", "compute processes"):
                document.lists_processes()
            return
        self._nest(indent, key)
        path = self._path()
        if indent == 0:
            document.head(path, text)
        elif path.startswith(("processes", "compute processes")):
            self._read_process(document, key, text)
        else:
            document.put(path, text)

    def _read_process(self, document: Document, key: str, text: str) -> None:
        if key.endswith("processes"):
            if text == "None":
                document.lists_processes()
        elif key == "process id":
            document.begin_process()
            document.put_process(key, text)
        else:
            document.put_process(key, text)

    def _nest(self, indent: int, key: str) -> None:
        level = (indent + 2) // 4  # a damaged line may be off by a blank or two
        while self._stack and self._stack[-1][0] >= level:
            self._stack.pop()
        if len(self._stack) < 16:
            self._stack.append((level, key))

    def _path(self) -> str:
        return "/".join(key for _, key in self._stack)

    def close(self) -> None:
        """Hands on the GPU that was being read."""
        if self._document is not None:
            self._document.close()
        self._document, self._stack = None, []
