"""How many blocks and warps an SM holds: values of NVIDIA's occupancy calculator."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.derive.occupancy import blocks, blocks_per_sm, sm_limits, warp_share
from advisor.model import Run, Strings, Table


def launch(grid: tuple[int, int, int], threads: int, registers: int, shared: int = 0) -> Run:
    columns = {
        "start": [0], "end": [10], "name": [0], "registers": [registers], "shared_memory": [shared], "block_x": [threads],
        "block_y": [1], "block_z": [1], "grid_x": [grid[0]], "grid_y": [grid[1]], "grid_z": [grid[2]],
    }  # fmt: skip
    return Run(tables={"kernels": Table("kernels", columns)}, strings=Strings(["kernel"]))


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "fits"),
    [
        ((8, 0), 256, 32, 0, 8),  # 64 warps
        ((8, 0), 256, 128, 0, 2),  # 65,536 registers hold 16 warps of 32 x 128
        ((8, 0), 256, 33, 0, 6),  # 33 registers are given as 40: 51 warps
        ((8, 0), 128, 32, 48 << 10, 3),  # 164 KiB hold three times 48 + 1
        ((8, 0), 32, 16, 0, 32),  # resident blocks
        ((8, 6), 32, 16, 0, 16),
        ((8, 9), 32, 16, 0, 24),
        ((8, 6), 256, 32, 0, 6),  # 48 warps
        ((7, 5), 256, 32, 0, 4),  # 32 warps
        ((7, 0), 128, 32, 48 << 10, 2),  # 96 KiB, nothing reserved
        ((9, 0), 128, 168, 200 << 10, 1),
        ((9, 0), 1024, 64, 0, 1),
    ],
)
def test_blocks_on_an_sm(capability: tuple[int, int], threads: int, registers: int, shared: int, fits: int) -> None:
    limits = sm_limits(capability)
    assert limits is not None
    run = launch((1000, 1, 1), threads, registers, shared)
    assert blocks_per_sm(run, np.array([0]), limits).tolist() == [fits]


def test_warp_slots_of_the_whole_gpu() -> None:
    limits = sm_limits((9, 0))
    assert limits is not None
    row = np.array([0])
    assert blocks(launch((2, 33, 2), 256, 32), row).tolist() == [132]
    # 132 blocks of 8 warps on 132 SMs with 64 slots each; ten times as many fill all.
    assert warp_share(launch((132, 1, 1), 256, 32), row, limits, 132).tolist() == [pytest.approx(8 / 64)]
    assert warp_share(launch((1320, 1, 1), 256, 32), row, limits, 132).tolist() == [1.0]
    assert warp_share(launch((66, 1, 1), 256, 32), row, limits, 132).tolist() == [pytest.approx(4 / 64)]


def test_what_was_not_recorded_stays_unknown() -> None:
    run = Run(tables={"kernels": Table("kernels", {"start": [0], "end": [1], "name": [0]})}, strings=Strings(["kernel"]))
    limits = sm_limits((8, 0))
    assert limits is not None
    assert blocks(run, np.array([0])).tolist() == [-1] and blocks_per_sm(run, np.array([0]), limits).tolist() == [-1]
    assert np.isnan(warp_share(run, np.array([0]), limits, 108)).all()
    assert sm_limits((3, 5)) is None and sm_limits(None) is None
