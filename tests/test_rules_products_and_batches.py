"""fp8-candidate, low-efficiency-gemm, memory-bound-kernel, contiguous-copies, gradient-accumulation-copies,
kernel-time-variance, small-batch and cudnn-benchmark-off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from build.judge import judge
from build.workload import A100, H200, Workload

FP8, LOW, MEMORY, COPIES = "fp8-candidate", "low-efficiency-gemm", "memory-bound-kernel", "contiguous-copies"
ACCUMULATION, VARIANCE, BATCH, CUDNN = (
    "gradient-accumulation-copies", "kernel-time-variance", "small-batch", "cudnn-benchmark-off",
)  # fmt: skip
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda> >(int)"
)
TO_BF16 = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
FALLBACK = "void cudnn::cnn::implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false, false, true>(int)"
CONV = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"
BF16 = "c10::BFloat16"


def product_loop(m: int, n: int, k: int, us: float, *, other_us: float = 0, shapes: bool = True, **given: Any) -> Workload:
    w = Workload(**given)
    texts: dict[str, Any] = {"shapes": [[m, k], [k, n]], "types": [BF16, BF16]} if shapes else {}
    for _ in w.steps(5):
        for _ in range(10):
            with w.op("aten::mm", **texts), w.frame("mlp.py(3): forward"):
                w.launch(GEMM, us)
        if other_us:
            w.launch(ADD, other_us)
    return w


def test_large_products_are_fp8_candidates() -> None:
    found = judge(product_loop(8192, 4096, 4096, 400).to_run(), FP8)
    assert (found.part(), found.part("high")) == pytest.approx((0.28, 0.45), abs=0.01) and found.part("low") <= 0.11
    finding = found.finding
    assert finding.title == "10 large 16-bit products a step, 100% of the step, could run in FP8"
    assert finding.confidence == "low" and finding.evidence[0].rows == [["8192 x 4096 x 4096", 10.0, 4_000_000]]


@pytest.mark.parametrize("size", [1024, 4100])
def test_small_or_odd_products_are_no_candidates(size: int) -> None:
    assert judge(product_loop(8192, 4096, size, 400).to_run(), FP8).outcome == "clean"


@pytest.mark.parametrize(("us", "outcome"), [(19, "clean"), (21, "found")])
def test_the_threshold_of_fp8(us: float, outcome: str) -> None:
    run = product_loop(8192, 4096, 4096, us, other_us=1000 - 10 * us).to_run()
    assert judge(run, FP8).outcome == outcome


def test_where_fp8_cannot_be_judged() -> None:
    assert judge(product_loop(8192, 4096, 4096, 400, device=A100).to_run(), FP8).outcome == "not-applicable"
    assert judge(product_loop(8192, 4096, 4096, 400, shapes=False).to_run(), FP8).outcome == "not-applicable"


def test_products_below_the_peak() -> None:
    """2·8192·4096·1024 operations in 250 us are 0.28 of 989.4 TFLOP/s."""
    found = judge(product_loop(8192, 4096, 1024, 250).to_run(), LOW)
    assert found.finding.saving is None
    assert found.finding.facts["peak_share_frac"] == pytest.approx(2 * 8192 * 4096 * 1024 / 250e-6 / 989.4e12, abs=1e-4)
    assert found.finding.title == "10 matrix products a step reach 28% of the GPU's peak, 100% of the step"
    assert judge(product_loop(8192, 4096, 1024, 170).to_run(), LOW).outcome == "clean"  # 0.41
    assert judge(product_loop(8192, 4093, 1024, 250).to_run(), LOW).outcome == "clean"  # unaligned-gemm's
    assert judge(product_loop(8192, 4096, 1024, 250, other_us=25_000).to_run(), LOW).outcome == "clean"  # 9 % of the step
    odd = replace(H200, name="NVIDIA Unheard-Of")
    assert judge(product_loop(8192, 4096, 1024, 250, device=odd).to_run(), LOW).outcome == "not-applicable"


def streaming(us: float, *, gemm_us: float = 100, shapes: bool = True) -> Workload:
    w = Workload()
    texts: dict[str, Any] = {"shapes": [[8192, 4096], [8192, 4096]], "types": ["float", "float"]} if shapes else {}
    for _ in w.steps(5):
        for _ in range(10):
            w.launch(GEMM, gemm_us)
            with w.op("aten::add", **texts):
                w.launch(ADD, us)
    return w


def test_kernels_at_the_bandwidth() -> None:
    """Three tensors of 134 MB in 100 us are 0.84 of 4.8 TB/s."""
    found = judge(streaming(100).to_run(), MEMORY)
    assert found.finding.facts["bandwidth_frac"] == pytest.approx(3 * 4 * 8192 * 4096 / 100e-6 / 4.8e12, abs=1e-3)
    assert found.finding.title.startswith("50% of the step are pointwise kernels that already run at 84%")
    assert judge(streaming(130).to_run(), MEMORY).outcome == "clean"  # 0.65 of the bandwidth
    assert judge(streaming(100, gemm_us=250).to_run(), MEMORY).outcome == "clean"  # 29 % of the step
    assert judge(streaming(100, shapes=False).to_run(), MEMORY).outcome == "not-applicable"


def copying(us: float, *, outer: str = "aten::reshape", op: str = "aten::clone", name: str = COPY, **given: Any) -> Workload:
    w = Workload(**given)
    for _ in w.steps(5):
        for _ in range(10):
            w.launch(GEMM, 100)
            with w.op(outer), w.op(op), w.op("aten::copy_"), w.frame("attention.py(12): forward"):
                w.launch(name, us)
    return w


def test_copies_that_rearrange() -> None:
    found = judge(copying(20).to_run(), COPIES)
    assert (found.part("low"), found.part(), found.part("high")) == pytest.approx((0, 10 / 120, 20 / 120), abs=0.01)
    assert found.finding.title == "10 copies a step only make tensors contiguous, 17% of the step"
    assert found.finding.evidence[0].rows == [["aten::reshape", 10.0, 200_000]]
    assert judge(copying(20, op="aten::_to_copy", name=TO_BF16).to_run(), COPIES).outcome == "clean"
    assert judge(copying(20, outer="aten::_to_copy").to_run(), COPIES).outcome == "clean"
    assert judge(copying(4).to_run(), COPIES).outcome == "clean" and judge(copying(4.5).to_run(), COPIES).outcome == "found"
    assert judge(copying(20, tool="nsys").to_run(), COPIES).outcome == "not-applicable"


def accumulating(passes: int, us: float = 20) -> Workload:
    w = Workload()
    for _ in w.steps(5):
        for _ in range(passes):
            for _ in range(3):
                with w.op("aten::mm"):
                    w.launch(GEMM, 100)
            with w.backward():
                for _ in range(3):
                    with w.op("autograd::engine::evaluate_function: MmBackward0"):
                        w.launch(GEMM, 100)
                    node = "torch::autograd::AccumulateGrad"
                    with w.op(f"autograd::engine::evaluate_function: {node}"), w.op(node), w.op("aten::add_"):
                        w.launch(ADD, us)
    return w


def test_gradients_of_micro_batches() -> None:
    found = judge(accumulating(4).to_run(), ACCUMULATION)
    assert found.part() == pytest.approx(0.5 * 60 / 660, abs=0.01)
    assert found.finding.title == "12 kernels a step add up the gradients of 4 micro-batches, 9% of the step"
    assert judge(accumulating(1).to_run(), ACCUMULATION).outcome == "clean"
    assert judge(accumulating(4, 1).to_run(), ACCUMULATION).outcome == "clean"
    nsys = Workload(tool="nsys")
    for _ in nsys.steps(5):
        nsys.launch(GEMM, 100)
    assert judge(nsys.to_run(), ACCUMULATION).outcome == "not-applicable"


def varying(slow: float, count: int = 8, extra: bool = False) -> Workload:
    """Every other step takes `slow` times as long in its second product."""
    w = Workload()
    for step in w.steps(count):
        w.launch(GEMM, 300)
        w.launch(GEMM, 300 * (slow if step % 2 else 1))
        if extra and step == 3:
            w.launch(ADD, 5)
    return w


def test_kernels_that_vary() -> None:
    found = judge(varying(3).to_run(), VARIANCE)
    assert found.finding.saving is None and found.finding.facts["kernels_per_step"] == 1
    _, calls, fast, mean, slowest = found.finding.evidence[0].rows[0]
    assert (calls, fast, slowest) == (1, 300_000, 900_000) and 500_000 < mean < 700_000
    assert judge(varying(1.5).to_run(), VARIANCE).outcome == "clean"
    assert judge(varying(3, extra=True).to_run(), VARIANCE).outcome == "not-applicable"
    assert judge(varying(3, 4).to_run(), VARIANCE).outcome == "not-applicable"


def batch(peak: int, *, blocks: int = 33, memory: bool = True, sampled: bool = False, device: Any = H200) -> Workload:
    w = Workload(device=device)
    if memory:
        w.alloc(peak)
    for _ in w.steps(5):
        if sampled:
            w.sample(utilization=90.0, memory_used=peak, memory_total=100 << 30)
        for _ in range(10):
            w.launch(GEMM, 100, grid=(blocks, 1, 1))
    return w


def test_a_small_batch() -> None:
    """33 blocks on 132 SMs leave three quarters of them empty."""
    found = judge(batch(20 << 30).to_run(), BATCH)
    assert found.finding.saving is None and found.finding.facts["empty_sm_time_frac"] == pytest.approx(0.75)
    assert found.finding.title == "the GPU is 75% unused and 86% of its memory is free: a larger batch fits"
    assert found.finding.facts["gain_per_item_frac"] == pytest.approx(0.75, abs=0.02)
    assert judge(batch(100 << 30).to_run(), BATCH).outcome == "clean"
    assert judge(batch(20 << 30, blocks=132).to_run(), BATCH).outcome == "clean"
    assert judge(batch(20 << 30, memory=False).to_run(), BATCH).outcome == "not-applicable"
    sampled = judge(batch(20 << 30, memory=False, sampled=True).to_run(), BATCH)
    assert sampled.finding.facts["free_frac"] == pytest.approx(0.8)
    unknown = replace(H200, name="NVIDIA Unheard-Of", memory_bytes=None)
    assert judge(batch(20 << 30, device=unknown).to_run(), BATCH).outcome == "not-applicable"


def convolutions(name: str, us: float = 100, *, other_us: float = 0, vary: bool = False) -> Workload:
    w = Workload()
    for step in w.steps(5):
        for layer in range(10):
            width = 64 + (step if vary else 0)
            shapes = [[8, 16, width, 64], [8, 16, width, 64], [16, 16, 3, 3], [], [], [], [], [], [], [], []]
            with w.op("aten::convolution_backward", shapes=shapes):
                w.launch(name if layer < 5 else CONV, us)
        if other_us:
            w.launch(ADD, other_us)
    return w


def test_convolutions_of_last_resort() -> None:
    found = judge(convolutions(FALLBACK).to_run(), CUDNN)
    assert found.finding.saving is None and found.finding.confidence == "low"
    assert found.finding.title == "5 convolution kernels a step use fallback algorithms, 50% of the step"
    assert judge(convolutions(CONV).to_run(), CUDNN).outcome == "clean"
    assert judge(convolutions(FALLBACK, vary=True).to_run(), CUDNN).outcome == "clean"
    assert judge(convolutions(FALLBACK, other_us=4500).to_run(), CUDNN).outcome == "clean"


@pytest.mark.parametrize("rule", [FP8, LOW, MEMORY, COPIES, ACCUMULATION, VARIANCE, BATCH, CUDNN])
def test_cannot_judge_without_kernels(rule: str) -> None:
    assert judge(Workload().to_run(), rule).outcome == "not-applicable"
