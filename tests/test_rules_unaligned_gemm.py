"""unaligned-gemm: products with narrow loads, by name or by their sizes and rate."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.model import Device
from build.judge import Verdict, judge
from build.workload import A100, H200, T4, Workload

RULE = "unaligned-gemm"
FAST = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
NARROW = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"
BF16 = ["c10::BFloat16", "c10::BFloat16"]


def loop(
    slow_us: float,
    *,
    name: str = NARROW,
    size: int | None = 4093,
    fast_us: float = 100,
    other_us: float = 0,
    device: Device = H200,
    op: str = "aten::mm",
) -> Verdict:
    """Each step: four aligned products of 8192 x 1024 x 4096, four with `size` in place of 4096, and something else."""
    w = Workload(device=device)

    def shapes(n: int | None) -> dict[str, Any]:
        return {} if size is None else {"shapes": [[8192, 1024], [1024, n]], "types": BF16}

    for _ in w.steps(5):
        for _ in range(4):
            with w.op("aten::mm", **shapes(4096)):
                w.launch(FAST, fast_us)
            with w.op(op, **shapes(size)), w.frame("model.py(40): head"):
                w.launch(name, slow_us)
        if other_us:
            w.launch("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(int)>(int)", other_us)
    return judge(w.to_run(), RULE)


def test_the_aligned_products_of_the_trace_tell_the_rate() -> None:
    found = loop(600)
    assert found.part() == pytest.approx((600 - 100 * 4093 / 4096) / 700, abs=0.01)
    finding = found.finding
    assert finding.title == "4 matrix products a step are not aligned (a size of 4093) and take 86% of the step"
    assert finding.confidence == "high" and finding.facts["padded"] == 4096
    assert finding.evidence[0].rows[0][:3] == ["8192 x 4093 x 1024", 4.0, 2_400_000]
    assert "size = 4093" in finding.fixes[0].snippet and "4093 -> 4096" in finding.fixes[0].snippet
    assert finding.locations[0].line == 40


def test_odd_sizes_in_kernels_whose_names_tell_nothing() -> None:
    assert loop(300, name="some_vendor_gemm_bf16").outcome == "found"
    assert loop(180, name="some_vendor_gemm_bf16").outcome == "clean"  # above half of the aligned rate


def test_sizes_that_are_multiples_are_not_the_cause() -> None:
    assert loop(600, name=FAST, size=4104).outcome == "clean"


@pytest.mark.parametrize(("device", "left"), [(H200, 0.15), (A100, 0.3), (T4, 0.5)])
def test_without_shapes_the_generation_tells(device: Device, left: float) -> None:
    found = loop(600, size=None, device=device)
    assert found.part() == pytest.approx((1 - left) * 6 / 7, abs=0.02)
    assert found.finding.confidence == "medium" and found.finding.evidence[0].rows == [[NARROW, 4.0, 2_400_000]]


@pytest.mark.parametrize(
    "name",
    [
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_nt_align4>(Params)",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn",
    ],
)
def test_loads_that_are_wide_enough_for_their_type(name: str) -> None:
    assert loop(600, name=name, size=None).outcome == "clean"


def test_convolutions_are_not_asked_to_pad_their_images() -> None:
    assert loop(600, size=None, op="aten::cudnn_convolution").outcome == "clean"


@pytest.mark.parametrize(("us", "outcome"), [(45, "clean"), (55, "found")])
def test_the_threshold(us: float, outcome: str) -> None:
    """Four of them are 2 % of ten milliseconds at 50 us each."""
    assert loop(us, size=None, other_us=10_000 - 4 * (us + 100)).outcome == outcome


def test_cannot_judge_without_kernels() -> None:
    assert judge(Workload().to_run(), RULE).outcome == "not-applicable"
