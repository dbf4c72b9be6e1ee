"""layout-conversion: cuDNN's conversions vanish, channels-first norms and pooling get faster."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.workload import Workload

RULE = "layout-conversion"
CONV = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64"
TO_NHWC = "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>(P)"
PADDING = "void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true>(int, int, int)"
NORM = "void at::native::batch_norm_backward_kernel<c10::BFloat16, float, float, int>(P)"
NORM_LAST = "void at::native::batch_norm_backward_reduce_channels_last_kernel<4, c10::BFloat16, float, float>(P)"
POOL = "void at::native::(anonymous namespace)::max_pool_backward_nchw<c10::BFloat16, float, int>(P)"
POOL_LAST = "void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16, float>(P)"

GROUP_NORM = "void at::native::(anonymous namespace)::ComputeFusedParamsCUDAKernel<float>(long, long, long, float const*)"


def loop(*kernels: tuple[str, float], conv: str = CONV, conv_us: float = 500, host_us: float = 5, **given: object) -> Workload:
    """Each step: ten convolutions with those kernels beside each."""
    w = Workload(**given)  # type: ignore[arg-type]
    for _ in w.steps(5):
        for _ in range(10):
            for name, us in ((conv, conv_us), *kernels):
                with w.op("aten::cudnn_convolution", us=host_us), w.frame("resnet.py(17): forward"):
                    w.launch(name, us)
    return w


def test_conversions_vanish_and_norms_get_faster() -> None:
    found = judge(loop((TO_NHWC, 100), (NORM, 300), (POOL, 100)).to_run(), RULE)
    assert found.part("low") == pytest.approx(0.1, abs=0.005)
    assert found.part() == pytest.approx(0.1 + 0.4 / 2, abs=0.005)
    assert found.part("high") == pytest.approx(0.1 + 0.4 * 0.67, abs=0.005)
    finding = found.finding
    assert finding.title == (
        "10 layout conversions a step round convolutions take 10% of the step, channels-first norms and pooling 40%"
    )
    assert [row[1:] for row in finding.evidence[0].rows] == [
        ["conversion", 10.0, 1_000_000],
        ["channels first", 10.0, 3_000_000],
        ["channels first", 10.0, 1_000_000],
    ]
    assert finding.locations[0].line == 17 and "10 conversions a step go away" in finding.fixes[0].snippet


@pytest.mark.parametrize(("each", "outcome"), [(1, "not-applicable"), (20, "found")])
def test_group_norms_take_the_conversions_over(each: int, outcome: str) -> None:
    """One group norm after so many convolutions: a U-Net has one after each, a single one in the head changes little."""
    w = Workload()
    for _ in w.steps(5):
        for conv in range(20):
            for name, us in ((TO_NHWC, 100), (CONV, 500), *(((GROUP_NORM, 5),) if conv % each == 0 else ())):
                with w.op("aten::cudnn_convolution"):
                    w.launch(name, us)
    found = judge(w.to_run(), RULE)
    assert found.outcome == outcome
    if outcome == "not-applicable":
        assert "Group norms stand between the convolutions" in found.reason


def test_channels_last_kernels_are_left_alone() -> None:
    found = judge(loop((TO_NHWC, 100), (NORM_LAST, 300), (POOL_LAST, 100)).to_run(), RULE)
    assert found.part("low") == found.part() == pytest.approx(0.1, abs=0.005)


def test_channels_first_norms_alone_are_no_evidence() -> None:
    """Convolutions without tensor cores are at home in channels first."""
    assert judge(loop((NORM, 300)).to_run(), RULE).outcome == "clean"


def test_padding_of_three_channels_is_no_conversion() -> None:
    assert judge(loop((PADDING, 100)).to_run(), RULE).outcome == "clean"


def test_conversions_need_convolutions() -> None:
    assert judge(loop((TO_NHWC, 100), conv="nvjet_sm90_tst_256x128_64x4_1x2_h_bz").to_run(), RULE).outcome == "clean"


@pytest.mark.parametrize(("us", "outcome"), [(9, "clean"), (12, "found")])
def test_the_threshold(us: float, outcome: str) -> None:
    assert judge(loop((TO_NHWC, us)).to_run(), RULE).outcome == outcome


def test_a_host_bound_step_saves_the_launches_only() -> None:
    """Two calls of three stay."""
    found = judge(loop((TO_NHWC, 50), (NORM, 50), conv_us=50, host_us=300).to_run(), RULE)
    assert found.part() == pytest.approx(1 / 3, abs=0.02)


def test_nsys_sees_the_same() -> None:
    found = judge(loop((TO_NHWC, 100), (NORM, 400), tool="nsys").to_run(), RULE)
    assert found.part() == pytest.approx(0.3, abs=0.01)


def test_cannot_judge_without_kernels() -> None:
    assert judge(Workload().to_run(), RULE).outcome == "not-applicable"
