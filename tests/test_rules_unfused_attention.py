"""unfused-attention: two batched products, a softmax between them, and the score matrix in memory."""

from __future__ import annotations

import pytest

from advisor.model import Device
from build.judge import judge
from build.workload import H200, T4, Workload

RULE = "unfused-attention"
GEMM16 = "nvjet_sm90_tst_128x192_64x5_2x1_v_bz_coopB_NTN"
GEMM32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8"
SCALE = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, std::array<char*, 3ul> >(int, T, T)"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::X>(float*, T)"
LOSS = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>(log_softmax)"
)
LINEAR = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT"


def loop(
    *inside: tuple[str, float],
    product: str = GEMM16,
    product_us: float = 100,
    linear_us: float = 1000,
    copy_bytes: int = 0,
    op: str = "aten::bmm",
    extra: bool = False,
    device: Device = H200,
    tool: str = "torch",
) -> Workload:
    """Each step, four layers: a linear layer and attention. `extra`: a second product follows the last, as in backward."""
    w = Workload(device=device, tool=tool)
    for _ in w.steps(5):
        for _ in range(4):
            with w.op("aten::addmm"):
                w.launch(LINEAR, linear_us)
            with w.op(op), w.frame("attention.py(20): forward"):
                w.launch(product, product_us)
            for name, us in inside:
                with w.op("aten::softmax" if "SoftMax" in name else "aten::mul"):
                    w.launch(name, us)
            if copy_bytes:
                with w.op("aten::copy_"):
                    w.copy("DtoD", copy_bytes)
            for _ in range(1 + extra):
                with w.op(op):
                    w.launch(product, product_us)
    return w


def test_everything_between_the_products_goes() -> None:
    """Per layer 1000 us of linear layer, 100 + 300 + 500 + 100 of attention: 800 go, and half of the products."""
    found = judge(loop((SCALE, 300), (SOFTMAX, 500)).to_run(), RULE)
    assert found.part() == pytest.approx((800 + 100) / 2000, abs=0.01)
    finding = found.finding
    assert finding.title == "attention is written out: 4 softmaxes between batched products take 50% of a step"
    assert finding.facts["between_ns"] == 4 * 800_000 and finding.facts["products_ns"] == 4 * 200_000
    rows = {row[0]: row[1:] for row in finding.evidence[0].rows}
    assert rows["between them: softmax"] == [4.0, 2_000_000]
    assert rows["between them: elementwise"] == [4.0, 1_200_000]
    assert rows["batched matrix products"] == [8.0, 800_000]
    assert finding.locations[0].line == 20
    assert "SDPBackend.FLASH_ATTENTION" in finding.fixes[0].snippet


def test_copies_of_the_scores_go_too() -> None:
    """300 MB within device memory take 100 us."""
    plain = judge(loop((SOFTMAX, 500)).to_run(), RULE)
    copied = judge(loop((SOFTMAX, 500), copy_bytes=300_000_000).to_run(), RULE)
    assert copied.finding.facts["between_ns"] - plain.finding.facts["between_ns"] == pytest.approx(4 * 101_000, abs=4000)
    assert copied.part() == pytest.approx((600 + 100) / 1800, abs=0.01)
    assert ["between them: copies within device memory", 4.0] in [row[:2] for row in copied.finding.evidence[0].rows]


def test_products_that_follow_each_other_belong_to_it() -> None:
    found = judge(loop((SOFTMAX, 500), extra=True).to_run(), RULE)
    assert found.finding.facts["products_ns"] == 4 * 300_000


@pytest.mark.parametrize(("product_us", "outcome"), [(4, "clean"), (7, "found")])
def test_the_threshold(product_us: float, outcome: str) -> None:
    """Products and what lies between them are 2 % of the step at 20 us."""
    assert judge(loop((SOFTMAX, 8), product_us=product_us).to_run(), RULE).outcome == outcome


def test_other_softmaxes_are_not_attention() -> None:
    assert judge(loop((LOSS, 500)).to_run(), RULE).outcome == "clean"
    # The operator says that these are products of two matrices, not batches of them.
    assert judge(loop((SOFTMAX, 500), op="aten::mm").to_run(), RULE).outcome == "clean"


def test_batched_products_of_experts_are_not_attention() -> None:
    assert judge(loop((SCALE, 500)).to_run(), RULE).outcome == "clean"
    # Nor do they count beside attention.
    both = Workload()
    for _ in both.steps(5):
        for middle in (SOFTMAX, SCALE):
            both.launch(LINEAR, 1000)
            for name in (GEMM16, middle, GEMM16):
                with both.op("aten::bmm" if name == GEMM16 else "aten::other"):
                    both.launch(name, 300)
    assert judge(both.to_run(), RULE).finding.facts["between_ns"] == 300_000


def test_fused_attention_is_left_alone() -> None:
    flash = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_26_64x64x64"
    assert judge(loop((flash, 500)).to_run(), RULE).outcome == "clean"


@pytest.mark.parametrize(("device", "product"), [(T4, GEMM16), (H200, GEMM32)])
def test_the_flash_kernel_needs_ampere_and_16_bit(device: Device, product: str) -> None:
    found = judge(loop((SOFTMAX, 500), device=device, product=product).to_run(), RULE)
    assert "SDPBackend.EFFICIENT_ATTENTION" in found.finding.fixes[0].snippet
    assert any("memory-efficient" in text for text in found.finding.caveats)


def test_nsys_knows_it_by_the_kernels() -> None:
    torch, nsys = (judge(loop((SCALE, 300), (SOFTMAX, 500), tool=tool).to_run(), RULE) for tool in ("torch", "nsys"))
    assert nsys.part() == pytest.approx(torch.part(), abs=0.01)


def test_cannot_judge_without_kernels() -> None:
    assert judge(Workload().to_run(), RULE).outcome == "not-applicable"
