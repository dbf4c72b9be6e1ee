"""How the schema states a table: columns, and those that several tables share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column: NumPy dtype, unit, meaning, and the value that stands for "not recorded" (None: always recorded)."""

    name: str
    dtype: str
    unit: str
    meaning: str
    missing: float | int | None = None


@dataclass(frozen=True)
class TableSpec:
    """One table: what a row is, its columns, and the column it is ordered by."""

    name: str
    row: str
    columns: tuple[Column, ...]
    order: str = "start"

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name!r}")


def text(name: str, meaning: str) -> Column:
    return Column(name, "int32", "text", meaning, -1)


START = Column("start", "int64", "ns", "begin")
END = Column("end", "int64", "ns", "end; never before start")
TIME = Column("time", "int64", "ns", "moment")
NEVER = -(1 << 63)  # of times that a file may lack: no moment within the range of plausible ones
RANK = Column("rank", "int32", "", "rank of the process in the job", -1)
PROCESS = Column("process", "int64", "", "operating-system process id, as far as the file tells", -1)
THREAD = Column("thread", "int64", "", "operating-system thread id", -1)
DEVICE = Column("device", "int32", "", "CUDA ordinal as the process sees it", -1)
CONTEXT = Column("context", "int64", "", "CUDA context id", -1)
STREAM = Column("stream", "int64", "", "CUDA stream id", -1)
CORRELATION = Column("correlation", "int64", "", "joins a CUDA call and the GPU work it launched, within (rank, process)", -1)
OP = Column("op", "int64", "", "joins to host_ops.op (external id), within (rank, process)", -1)
GRAPH_NODE = Column("graph_node", "int64", "", "CUDA graph node that ran; missing outside graphs", -1)
GPU = (START, END, RANK, PROCESS, DEVICE, CONTEXT, STREAM, CORRELATION)
HOST = (START, END, RANK, PROCESS, THREAD)


def value(name: str, dtype: str, unit: str, meaning: str) -> Column:
    return Column(name, dtype, unit, meaning, float("nan") if dtype.startswith("float") else -1)
