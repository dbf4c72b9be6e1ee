"""unfused-normalization: written-out norms by their root, its mean, and its gradient's neighbours."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.workload import Workload

RULE = "unfused-normalization"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
MEAN = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float> > >(R)"
SUM = "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, sum_functor> > >(R)"


def pointwise(what: str) -> str:
    return f"void at::native::vectorized_elementwise_kernel<4, at::native::{what}>(int)"


POW, ADD, RSQRT, MUL = map(pointwise, ("pow_tensor_scalar_kernel_impl", "CUDAFunctor_add", "rsqrt_kernel_cuda", "MulFunctor"))
SILU = pointwise("silu_kernel")


def forward(w: Workload, us: float = 100, *, mean: bool = True) -> None:
    """RMS norm: square, mean, epsilon, root, scale, weight; two kernels of it are tiny."""
    for name, part in ((POW, us), (MEAN if mean else SILU, us / 2), (ADD, 1), (RSQRT, 1), (MUL, us), (MUL, 1.2 * us)):
        with w.op("aten::part"), w.frame("norm.py(8): forward"):
            w.launch(name, part)


def backward(w: Workload, us: float = 100) -> None:
    nodes = ("Mul", "Mul", "Mul", "Rsqrt", "Mean", "Pow")
    for node, name in zip(nodes, (MUL, MUL, SUM, MUL, MUL, MUL), strict=True):
        with w.op(f"autograd::engine::evaluate_function: {node}Backward0"), w.op(f"{node}Backward0"), w.op("aten::part"):
            w.launch(name, 1 if node == "Rsqrt" else us)


def loop(us: float = 100, *, gemm_us: float = 1000, norms: int = 4, grad: bool = False, **given: object) -> Workload:
    w = Workload(**given)  # type: ignore[arg-type]
    for _ in w.steps(5):
        for _ in range(norms):
            forward(w, us)
            with w.op("aten::mm"):
                w.launch(GEMM, gemm_us)
        if grad:
            with w.backward():
                for _ in range(norms):
                    backward(w, us)
                    with w.op("aten::mm"):
                        w.launch(GEMM, gemm_us)
    return w


def test_the_longest_kernel_of_a_forward_stretch_stays() -> None:
    found = judge(loop().to_run(), RULE)
    assert found.part() == pytest.approx((100 + 50 + 2 + 100) / 1372, abs=0.01)
    assert found.part("high") == pytest.approx((100 + 50 + 2 + 100 + 60) / 1372, abs=0.01)
    finding = found.finding
    assert finding.title == "4 norms a step are written out as 24 kernels, 27% of the step"
    assert finding.locations[0].line == 8 and finding.fixes[0].id == "library-norm"
    assert finding.caveats == ["Only the forward pass was recognised; the backward pass gains too."]


def test_two_kernels_of_a_backward_stretch_stay() -> None:
    found = judge(loop(grad=True).to_run(), RULE)
    assert found.part() == pytest.approx((252 + 301) / (1372 + 1501), abs=0.01)
    assert found.finding.facts["backward_ns"] == 4 * 501_000 and found.finding.caveats == []


def test_it_is_part_of_what_unfused_elementwise_counts() -> None:
    found = judge(loop().to_run(), RULE, "unfused-elementwise")
    assert found.finding.alternative_to == "unfused-elementwise"
    assert found.report.combined is not None
    whole = max(one.saving.expected_ns for one in found.report.findings if one.saving)
    assert found.report.combined.expected_ns == pytest.approx(whole, rel=0.02)


def test_a_root_without_a_mean_is_no_norm() -> None:
    w = Workload()
    for _ in w.steps(5):
        for _ in range(4):
            forward(w, mean=False)
            with w.op("aten::mm"):
                w.launch(GEMM, 500)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_the_root_of_an_optimizer_is_no_norm() -> None:
    w = Workload()
    for _ in w.steps(5):
        with w.op("aten::mm"):
            w.launch(GEMM, 500)
        with w.optimizer():
            forward(w)
    assert judge(w.to_run(), RULE).outcome == "clean"


@pytest.mark.parametrize(("us", "outcome"), [(7, "clean"), (10, "found")])
def test_the_threshold(us: float, outcome: str) -> None:
    """A stretch is 3.7 us long for each us given, beside a product of a millisecond."""
    assert judge(loop(us).to_run(), RULE).outcome == outcome


def test_nsys_sees_the_forward_pass() -> None:
    assert judge(loop(tool="nsys").to_run(), RULE).part() == pytest.approx(252 / 1372, abs=0.01)


def test_cannot_judge_without_kernels() -> None:
    assert judge(Workload().to_run(), RULE).outcome == "not-applicable"
