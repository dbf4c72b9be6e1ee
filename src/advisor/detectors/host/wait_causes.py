"""Which of the host's waits have a cause that a rule of its own names: boolean masks, gradient scaling and clipping."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import frame_forest, matching_codes, op_above, op_of_call
from advisor.derive.calls import links
from advisor.derive.gpus import KERNEL, gpu_work
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import Steady
from advisor.derive.waits import Waits
from advisor.model import Run

Mask = npt.NDArray[np.bool_]

# Operators whose result has as many elements as a mask has True values: the host must read that number.
MASK_OPS = r"^aten::(nonzero|nonzero_numpy|masked_select)$"
# The same in kernel names, where operators were not recorded: the count of non-zero elements.
MASK_KERNELS = r"NonZeroOp|nonzero_kernel|write_indices"
# torch.amp.GradScaler: kernels that look for inf and divide by the scale, and those that change the scale.
UNSCALE_KERNELS = r"non_finite_check_and_unscale"
UPDATE_KERNELS = r"amp_update_scale"
_SCALER_FILES = re.compile(r"(amp[/\\]grad_scaler|utils[/\\]clip_grad|grad_scaler|sharded_grad_scaler)\.py\(")


def from_masks(run: Run, steady: Steady, found: Waits) -> Mask:
    """Waits for the number of elements that a boolean mask selects."""
    if len(run.table("host_ops")):
        op = op_of_call(run)[steady.side.call[found.side]]
        return np.asarray(op_above(run, op, MASK_OPS) >= 0, bool)
    codes = matching_codes(run, run.table("kernels")["name"], MASK_KERNELS)
    if not len(codes):
        return np.zeros(len(found), bool)
    return np.isin(_kernel_before(run, steady, found), codes)


def from_gradient_scaling(run: Run, steady: Steady, found: Waits) -> Mask:
    """Waits between the check of the gradients for inf and the update of the scale, or inside the files that do either."""
    names = run.table("kernels")["name"]
    result = _inside_files(run, steady, found)
    unscale, update = (matching_codes(run, names, pattern) for pattern in (UNSCALE_KERNELS, UPDATE_KERNELS))
    if len(unscale):
        launched = _launched(run, steady)
        begun = np.flatnonzero(np.isin(launched, unscale))
        ended = np.flatnonzero(np.isin(launched, update))
        last = np.searchsorted(begun, found.side) - 1
        begin = np.where(last >= 0, begun[np.maximum(last, 0)], -1)
        since = np.searchsorted(ended, found.side) - np.searchsorted(ended, begin)
        same_step = steady.at[np.maximum(begin, 0)] == steady.at[found.side]
        result |= (begin >= 0) & (since == 0) & same_step
    return result & ~from_masks(run, steady, found)


def _launched(run: Run, steady: Steady) -> npt.NDArray[np.int64]:
    """For each CUDA call of the side: name code of the kernel that it launched, -1 for other calls."""
    work, last = gpu_work(run), links(run).last_work[steady.side.call]
    result = np.full(len(last), -1, np.int64)
    kernel = np.flatnonzero(last >= 0)
    kernel = kernel[work.source[last[kernel]] == KERNEL]
    result[kernel] = run.table("kernels")["name"][work.row[last[kernel]]]
    return result


def _kernel_before(run: Run, steady: Steady, found: Waits) -> npt.NDArray[np.int64]:
    """For each wait: name code of the last kernel launched before it, -1 without one."""
    launched = _launched(run, steady)
    kernels = np.flatnonzero(launched >= 0)
    at = np.searchsorted(kernels, found.side) - 1
    return np.where(at >= 0, launched[kernels[np.maximum(at, 0)]] if len(kernels) else -1, -1)


def _inside_files(run: Run, steady: Steady, found: Waits) -> Mask:
    """Waits below a Python frame of the gradient scaler or of gradient clipping."""
    frames, calls = run.table("python_frames"), run.table("runtime_calls")
    result = np.zeros(len(found), bool)
    codes = [c for c in np.unique(frames["name"]) if c >= 0 and _SCALER_FILES.search(run.strings[int(c)])] if len(frames) else []
    if codes and len(found):
        forest, rows = frame_forest(run), steady.side.call[found.side]
        inner = forest.innermost(thread_keys(calls)[rows], calls["start"][rows])
        above = forest.nearest(np.isin(frames["name"], codes))
        result = (inner >= 0) & (above[np.maximum(inner, 0)] >= 0)
    return np.asarray(result, bool)
