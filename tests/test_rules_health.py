"""The report's `limits`: what runs well, and how near the device's limits."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.model import Report
from advisor.report import render
from advisor.rules.engine import analyze
from build.workload import Workload

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SGEMM = "cutlass_80_simt_sgemm_128x256_8x4_nt_align1"
GELU = "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl>(int)"
BF16 = "c10::BFloat16"
FLOPS = 2 * 8192 * 1024 * 4096


def loop(*, gemm_us: float = 100.0, gelu_us: float = 35.0, host_us: float = 5.0, shapes: bool = True, name: str = GEMM) -> Report:
    w = Workload()
    product: dict[str, Any] = {"shapes": [[8192, 1024], [1024, 4096]], "types": [BF16, BF16]} if shapes else {}
    activation: dict[str, Any] = {"shapes": [[8192, 4096], []], "types": [BF16, ""]} if shapes else {}
    for _ in w.steps(5):
        for _ in range(10):
            with w.op("aten::mm", us=host_us, **product):
                w.launch(name, gemm_us)
            with w.op("aten::gelu", us=host_us, **activation):
                w.launch(GELU, gelu_us)
    return analyze(w.to_run(), select=["launch-bound"])


def limits(report: Report) -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in report.extra.get("limits", [])}


def test_a_healthy_step() -> None:
    found = limits(loop())
    assert list(found) == ["gpu-busy", "host-ahead", "model-flops-utilisation", "matrix-kernels", "streaming-kernels"]
    assert all(entry["good"] for entry in found.values())
    assert found["gpu-busy"]["share_frac"] > 0.98
    whole, kernels, streaming = (found[name] for name in ("model-flops-utilisation", "matrix-kernels", "streaming-kernels"))
    assert whole["limit"] == kernels["limit"] == pytest.approx(989.4e12)
    assert whole["share_frac"] == pytest.approx(FLOPS / 137e-6 / 989.4e12, abs=0.01)
    assert kernels["share_frac"] == pytest.approx(FLOPS / 100e-6 / 989.4e12, abs=0.001)
    assert streaming["value"] == pytest.approx(2 * 2 * 8192 * 4096 / 35e-6, rel=0.001) and streaming["unit"] == "bytes/s"


def test_slow_kernels_are_not_called_good() -> None:
    found = limits(loop(gemm_us=400, gelu_us=100))
    assert not any(found[name]["good"] for name in ("model-flops-utilisation", "matrix-kernels", "streaming-kernels"))


def test_the_peak_of_fp32_is_no_limit_of_a_gpu_with_tensor_cores() -> None:
    found = limits(loop(gemm_us=1200, name=SGEMM))
    assert found["matrix-kernels"]["share_frac"] > 0.8 and not found["matrix-kernels"]["good"]


def test_without_shapes_only_the_two_sides_are_known() -> None:
    assert list(limits(loop(shapes=False))) == ["gpu-busy", "host-ahead"]


def test_a_host_bound_step_says_nothing_of_a_busy_gpu() -> None:
    assert not {"gpu-busy", "host-ahead"} & set(limits(loop(host_us=400)))


def test_nothing_without_steps() -> None:
    assert "limits" not in analyze(Workload().to_run(), select=["launch-bound"]).extra


@pytest.mark.parametrize(("waited", "mentioned"), [(False, True), (True, False)])
def test_communication_is_mentioned_where_it_is_hidden(waited: bool, mentioned: bool) -> None:
    w = Workload(ranks=2)
    for _ in range(5):
        for rank in w.ranks:
            with rank.step():
                rank.launch(GEMM, 100)
        w.collective(gpu_us=500)
        for rank in w.ranks:
            if waited:
                rank.stream_wait(7, on=17)
            with rank.step():
                rank.launch(GEMM, 900)
                rank.sync("device")
    assert ("communication-hidden" in limits(analyze(w.to_run(), select=["launch-bound"]))) is mentioned


def test_all_formats_show_it() -> None:
    report = loop()
    text = render(report, "text", width=100)
    assert "Against the limits" in text and "good  The GPU has work for" in text and "MFU" in text
    assert "Against the limits of the GPU" in render(report, "markdown")
    assert '"limits"' in render(report, "json")
