"""Sizes and FLOPs from recorded shapes, and rates against the GPU's peaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.derive.roofline import roofs, traffic, utilisation
from advisor.derive.shapes import ATTENTION, CONVOLUTION, GEMM, Size, parsed, products, size_of, tensor_bytes
from advisor.rules.pace import pace
from build.workload import H200, Workload

GEMM_NAME = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t> >(Params)"
BF16 = "c10::BFloat16"


def size(name: str, shapes: Any, **texts: Any) -> Size | None:
    w = Workload()
    w.leaf(name, shapes=shapes, **texts)
    return size_of(w.to_run(), 0)


def test_matrix_products() -> None:
    assert size("aten::mm", [[8, 16], [16, 32]]) == Size(GEMM, 2 * 8 * 16 * 32, 1, 8, 32, 16)
    assert size("aten::addmm", [[32], [8, 16], [16, 32], [], []]) == Size(GEMM, 2 * 8 * 16 * 32, 1, 8, 32, 16)
    assert size("aten::bmm", [[4, 8, 16], [4, 16, 32]]) == Size(GEMM, 2 * 4 * 8 * 16 * 32, 4, 8, 32, 16)
    assert size("aten::baddbmm", [[4, 8, 32], [4, 8, 16], [4, 16, 32], [], []]) == Size(GEMM, 2 * 4 * 8 * 16 * 32, 4, 8, 32, 16)
    assert size("aten::mv", [[8, 16], [16]]) == Size(GEMM, 2 * 8 * 16, 1, 8, 1, 16)


@pytest.mark.parametrize("shapes", [[[8, 16]], [[8, 16], [17, 32]], [[0, 16], [16, 32]], [], "?", [[8, "x"], [16, 32]]])
def test_shapes_that_fit_no_product(shapes: Any) -> None:
    assert size("aten::mm", shapes) is None


def test_convolutions() -> None:
    """ResNet's first layer on 8 images: 112 x 112 positions out of 224 x 224."""
    one = 2 * 8 * 112 * 112 * 64 * 3 * 7 * 7
    forward = [[8, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []]
    inputs = ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]
    assert size("aten::_convolution", forward, inputs=inputs) == Size(CONVOLUTION, one)
    assert size("aten::_convolution", forward) is None  # nothing tells the stride
    backward = [[8, 64, 112, 112], [8, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], [], []]
    assert size("aten::convolution_backward", backward) == Size(CONVOLUTION, 2 * one)
    mask = ["", "", "", "[0]", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1", "[False, True, False]"]
    assert size("aten::convolution_backward", backward, inputs=mask) == Size(CONVOLUTION, one)
    old = [[8, 3, 224, 224], [8, 64, 112, 112], [64, 3, 7, 7], [], []]
    assert size("aten::cudnn_convolution_backward", old) == Size(CONVOLUTION, 2 * one)


def test_attention_in_both_orders_of_its_dimensions() -> None:
    forward = 2 * 2 * 8 * 128 * 128 * (64 + 64)
    heads_first, heads_later = [2, 8, 128, 64], [2, 128, 8, 64]
    assert size("aten::_scaled_dot_product_flash_attention", [heads_first] * 3) == Size(ATTENTION, forward)
    assert size("aten::_flash_attention_forward", [heads_later] * 3) == Size(ATTENTION, forward)
    assert size("aten::_cudnn_attention_backward", [heads_first] * 5) == Size(ATTENTION, 2 * forward)
    assert size("aten::_flash_attention_forward", [[256, 8, 64]] * 3) is None  # packed sequences of unknown lengths


def test_texts_and_bytes() -> None:
    assert parsed("[[1, 2], []]") == [[1, 2], []] and parsed("") == [] and parsed("[1,") == [] and parsed('{"a": 1}') == []
    assert tensor_bytes("[[4, 8], [], [2]]", '["float", "Scalar", "c10::Half"]') == [128, 0, 4]


def step_of(w: Workload, gemm_us: float = 100, **given: Any) -> Workload:
    """A product of 8192 x 1024 x 4096 forward, the same recomputed below the backward pass, and its gradient."""
    shapes, types = [[8192, 1024], [1024, 4096]], [BF16, BF16]
    for _ in w.steps(4):
        with w.op("aten::linear"), w.op("aten::mm", shapes=shapes, types=types):
            w.launch(GEMM_NAME, gemm_us)
        again = w.op("autograd::engine::evaluate_function: CheckpointFunctionBackward")
        with again, w.op("aten::linear"), w.op("aten::mm", shapes=shapes, types=types):
            w.launch(GEMM_NAME, gemm_us)
        with w.op("autograd::engine::evaluate_function: MmBackward0"), w.op("aten::mm", shapes=shapes, types=types):
            w.launch(GEMM_NAME, gemm_us)
        with w.op("aten::gelu", shapes=[[8192, 4096], []], types=[BF16, ""]):
            w.launch("void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl>(int)", 50)
    return w


def test_utilisation_counts_no_recomputation() -> None:
    run = step_of(Workload()).to_run()
    one = 2 * 8192 * 1024 * 4096
    assert products(run).again.sum() == products(run).steps
    used = utilisation(run)
    assert used is not None and used.dtype == "bf16" and used.peak == pytest.approx(989.4e12)
    assert used.flops == 2 * one and used.matrix_ns == 300_000
    assert used.rate == pytest.approx(one / 100e-6)
    step = pace(run).step
    assert step is not None and used.share(step.step_ns) == pytest.approx(2 * one / (989.4e12 * step.step_ns * 1e-9))


def test_an_operator_around_operators_counts_once() -> None:
    """SDPA's math path is made of products; its own operator launched no matrix kernel."""
    w = Workload()
    for _ in w.steps(4):
        with w.op("aten::_scaled_dot_product_attention_math", shapes=[[2, 8, 128, 64]] * 3):
            for _ in range(2):
                with w.op("aten::bmm", shapes=[[16, 128, 64], [16, 64, 128]], types=[BF16, BF16]):
                    w.launch(GEMM_NAME, 50)
            w.launch("void (anonymous namespace)::cunn_SoftMaxForward<float>(float)", 20)
    found = products(w.to_run())
    assert len(found) == 2 * found.steps and set(found.kind.tolist()) == {GEMM}


def test_without_shapes_or_peaks_nothing_is_said() -> None:
    w = Workload()
    for _ in w.steps(4):
        with w.op("aten::mm"):
            w.launch(GEMM_NAME, 100)
    run = w.to_run()
    assert utilisation(run) is None and roofs(run) == [] and products(run).unknown_ns == 100_000
    odd = replace(H200, name="NVIDIA Unheard-Of")
    assert utilisation(step_of(Workload(device=odd)).to_run()) is None


def test_part_of_the_products_unknown() -> None:
    w = step_of(Workload())
    for _ in w.steps(1):
        w.launch(GEMM_NAME, 1000)
    assert utilisation(w.to_run()) is None


def test_roofs() -> None:
    run = step_of(Workload(), gemm_us=100).to_run()
    moved = traffic(run)
    assert np.nansum(moved) == 2 * 2 * 8192 * 4096 * products(run).steps
    first, second = roofs(run)
    assert (first.kernel, first.unit, first.gpu_ns, first.calls) == (GEMM_NAME, "FLOP/s", 300_000, 3.0)
    assert first.share == pytest.approx(2 * 8192 * 1024 * 4096 / 100e-6 / 989.4e12)
    assert second.unit == "bytes/s" and second.share == pytest.approx(2 * 2 * 8192 * 4096 / 50e-6 / 4.8e12)


@pytest.mark.parametrize(
    ("name", "shapes", "kernel", "tensors"),
    [
        ("aten::add_", [[1024, 1024], [1024, 1024]], "CUDAFunctor_add<float>", 3),
        ("aten::fill_", [[1024, 1024], []], "FillFunctor<float>", 1),
        ("aten::copy_", [[1024, 1024], [1024, 1024]], "direct_copy_kernel_cuda", 2),
        ("aten::mul", [[1024, 1024], []], "MulFunctor<float>", 2),
    ],
)
def test_bytes_of_pointwise_operators(name: str, shapes: Any, kernel: str, tensors: int) -> None:
    w = Workload()
    for _ in w.steps(4):
        with w.op(name, shapes=shapes, types=["float"] * len(shapes)):
            w.launch(f"void at::native::vectorized_elementwise_kernel<4, at::native::{kernel}>(int)", 50)
    assert np.unique(traffic(w.to_run())).tolist() == [tensors * 4 * 1024 * 1024]
