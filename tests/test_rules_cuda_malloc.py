"""cuda-malloc-in-step: allocations and releases of the driver in every step."""

from __future__ import annotations

import pytest

from advisor.derive.profiler_cost import LAUNCH
from build.judge import judge
from build.workload import Rank, Workload

RULE = "cuda-malloc-in-step"


def one_step(w: Rank, mallocs: int, malloc_us: float, frees: int, gpu_us: float = 500) -> None:
    """Python of 300 us and a kernel, twenty times; at the end the cache is emptied."""
    for _ in range(20):
        w.host(300)
        with w.op("aten::mm"):
            w.launch("gemm", gpu_us)
    with w.frame("train.py(41): empty_cache"):
        for _ in range(frees):
            w.call("cudaFree", 400)
        for _ in range(mallocs):
            w.call("cudaMalloc", malloc_us)


def loop(mallocs: int = 12, malloc_us: float = 400, frees: int = 12, count: int = 6, **how: object) -> Workload:
    w = Workload(**how)  # type: ignore[arg-type]
    for _ in w.steps(count):
        one_step(w, mallocs, malloc_us, frees)
    return w


def test_a_cache_that_is_emptied_every_step() -> None:
    """A33: every step ends with bursts of cudaFree and cudaMalloc; the releases wait until the GPU has nothing left."""
    found = judge(loop().to_run(), RULE)
    finding = found.finding
    assert finding.title.startswith("12 allocations and 12 releases of memory in every step take")
    assert (finding.facts["mallocs_per_step"], finding.facts["frees_per_step"]) == (12.0, 12.0)
    # The kernels begin after the first of twenty pauses of 306 us and outlast the others: so long the releases wait.
    step = found.report.step_ns
    assert step is not None
    overhead = 4_000 * LAUNCH
    waited = finding.facts["wait_ns"]
    assert waited == 20 * 500_000 - 19 * 306_000 + 1_000
    assert finding.facts["own_ns"] == pytest.approx(24 * 400_000 - waited - 24 * overhead, rel=0.03)
    # Without the calls host and GPU work side by side for 20 x 500 us.
    saved = found.part() * step
    assert saved == pytest.approx(step - 10_000_000, rel=0.05)
    assert [fix.id for fix in finding.fixes] == ["no-empty-cache", "expandable-segments", "largest-first"]
    assert "(12.0 times)" in finding.fixes[0].snippet or "(12 times)" in finding.fixes[0].snippet
    assert [(place.file, place.function) for place in finding.locations] == [("train.py", "empty_cache")]
    columns = finding.evidence[0].columns
    rows = [dict(zip(columns, row, strict=True)) for row in finding.evidence[0].rows]
    assert {row["call"]: row["calls"] for row in rows} == {"cudaMalloc": 60, "cudaFree": 60}
    assert sum(row["total_ns"] for row in rows) == 5 * 24 * 400_000


def test_nsys_sees_the_same() -> None:
    torch, nsys = (judge(loop(tool=tool).to_run(), RULE).part() for tool in ("torch", "nsys"))
    assert torch == pytest.approx(nsys, abs=0.02)


@pytest.mark.parametrize(
    ("malloc_us", "outcome", "reason"),
    [(30, "clean", ""), (45, "clean", "seen, but worth at most 0.7% of the step"), (90, "found", "")],
)
def test_the_share_of_the_step(malloc_us: float, outcome: str, reason: str) -> None:
    """One call in a host-bound step of 6 ms: half a percent is judged, one percent is told."""
    w = Workload()
    for _ in w.steps(6):
        one_step(w, 1, malloc_us, 0, gpu_us=100)
    found = judge(w.to_run(), RULE)
    assert (found.outcome, found.reason) == (outcome, reason)


def test_the_first_step_fills_the_cache() -> None:
    w = Workload()
    for number in w.steps(6):
        one_step(w, 0 if number else 200, 400, 0)
    found = judge(w.to_run(), RULE)
    assert (found.outcome, found.reason) == ("clean", "")


def test_pinned_memory_of_a_loader_thread_is_not_meant() -> None:
    w = Workload()
    for _ in w.steps(6):
        with w.thread(77, aside=True):
            w.call("cudaHostAlloc", 3000)
        one_step(w, 0, 0, 0)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_stream_ordered_allocations_that_cost_nothing() -> None:
    w = Workload()
    for _ in w.steps(6):
        one_step(w, 0, 0, 0)
        for _ in range(10):
            w.call("cudaMallocAsync", 3)
            w.call("cudaFreeAsync", 3)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_a_gpu_that_never_runs_dry_gains_little() -> None:
    """Allocations alone do not wait: under a long queue they cost nothing."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(20):
            w.launch("gemm", 2000)
        for _ in range(6):
            w.call("cudaMalloc", 200)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "clean" or found.part() < 0.01


def test_all_ranks_are_freed_of_them() -> None:
    w = Workload(ranks=2)
    for _ in range(5):
        steps = [rank.step() for rank in w.ranks]
        for step in steps:
            step.__enter__()
        for rank in w.ranks:
            one_step(rank, 12, 400, 12)
        w.collective(gpu_us=100)
        for rank in w.ranks:
            rank.sync("device")
        for step in reversed(steps):
            step.__exit__(None, None, None)
    found = judge(w.to_run(), RULE)
    assert found.part() > 0.3


def test_cannot_judge_without_steps_or_calls() -> None:
    w = Workload(closing_sync=False)
    one_step(w, 5, 100, 5)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "start-up" in found.reason
    w = loop(closing_sync=False)
    del w.rows["runtime_calls"]
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "runtime calls" in found.reason
