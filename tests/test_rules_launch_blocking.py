"""launch-blocking: must fire, must not fire, cannot judge."""

from __future__ import annotations

import pytest

from advisor.model import Finding, Report, Run
from advisor.rules.engine import analyze
from build.workload import Workload

RULE = "launch-blocking"


def loop(blocking: bool, kernels: int = 40, kernel_us: float = 100, env: dict[str, str] | None = None) -> Run:
    """Each step: 40 times 60 us of host work and a kernel of 100 us."""
    w = Workload(env=env)
    for _ in w.steps(5):
        for _ in range(kernels):
            with w.op("aten::mm", us=60):
                w.launch("gemm", gpu_us=kernel_us, blocking=blocking)
    return w.to_run()


def judged(run: Run) -> tuple[Report, Finding | None]:
    report = analyze(run, select=[RULE])
    assert [rule.id for rule in report.rules] == [RULE]
    return report, next(iter(report.findings), None)


def test_fires_and_promises_what_the_host_can_fill() -> None:
    report, finding = judged(loop(blocking=True))
    assert finding is not None and report.step_ns is not None and finding.saving is not None
    assert finding.title.startswith("100% of the launches wait")
    assert finding.facts["blocked_share"] == 1.0
    # 100 of every 165 us are spent waiting; afterwards host work of 60 us and kernels of 100 us overlap.
    assert finding.facts["wait_per_step_ns"] == pytest.approx(40 * 100_000, rel=0.05)
    assert 0.15 < finding.saving.expected_ns / report.step_ns < 0.45
    assert finding.saving.high_ns >= finding.saving.expected_ns
    assert finding.saving.basis == "replay" and finding.confidence == "high"
    assert [fix.id for fix in finding.fixes] == ["unset-variable"]
    assert finding.fingerprint.startswith(f"{RULE}:")


def test_what_an_ordinary_launch_costs_is_open() -> None:
    """Beside 10 us of Python a launch of 12 us rules the loop; afterwards it may be as fast as the fastest."""
    w = Workload(tool="nsys")
    for _ in w.steps(5):
        for _ in range(40):
            w.host(10)
            w.launch("gemm", gpu_us=3, us=12, blocking=True)
    report, finding = judged(w.to_run())
    assert finding is not None and report.step_ns is not None and finding.saving is not None
    assert finding.saving.high_ns > finding.saving.expected_ns + 40 * 3_000


def test_a_loop_whose_gpu_is_always_busy_gains_little() -> None:
    busy = judged(loop(blocking=True, kernel_us=2000))
    light = judged(loop(blocking=True, kernel_us=50))
    assert busy[1] is None or busy[1].saving.expected_ns < 0.05 * busy[0].step_ns
    assert light[1].saving.expected_ns > 0.2 * light[0].step_ns


@pytest.mark.parametrize("kernel_us", [2, 100])
def test_silent_when_launches_return_at_once(kernel_us: int) -> None:
    report, finding = judged(loop(blocking=False, kernel_us=kernel_us))
    assert finding is None
    assert report.rules[0].outcome == "clean"


def test_silent_where_single_calls_synchronise() -> None:
    w = Workload()
    for _ in w.steps(5):
        for _ in range(40):
            w.launch("gemm", gpu_us=100)
            w.sync()
    assert judged(w.to_run())[0].rules[0].outcome == "clean"


def test_the_variable_alone_is_reported_without_a_promise() -> None:
    for environment in ({"CUDA_LAUNCH_BLOCKING": "1"}, {"CUDA_LAUNCH_BLOCKING": " 1 "}):
        _, finding = judged(Run(environment=environment))
        assert finding is not None and finding.saving is None and finding.severity == "info"
    assert judged(Run(environment={"CUDA_LAUNCH_BLOCKING": "0"}))[0].rules[0].outcome == "clean"


def test_the_variable_against_launches_that_do_not_wait() -> None:
    _, finding = judged(loop(blocking=False, env={"CUDA_LAUNCH_BLOCKING": "1"}))
    assert finding is not None and finding.saving is None and finding.confidence == "low"


def test_cannot_judge_without_launches() -> None:
    for run in (Run(), loop(blocking=True, kernels=2)):
        report, finding = judged(run)
        assert finding is None
        assert report.rules[0].outcome == "not-applicable"
        assert report.rules[0].capture
