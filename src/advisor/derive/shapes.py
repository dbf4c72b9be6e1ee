"""Sizes of matrix products, convolutions and attention from recorded input shapes, and the operations that they need.

FLOPs count a multiplication and an addition as two: a product of (M, K) and (K, N) needs 2·M·N·K, a convolution 2 · output
positions · elements of its weight, attention 2·B·H·Sq·Sk·(D + Dv) forward and twice that backward. A causal mask is not
subtracted, as is usual for model FLOPs (Chowdhery et al., PaLM, appendix B).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import op_above
from advisor.derive.kernel_classes import MATRIX_CLASSES, KernelClass
from advisor.derive.sequence import Sequence, sequence, sequence_of
from advisor.model import Run

_PRODUCT = r"^aten::(mm|addmm|bmm|baddbmm|_addmm_activation|_scaled_mm|addmv|mv)$"
_CONVOLUTION = r"^aten::(_convolution|convolution_backward|cudnn_convolution_backward|conv_transpose\dd)$"
_ATTENTION = r"(scaled_dot_product|flash|efficient|cudnn)_\w*attention|flash_attn|_flash_attention"
_ANY = rf"{_PRODUCT}|{_CONVOLUTION}|{_ATTENTION}"
# Forward operators below a node of the backward graph run again what the forward pass computed already.
_FORWARD = r"^aten::(linear|matmul|addmm|conv\dd|convolution|scaled_dot_product_attention)$"
_BACKWARD = r"^autograd::engine::evaluate_function"
_BYTES = {
    "double": 8,
    "float": 4,
    "c10::half": 2,
    "half": 2,
    "c10::bfloat16": 2,
    "bfloat16": 2,
    "long int": 8,
    "long": 8,
    "int": 4,
}

GEMM, CONVOLUTION, ATTENTION = 0, 1, 2


@dataclass(frozen=True)
class Size:
    """One operation: `batch` products of (m, k) and (k, n), or as many FLOPs as a convolution or attention needs."""

    kind: int
    flops: float
    batch: int = 1
    m: int = 0
    n: int = 0
    k: int = 0


@dataclass(frozen=True)
class Products:
    """One entry an operation of the steady steps of one rank, in no order; divide sums by `steps`.

    op: row of `host_ops`; kind: GEMM, CONVOLUTION or ATTENTION; flops; batch, m, n, k: of matrix products, else 0; gpu_ns: of
    its matrix kernels and their helpers; precision: Precision of its longest kernel; again: a recomputed forward pass.
    of_kernel: for each entry of the `Sequence`: position here, else -1. unknown_ns: matrix kernels without known sizes.
    """

    steps: int
    op: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    flops: npt.NDArray[np.float64]
    batch: npt.NDArray[np.int64]
    m: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    k: npt.NDArray[np.int64]
    gpu_ns: npt.NDArray[np.int64]
    precision: npt.NDArray[np.int8]
    again: npt.NDArray[np.bool_]
    of_kernel: npt.NDArray[np.int64]
    unknown_ns: int

    def __len__(self) -> int:
        return len(self.op)


def products(run: Run) -> Products:
    """Of the rank that sets the pace; aligned with `sequence(run)`. Empty without recorded shapes."""
    return run.derived(_products)


def _products(run: Run) -> Products:
    return products_of(run, sequence(run))


def products_of_rank(run: Run, rank: int, process: int) -> Products:
    """Of any rank. Not kept: ask once."""
    return products_of(run, sequence_of(run, rank, process))


def products_of(run: Run, found: Sequence) -> Products:
    """The operations that launched the kernels of a sequence."""
    ops = run.table("host_ops")
    owner = op_above(run, found.op, _ANY)
    matrix = np.isin(found.kind, MATRIX_CLASSES)
    rows, place = np.unique(owner[owner >= 0], return_inverse=True)
    sizes = _sizes(run, rows)
    # An operator whose matrix kernels belong to operators inside it, or that ran none, is not an entry of its own.
    ran = np.bincount(place[matrix[owner >= 0]], minlength=len(rows)) > 0
    known = np.array([size is not None for size in sizes], bool) & ran
    number = np.where(known, np.cumsum(known) - 1, -1)
    of_kernel = np.full(len(found), -1, np.int64)
    of_kernel[owner >= 0] = number[place] if len(rows) else -1
    kept = [size for size, keep in zip(sizes, known.tolist(), strict=True) if size is not None and keep]
    helpers = matrix | (found.kind == KernelClass.LIBRARY)
    mine = (of_kernel >= 0) & helpers
    spent = np.bincount(of_kernel[mine], weights=found.gpu_ns[mine], minlength=len(kept)).astype(np.int64)
    precision = np.zeros(len(kept), np.int8)
    by_time = np.flatnonzero((of_kernel >= 0) & matrix)
    by_time = by_time[np.argsort(found.gpu_ns[by_time], kind="stable")]
    precision[of_kernel[by_time]] = found.precision[by_time]
    op = rows[known]
    backward, forward = op_above(run, op, _BACKWARD), op_above(run, op, _FORWARD)
    integers = {name: np.array([getattr(size, name) for size in kept], np.int64) for name in ("batch", "m", "n", "k")}
    return Products(
        steps=found.steps,
        op=op,
        kind=np.array([size.kind for size in kept], np.int8),
        flops=np.array([size.flops for size in kept], float),
        gpu_ns=spent,
        precision=precision,
        again=(backward >= 0) & (forward >= 0) & (ops["start"][forward] >= ops["start"][backward])
        if len(op)
        else np.zeros(0, bool),
        of_kernel=of_kernel,
        unknown_ns=int(found.gpu_ns[matrix & (of_kernel < 0)].sum()) // max(found.steps, 1),
        **integers,
    )


def _sizes(run: Run, rows: npt.NDArray[np.int64]) -> list[Size | None]:
    """Of each of these rows of `host_ops`. A forward convolution of unknown stride is as large as its backward pass says."""
    ops = run.table("host_ops")
    keys = list(zip(*(ops[column][rows].tolist() for column in ("name", "shapes", "inputs")), strict=True))
    distinct = {key: size_of(run, int(row)) for key, row in zip(keys, rows.tolist(), strict=True)}
    backward: dict[str, Size] = {}
    for (name, shapes, _), size in distinct.items():
        if size is not None and size.kind == CONVOLUTION and run.strings[name].endswith("_backward"):
            grad, taken, weight = _backward_order(run.strings[name], parsed(run.strings[shapes]))
            backward[str([taken, weight])] = Size(CONVOLUTION, _convolution_flops(grad, weight))
    for key, size in distinct.items():
        if size is None and run.strings[key[0]].endswith("_convolution"):
            distinct[key] = backward.get(str(parsed(run.strings[key[1]])[:2]))
    return [distinct[key] for key in keys]


def size_of(run: Run, row: int) -> Size | None:
    """What the operator in this row of `host_ops` computes; None if its kind or its shapes are not known."""
    ops = run.table("host_ops")
    name = run.strings[int(ops["name"][row])]
    shapes = parsed(run.strings[int(ops["shapes"][row])])
    if not shapes:
        return None
    try:
        if re.search(_PRODUCT, name):
            return _product(name, [shape for shape in shapes if isinstance(shape, list)])
        if re.search(_CONVOLUTION, name):
            return _convolution(name, shapes, parsed(run.strings[int(ops["inputs"][row])]))
        return _attention(name, shapes)
    except (IndexError, TypeError, ValueError, OverflowError):
        return None  # shapes of another operator than the name says


def parsed(text: str) -> list[Any]:
    """A list out of the file's JSON text; empty for anything else."""
    if not text.startswith("["):
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def tensor_bytes(shapes: str, types: str) -> list[int]:
    """Bytes of each input that is a tensor with a known element type, 0 for every other input."""
    sizes, kinds = parsed(shapes), parsed(types)
    result = []
    for shape, kind in zip(sizes, kinds, strict=False):
        width = _BYTES.get(kind.lower(), 0) if isinstance(kind, str) else 0
        flat = isinstance(shape, list) and bool(shape) and all(isinstance(n, int) and n >= 0 for n in shape)
        result.append(math.prod(shape) * width if flat else 0)
    return result


def _product(name: str, shapes: list[Any]) -> Size | None:
    first = 1 if re.search(r"addm|baddbmm", name) else 0
    a, b = shapes[first], shapes[first + 1]
    if len(b) == 1:
        b = [b[0], 1]
    batch = a[0] if len(a) == 3 else 1
    m, k, n = a[-2], a[-1], b[-1]
    if len(a) != len(b) or b[-2] != k or min(batch, m, k, n) <= 0:
        return None
    return Size(GEMM, 2.0 * batch * m * n * k, batch, m, n, k)


def _convolution(name: str, shapes: list[Any], inputs: list[Any]) -> Size | None:
    if name.endswith("_backward"):
        grad, taken, weight = _backward_order(name, shapes)
        one = _convolution_flops(grad, weight)
        mask = str(inputs[10]) if len(inputs) > 10 else ""
        wanted = mask.lower().split("]")[0].split(",")[:2]
        passes = sum("false" not in word for word in wanted) if len(wanted) == 2 else 2
        return Size(CONVOLUTION, one * passes) if min(taken) > 0 else None
    taken, weight = shapes[0], shapes[1]
    if str(inputs[6] if len(inputs) > 6 else "").lower() == "true":  # transposed: the roles of input and output are swapped
        return Size(CONVOLUTION, _convolution_flops(taken, weight))
    space = len(weight) - 2
    steps, pads, gaps = (_whole_numbers(inputs, place, space) for place in (3, 4, 5))
    if steps is None or pads is None or gaps is None:
        return None
    out = [(taken[2 + i] + 2 * pads[i] - gaps[i] * (weight[2 + i] - 1) - 1) // steps[i] + 1 for i in range(space)]
    return Size(CONVOLUTION, _convolution_flops([taken[0], weight[0], *out], weight)) if min(out, default=1) > 0 else None


def _backward_order(name: str, shapes: list[Any]) -> tuple[list[int], list[int], list[int]]:
    """(gradient of the output, input, weight); until PyTorch 1.10 each library's operator named the input first."""
    first, second, weight = shapes[:3]
    return (first, second, weight) if name == "aten::convolution_backward" else (second, first, weight)


def _convolution_flops(output: list[int], weight: list[int]) -> float:
    return 2.0 * output[0] * math.prod(output[2:]) * math.prod(weight)


def _whole_numbers(inputs: list[Any], place: int, count: int) -> list[int] | None:
    value = inputs[place] if place < len(inputs) else ""
    found = [int(number) for number in re.findall(r"-?\d+", str(value))]
    return (found * count if len(found) == 1 else found) if len(found) in (1, count) else None


def _attention(name: str, shapes: list[Any]) -> Size | None:
    tensors = [shape for shape in shapes if isinstance(shape, list) and len(shape) == 4]
    first = 1 if "backward" in name else 0  # the gradient of the output comes before query, key and value
    q, k, v = tensors[first : first + 3]
    # The kernels' own operators take (batch, sequence, heads, size), the ones that choose them (batch, heads, sequence, size).
    heads_second = "scaled_dot_product" in name or "cudnn" in name
    sequence_at, head_at = (2, 1) if heads_second else (1, 2)
    pairs = q[0] * q[head_at] * q[sequence_at] * k[sequence_at]
    if min(*q, *k, *v) <= 0 or q[-1] != k[-1]:
        return None
    return Size(ATTENTION, 2.0 * pairs * (q[-1] + v[-1]) * (2 if "backward" in name else 1))
