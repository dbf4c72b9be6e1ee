"""unfused-cross-entropy and sdpa-math-fallback."""

from __future__ import annotations

from typing import Any

import pytest

from build.judge import judge
from build.workload import Workload

LOSS, MATH = "unfused-cross-entropy", "sdpa-math-fallback"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
FORWARD = "void at::native::cunn_SoftMaxForward<4, float, float, float, at::native::LogSoftMaxForwardEpilogue>(float*)"
BACKWARD = "void at::native::cunn_SoftMaxBackward<4, float, float, float, at::native::LogSoftMaxBackwardEpilogue>(float*)"
NLL = "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)"
CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, LoadWithCast<1>, StoreWithCast<1> >(int)"
)
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t> >(Params)"


def loss_loop(us: float = 100, *, gemm_us: float = 1000, name: str = FORWARD, **given: Any) -> Workload:
    """Two products, and between them a loss of cast, softmax, nll, fill, gradient and cast back: 6 x us without the nll."""
    w = Workload(**given)
    for _ in w.steps(5):
        w.launch(GEMM, gemm_us / 2)
        w.launch(ADD, 3)
        with w.op("aten::_to_copy"):
            w.launch(CAST, us)
        with w.op("aten::_log_softmax", shapes=[[8192, 32768], [], []]), w.frame("train.py(55): loss"):
            w.launch(name, us)
        with w.op("aten::nll_loss_forward"):
            w.launch(NLL, us / 10)
        with w.op("aten::nll_loss_backward"), w.op("aten::fill_"):
            w.launch(FILL, us)
        with w.op("aten::_log_softmax_backward_data", shapes=[[8192, 32768], [8192, 32768], [], []]):
            w.launch(BACKWARD, 2 * us)
        with w.op("aten::_to_copy"):
            w.launch(CAST, us)
        w.launch(GEMM, gemm_us / 2)
    return w


def test_the_loss_with_its_casts() -> None:
    found = judge(loss_loop().to_run(), LOSS)
    share = 610 / 1613
    assert found.part() == pytest.approx(share * 0.45, abs=0.01)
    assert found.part("low") == pytest.approx(share * 0.2, abs=0.01)
    assert found.part("high") == pytest.approx(share * 0.8, abs=0.01)
    finding = found.finding
    assert finding.title == "the loss over 8192 x 32768 logits takes 6 kernels and 38% of the step"
    assert finding.facts["casts_ns"] == 200_000 and finding.facts["vocabulary"] == 32768
    keep = next(fix for fix in finding.fixes if fix.id == "keep-16-bit")
    assert "logits.view(-1, 32768)" in keep.snippet and finding.locations[0].line == 55


def test_small_casts_beside_the_loss_are_not_its_own() -> None:
    w = Workload()
    for _ in w.steps(5):
        for name, us in ((GEMM, 500), (CAST, 5), (FORWARD, 100), (CAST, 5), (GEMM, 500)):
            w.launch(name, us)
    assert judge(w.to_run(), LOSS).finding.facts["casts_ns"] == 0


@pytest.mark.parametrize(("us", "outcome"), [(8, "clean"), (9, "found")])
def test_the_loss_threshold(us: float, outcome: str) -> None:
    """Beside products of one millisecond the loss is 5 % from 8.6 us on."""
    assert judge(loss_loop(us).to_run(), LOSS).outcome == outcome


def test_another_softmax_is_no_loss() -> None:
    w = Workload()
    for _ in w.steps(5):
        for name in (GEMM, SOFTMAX, GEMM):
            w.launch(name, 300)
    assert judge(w.to_run(), LOSS).outcome == "clean"


def test_nsys_sees_the_loss_by_its_names() -> None:
    found = judge(loss_loop(tool="nsys").to_run(), LOSS)
    assert found.part() == pytest.approx(610 / 1613 * 0.45, abs=0.01)
    assert found.finding.title.startswith("the loss takes 6 kernels")


def attention_loop(us: float = 100, *, math: bool = True, types: str = "float", mask: bool = False, **given: Any) -> Workload:
    w = Workload(**given)
    shapes = [[2, 16, 1024, 64]] * 3 + ([[1024, 1024]] if mask else [[]])
    for _ in w.steps(5):
        for _ in range(4):
            with w.op("aten::scaled_dot_product_attention"), w.frame("block.py(21): forward"):
                if not math:
                    w.launch(FLASH, us)
                    continue
                with w.op("aten::_scaled_dot_product_attention_math", shapes=shapes, types=[types] * 4):
                    with w.op("aten::bmm"):
                        w.launch(GEMM, us)
                    with w.op("aten::add_"):
                        w.launch(ADD, 2 * us)
                    with w.op("aten::_softmax"):
                        w.launch(SOFTMAX, 3 * us)
                    with w.op("aten::bmm"):
                        w.launch(GEMM, us)
                    with w.op("aten::clone"):
                        w.launch(CAST, us)
            with w.op("aten::mm"):
                w.launch(GEMM, 200)
    return w


def test_the_written_out_form_of_sdpa() -> None:
    """Six of eight parts vanish, of the products 0.35 stays."""
    found = judge(attention_loop().to_run(), MATH)
    assert found.part() == pytest.approx((600 + 200 * 0.65) / 1000, abs=0.01)
    assert found.part("low") == pytest.approx(0.6, abs=0.01)
    finding = found.finding
    assert finding.title == "scaled_dot_product_attention runs its written-out form, 80% of the step"
    assert finding.facts["calls_per_step"] == 4.0 and finding.locations[0].line == 21
    assert finding.caveats == ["The inputs are FP32: flash kernels take 16 bit only, the memory-efficient one takes FP32."]


def test_reasons_that_shapes_show() -> None:
    caveats = judge(attention_loop(mask=True, types="c10::BFloat16").to_run(), MATH).finding.caveats
    assert len(caveats) == 1 and caveats[0].startswith("A mask tensor is given")


def test_it_takes_the_place_of_unfused_attention() -> None:
    found = judge(attention_loop().to_run(), MATH, "unfused-attention")
    assert [one.rule for one in found.report.findings] == [MATH]
    other = next(one for one in found.report.rules if one.id == "unfused-attention")
    assert other.outcome == "clean" or other.reason == f"reported under {MATH}"


def test_a_fused_kernel_is_no_fallback() -> None:
    assert judge(attention_loop(math=False).to_run(), MATH).outcome == "clean"


@pytest.mark.parametrize(("us", "outcome"), [(0.4, "clean"), (0.6, "found")])
def test_the_attention_threshold(us: float, outcome: str) -> None:
    """Eight parts beside a product of 200 us are 2 % from half a microsecond on."""
    assert judge(attention_loop(us).to_run(), MATH).outcome == outcome


def test_without_operators_nothing_shows_the_fallback() -> None:
    assert judge(attention_loop(tool="nsys").to_run(), MATH).outcome == "not-applicable"
    assert judge(Workload().to_run(), LOSS).outcome == "not-applicable"
