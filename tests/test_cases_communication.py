"""Diagnosed cases, part 4: what ranks do together. Part 1 says how to read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from build.cases import GEMM, told
from build.parallel import all_steps, together
from build.workload import A100, Workload

HOOK = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
A100_GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nt"


def accumulating(compute_us: float, exposed_us: float, group: int) -> Workload:
    """Four passes a step; two ranks of the group are recorded.

    Each pass reduces four buckets beside its backward pass, and its compute waits `exposed_us` for the last of them.
    """
    w, quarter = Workload(ranks=2, world_size=group), compute_us / 6
    for _ in range(4):
        with all_steps(w):
            for _ in range(4):
                for rank in w.ranks:
                    with rank.range("DistributedDataParallel.forward"), rank.op("aten::linear"):
                        rank.launch(GEMM, compute_us / 3)
                for _ in range(4):
                    for rank in w.ranks:
                        with rank.backward(), rank.op("autograd::engine::evaluate_function: AddmmBackward0"):
                            rank.launch(GEMM, quarter)
                        rank.stream_wait(17, on=7)
                    with together(rank.op(HOOK) for rank in w.ranks):
                        w.collective("allreduce", 1 << 29, (exposed_us + 3 * quarter) / 4, group_size=group)
                for rank in w.ranks:
                    rank.stream_wait(7, on=17)
            for rank in w.ranks:
                with rank.optimizer():
                    rank.launch("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float> >(T)", 10)
    return w


@pytest.mark.parametrize(
    ("compute_us", "exposed_us", "group", "before", "after"),
    [(125_000, 375_000, 16, 2.0, 0.91), (95_000, 30_000, 8, 0.50, 0.41)],
)
def test_gradients_reduced_in_every_pass(
    tmp_path: Path, compute_us: float, exposed_us: float, group: int, before: float, after: float
) -> None:
    """A24: 2.0 s a batch on two nodes became 0.91 with no_sync until the last pass, 0.50 on one became 0.41.

    A quarter of what compute waits for stays; how the last pass overlaps is unknown: within 3 points.
    """
    case = told(accumulating(compute_us, exposed_us, group), tmp_path)
    assert case.report.step_ns == pytest.approx(before * 1e9, rel=0.01)
    assert case.first.rule == "sync-every-microstep"
    assert case.part() == pytest.approx(1 - after / before, abs=0.03)
    assert case.first.fixes[0].id == "ddp" and "no_sync()" in case.first.fixes[0].snippet


def test_shards_without_prefetch(tmp_path: Path) -> None:
    """A26: backward under FSDP, each layer's all-gather behind the reduce-scatter of the one before; prefetching won about 20 %.

    How much compute there was to hide them is not told: within 6 points.
    """
    w = Workload(ranks=2, device=A100)
    for _ in range(5):
        with all_steps(w):
            for rank in w.ranks:
                for _ in range(12):
                    with rank.op("aten::linear"):
                        rank.launch(A100_GEMM, 400)
            for _ in range(12):
                w.collective("_allgather_base", 1 << 25, 250, elements_out=1 << 26, stream=22, dtype="BFloat16")
                for rank in w.ranks:
                    rank.stream_wait(7, on=22)
                    with rank.backward(), rank.op("autograd::engine::evaluate_function: AddmmBackward0"):
                        rank.launch(A100_GEMM, 800)
                    rank.stream_wait(22, on=7)
                w.collective("_reduce_scatter_base", 1 << 26, 250, elements_out=1 << 25, stream=22, dtype="BFloat16")
            for rank in w.ranks:
                rank.stream_wait(7, on=22)
                with rank.optimizer():
                    rank.launch("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float> >(T)", 200)
    case = told(w, tmp_path)
    assert case.first.rule == "exposed-communication"
    assert case.part() == pytest.approx(0.20, abs=0.06)
    assert case.first.fixes[0].id == "fsdp2-prefetch" and "prefetch" in case.first.fixes[0].snippet


def training(ranks: int, late: int, *, kernels: int, late_us: float, other_us: float, blocks: tuple[int, int]) -> Workload:
    """Each step: products, longer ones on one rank, a short all-reduce, the optimizer. `blocks`: grids, the late rank's first."""
    w = Workload(ranks=ranks)
    for _ in range(5):
        with all_steps(w):
            for rank in w.ranks:
                us, grid = (late_us, blocks[0]) if rank.number == late else (other_us, blocks[1])
                for _ in range(kernels):
                    with rank.op("aten::linear"):
                        rank.launch(GEMM, us, grid=(grid, 1, 1))
                rank.stream_wait(17, on=7)
            w.collective("allreduce", 1 << 21, 50)
            for rank in w.ranks:
                rank.stream_wait(7, on=17)
                with rank.optimizer():
                    rank.launch("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float> >(T)", 50)
    return w


def test_one_rank_has_the_long_answers(tmp_path: Path) -> None:
    """A29: 28.4 s of training, 15.3 when the tokens were balanced over 16 ranks: so the others needed 14.4. Seconds are ms here.

    Balanced work is the mean: within a point.
    """
    others = (16 * 15.3 - 28.4) / 15
    case = told(training(16, 5, kernels=10, late_us=2840, other_us=100 * others, blocks=(264, 134)), tmp_path)
    assert case.rules == ["straggler-rank"]
    assert case.first.title.startswith("rank 5 holds up the others") and case.first.scope["ranks"] == [5]
    assert case.first.facts["cause"] == "larger inputs"
    assert case.part() == pytest.approx(1 - 15.3 / 28.4, abs=0.01)
    assert [fix.id for fix in case.first.fixes] == ["balance-tokens"]


def test_one_late_rank_is_no_slow_collective(tmp_path: Path) -> None:
    """N12: NCCL kernels are long on all ranks but one, whose GPU is slow. That rank is named, and no collective."""
    case = told(training(4, 3, kernels=20, late_us=280, other_us=200, blocks=(132, 132)), tmp_path)
    assert case.rules == ["straggler-rank"]
    assert case.first.scope["ranks"] == [3] and case.first.facts["cause"] == "slower GPU"
    assert case.first.fixes[0].id == "check-the-gpu"
    assert case.part() == pytest.approx(1.6 / 5.7, abs=0.02)
    assert "nccl_" not in case.words()
