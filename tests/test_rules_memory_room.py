"""recompute-with-free-memory, memory-headroom, memory-growth."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.workload import Workload

AGAIN, ROOM, GROWTH = "recompute-with-free-memory", "memory-headroom", "memory-growth"
CARD = 150_109_880_320


def checkpointed(w: Workload, *, again_us: float = 300, recorded: bool = True, steps: int = 6) -> None:
    """Each step: 10 layers forward (300 us), and backward (600 us), before which their forward runs again."""
    for _ in w.steps(steps):
        for number in range(10):
            with w.op("aten::linear", us=20, sequence=number):
                w.launch("gemm", gpu_us=300)
        with w.backward():
            for number in range(10):
                name = "autograd::engine::evaluate_function: AddmmBackward0"
                with w.op(name, us=20, sequence=number), w.op("AddmmBackward0", us=5, sequence=number):
                    if again_us:
                        with w.op("aten::linear", us=10, sequence=100 + number if recorded else -1):
                            w.launch("gemm", gpu_us=again_us)
                    with w.op("aten::mm", us=10):
                        w.launch("gemm", gpu_us=600)


def with_memory(peak: int) -> Workload:
    w = Workload()
    w.alloc(peak)
    checkpointed(w)
    return w


def test_the_forward_pass_runs_again() -> None:
    w = Workload()
    checkpointed(w)
    found = judge(w.to_run(), AGAIN)
    assert found.part() == pytest.approx(300 / 1200, abs=0.02)
    assert found.finding.facts["recompute_gpu_ns"] == pytest.approx(3e6, rel=0.01)
    assert found.finding.facts["operations_per_step"] == 10
    assert found.finding.evidence[0].rows == [["aten::linear", 10.0, 3_000_000]]
    # Without memory data it may not be worth it: low confidence, and the peak under which it holds.
    assert found.finding.confidence == "low" and "150 GB" in found.finding.caveats[0] and "60%" in found.finding.caveats[0]


@pytest.mark.parametrize(("share", "outcome"), [(0.59, "found"), (0.61, "clean")])
def test_it_depends_on_the_memory_that_is_free(share: float, outcome: str) -> None:
    found = judge(with_memory(int(share * CARD)).to_run(), AGAIN)
    assert found.outcome == outcome
    if outcome == "found":
        assert found.finding.confidence == "medium" and not found.finding.caveats
        assert found.finding.title.endswith("62 GB of 150 GB memory stay free")


@pytest.mark.parametrize(("again_us", "recorded"), [(0, True), (300, False)])
def test_a_backward_pass_without_recorded_forward_operators(again_us: float, recorded: bool) -> None:
    """Operators that autograd does not record inside a derivative are the derivative."""
    w = Workload()
    checkpointed(w, again_us=again_us, recorded=recorded)
    assert judge(w.to_run(), AGAIN).outcome == "clean"


def test_recomputing_cheap_operators_is_a_good_trade() -> None:
    w = Workload()
    checkpointed(w, again_us=8)
    assert judge(w.to_run(), AGAIN).outcome == "clean"


def test_recomputation_cannot_be_seen_without_a_backward_pass() -> None:
    w = Workload()
    for _ in w.steps(4):
        with w.op("aten::mm"):
            w.launch("gemm", gpu_us=300)
    assert judge(w.to_run(), AGAIN).outcome == "not-applicable"


def sampled(used: list[float], *, utilization: float = 90, total: int = CARD) -> Workload:
    """nvidia-smi samples of a GPU, two a second, with these shares of its memory in use."""
    w = Workload(closing_sync=False)
    for share in used:
        w.sample(utilization=utilization, memory_used=int(share * total), memory_total=total)
        w.host(500_000)
    return w


@pytest.mark.parametrize(("peak", "outcome"), [(0.6, "found"), (0.61, "clean")])
def test_headroom_by_samples(peak: float, outcome: str) -> None:
    found = judge(sampled([0.3] * 9 + [peak]).to_run(), ROOM)
    assert found.outcome == outcome
    if outcome == "found":
        assert found.finding.saving is None and found.finding.severity == "info"
        assert found.finding.facts["used_frac"] == pytest.approx(0.6) and found.finding.facts["times"] == 1.5
        assert found.finding.title == "At its peak the run used 90 GB of 150 GB GPU memory (60%)"


def test_headroom_by_the_allocator() -> None:
    finding = judge(with_memory(CARD // 4).to_run(), ROOM).finding
    assert finding.facts["used_frac"] == pytest.approx(0.25) and finding.evidence[0].rows[0][-1] == "allocator"


def test_a_look_at_an_idle_gpu_says_nothing() -> None:
    assert judge(sampled([0.1] * 4).to_run(), ROOM).outcome == "not-applicable"
    assert judge(sampled([0.1] * 40, utilization=0).to_run(), ROOM).outcome == "not-applicable"


def leaking(bytes_each: int, steps: int = 24) -> Workload:
    w = Workload()
    w.alloc(1_000_000_000)
    for _ in w.steps(steps):
        w.host(10)
        w.alloc(50_000_000)
        w.launch("gemm", gpu_us=100)
        w.host(200)
        w.release(50_000_000 - bytes_each)
    return w


@pytest.mark.parametrize(
    ("each", "steps", "outcome"), [(2_000_000, 24, "found"), (50_000, 24, "clean"), (2_000_000, 19, "not-applicable")]
)
def test_memory_that_a_step_leaves_behind(each: int, steps: int, outcome: str) -> None:
    found = judge(leaking(each, steps).to_run(), GROWTH)
    assert found.outcome == outcome
    if outcome == "found":
        finding = found.finding
        assert finding.facts["growth_bytes"] == pytest.approx(each, rel=0.01)
        # 150 GB less 1 GB and 24 steps of 2 MB, by 2 MB a step.
        assert finding.facts["left"] == pytest.approx((CARD - 1_048_000_000) / each, rel=0.001)
        assert finding.severity == "medium" and finding.confidence == "medium" and finding.saving is None


def test_a_level_that_rises_and_falls_is_no_growth() -> None:
    w = Workload()
    for number in w.steps(24):
        w.alloc(10_000_000 if number % 2 else -9_000_000)
        w.launch("gemm", gpu_us=100)
        w.host(200)
    assert judge(w.to_run(), GROWTH).outcome == "clean"


def test_growth_by_samples() -> None:
    finding = judge(sampled([0.3 + 0.002 * i for i in range(100)]).to_run(), GROWTH).finding
    # 0.2 % of the card each half second; half of the card is left after the last sample.
    assert finding.facts["growth_bytes"] == pytest.approx(0.004 * CARD, rel=0.01) and finding.facts["per"] == "second"
    assert finding.facts["left"] == pytest.approx(125, abs=2)
    assert finding.severity == "high"


def test_a_level_that_stays_after_the_start_is_no_growth() -> None:
    assert judge(sampled([0.1 + 0.01 * min(i, 30) for i in range(100)]).to_run(), GROWTH).outcome == "clean"


def test_growth_cannot_be_judged_by_few_samples() -> None:
    assert judge(sampled([0.3 + 0.002 * i for i in range(60)]).to_run(), GROWTH).outcome == "not-applicable"
