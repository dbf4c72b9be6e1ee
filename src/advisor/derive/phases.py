"""Which CUDA calls belong to the optimizer step."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import calls_in_ranges
from advisor.derive.sequence import sequence
from advisor.derive.steps import steps
from advisor.model import Run

# torch.profiler marks optimizers itself; people name the phase so in NVTX.
OPTIMIZER_RANGE = r"^Optimizer\.step#|^\W*(?i:(optim(izer)?|opt)([ _.\-]?step)?)\W*$"
# Kernels that only the written-out Adam family launches; without a marked phase they show where it is.
_ADAM = re.compile(r"addcmul|addcdiv|lerp", re.I)
_NAME = re.compile(r"^Optimizer\.step#(\w+)")


def optimizer_calls(run: Run) -> npt.NDArray[np.bool_] | None:
    """For each row of `runtime_calls`: whether it belongs to an optimizer step; None where nothing shows one."""
    return run.derived(_optimizer_calls)


def _optimizer_calls(run: Run) -> npt.NDArray[np.bool_] | None:
    marked = calls_in_ranges(run, OPTIMIZER_RANGE)
    return marked if marked.any() else _by_kernels(run)


def _by_kernels(run: Run) -> npt.NDArray[np.bool_] | None:
    """The calls from the first to the last addcmul, addcdiv or lerp kernel of each step."""
    found = sequence(run)
    names = run.table("kernels")["name"][found.row]
    codes = [int(code) for code in np.unique(names) if _ADAM.search(run.strings[int(code)])]
    marked = np.isin(names, codes) & (found.call >= 0)
    if not marked.any():
        return None
    calls = np.sort(found.call[marked])
    # Within an optimizer the marks follow each other closely; between steps lie the forward and backward pass.
    apart = np.diff(calls)
    typical = float(np.median(apart)) if len(apart) else 1.0
    step = np.searchsorted(np.sort(steps(run).start), run.table("runtime_calls")["start"][calls], side="right")
    blocks = np.split(calls, np.flatnonzero((apart > max(20 * typical, 50)) | (np.diff(step) > 0)) + 1)
    mask = np.zeros(len(run.table("runtime_calls")), bool)
    for block in blocks:
        mask[block[0] : block[-1] + 1] = True
    return mask


def optimizer_name(run: Run) -> str | None:
    """Class of the optimizer, where torch.profiler recorded it."""
    for code in np.unique(run.table("ranges")["name"]):
        match = _NAME.match(run.strings[int(code)]) if code >= 0 else None
        if match:
            return match[1]
    return None
