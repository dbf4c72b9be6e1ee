"""Random training runs for property tests, and the same run told differently: later, in other names, at another pace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from advisor.model import TABLES, Run, Table
from build.workload import Rank, Workload

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
# What a rank can do inside a step: name and a length in us.
_ACTIONS: dict[str, Callable[[Rank, int], Any]] = {
    "host": lambda rank, us: rank.host(us),
    "op": lambda rank, us: rank.leaf("aten::view", us / 10),
    "launch": lambda rank, us: rank.launch("gemm", us),
    "aside": lambda rank, us: rank.launch("vectorized_elementwise_kernel", us, stream=9),
    "under-op": lambda rank, us: _under_op(rank, us),
    "backward": lambda rank, us: _backward(rank, us),
    "graph": lambda rank, us: rank.graph([("gemm", us / 8), ("softmax", us / 8), (NCCL, us / 8)]),
    "slow-launch": lambda rank, us: rank.launch("gemm", us, us=us),
    "nccl-alone": lambda rank, us: rank.launch(NCCL, us, stream=17),
    "copy-in": lambda rank, us: rank.copy("HtoD", 1000, us),
    "copy-out": lambda rank, us: rank.copy("DtoH", 1000, us, target="pageable"),
    "copy-aside": lambda rank, us: rank.copy("HtoD", 1000, us, stream=13),
    "memset": lambda rank, us: rank.memset(1000, us / 20),
    "stream": lambda rank, us: rank.sync("stream"),
    "device": lambda rank, us: rank.sync("device"),
    "event": lambda rank, us: rank.sync("event", stream=9),
    "item": lambda rank, us: rank.item(),
    "malloc": lambda rank, us: rank.call("cudaMalloc", us),
    "free": lambda rank, us: rank.call("cudaFree", us),
    "loader": lambda rank, us: rank.loader(us),
    "hitch": lambda rank, us: rank.overhead("Command Buffer Full", us),
    "other-gpu": lambda rank, us: rank.launch("gemm", us, device=1, stream=21),
}


def _under_op(rank: Rank, us: float) -> None:
    with rank.op("aten::linear"), rank.op("aten::mm"):
        rank.launch("gemm", us)


def _backward(rank: Rank, us: float) -> None:
    with rank.backward(), rank.op("MmBackward0"):
        rank.launch("gemm", us)


ACTIONS = st.lists(st.tuples(st.sampled_from(sorted(_ACTIONS)), st.integers(1, 400)), max_size=14)


@st.composite
def runs(draw: st.DrawFn, most_ranks: int = 3, tools: tuple[str, ...] = ("torch", "nsys"), losses: bool = True) -> Run:
    """One to `most_ranks` ranks and up to five steps of random work; some records lost; ranks of unknown number too."""
    ranks = draw(st.integers(1, most_ranks))
    w = Workload(ranks=ranks, tool=draw(st.sampled_from(tools)), closing_sync=draw(st.booleans()))
    marked = draw(st.booleans())
    script = draw(ACTIONS)  # what all steps share, so that they resemble one another
    for _ in range(draw(st.integers(1, 5))):
        for rank in w.ranks:
            _one_step(rank, [*script, *draw(ACTIONS)], marked)
        if ranks > 1 and draw(st.booleans()):
            w.collective(gpu_us=draw(st.integers(5, 300)))
    if losses:
        for rank in w.ranks:
            for table in ("kernels", "runtime_calls", "host_ops"):
                rows = rank.rows.get(table, [])
                for _ in range(draw(st.integers(0, min(3, len(rows))))):
                    del rows[draw(st.integers(0, len(rows) - 1))]
    return w.to_run()


def _one_step(rank: Rank, actions: list[tuple[str, int]], marked: bool) -> None:
    if marked:
        with rank.step():
            for name, us in actions:
                _ACTIONS[name](rank, us)
    else:
        for name, us in actions:
            _ACTIONS[name](rank, us)


def changed(run: Run, change: Callable[[str, str, npt.NDArray[Any]], npt.NDArray[Any]]) -> Run:
    """A copy of the run; change(table, column, values) gives each column anew. Missing values must stay missing."""
    tables = {}
    for name, table in run.tables.items():
        columns = {c: change(name, c, np.array(table[c])) for c in table.column_names if table.has(c) or not len(table)}
        tables[name] = Table(name, columns, length=len(table)).ordered()
    return replace(run, tables=tables, _cache={})


def _unit(table: str, column: str) -> str:
    return TABLES[table].column(column).unit


def shifted(run: Run, by: int) -> Run:
    """The same run, `by` ns later."""
    return changed(run, lambda table, column, values: values + by if _unit(table, column) == "ns" else values)


def scaled(run: Run, by: int) -> Run:
    """The same run, `by` times slower."""
    return changed(run, lambda table, column, values: values * by if _unit(table, column) == "ns" else values)


def renamed(run: Run) -> Run:
    """The same run with other numbers of processes, threads and streams, in the same order; correlations turned round."""

    def rename(table: str, column: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        known = values >= 0 if values.dtype.kind == "i" else np.zeros(len(values), bool)
        if column in ("process", "thread", "forward_thread", "backward_thread", "end_thread"):
            return np.where(known, values * 7 + 90_000, values)
        if column in ("stream", "wait_stream", "context"):
            return np.where(known, values + 1_000_000, values)
        if column in ("correlation", "wait_correlation", "op"):
            return np.where(known, 10_000_000 - values, values)
        return values

    devices = [replace(d, process=None if d.process is None else d.process * 7 + 90_000) for d in run.devices]
    return replace(changed(run, rename), devices=devices)


def reranked(run: Run, by: int = 40) -> Run:
    """The same run with all ranks counted from `by`; a rank that is unknown stays so."""

    def rerank(table: str, column: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.where(values >= 0, values + by, values) if column == "rank" else values

    devices = [replace(d, rank=None if d.rank is None else d.rank + by) for d in run.devices]
    ranks = [None if rank is None else rank + by for rank in run.ranks]
    return replace(changed(run, rerank), devices=devices, ranks=ranks)
