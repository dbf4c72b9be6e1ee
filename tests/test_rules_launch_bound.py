"""launch-bound: idle because the host issues too slowly, judged without what the profiler added."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.workload import T4, V100, Workload

RULE = "launch-bound"


def loop(kernels: int = 400, gpu_us: float = 4, host_us: float = 30, *, tool: str = "torch", steps: int = 5, **kind) -> Workload:
    """Each step: operators of `host_us` with one kernel each."""
    w = Workload(tool=tool, **kind)
    for _ in w.steps(steps):
        for _ in range(kernels):
            with w.op("aten::add", us=host_us - 4):
                w.launch("elementwise", gpu_us=gpu_us)
    return w


def test_over_a_thousand_launches_for_a_few_milliseconds_of_work() -> None:
    """1,185 kernels of 7.3 ms in a frame of 53.7 ms: measured with graphs, 12.0 ms."""
    found = judge(loop(1185, 7300 / 1185, 53_700 / 1185).to_run(), RULE)
    assert 0.70 < found.part() < 0.86 and found.part("high") < 0.88
    assert found.part("high") >= 1 - 12.0 / 53.7
    assert found.finding.facts["launches_per_step"] == 1185
    assert found.finding.facts["median_kernel_ns"] == pytest.approx(6160, abs=10)
    assert found.finding.confidence == "medium"
    parts = {row[0]: row[1] for row in found.finding.evidence[0].rows}
    assert parts["GPU work"] == pytest.approx(7.3e6, rel=0.2)
    assert found.finding.evidence[1].rows[0][:2] == ["aten::add", 1185]


def test_a_read_back_beside_it_changes_nothing() -> None:
    w = Workload()
    for _ in w.steps(5):
        for _ in range(1185):
            with w.op("aten::add", us=41):
                w.launch("elementwise", gpu_us=6)
        w.item()
    report = judge(w.to_run(), RULE, "host-sync-in-step").report
    assert [finding.rule for finding in report.findings] == [RULE]


def test_nsys_sees_the_same_loop() -> None:
    # Without operators nothing is deducted for a profiler: only the launch calls differ.
    torch, nsys = (judge(loop(tool=tool).to_run(), RULE).part() for tool in ("torch", "nsys"))
    assert torch == pytest.approx(nsys, abs=0.03)


def test_quiet_where_kernels_keep_the_host_busy() -> None:
    assert judge(loop(gpu_us=40).to_run(), RULE).outcome == "clean"
    assert judge(loop(gpu_us=27.0, host_us=30, tool="nsys").to_run(), RULE).outcome == "clean"


def test_quiet_just_below_the_least_idle_share() -> None:
    """Small kernels, and one large one that leaves the host 8 or 20 % ahead of the GPU."""

    def mixed(large_us: float) -> Workload:
        w = Workload(tool="nsys")
        for _ in w.steps(5):
            w.launch("gemm", gpu_us=large_us)
            for _ in range(400):
                w.host(26)
                w.launch("elementwise", gpu_us=4)
        return w

    assert judge(mixed(9_500).to_run(), RULE).outcome == "clean"
    assert judge(mixed(8_000).to_run(), RULE).outcome == "found"


def test_other_pauses_are_not_launching() -> None:
    w = Workload(tool="nsys")
    for _ in w.steps(5):
        w.host(20_000)
        for _ in range(100):
            w.host(2)
            w.launch("elementwise", gpu_us=6)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_loading_is_not_launching() -> None:
    w = Workload()
    for _ in w.steps(5):
        w.loader(20_000)
        for _ in range(100):
            w.launch("elementwise", gpu_us=6)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_compiled_code_with_stacks_is_not_judged() -> None:
    w = Workload()
    for _ in w.steps(4):
        with w.op("Torch-Compiled Region: 0/0"):
            for _ in range(1000):
                with w.frame("a.py(1): f"), w.frame("a.py(2): g"), w.frame("a.py(3): h"), w.frame("a.py(4): i"):
                    w.host(20)
                w.launch("triton_poi_fused_0", gpu_us=3)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "stacks" in found.reason


def test_what_graphs_leave_is_told_with_low_confidence() -> None:
    w = Workload()
    for _ in w.steps(5):
        w.graph([("elementwise", 2.0)] * 50)
        for _ in range(200):
            with w.op("aten::add", us=26):
                w.launch("elementwise", gpu_us=4)
    found = judge(w.to_run(), RULE)
    assert found.finding.confidence == "low"
    assert any("CUDA graphs are in use already" in text for text in found.finding.caveats)


def test_compiling_comes_first_only_where_its_code_generator_works() -> None:
    def fixes(**kind) -> list[str]:
        return [fix.id for fix in judge(loop(**kind).to_run(), RULE).finding.fixes]

    assert fixes() == ["compile", "cuda-graphs", "larger-batch"]
    assert fixes(device=V100) == fixes(device=T4) == ["cuda-graphs", "larger-batch", "compile"]
    from dataclasses import replace

    assert fixes(device=replace(V100, compute_capability=(6, 1))) == ["cuda-graphs", "larger-batch"]


def test_cannot_judge_without_cuda_calls() -> None:
    w = Workload(closing_sync=False)
    for _ in w.steps(3):
        w.row("kernels", start=w.now, end=w.now + 1000, device=0, stream=7, name="gemm")
        w.host(10)
    assert judge(w.to_run(), RULE).outcome == "not-applicable"
