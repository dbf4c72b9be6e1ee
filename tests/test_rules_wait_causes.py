"""boolean-mask-sync, gradient-scaler-sync, device-to-host-in-step: waits with a known cause, and the general rule."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.workload import Workload

MASK, SCALER, READ, SYNC = "boolean-mask-sync", "gradient-scaler-sync", "device-to-host-in-step", "host-sync-in-step"
UNSCALE = "multi_tensor_apply_kernel<amp_foreach_non_finite_check_and_unscale_cuda_>"


def masks(w: Workload, count: int, host_us: float = 200, gpu_us: float = 200) -> None:
    """Layers that end in x[mask]: count, compact and gather kernels around a wait."""
    for _ in range(count):
        with w.op("aten::mm", us=host_us):
            w.launch("gemm", gpu_us=gpu_us)
        with w.op("aten::index", us=10):
            with w.op("aten::nonzero", us=5):
                w.launch("DeviceReduceKernel<NonZeroOp<bool>>", gpu_us=3)
                w.copy("DtoH", 8, 1.5)
                w.sync()
                w.launch("DeviceSelectSweepKernel", gpu_us=5)
            w.launch("index_elementwise_kernel", gpu_us=5)


def masked(count: int = 6, tool: str = "torch") -> Workload:
    w = Workload(tool=tool)
    for _ in w.steps(6):
        masks(w, count)
        with w.op("aten::mm", us=50):
            w.launch("gemm", gpu_us=50)
    return w


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_masks_are_named_and_their_waits_belong_to_them(tool: str) -> None:
    found = judge(masked(tool=tool).to_run(), MASK, SYNC)
    assert found.finding.facts["masks_per_step"] == 6
    assert found.finding.title.startswith("6 boolean masks a step make the host wait")
    assert [finding.rule for finding in found.report.findings] == [MASK]
    assert found.part("low") > 0.2 and found.part("low") <= found.part() <= found.part("high")
    assert found.finding.confidence == ("high" if tool == "torch" else "medium")


def test_the_chain_is_worth_more_than_the_waits() -> None:
    finding = judge(masked().to_run(), MASK).finding
    # Three kernels of the chain and the copy it reads; the wait itself is no part of it.
    assert finding.facts["chain_kernels"] == 6 * 4
    assert finding.facts["chain_gpu_ns"] == pytest.approx(6 * 14_500, rel=0.05)
    assert finding.saving is not None and finding.saving.expected_ns > finding.saving.low_ns


def test_indices_without_a_mask_do_not_count() -> None:
    w = Workload()
    for _ in w.steps(6):
        for _ in range(6):
            with w.op("aten::index", us=20):
                w.launch("index_elementwise_kernel", gpu_us=200)
        w.item()
    assert judge(w.to_run(), MASK).outcome == "clean"


def test_a_mask_in_every_third_step_is_left_alone() -> None:
    w = Workload()
    for number in w.steps(9):
        masks(w, 1 if number % 3 == 0 else 0)
        with w.op("aten::mm", us=500):
            w.launch("gemm", gpu_us=500)
    assert judge(w.to_run(), MASK).outcome == "clean"


def scaled(*, update: bool = True, unscale: bool = True, frames: bool = False) -> Workload:
    """1 ms of backward work, the check of the gradients, a read of the flag, 1 ms to issue the optimizer."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(10):
            with w.op("aten::mm", us=100):
                w.launch("gemm", gpu_us=200)
        if unscale:
            w.launch(UNSCALE, gpu_us=20)
        if frames:
            with w.frame("torch/nn/utils/clip_grad.py(80): clip_grad_norm_"):
                w.item()
        else:
            w.item()
        for _ in range(10):
            with w.op("aten::add_", us=100):
                w.launch("elementwise", gpu_us=10)
        if update:
            w.launch("amp_update_scale_cuda_kernel", gpu_us=2)
    return w


def test_the_scaler_reads_its_flag() -> None:
    found = judge(scaled().to_run(), SCALER, SYNC)
    assert [finding.rule for finding in found.report.findings] == [SCALER]
    assert found.finding.facts["waits_per_step"] == 1
    # 2 ms of GPU work and 2 ms of host work; the 1 ms of issuing after the wait can hide behind the GPU.
    assert found.part() == pytest.approx(0.3, abs=0.08)
    assert found.finding.fixes[0].id == "fused-optimizer"


def test_clipping_is_known_by_its_frame() -> None:
    assert judge(scaled(unscale=False, update=False, frames=True).to_run(), SCALER).outcome == "found"


def test_other_reads_are_not_the_scalers() -> None:
    run = scaled(unscale=False, update=False).to_run()
    assert judge(run, SCALER).outcome == "clean"
    assert judge(run, SYNC).outcome == "found"


def test_reads_after_the_update_are_not_the_scalers() -> None:
    w = Workload()
    for _ in w.steps(6):
        w.launch(UNSCALE, gpu_us=20)
        w.launch("amp_update_scale_cuda_kernel", gpu_us=2)
        for _ in range(10):
            with w.op("aten::mm", us=100):
                w.launch("gemm", gpu_us=200)
        w.item()
    run = w.to_run()
    assert judge(run, SCALER).outcome == "clean" and judge(run, SYNC).outcome == "found"


def reads(size: int, count: int = 2, steps: int = 6) -> Workload:
    w = Workload()
    for _ in w.steps(steps):
        for _ in range(count):
            with w.op("aten::mm", us=1000):
                w.launch("gemm", gpu_us=1000)
            with w.op("aten::to"), w.op("aten::_to_copy"):
                w.copy("DtoH", size, 3, target="pageable")
                w.sync()
    return w


def test_tensors_read_back() -> None:
    found = judge(reads(40_000).to_run(), READ, SYNC)
    assert [finding.rule for finding in found.report.findings] == [READ]
    assert found.finding.facts["reads_per_step"] == 2 and found.finding.facts["bytes_per_step"] == 80_000
    assert found.part() == pytest.approx(0.5, abs=0.05)
    assert "2 tensors (80 kB) read back to the host a step" in found.finding.title


@pytest.mark.parametrize(("size", "outcome"), [(8, "clean"), (9, "found"), (16_000_000, "found"), (16_000_001, "clean")])
def test_scalars_and_large_copies_have_other_rules(size: int, outcome: str) -> None:
    assert judge(reads(size).to_run(), READ).outcome == outcome


def test_cannot_judge_without_steps_or_calls() -> None:
    w = Workload(closing_sync=False)
    for _ in w.steps(3):
        w.row("kernels", start=w.now, end=w.now + 1000, device=0, stream=7, name="gemm")
        w.host(10)
    run = w.to_run()
    for rule in (MASK, SCALER, READ):
        assert judge(run, rule).outcome == "not-applicable"


@pytest.mark.parametrize("rule", [SYNC, "device-synchronize-in-step"])
def test_what_the_program_does_it_does_on_all_ranks(rule: str) -> None:
    """Two ranks wait alike: with the waits gone on one of them only, the other would keep the step as long as it is."""
    w = Workload(ranks=2)
    for rank in w.ranks:
        for _ in rank.steps(6):
            for _ in range(6):
                with rank.op("aten::mm", us=1000):
                    rank.launch("gemm", gpu_us=1000)
                if rule == SYNC:
                    rank.item()
                else:
                    rank.sync("device")
    assert judge(w.to_run(), rule).part() == pytest.approx(0.5, abs=0.03)
