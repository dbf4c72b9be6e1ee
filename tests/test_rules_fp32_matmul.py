"""fp32-matmul: FP32 products that tensor cores could take as TF32, where there are such tensor cores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model import Device
from build.judge import Verdict, judge
from build.workload import A100, H200, T4, V100, Workload

RULE = "fp32-matmul"
SGEMM = "ampere_sgemm_128x128_nn"
RTX_6000_ADA = replace(A100, name="NVIDIA RTX 6000 Ada Generation", compute_capability=(8, 9), sm_count=142)
RTX_4090 = replace(A100, name="NVIDIA GeForce RTX 4090", compute_capability=(8, 9), sm_count=128)


def loop(slow_us: float, other_us: float, *, name: str = SGEMM, device: Device = H200, host_us: float = 5) -> Verdict:
    """Each step: ten products of one name and ten kernels of something else."""
    w = Workload(device=device)
    for _ in w.steps(5):
        for _ in range(10):
            with w.op("aten::mm", us=host_us), w.frame("model.py(31): forward"):
                w.launch(name, slow_us / 10)
            with w.op("aten::gelu", us=host_us):
                w.launch("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int)", other_us / 10)
    return judge(w.to_run(), RULE)


def test_fp32_products_on_a_gpu_with_tf32() -> None:
    """H200: 67 TFLOP/s in FP32, 494.7 in TF32; 0.7 of the way beyond 1 leaves 1/5.5 of the time."""
    found = loop(8000, 2000)
    ratio = 494.7 / 67
    assert found.part() == pytest.approx(0.8 * (1 - 1 / (1 + 0.7 * (ratio - 1))), abs=0.01)
    finding = found.finding
    assert finding.title == "10 matrix products a step run in FP32 without tensor cores, 80% of the step"
    assert finding.facts["kernels_per_step"] == 10 and finding.confidence == "medium"
    assert finding.evidence[0].rows == [[SGEMM, 10.0, 8_000_000]]
    assert [(place.file, place.line) for place in finding.locations] == [("model.py", 31)]
    assert finding.fixes[0].id == "allow-tf32"
    assert {"allow-tf32", "bf16-autocast", "tf32-transformers", "tf32-lightning"} == {fix.id for fix in finding.fixes}


@pytest.mark.parametrize(
    "name",
    [
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(Params)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4",
        "ampere_scudnn_128x64_relu_interior_nn_v1",
    ],
)
def test_names_of_fp32_products(name: str) -> None:
    assert loop(8000, 2000, name=name).outcome == "found"


@pytest.mark.parametrize(
    "name",
    [
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "some_gemm_of_an_unknown_library",
    ],
)
def test_other_arithmetic_or_unknown_names_are_left_alone(name: str) -> None:
    assert loop(8000, 2000, name=name).outcome == "clean"


def test_a_bf16_model_gains_nothing_from_the_switch() -> None:
    """A few FP32 products of a router beside 16-bit ones, 2 % of the step: the switch would change nothing that counts."""
    w = Workload()
    for _ in w.steps(5):
        for _ in range(10):
            w.launch("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", 980)
            w.launch(SGEMM, 20)
    assert judge(w.to_run(), RULE).outcome == "clean"


@pytest.mark.parametrize(("slow_us", "outcome"), [(480, "clean"), (530, "found")])
def test_the_threshold(slow_us: float, outcome: str) -> None:
    assert loop(slow_us, 10_000 - slow_us).outcome == outcome


@pytest.mark.parametrize("device", [V100, T4])
def test_no_tf32_before_ampere(device: Device) -> None:
    found = loop(8000, 2000, device=device)
    assert found.outcome == "not-applicable" and "compute capability 8.0" in found.reason


def test_a_workstation_card_doubles() -> None:
    """ViT-L in FP32 on an RTX 6000 Ada: 47 images/s became 94 with TF32. Nearly all of its time was sgemm."""
    found = loop(9700, 300, device=RTX_6000_ADA)
    assert 0.35 < found.part() <= 0.5


def test_cards_whose_tensor_cores_are_no_faster_gain_nothing() -> None:
    assert loop(8000, 2000, device=RTX_4090).outcome == "clean"


def test_a_host_bound_step_gains_nothing() -> None:
    found = loop(800, 200, host_us=500)
    assert found.outcome == "clean" or found.part() == pytest.approx(0, abs=0.01)


def test_unknown_gpus_are_not_judged() -> None:
    nameless = loop(8000, 2000, device=Device(index=0))
    assert nameless.outcome == "not-applicable" and "unknown" in nameless.reason
    odd = loop(8000, 2000, device=replace(H200, name="NVIDIA Unheard-Of"))
    assert odd.outcome == "not-applicable" and "device table" in odd.reason
    assert judge(Workload().to_run(), RULE).outcome == "not-applicable"
