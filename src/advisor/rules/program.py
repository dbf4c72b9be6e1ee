"""What of the program and its surroundings a comparison of two reports must know: the report's "program" object."""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.derive.activity import step_windows
from advisor.derive.calls import CallKind, is_kind
from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.kernel_classes import KernelClass, kernel_kinds
from advisor.derive.shapes import GEMM, products
from advisor.model import CopyKind, Run
from advisor.rules.plain import plain_text

VERSIONS = ("torch_version", "cuda_runtime_version", "cuda_driver_version", "driver_version", "nccl_version", "backend")
_COVERED = 0.9  # share of the matrix kernels' time whose shapes must be known
_SHAPES = 8  # of matrix products, those with most FLOPs: enough to see another batch or width


def program_info(run: Run) -> dict[str, Any]:
    """versions: what the input states of `VERSIONS`; variables: performance-relevant environment variables, where recorded.

    compiled: kernels of a compiler ran; cuda_graphs: CUDA graphs were launched. input_bytes: copied from the host to a GPU
    in a steady step, which grows with the batch. matrix_flops and matrix_shapes: of the matrix products, convolutions and
    attention of one steady step of one rank, None without recorded shapes; a shape is [batch, m, n, k, calls a step].
    """
    kinds = kernel_kinds(run).kind
    flops, shapes = _matrix(run)
    torch = run.options.torch_version
    facts = {**run.facts, **({"torch_version": torch} if torch else {})}
    return {
        "versions": {name: plain_text(str(facts[name]))[:60] for name in VERSIONS if name in facts},
        "variables": {name: plain_text(value)[:200] for name, value in sorted(run.environment.items())},
        "compiled": bool((kinds == int(KernelClass.FUSED)).any()) if len(kinds) else None,
        "cuda_graphs": bool(is_kind(run, CallKind.GRAPH_LAUNCH).any()) if len(run.table("runtime_calls")) else None,
        "input_bytes": _input_bytes(run),
        "matrix_flops": flops,
        "matrix_shapes": shapes,
    }


def _input_bytes(run: Run) -> int | None:
    """Mean over steps and GPUs; None where no copy was recorded."""
    copies, work = run.table("copies"), gpu_work(run)
    if not len(copies):
        return None
    total = count = 0
    for place, gpu in enumerate(work.gpus):
        start, end = step_windows(run, gpu)
        if not len(start):
            continue
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        mine = np.flatnonzero((work.gpu == place) & (work.source == COPY))
        at = np.searchsorted(start, work.start[mine], side="right") - 1
        inside = (at >= 0) & (work.start[mine] < end[np.maximum(at, 0)])
        rows = work.row[mine[inside]]
        rows = rows[copies["kind"][rows] == int(CopyKind.HOST_TO_DEVICE)]
        total += int(np.maximum(copies["bytes"][rows], 0).sum())
        count += len(start)
    return total // count if count else None


def _matrix(run: Run) -> tuple[int | None, list[list[float]] | None]:
    """FLOPs of a step, and its products by FLOPs; from the fuller recording where only that has shapes."""
    found = products(run)
    if not len(found.op) and run.fuller is not None:
        found = products(run.fuller)
    # Recomputed forward passes are the program's choice, not its work.
    flops = float(found.flops[~found.again].sum()) / max(found.steps, 1)
    known = int(found.gpu_ns.sum())
    if not len(found.op) or not 0 < flops < 1e25 or known < _COVERED * (known + found.unknown_ns):
        return None, None
    plain = found.kind == GEMM
    sizes = np.stack([found.batch[plain], found.m[plain], found.n[plain], found.k[plain]], axis=1)
    distinct, index = np.unique(sizes, axis=0, return_inverse=True)
    spent = np.bincount(index.ravel(), found.flops[plain], len(distinct))
    calls = np.bincount(index.ravel(), minlength=len(distinct))
    order = np.argsort(-spent, kind="stable")[:_SHAPES]
    return round(flops), [[*map(int, distinct[i]), round(int(calls[i]) / max(found.steps, 1), 3)] for i in order]
