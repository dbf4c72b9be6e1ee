"""unfused-optimizer: a loop over parameters with several small kernels each."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.workload import Workload

RULE = "unfused-optimizer"


def kernel(word: str) -> str:
    return f"void at::native::vectorized_elementwise_kernel<4, at::native::{word}, std::array<char*, 3ul> >(int, T, T)"


LERP, ADDCMUL, ADDCDIV = kernel("lerp_cuda"), kernel("addcmul_cuda_kernel"), kernel("addcdiv_cuda_kernel")
SQRT, ADD = kernel("sqrt_kernel_cuda"), kernel("CUDAFunctorOnSelf_add<float>")
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
FUSED = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>, FusedAdamMathFunctor<float> >(T)"


def loop(
    parameters: int,
    *,
    gpu_us: float = 2,
    host_us: float = 10,
    model_us: float = 5000,
    marked: str | None = "torch",
    names: tuple[str, ...] = (LERP, ADDCMUL, SQRT, ADD, ADDCDIV),
    tool: str = "torch",
) -> Workload:
    """Each step: a product of `model_us`, then five kernels for each parameter."""
    w = Workload(tool=tool)

    def update() -> None:
        for _ in range(parameters):
            for name in names:
                with w.op("aten::update", us=host_us):
                    w.launch(name, gpu_us)

    for _ in w.steps(5):
        for _ in range(20):
            with w.op("aten::mm"):
                w.launch(GEMM, model_us / 20)
        if marked == "torch":
            with w.optimizer("AdamW"):
                update()
        elif marked:
            with w.range(marked, nvtx=True):
                update()
        else:
            update()
    return w


def test_a_loop_over_parameters() -> None:
    """100 parameters: 500 launches of 10 us and more on the host, 1 ms on the GPU; 0.12 and 0.5 of it stay."""
    found = judge(loop(100, model_us=500).to_run(), RULE)
    finding = found.finding
    assert finding.title == "the optimizer step launches 500 kernels where a fused one launches a few"
    assert finding.facts["launches_per_step"] == 500 and finding.facts["optimizer"] == "AdamW"
    assert finding.facts["gpu_ns"] == 1_000_000
    assert 0.7 < found.part() < 0.9
    assert {row[0][:60] for row in finding.evidence[0].rows} == {name[:60] for name in (LERP, ADDCMUL, SQRT, ADD, ADDCDIV)}
    assert "torch.optim.AdamW(model.parameters(), lr=lr, fused=True)   # replaces 500 launches" in finding.fixes[0].snippet


def test_a_busy_gpu_gains_half_of_the_optimizers_time() -> None:
    """The GPU is busy for 10 ms of model and 2.5 ms of optimizer: half of the traffic goes."""
    found = judge(loop(100, gpu_us=5, host_us=1, model_us=20_000).to_run(), RULE)
    assert found.part() == pytest.approx(1.25 / 22.5, abs=0.005)


def test_an_optimizer_that_is_a_small_part_is_worth_little() -> None:
    """22 of 922 ms: the fused form won 3 %."""
    found = judge(loop(440, gpu_us=10, host_us=4, model_us=900_000).to_run(), RULE)
    assert found.finding.facts["gpu_ns"] == 22_000_000
    assert 0.005 < found.part() < 0.03
    assert found.part("high") <= 0.035


@pytest.mark.parametrize(("parameters", "outcome"), [(11, "clean"), (13, "found")])
def test_the_number_of_launches(parameters: int, outcome: str) -> None:
    assert judge(loop(parameters, model_us=500).to_run(), RULE).outcome == outcome


@pytest.mark.parametrize(("model_us", "outcome"), [(110_000, "clean"), (90_000, "found")])
def test_the_share_of_the_step(model_us: float, outcome: str) -> None:
    """2 ms on the GPU are 2 % of 100 ms; the host needs less for it."""
    assert judge(loop(100, gpu_us=4, host_us=0.5, model_us=model_us).to_run(), RULE).outcome == outcome


def test_a_fused_optimizer_is_left_alone() -> None:
    assert judge(loop(1, names=(FUSED,) * 8, gpu_us=300, model_us=500).to_run(), RULE).outcome == "clean"


def test_the_phase_is_known_by_its_kernels() -> None:
    """Without a range: from the first to the last kernel of a step that only a written-out Adam launches."""
    marked, plain = judge(loop(100).to_run(), RULE), judge(loop(100, marked=None).to_run(), RULE)
    assert plain.finding.facts["launches_per_step"] == 500
    assert plain.part() == pytest.approx(marked.part(), abs=0.01)


@pytest.mark.parametrize("label", ["optimizer", "opt_step", "Optimizer step"])
def test_ranges_that_people_name(label: str) -> None:
    found = judge(loop(100, marked=label, names=(ADD, SQRT), tool="nsys", model_us=500).to_run(), RULE)
    assert found.finding.facts["launches_per_step"] == 200


def test_cannot_judge_what_nothing_marks() -> None:
    found = judge(loop(100, marked=None, names=(ADD, SQRT)).to_run(), RULE)
    assert found.outcome == "not-applicable" and "no range marks" in found.reason
    assert judge(Workload().to_run(), RULE).outcome == "not-applicable"
