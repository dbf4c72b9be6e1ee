"""debug-setting-left-on: anomaly mode, deterministic filling, variables."""

from __future__ import annotations

import pytest

from advisor.model import Run
from build.judge import judge
from build.workload import Workload

RULE, SYNC = "debug-setting-left-on", "host-sync-in-step"
ENGINE = "autograd::engine::evaluate_function"


def backward(checked: float, functions: int = 10) -> Workload:
    """Each step: functions of the backward pass, a share of which is followed by a check for NaN that the host waits for."""
    w = Workload()
    for _ in w.steps(6):
        with w.backward():
            for number in range(functions):
                with w.op(f"{ENGINE}: MmBackward0", us=10):
                    with w.op("MmBackward0", us=5), w.op("aten::mm", us=20):
                        w.launch("gemm", gpu_us=200)
                    if number < checked * functions:
                        with w.op("aten::isnan", us=5), w.op("aten::ne", us=5):
                            w.launch("elementwise_ne", gpu_us=10)
                        with w.op("aten::_is_any_true", us=5), w.op("aten::any", us=5):
                            w.launch("reduce_any", gpu_us=10)
                        w.item()
                with w.op(f"{ENGINE}: torch::autograd::AccumulateGrad", us=5):
                    w.leaf("aten::detach")
    return w


def test_anomaly_mode() -> None:
    found = judge(backward(1.0).to_run(), RULE, SYNC)
    assert [finding.rule for finding in found.report.findings] == [RULE]
    finding = found.finding
    assert finding.facts["checks_per_step"] == 10
    assert finding.title == "Autograd's anomaly mode is on: 10 functions a step are checked for NaN, each with a wait"
    # 20 us of kernels, a copy and a wait of the host go, of which the 200 us of the product stay.
    assert 0.15 < found.part() < 0.4 and finding.saving is not None and finding.saving.basis == "replay"
    assert [fix.id for fix in finding.fixes] == ["anomaly-mode-off"]


@pytest.mark.parametrize(("share", "outcome"), [(0.4, "clean"), (0.5, "found")])
def test_a_check_here_and_there_is_the_programs_own(share: float, outcome: str) -> None:
    assert judge(backward(share).to_run(), RULE).outcome == outcome


def fills(filled: float, made: int = 10) -> Workload:
    w = Workload()
    for _ in w.steps(6):
        for number in range(made):
            with w.op("aten::empty", us=3):
                if number < filled * made:
                    with w.op("aten::fill_", us=3):
                        w.launch("vectorized_elementwise_kernel<FillFunctor>", gpu_us=40)
            with w.op("aten::mm", us=20):
                w.launch("gemm", gpu_us=200)
    return w


def test_deterministic_algorithms_fill_fresh_memory() -> None:
    found = judge(fills(1.0).to_run(), RULE)
    assert found.finding.facts["fills_per_step"] == 10
    assert found.part() == pytest.approx(40 / 240, abs=0.02)
    assert [fix.id for fix in found.finding.fixes] == ["fill-off", "deterministic-off"]


@pytest.mark.parametrize(("share", "outcome"), [(0.4, "clean"), (0.5, "found")])
def test_tensors_that_the_program_fills(share: float, outcome: str) -> None:
    assert judge(fills(share).to_run(), RULE).outcome == outcome


def test_a_fill_of_its_own_is_no_setting() -> None:
    w = Workload()
    for _ in w.steps(6):
        for _ in range(10):
            w.leaf("aten::empty", 3)
            with w.op("aten::fill_", us=3):
                w.launch("vectorized_elementwise_kernel<FillFunctor>", gpu_us=40)
    assert judge(w.to_run(), RULE).outcome == "clean"


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("NCCL_P2P_DISABLE", "1", "medium"),
        ("NCCL_IB_DISABLE", " true ", "medium"),
        ("NCCL_NVLS_ENABLE", "0", "info"),
        ("NCCL_DEBUG", "INFO", "info"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "high"),
        ("NVIDIA_TF32_OVERRIDE", "0", "medium"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8", "info"),
    ],
)
def test_variables_that_are_on(name: str, value: str, severity: str) -> None:
    finding = judge(Run(environment={name: value}, world_size=2), RULE).finding
    assert finding.severity == severity and finding.saving is None
    assert finding.title == f"Left on in the environment: {name}={value.strip()}"
    assert f"unset {name}" in finding.fixes[0].snippet


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "0"),
        ("NCCL_P2P_DISABLE", ""),
        ("NCCL_NVLS_ENABLE", "1"),
        ("NCCL_DEBUG", "WARN"),
        ("NVIDIA_TF32_OVERRIDE", "1"),
        ("OMP_NUM_THREADS", "1"),
        ("CUDA_LAUNCH_BLOCKING", "1"),
    ],
)
def test_variables_that_are_off_or_another_rules(name: str, value: str) -> None:
    assert judge(Run(environment={name: value}), RULE).outcome == "clean"


def test_nccl_does_not_matter_on_one_gpu() -> None:
    assert judge(Run(environment={"NCCL_P2P_DISABLE": "1"}, world_size=1), RULE).outcome == "clean"


def test_the_worst_variable_leads() -> None:
    environment = {"NCCL_DEBUG": "TRACE", "NCCL_SHM_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1", "NVIDIA_TF32_OVERRIDE": "0"}
    finding = judge(Run(environment=environment), RULE).finding
    assert finding.severity == "medium" and finding.title.endswith("and 1 more") and len(finding.evidence[0].rows) == 4


def test_cannot_judge_without_operators_or_environment() -> None:
    found = judge(Run(), RULE)
    assert found.outcome == "not-applicable" and next(one.capture for one in found.report.rules)
