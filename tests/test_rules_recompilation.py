"""recompilation: building that recurs, by what proves it or by pauses inside one operator."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from build.judge import judge
from build.workload import Workload

RULE = "recompilation"
ATTENTION = "aten::_cudnn_attention_forward"


def loop(
    builds: Collection[int] = range(8),
    build_us: float = 60_000,
    *,
    steps: int = 8,
    proof: bool = True,
    layers: int = 6,
    first: int = 20,
    shapes: bool = False,
    tool: str = "torch",
) -> Workload:
    """Each step: layers of attention; in `builds` the first layer builds a plan for a new shape. `first`: number of step 0."""
    w = Workload(tool=tool)
    w._ids["step"] = first
    for number in w.steps(steps):
        for layer in range(layers):
            size = [[8, 128 + (number if shapes else 0), 64]]
            with w.op(ATTENTION, us=30, shapes=size if shapes else None):
                if layer == 0 and number - first in builds:
                    if proof:
                        w.call("cudaGetDeviceProperties", 40)
                    w.host(build_us)
                w.launch("cudnn_attention", gpu_us=300)
            for _ in range(10):
                with w.op("aten::mm", us=30):
                    w.launch("gemm", gpu_us=100)
    return w


def test_plans_for_new_shapes_in_every_step() -> None:
    found = judge(loop(shapes=True).to_run(), RULE)
    assert found.finding.title == f"60 ms of each step on average go into building code or plans in {ATTENTION}"
    # 60 ms of building and 2 ms of issuing; the GPU's 7.8 ms remain.
    assert found.part() == pytest.approx((62 - 7.8) / 62, abs=0.04)
    assert found.finding.confidence == "medium"
    assert found.finding.facts["shapes"] == 8 and found.finding.facts["steps_with_builds"] == 8
    assert found.finding.evidence[0].rows[0][:2] == [20, ATTENTION]
    assert found.finding.fixes[0].id == "pad-shapes"


def test_without_a_call_that_proves_it_the_confidence_is_low() -> None:
    found = judge(loop(proof=False).to_run(), RULE)
    assert found.finding.confidence == "low"
    assert any("Only the length of the pauses" in text for text in found.finding.caveats)


def test_nsys_tells_by_the_calls_alone() -> None:
    assert judge(loop(tool="nsys").to_run(), RULE).part() == pytest.approx(judge(loop().to_run(), RULE).part(), abs=0.03)
    assert judge(loop(tool="nsys", proof=False).to_run(), RULE).outcome == "clean"


def test_an_operator_that_is_slow_each_time_builds_nothing() -> None:
    assert judge(loop(layers=1, proof=False).to_run(), RULE).outcome == "clean"


def test_once_is_warm_up() -> None:
    assert judge(loop([0]).to_run(), RULE).outcome == "clean"
    assert judge(loop([3]).to_run(), RULE).outcome == "clean"
    found = judge(loop([0, 1, 2], first=0).to_run(), RULE)
    assert found.finding.confidence == "low"
    assert any("warm-up" in text for text in found.finding.caveats)


def test_now_and_then_it_comes_on_top_of_the_step() -> None:
    found = judge(loop([5, 15], steps=20, build_us=30_000).to_run(), RULE)
    assert found.finding.saving.expected_ns == pytest.approx(2 * 30e6 / 19, rel=0.05)
    assert any("on top of it" in text for text in found.finding.caveats)


@pytest.mark.parametrize(("build_us", "outcome"), [(9_500, "clean"), (10_500, "found")])
def test_least_pause(build_us: float, outcome: str) -> None:
    assert judge(loop(build_us=build_us).to_run(), RULE).outcome == outcome


def test_compiler_spans_and_module_loads() -> None:
    for kind in ("compiler", "module"):
        w = Workload()
        for number in w.steps(10):
            if kind == "compiler" and number > 3:
                with w.op("compile_inner (dynamo_timed)"):
                    w.host(200_000)
            if kind == "module":
                w.call("cuModuleLoadData", 15_000)
            for _ in range(50):
                with w.op("aten::mm", us=30):
                    w.launch("gemm", gpu_us=100)
        found = judge(w.to_run(), RULE)
        assert found.finding.confidence == "medium"
        assert found.finding.facts["operators"] == [
            {"compiler": "compile_inner (dynamo_timed)", "module": "cuModuleLoadData"}[kind]
        ]
        assert found.part() > 0.6


def test_cannot_judge_one_step() -> None:
    assert judge(loop(steps=1).to_run(), RULE).outcome == "not-applicable"
