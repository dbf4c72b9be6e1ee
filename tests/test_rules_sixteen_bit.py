"""tf32-instead-of-16bit and fp32-on-fp16-tensor-cores: the same kernels in 16 bit, where the tensor cores take it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model import Device
from build.judge import Verdict, judge
from build.workload import A100, H200, T4, V100, Workload

BF16, FP16 = "tf32-instead-of-16bit", "fp32-on-fp16-tensor-cores"
TF32_GEMM = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute"
SGEMM = "volta_sgemm_128x64_nn"
FMHA = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)"
HALF_GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
CONV = "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(int)>(int)"


def loop(*kernels: tuple[str, float], rule: str = BF16, device: Device = H200, host_us: float = 5, others: str = "") -> Verdict:
    """Each step: ten times the kernels, of so many microseconds."""
    w = Workload(device=device)
    for _ in w.steps(5):
        for _ in range(10):
            for name, us in kernels:
                with w.op("aten::mm", us=host_us), w.frame("model.py(31): forward"):
                    w.launch(name, us)
    return judge(w.to_run(), rule, *[other for other in [others] if other])


def test_tf32_products_at_the_ratio_of_the_peaks() -> None:
    """Half the peak ratio times 0.9 is left of the products, 1.15 of the pointwise kernels."""
    found = loop((TF32_GEMM, 800), (GELU, 200))
    assert found.part() == pytest.approx(0.8 * (1 - 0.45) - 0.2 * 0.15, abs=0.01)
    assert found.part("low") == pytest.approx(0.8 * (1 - 0.6) - 0.2 * 0.4, abs=0.01)
    assert found.part("high") == pytest.approx(0.8 * (1 - 0.4) + 0.2 * 0.25, abs=0.01)
    finding = found.finding
    assert finding.title == "10 matrix kernels a step run in TF32, 80% of the step; 16 bit is faster"
    assert finding.evidence[0].rows == [[TF32_GEMM, 10.0, 8_000_000]] and finding.locations[0].line == 31
    assert finding.fixes[0].id == "bf16-autocast" and finding.facts["tf32_ns"] == 8_000_000


def test_fp32_attention_gains_most() -> None:
    """989.4 against 67 TFLOP/s: at half of the way beyond 1 an eighth is left."""
    found = loop((FMHA, 1000))
    assert found.part() == pytest.approx(1 - 1 / (1 + 0.5 * (989.4 / 67 - 1)), abs=0.01)


def test_convolution_nets_keep_their_activations_small() -> None:
    found = loop((CONV, 600), (GELU, 400))
    assert found.part() == pytest.approx(0.6 * 0.55 + 0.4 * 0.35, abs=0.01)


def test_it_is_the_alternative_where_products_use_no_tensor_cores() -> None:
    found = loop((SGEMM, 1000), others="fp32-matmul")
    assert found.finding.alternative_to == "fp32-matmul"
    assert [one.rule for one in found.report.findings] == ["fp32-matmul", BF16]
    assert loop((TF32_GEMM, 1000), (SGEMM, 200), others="fp32-matmul").finding.alternative_to is None


@pytest.mark.parametrize(("us", "outcome"), [(95, "clean"), (105, "found")])
def test_the_threshold(us: float, outcome: str) -> None:
    assert loop((TF32_GEMM, us), (HALF_GEMM, 1000 - us)).outcome == outcome


def test_a_model_in_16_bit_is_left_alone() -> None:
    assert loop((HALF_GEMM, 800), (GELU, 200)).outcome == "clean"


def test_a_host_bound_step_gains_nothing() -> None:
    found = loop((TF32_GEMM, 40), host_us=100)
    assert found.outcome == "clean" or found.part() == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(("device", "bf16", "fp16"), [(V100, False, True), (T4, False, True), (A100, True, False)])
def test_each_gpu_gets_the_type_it_has(device: Device, bf16: bool, fp16: bool) -> None:
    assert (loop((SGEMM, 1000), device=device).outcome == "found") is bf16
    assert (loop((SGEMM, 1000), rule=FP16, device=device).outcome == "found") is fp16


def test_fp16_on_volta() -> None:
    found = loop((SGEMM, 1000), rule=FP16, device=V100)
    assert found.part() == pytest.approx(1 - 1 / (1 + 0.5 * (125 / 15.7 - 1)), abs=0.02)
    assert found.finding.fixes[0].id == "fp16-autocast" and "GradScaler" in found.finding.fixes[0].snippet


def test_unknown_gpus_are_not_judged() -> None:
    odd = loop((TF32_GEMM, 1000), device=replace(H200, name="NVIDIA Unheard-Of"))
    assert odd.outcome == "not-applicable" and "device table" in odd.reason
    assert judge(Workload().to_run(), BF16).outcome == "not-applicable"
    assert (
        loop((SGEMM, 1000), rule=FP16, device=replace(T4, name="NVIDIA GeForce GTX 1650", sm_count=14)).outcome
        == "not-applicable"
    )
