"""launch-blocking: must fire, must not fire, cannot judge."""

from __future__ import annotations

import pytest

from advisor.model import Finding, Report, Run
from advisor.rules.engine import analyze
from build.loop import MS, US, Loop

RULE = "launch-blocking"


def loop(blocking: bool, kernels: int = 40, steps: int = 5, kernel_ns: int = 100 * US) -> Loop:
    """Each step: 40 times 60 us of host work and a kernel of 100 us."""
    made = Loop(blocking=blocking)
    for _ in range(steps):
        with made.step():
            for _ in range(kernels):
                with made.op("aten::mm"):
                    made.host(60 * US)
                    made.kernel("gemm", kernel_ns)
    made.sync("cudaDeviceSynchronize")
    return made


def judged(run: Run) -> tuple[Report, Finding | None]:
    report = analyze(run, select=[RULE])
    assert [rule.id for rule in report.rules] == [RULE]
    return report, next(iter(report.findings), None)


def test_fires_and_promises_what_the_host_can_fill() -> None:
    report, finding = judged(loop(blocking=True).run())
    assert finding is not None and report.step_ns is not None and finding.saving is not None
    assert finding.title.startswith("100% of the launches wait")
    assert finding.facts["blocked_share"] == 1.0
    # 100 of every 165 us are spent waiting; afterwards host work of 60 us and kernels of 100 us overlap.
    assert finding.facts["wait_per_step_ns"] == pytest.approx(40 * 100 * US, rel=0.05)
    assert 0.15 < finding.saving.expected_ns / report.step_ns < 0.45
    assert finding.saving.high_ns >= finding.saving.expected_ns
    assert finding.saving.basis == "bound" and finding.confidence == "medium"
    assert [fix.id for fix in finding.fixes] == ["unset-variable"]
    assert finding.fingerprint.startswith(f"{RULE}:")


def test_a_loop_whose_gpu_is_always_busy_gains_little() -> None:
    busy = judged(loop(blocking=True, kernel_ns=2 * MS).run())
    light = judged(loop(blocking=True, kernel_ns=50 * US).run())
    assert busy[1] is None or busy[1].saving.expected_ns < 0.05 * busy[0].step_ns
    assert light[1].saving.expected_ns > 0.2 * light[0].step_ns


@pytest.mark.parametrize("kernel_ns", [2 * US, 100 * US])
def test_silent_when_launches_return_at_once(kernel_ns: int) -> None:
    report, finding = judged(loop(blocking=False, kernel_ns=kernel_ns).run())
    assert finding is None
    assert report.rules[0].outcome == "clean"


def test_silent_where_single_calls_synchronise() -> None:
    made = Loop()
    for _ in range(5):
        with made.step():
            for _ in range(40):
                made.kernel("gemm", 100 * US)
                made.sync()
    assert judged(made.run())[0].rules[0].outcome == "clean"


def test_the_variable_alone_is_reported_without_a_promise() -> None:
    for environment in ({"CUDA_LAUNCH_BLOCKING": "1"}, {"CUDA_LAUNCH_BLOCKING": " 1 "}):
        _, finding = judged(Run(environment=environment))
        assert finding is not None and finding.saving is None and finding.severity == "info"
    assert judged(Run(environment={"CUDA_LAUNCH_BLOCKING": "0"}))[0].rules[0].outcome == "clean"


def test_the_variable_against_launches_that_do_not_wait() -> None:
    _, finding = judged(loop(blocking=False).run(environment={"CUDA_LAUNCH_BLOCKING": "1"}))
    assert finding is not None and finding.saving is None and finding.confidence == "low"


def test_cannot_judge_without_launches() -> None:
    for run in (Run(), loop(blocking=True, kernels=2).run()):
        report, finding = judged(run)
        assert finding is None
        assert report.rules[0].outcome == "not-applicable"
        assert report.rules[0].capture
