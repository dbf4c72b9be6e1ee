"""dtype-cast-churn, zero-grad-memset, fp64-kernel, unfused-rope, unfused-swiglu."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from build.judge import judge
from build.workload import H200, Workload

CASTS, ZERO, FP64, ROPE, SWIGLU = "dtype-cast-churn", "zero-grad-memset", "fp64-kernel", "unfused-rope", "unfused-swiglu"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
TO_BF16 = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
TO_FP32 = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, LoadWithCast<1>, StoreWithCast<1> >(int)"
)
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda> >(int)"
)


def pointwise(what: str) -> str:
    return f"void at::native::vectorized_elementwise_kernel<4, at::native::{what}>(int)"


ADD, MUL, FILL = pointwise("CUDAFunctor_add<float>"), pointwise("MulFunctor<float>"), pointwise("FillFunctor<float>")
NEG, CAT = pointwise("neg_kernel_cuda"), "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>(float*)"
SILU, SILU_BACKWARD = pointwise("silu_kernel"), pointwise("silu_backward_kernel")


def casts(
    us: float, *, types: tuple[str, str] | None = None, name: str = TO_BF16, op: str = "aten::_to_copy", **given: Any
) -> Workload:
    w = Workload(**given)
    texts = {} if types is None else {"shapes": [[64], [64], []], "types": [*types, "Scalar"]}
    for _ in w.steps(5):
        for _ in range(10):
            with w.op("aten::linear"), w.frame("model.py(9): forward"):
                with w.op(op), w.op("aten::copy_", **texts):
                    w.launch(name, us)
                with w.op("aten::addmm"):
                    w.launch(GEMM, 100)
    return w


def test_half_of_the_casts_is_expected_to_go() -> None:
    found = judge(casts(20).to_run(), CASTS)
    assert (found.part("low"), found.part(), found.part("high")) == pytest.approx((0, 10 / 120, 20 / 120), abs=0.01)
    finding = found.finding
    assert finding.title == "10 kernels a step only cast tensors to another type, 17% of the step"
    assert finding.evidence[0].rows == [["weights and inputs of products", 10.0, 200_000]]
    assert finding.locations[0].line == 9


def test_copies_that_keep_the_type_are_no_casts() -> None:
    assert judge(casts(20, types=("float", "float"), name=TO_FP32).to_run(), CASTS).outcome == "clean"
    assert judge(casts(20, types=("float", "c10::BFloat16"), name=TO_FP32).to_run(), CASTS).outcome == "found"
    assert judge(casts(20, op="aten::contiguous").to_run(), CASTS).outcome == "clean"
    assert judge(casts(20, name=COPY).to_run(), CASTS).outcome == "clean"


@pytest.mark.parametrize(("us", "outcome"), [(4, "clean"), (4.5, "found")])
def test_the_threshold_of_casts(us: float, outcome: str) -> None:
    assert judge(casts(us).to_run(), CASTS).outcome == outcome


def test_nsys_sees_casts_by_name() -> None:
    assert judge(casts(20, tool="nsys").to_run(), CASTS).part() == pytest.approx(10 / 120, abs=0.01)


def zeroing(
    us: float = 20, *, passes: int = 1, marked: bool = True, gemm_us: float = 200, host_us: float = 2, adds: bool = True
) -> Workload:
    w = Workload()
    for _ in w.steps(5):
        if marked:
            with w.range("Optimizer.zero_grad#AdamW.zero_grad"), w.frame("train.py(30): main"):
                w.memset(1 << 20, us)
                with w.op("aten::zero_"), w.op("aten::fill_"):
                    w.launch(FILL, us)
        for _ in range(passes):
            for _ in range(4):
                with w.op("aten::mm", us=host_us):
                    w.launch(GEMM, gemm_us)
            with w.backward():
                for _ in range(4):
                    with w.op("autograd::engine::evaluate_function: MmBackward0", us=host_us):
                        w.launch(GEMM, gemm_us)
                    node = "torch::autograd::AccumulateGrad"
                    with w.op(f"autograd::engine::evaluate_function: {node}"), w.op(node), w.op("aten::add_"):
                        if adds:
                            w.launch(ADD, us)
    return w


def test_zeroing_and_the_additions_to_zeros_vanish() -> None:
    found = judge(zeroing().to_run(), ZERO)
    assert found.part() == pytest.approx(6 * 20 / 1720, abs=0.01)
    finding = found.finding
    assert finding.title == "gradients are zeroed by 2 operations a step (40 µs) and added to (80 µs)"
    assert finding.facts["backward_passes_per_step"] == 1
    assert "saves 2 zeroings and 4 additions a step" in finding.fixes[0].snippet


def test_with_accumulation_the_additions_stay() -> None:
    found = judge(zeroing(passes=2).to_run(), ZERO)
    assert found.finding.facts["backward_passes_per_step"] == 2
    assert found.part() == pytest.approx(40 / 3400, abs=0.005)


def test_gradients_that_are_dropped_show_nothing() -> None:
    assert judge(zeroing(marked=False).to_run(), ZERO).outcome == "clean"


def test_a_host_bound_loop_may_gain_nothing() -> None:
    found = judge(zeroing(1, gemm_us=1, host_us=20).to_run(), ZERO)
    assert found.part("low") == pytest.approx(0, abs=0.01) and found.part() < 0.2


@pytest.mark.parametrize(("us", "outcome"), [(2, "clean"), (5, "found")])
def test_the_threshold_of_zeroing(us: float, outcome: str) -> None:
    """Two operations beside 1,600 us of products and nothing to add to."""
    assert judge(zeroing(2 * us, adds=False).to_run(), ZERO).outcome == outcome


def doubles(*kernels: tuple[str, float], **given: Any) -> Workload:
    w = Workload(**given)
    for _ in w.steps(5):
        for _ in range(10):
            w.launch(GEMM, 90)
            for name, us in kernels:
                w.launch(name, us)
    return w


def test_pointwise_kernels_in_fp64_take_half() -> None:
    found = judge(doubles((pointwise("MulFunctor<double>"), 10)).to_run(), FP64)
    assert found.part() == pytest.approx(0.05, abs=0.005) and found.part("low") == pytest.approx(0.03, abs=0.005)
    assert found.finding.title == "10 kernels a step compute in FP64, 10.0% of the step"


def test_products_in_fp64_by_the_ratio_of_the_peaks() -> None:
    """A GeForce card computes FP64 at 1/64: next to nothing is left."""
    card = replace(H200, name="NVIDIA GeForce RTX 4090", compute_capability=(8, 9), sm_count=128)
    found = judge(doubles(("ampere_dgemm_64x64_nn", 910), device=card).to_run(), FP64)
    assert found.part() == pytest.approx(0.91 * (1 - 1 / 64), abs=0.02)


@pytest.mark.parametrize(
    "name",
    [
        pointwise("FusedAdamMathFunctor<float, 4>, float const*, double, double>"),
        "void at::native::multi_tensor_apply_kernel<TensorListMetadata<double>, Functor<double> >(double)",
        "void at::native::distribution_elementwise_grid_stride_kernel<double, 2, uniform<double> >(int)",
        pointwise("pow_tensor_scalar_kernel_impl<float, double>(at::TensorIteratorBase&, double)"),
    ],
)
def test_arguments_and_helpers_of_type_double_say_nothing(name: str) -> None:
    assert judge(doubles((name, 50)).to_run(), FP64).outcome == "clean"


@pytest.mark.parametrize(("us", "outcome"), [(0.8, "clean"), (2, "found")])
def test_the_threshold_of_fp64(us: float, outcome: str) -> None:
    assert judge(doubles((pointwise("MulFunctor<double>"), us)).to_run(), FP64).outcome == outcome


def decoder(kernels: list[tuple[str, float]], backward: list[tuple[str, str, float]], **given: Any) -> Workload:
    """Four times: a product, the kernels; then the same with gradients, given as (node, kernel, us)."""
    w = Workload(**given)
    for _ in w.steps(5):
        for _ in range(4):
            w.launch(GEMM, 500)
            for name, us in kernels:
                with w.op("aten::part"), w.frame("rope.py(5): apply"):
                    w.launch(name, us)
        with w.backward():
            for _ in range(4):
                w.launch(GEMM, 500)
                for node, name, us in backward:
                    with (
                        w.op(f"autograd::engine::evaluate_function: {node}Backward0"),
                        w.op(f"{node}Backward0"),
                        w.op("aten::part"),
                    ):
                        w.launch(name, us)
    return w


ROPE_KERNELS = [(MUL, 40.0), (NEG, 20.0), (CAT, 40.0), (MUL, 50.0), (ADD, 45.0)]
ROPE_GRADIENT = [
    ("Mul", MUL, 40.0),
    ("Mul", MUL, 40.0),
    ("Cat", COPY, 30.0),
    ("Neg", NEG, 20.0),
    ("Slice", FILL, 60.0),
    ("Slice", COPY, 70.0),
]


def test_rotary_embeddings() -> None:
    """Of a stretch the two longest stay: 195 - 95 forward, 260 - 130 backward."""
    found = judge(decoder(ROPE_KERNELS, ROPE_GRADIENT).to_run(), ROPE)
    assert found.part() == pytest.approx((100 + 130) / (1000 + 195 + 260), abs=0.01)
    finding = found.finding
    assert finding.title == "4 rotary embeddings a step are written out as 44 kernels, 31% of the step"
    assert finding.locations[0].line == 5


def test_a_concatenation_without_a_negation_is_no_rotation() -> None:
    kernels = [(MUL, 40.0), (CAT, 40.0), (MUL, 50.0), (ADD, 45.0)]
    assert judge(decoder(kernels, []).to_run(), ROPE).outcome == "clean"
    assert judge(decoder([(NEG, 40.0), (CAT, 40.0)], []).to_run(), ROPE).outcome == "clean"


@pytest.mark.parametrize(("scale", "outcome"), [(0.1, "clean"), (0.25, "found")])
def test_the_threshold_of_rotations(scale: float, outcome: str) -> None:
    kernels = [(name, us * scale) for name, us in ROPE_KERNELS]
    assert judge(decoder(kernels, []).to_run(), ROPE).outcome == outcome


def test_gated_activations() -> None:
    """Forward the longer of two stays, backward the longest of three."""
    gradient = [("Mul", MUL, 60.0), ("Mul", MUL, 60.0), ("Silu", SILU_BACKWARD, 70.0)]
    found = judge(decoder([(SILU, 40.0), (MUL, 60.0)], gradient).to_run(), SWIGLU)
    assert found.part() == pytest.approx((40 + 120) / (1000 + 100 + 190), abs=0.01)
    assert found.finding.title == "4 gated activations a step run as 20 kernels, 22% of the step"


def test_activations_without_a_gate() -> None:
    assert judge(decoder([(SILU, 40.0), (GEMM, 60.0), (MUL, 60.0)], []).to_run(), SWIGLU).outcome == "clean"


@pytest.mark.parametrize(("us", "outcome"), [(15, "clean"), (30, "found")])
def test_the_threshold_of_gates(us: float, outcome: str) -> None:
    assert judge(decoder([(SILU, us), (MUL, us)], []).to_run(), SWIGLU).outcome == outcome


@pytest.mark.parametrize("rule", [ROPE, SWIGLU])
def test_nsys_sees_the_forward_pass(rule: str) -> None:
    kernels = ROPE_KERNELS if rule == ROPE else [(SILU, 60.0), (MUL, 60.0)]
    assert judge(decoder(kernels, [], tool="nsys").to_run(), rule).outcome == "found"


@pytest.mark.parametrize("rule", [CASTS, ZERO, FP64, ROPE, SWIGLU])
def test_cannot_judge_without_kernels(rule: str) -> None:
    assert judge(Workload().to_run(), rule).outcome == "not-applicable"


def test_fewer_than_one_a_step_is_no_zero() -> None:
    """A pattern of the user's may mark more steps than there are casts: four in the seven steady steps here."""
    w = Workload()
    for number in w.steps(8):
        with w.op("aten::mm", us=5):
            w.launch("gemm", 1000)
        if number % 2:
            with w.op("aten::_to_copy", us=5), w.op("aten::copy_", us=5):
                w.launch(TO_FP32, 500)
    finding = judge(w.to_run(), "dtype-cast-churn").finding
    assert finding.title.startswith("0.6 kernels a step only cast") and finding.facts["casts_per_step"] == 0.6
