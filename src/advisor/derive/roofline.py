"""How near the GPU's peaks the kernels run: operations per second of matrix kernels, bytes per second of the others.

Bytes are the least that a kernel can move: every input once and its output once. A kernel that reads something twice, or
finds it in the L2 cache, moves another number than that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.gpus import main_device
from advisor.derive.kernel_classes import MATRIX_CLASSES, KernelClass, Precision
from advisor.derive.sequence import Sequence, sequence
from advisor.derive.shapes import GEMM, Size, products, tensor_bytes
from advisor.model import Run
from advisor.model.device_table import spec_of

# Peaks of the device table by arithmetic path.
PEAK_OF = {
    Precision.FP64: "fp64",
    Precision.FP32: "fp32",
    Precision.TF32: "tf32",
    Precision.FP16: "fp16",
    Precision.BF16: "bf16",
    Precision.FP8: "fp8",
    Precision.INT8: "int8",
}
# Classes whose kernels read each input and write their output about once.
_STREAMING = (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.REDUCTION, KernelClass.SOFTMAX, KernelClass.NORMALIZATION)
# A rate beyond this share of the peak says that the bytes are wrong (broadcast inputs, data in the cache).
_IMPOSSIBLE = 1.05
# Shapes must cover this share of the matrix kernels' time, or the FLOPs of the model are not known.
_COVERED = 0.9


@dataclass(frozen=True)
class Utilisation:
    """flops: of the model in one step of one GPU, recomputation not counted; dtype, peak: what most of them run in, and its
    dense peak in FLOP/s; rate: FLOP/s while matrix kernels run; matrix_ns: their time a step.
    """

    flops: float
    dtype: str
    peak: float
    rate: float
    matrix_ns: int

    def share(self, step_ns: int) -> float:
        """Model FLOPs utilisation: flops / (peak · step), 0..1."""
        return self.flops / (self.peak * step_ns * 1e-9) if step_ns > 0 else 0.0

    @property
    def matrix_share(self) -> float:
        """Share of the peak while matrix kernels run, 0..1."""
        return self.rate / self.peak


@dataclass(frozen=True)
class Roof:
    """One kernel name against the peak that binds it. rate, peak: per second, FLOP/s or bytes/s; gpu_ns and calls: a step."""

    kernel: str
    calls: float
    gpu_ns: int
    unit: str
    rate: float
    peak: float

    @property
    def share(self) -> float:
        return self.rate / self.peak


@dataclass(frozen=True)
class Point:
    """One kernel name in one arithmetic path, of all its executions whose work is known.

    kind, precision: KernelClass and Precision; calls, gpu_ns: a step; flops, moved: a second, FLOP/s and bytes/s, None where
    the shapes do not tell. moved counts the least bytes that the kernel can move.
    """

    name: int
    kind: int
    precision: int
    calls: float
    gpu_ns: int
    flops: float | None
    moved: float | None


def utilisation(run: Run) -> Utilisation | None:
    """Of the rank that sets the pace; None without shapes, or for a GPU whose peaks are not known."""
    return run.derived(_utilisation)


def _utilisation(run: Run) -> Utilisation | None:
    found, device = products(run), main_device(run)
    spec = spec_of(device) if device else None
    if spec is None or not len(found) or not found.flops.sum():
        return None
    steps, spent = max(found.steps, 1), int(found.gpu_ns.sum())
    if spent < _COVERED * (spent + found.unknown_ns * steps):
        return None
    by_path = np.bincount(found.precision, weights=found.flops)
    dtype = PEAK_OF.get(Precision(int(by_path.argmax())))
    peak = spec.peak(dtype) if dtype else None
    if dtype is None or not peak or not spent:
        return None
    return Utilisation(
        flops=float(found.flops[~found.again].sum()) / steps,
        dtype=dtype,
        peak=peak,
        rate=float(found.flops.sum()) / (spent * 1e-9),
        matrix_ns=spent // steps,
    )


def traffic(run: Run) -> npt.NDArray[np.float64]:
    """For each entry of `sequence(run)`: bytes that the kernel must move, NaN where its operator does not tell."""
    return run.derived(_traffic)


def _traffic(run: Run) -> npt.NDArray[np.float64]:
    found, ops = sequence(run), run.table("host_ops")
    result = np.full(len(found), np.nan)
    if not ops.has("shapes") or not ops.has("types"):
        return result
    count = np.bincount(found.op[found.op >= 0], minlength=len(ops))
    # Of an operator with several kernels nothing tells which moves what.
    rows = np.flatnonzero((found.op >= 0) & (count[np.maximum(found.op, 0)] == 1) & np.isin(found.kind, _STREAMING))
    known: dict[tuple[int, int, int, int], float] = {}
    for at in rows.tolist():
        op = int(found.op[at])
        key = (int(ops["name"][op]), int(ops["shapes"][op]), int(ops["types"][op]), int(found.kind[at]))
        if key not in known:
            texts = [run.strings[code] for code in key[:3]]
            known[key] = _moved(texts[0], tensor_bytes(texts[1], texts[2]), KernelClass(key[3]))
        result[at] = known[key]
    return result


def _moved(name: str, sizes: list[int], kind: KernelClass) -> float:
    total, largest = sum(sizes), max(sizes, default=0)
    if not largest:
        return float("nan")
    if name in ("aten::fill_", "aten::zero_"):
        return largest  # written, never read
    if name == "aten::copy_" or kind == KernelClass.REDUCTION:
        return total  # the target is among the inputs, or a result is small beside them
    return total + (sizes[0] if name.endswith("_") else largest)


def roofs(run: Run, most: int = 8) -> list[Roof]:
    """The kernels that take most time of a step and whose work is known, the costliest first."""
    device, found = main_device(run), sequence(run)
    spec = spec_of(device) if device else None
    if spec is None or not len(found):
        return []
    names = run.table("kernels")["name"][found.row].astype(np.int64)
    rows: list[Roof] = []
    for mask, amount, unit in (
        (np.isin(found.kind, MATRIX_CLASSES), _flops(run, found), "FLOP/s"),
        (None, traffic(run), "bytes/s"),
    ):
        known = ~np.isnan(amount) if mask is None else mask & ~np.isnan(amount)
        keys, index = np.unique(np.stack([names[known], found.precision[known]]), axis=1, return_inverse=True)
        index = index.reshape(-1)
        spent, done = np.bincount(index, weights=found.gpu_ns[known]), np.bincount(index, weights=amount[known])
        for i, count in enumerate(np.bincount(index).tolist()):
            path = PEAK_OF.get(Precision(int(keys[1, i])))
            peak = spec.memory_bandwidth if unit == "bytes/s" else spec.peak(path) if path else None
            rate = done[i] / max(spent[i] * 1e-9, 1e-9)
            if peak and rate <= _IMPOSSIBLE * peak:
                name, steps = run.strings[int(keys[0, i])], max(found.steps, 1)
                rows.append(Roof(name, round(count / steps, 1), int(spent[i]) // steps, unit, float(rate), peak))
    return sorted(rows, key=lambda roof: (-roof.gpu_ns, roof.kernel))[:most]


def points(run: Run, most: int) -> list[Point]:
    """The kernels that take most time of a step and of which FLOPs or bytes are known, the costliest first.

    Rates beyond what the GPU can do are left out: there the shapes do not tell what the kernel did.
    """
    device, found = main_device(run), sequence(run)
    spec = spec_of(device) if device else None
    if spec is None or not len(found):
        return []
    flops, moved = _flops(run, found), _least_bytes(run, found)
    known = ~np.isnan(flops) | ~np.isnan(moved)
    names = run.table("kernels")["name"][found.row].astype(np.int64)
    keys, index = np.unique(np.stack([names[known], found.kind[known], found.precision[known]]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    n = keys.shape[1]
    spent, count = np.bincount(index, weights=found.gpu_ns[known], minlength=n), np.bincount(index, minlength=n)
    done, bytes_ = (np.bincount(index, weights=amount[known], minlength=n) for amount in (flops, moved))  # NaN if one lacks it
    result, steps = [], max(found.steps, 1)
    for i in np.argsort(-spent, kind="stable").tolist():
        name, kind, path = (int(value) for value in keys[:, i])
        seconds, dtype = max(float(spent[i]) * 1e-9, 1e-9), PEAK_OF.get(Precision(path))
        peak = spec.peak(dtype) if dtype else max(spec.peaks.values())
        rate, traffic_rate = (None if np.isnan(total[i]) else float(total[i]) / seconds for total in (done, bytes_))
        if rate is not None and rate > _IMPOSSIBLE * (peak or 0):
            continue
        if traffic_rate is not None and traffic_rate > _IMPOSSIBLE * spec.memory_bandwidth:
            traffic_rate = None  # inputs came from the cache
        if rate is not None or traffic_rate is not None:
            made = Point(name, kind, path, round(int(count[i]) / steps, 1), int(spent[i]) // steps, rate, traffic_rate)
            result.append(made)
    return result[:most]


def _least_bytes(run: Run, found: Sequence) -> npt.NDArray[np.float64]:
    """`traffic`, and for matrix products their operands and result, read and written once in the type of the inputs."""
    result, known, ops = traffic(run).copy(), products(run), run.table("host_ops")
    if not len(known):
        return result
    mine = np.flatnonzero((known.of_kernel >= 0) & np.isin(found.kind, MATRIX_CLASSES) & ~np.isnan(_flops(run, found)))
    of_size: dict[tuple[int, int, int], float] = {}
    for at, owner in zip(mine.tolist(), known.of_kernel[mine].tolist(), strict=True):
        op = int(known.op[owner])
        key = (int(ops["name"][op]), int(ops["shapes"][op]), int(ops["types"][op]))
        if key not in of_size:
            size = Size(int(known.kind[owner]), 0.0, *(int(values[owner]) for values in (known.batch, known.m, known.n, known.k)))
            of_size[key] = _product_bytes(size, run.strings[key[1]], run.strings[key[2]])
        result[at] = of_size[key]
    return result


def _product_bytes(size: Size, shapes: str, types: str) -> float:
    """Bytes of a matrix product; NaN for other operations, whose results the shapes of their inputs do not tell."""
    sizes, batch, m, n, k = tensor_bytes(shapes, types), size.batch, size.m, size.n, size.k
    if size.kind != GEMM or not any(sizes):
        return float("nan")
    # The width of an element: bytes of the operand (m, k), which every product has among its inputs.
    elements = batch * m * k
    width = next((one // elements for one in sizes if one and one % elements == 0 and one // elements in (1, 2, 4, 8)), 0)
    return float(width * batch * (m * k + k * n + m * n)) if width else float("nan")


def _flops(run: Run, found: Sequence) -> npt.NDArray[np.float64]:
    """FLOPs of each matrix kernel that alone does the work of its operator, else NaN."""
    known = products(run)
    result = np.full(len(found), np.nan)
    if not len(known):
        return result
    mine = np.flatnonzero((known.of_kernel >= 0) & np.isin(found.kind, MATRIX_CLASSES))
    owner = known.of_kernel[mine]
    alone = np.bincount(owner, minlength=len(known))[owner] == 1
    result[mine[alone]] = known.flops[owner[alone]]
    return result
