"""unfused-elementwise: neighbouring pointwise kernels become one as long as the longest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from build.judge import judge
from build.workload import V100, Workload

RULE = "unfused-elementwise"


def kernel(functor: str) -> str:
    return f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}, std::array<char*, 3ul> >(int, T, T)"


ADD, GELU, MUL = (
    kernel("CUDAFunctor_add<float>"),
    kernel("GeluCUDAKernelImpl(at::TensorIteratorBase&)"),
    kernel("MulFunctor<float>"),
)
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)"


def loop(*chain: tuple[str, float], gemm_us: float = 1000, layers: int = 10, host_us: float = 5, **given: object) -> Workload:
    """Each step: layers of a product and then the chain."""
    w = Workload(**given)  # type: ignore[arg-type]
    for _ in w.steps(5):
        for _ in range(layers):
            with w.op("aten::mm", us=host_us):
                w.launch(GEMM, gemm_us)
            for name, us in chain:
                with w.op("aten::pointwise", us=host_us), w.frame("block.py(12): forward"):
                    w.launch(name, us)
    return w


def test_a_chain_becomes_one_kernel_as_long_as_its_longest() -> None:
    """1.0 ms of product, then 300 + 500 + 200 us: 500 stay."""
    found = judge(loop((ADD, 300), (GELU, 500), (MUL, 200)).to_run(), RULE)
    finding = found.finding
    assert found.part() == pytest.approx(500 / 2000, abs=0.01)
    # At worst a third of what the two others move is still read, by the kernel that stays.
    assert found.part("low") == pytest.approx((500 - 500 * 0.33) / 2000, abs=0.01)
    assert found.part("high") == pytest.approx(found.part(), abs=0.01)
    assert finding.title == "30 pointwise kernels a step in 10 chains pass their data through memory again and again"
    assert finding.facts["mean_chain_length"] == 3.0
    assert finding.facts["time_share_frac"] == pytest.approx(0.5, abs=0.01)
    chain, kernels, times, gpu = finding.evidence[0].rows[0]
    assert chain.startswith("add + Gelu") and (kernels, times, gpu) == (3, 10.0, 10_000_000)
    assert finding.locations[0].line == 12 and finding.fixes[0].id == "compile"
    assert "fuses 30 pointwise kernels a step into about 10" in finding.fixes[0].snippet


def test_a_kernel_without_neighbours_has_nothing_to_merge_with() -> None:
    assert judge(loop((GELU, 900)).to_run(), RULE).outcome == "clean"


def test_a_chain_ends_with_its_step() -> None:
    """Four equal kernels and nothing else in a step: one of them stays in each."""
    w = Workload()
    for _ in w.steps(5):
        for _ in range(4):
            w.launch(GELU, 1000)
    assert judge(w.to_run(), RULE).part() == pytest.approx(3 / 4, abs=0.01)


def test_norms_and_other_kernels_end_a_chain() -> None:
    assert judge(loop((ADD, 300), (NORM, 300), (GELU, 300)).to_run(), RULE).outcome == "clean"
    assert judge(loop((GELU, 300), (GEMM, 300), (GELU, 300), (GEMM, 10)).to_run(), RULE).outcome == "clean"


def test_compiled_kernels_are_fused_already() -> None:
    assert judge(loop(("triton_poi_fused_add_gelu_0", 300), ("triton_poi_fused_mul_1", 300)).to_run(), RULE).outcome == "clean"


def test_kernels_on_different_streams_are_no_chain() -> None:
    w = Workload()
    for _ in w.steps(5):
        for _ in range(10):
            w.launch(ADD, 300, stream=7)
            w.launch(GELU, 300, stream=8)
            w.launch(GEMM, 300, stream=7)
            w.launch(GEMM, 300, stream=8)
    assert judge(w.to_run(), RULE).outcome == "clean"


@pytest.mark.parametrize(("us", "outcome"), [(24, "clean"), (28, "found")])
def test_the_threshold(us: float, outcome: str) -> None:
    """Two kernels are 5 % of the step at 26 us each beside a product of 1 ms."""
    assert judge(loop((ADD, us), (GELU, us)).to_run(), RULE).outcome == outcome


def test_a_host_bound_loop_with_little_gpu_work_is_another_rules() -> None:
    """The chains are 3 % of the GPU's time in the step; launch-bound tells of the launches."""
    assert judge(loop((ADD, 3), (GELU, 3), (MUL, 3), gemm_us=10, host_us=60).to_run(), RULE).outcome == "clean"


def test_launches_go_with_the_kernels() -> None:
    """Host and GPU are level; with two of four operators the host would do with half of its time too."""
    found = judge(loop((ADD, 40), (GELU, 40), (MUL, 40), gemm_us=40, host_us=60).to_run(), RULE)
    assert found.part() > 0.3


def test_compiling_needs_a_gpu_that_triton_knows() -> None:
    pascal = replace(V100, name="Tesla P100-PCIE-16GB", compute_capability=(6, 0), sm_count=56)
    assert judge(loop((ADD, 300), (GELU, 500), device=pascal).to_run(), RULE).finding.fixes == []
    assert judge(loop((ADD, 300), (GELU, 500), device=V100).to_run(), RULE).finding.fixes


def test_nsys_sees_the_same() -> None:
    torch, nsys = (judge(loop((ADD, 300), (GELU, 500), tool=tool).to_run(), RULE) for tool in ("torch", "nsys"))
    assert nsys.part() == pytest.approx(torch.part(), abs=0.01)


def test_cannot_judge_without_kernels() -> None:
    found = judge(Workload().to_run(), RULE)
    assert found.outcome == "not-applicable" and found.report.rules[0].capture
