"""How much of a GPU a kernel can fill, from its launch size: SMs that get a block, and warps that fit on them.

Limits per compute capability: NVIDIA's CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
The arithmetic is that of the CUDA occupancy calculator: registers are given to warps in units of 256, shared memory to blocks
in units, of which from 8.0 on the runtime keeps 1 KiB a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.model import Run

WARP = 32
REGISTER_UNIT = 256


@dataclass(frozen=True)
class SmLimits:
    """What one SM holds at most: resident blocks and warps, registers, shared memory in bytes."""

    blocks: int
    warps: int
    shared_memory: int
    reserved: int = 1024
    shared_unit: int = 128
    registers: int = 65_536


_KIB = 1024
_LIMITS: dict[tuple[int, int], SmLimits] = {
    (6, 0): SmLimits(32, 64, 64 * _KIB, reserved=0, shared_unit=256),
    (6, 1): SmLimits(32, 64, 96 * _KIB, reserved=0, shared_unit=256),
    (7, 0): SmLimits(32, 64, 96 * _KIB, reserved=0, shared_unit=256),
    (7, 5): SmLimits(16, 32, 64 * _KIB, reserved=0, shared_unit=256),
    (8, 0): SmLimits(32, 64, 164 * _KIB),
    (8, 6): SmLimits(16, 48, 100 * _KIB),
    (8, 7): SmLimits(16, 48, 164 * _KIB),
    (8, 9): SmLimits(24, 48, 100 * _KIB),
    (9, 0): SmLimits(32, 64, 228 * _KIB),
    (10, 0): SmLimits(32, 64, 228 * _KIB),
    (10, 3): SmLimits(32, 64, 228 * _KIB),
    (12, 0): SmLimits(24, 48, 100 * _KIB),
    (12, 1): SmLimits(24, 48, 100 * _KIB),
}


def sm_limits(capability: tuple[int, int] | None) -> SmLimits | None:
    """None for a compute capability that is not in the table."""
    return _LIMITS.get(capability) if capability else None


def blocks(run: Run, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Blocks of each of these rows of `kernels`, -1 where the launch size was not recorded."""
    kernels = run.table("kernels")
    x, y, z = (kernels[f"grid_{axis}"][rows].astype(np.int64) for axis in "xyz")
    return np.where(x > 0, x * np.maximum(y, 1) * np.maximum(z, 1), -1)


def blocks_per_sm(run: Run, rows: npt.NDArray[np.int64], limits: SmLimits) -> npt.NDArray[np.int64]:
    """How many blocks of each kernel an SM can hold; -1 where block size or registers were not recorded."""
    kernels = run.table("kernels")
    warps = _warps(run, rows)
    registers, shared = kernels["registers"][rows].astype(np.int64), kernels["shared_memory"][rows].astype(np.int64)
    known = (warps > 0) & (registers >= 0)
    warps = np.maximum(warps, 1)
    per_warp = np.maximum(-(-np.maximum(registers, 1) * WARP // REGISTER_UNIT) * REGISTER_UNIT, REGISTER_UNIT)
    by_registers = limits.registers // per_warp // warps
    unit = limits.shared_unit
    taken = -(-(np.maximum(shared, 0) + limits.reserved) // unit) * unit
    by_shared = np.where(taken > 0, limits.shared_memory // np.maximum(taken, 1), limits.blocks)
    fits = np.minimum.reduce([np.full(len(rows), limits.blocks), limits.warps // warps, by_registers, by_shared])
    # A kernel that ran fits at least once, whatever was rounded.
    return np.where(known, np.maximum(fits, 1), -1)


def warp_share(run: Run, rows: npt.NDArray[np.int64], limits: SmLimits, sm_count: int) -> npt.NDArray[np.float64]:
    """Share of the GPU's warp slots that each kernel can fill at once, 0..1; NaN where not recorded."""
    fits, number, warps = blocks_per_sm(run, rows, limits), blocks(run, rows), _warps(run, rows)
    share = np.minimum(number, fits * sm_count) * warps / (limits.warps * sm_count)
    return np.where((fits > 0) & (number > 0), np.minimum(share, 1.0), np.nan)


def _warps(run: Run, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Warps of a block, -1 where not recorded."""
    kernels = run.table("kernels")
    x, y, z = (kernels[f"block_{axis}"][rows].astype(np.int64) for axis in "xyz")
    return np.where(x > 0, -(-x * np.maximum(y, 1) * np.maximum(z, 1) // WARP), -1)
