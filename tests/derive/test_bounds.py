"""The step seen from two sides: what it takes without the profiler, and what it takes when work vanishes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.derive.bounds import QUEUE_GAP_NS, STREAM_GAP_NS, TwoSided, all_sides, two_sided
from advisor.derive.profiler_cost import LAUNCH as LAUNCH_SHARE
from advisor.derive.profiler_cost import OPERATOR
from advisor.derive.steps import step_times
from advisor.model import Run
from build.any_run import runs
from build.workload import Rank, Workload
from derive.test_breakdown import ANY

LAUNCH = round(4_000 * (1 - LAUNCH_SHARE))  # a recorded launch call of 4 us, without the profiler


def judged(run: Run) -> TwoSided:
    found = two_sided(run)
    assert found is not None
    return found


def loop(work: Callable[[Rank], None], count: int = 6) -> TwoSided:
    w = Workload()
    for _ in w.steps(count):
        work(w)
    return judged(w.to_run())


def test_gpu_bound() -> None:
    def work(w: Rank) -> None:
        for _ in range(10):
            w.launch("gemm", 200, us=4)

    step = loop(work)
    assert step == TwoSided(-1, 1000, 2_000_000, 10 * LAUNCH, 2_000_000, 0, 2_000_000, 40_000)
    assert step.gpu_bound and step.profiler_share == 0
    assert step.after(gpu_ns=500_000) == 1_500_000 and step.after(host_ns=16_000) == 2_000_000


def test_host_bound() -> None:
    def work(w: Rank) -> None:
        for _ in range(10):
            w.host(100)
            w.launch("gemm", 5, us=4)

    step = loop(work)
    # Python keeps its 100 us; each gap of the GPU that a faster host would close is still one of the queue.
    host, gpu = 10 * (100_000 + LAUNCH), 10 * (5_000 + QUEUE_GAP_NS)
    assert step == TwoSided(-1, 1000, host, host, gpu, 0, 1_040_000, 1_040_000)
    assert not step.gpu_bound and step.profiler_share == pytest.approx(1 - host / 1_040_000)
    assert step.after(gpu_ns=gpu) == host
    assert step.after(host_ns=host) == gpu


def test_host_and_gpu_take_turns() -> None:
    """500 us of Python, a kernel of 300 us, a wait for it."""

    def work(w: Rank) -> None:
        w.host(500)
        w.launch("gemm", 300, us=4)
        w.sync()

    step = loop(work)
    # Of the wait's own 6 us the profiler took what it takes of a launch.
    host, gpu = 500_000 + LAUNCH + 6_000 - (4_000 - LAUNCH), 300_000 + QUEUE_GAP_NS
    assert (step.host_ns, step.gpu_ns, step.recorded_ns) == (host, gpu, 810_000)
    assert step.wait_ns == pytest.approx(300_000, abs=10)
    assert step.step_ns == host + step.wait_ns
    assert step.after(wait_ns=step.wait_ns) == host
    assert step.after(wait_ns=step.wait_ns, host_ns=400_000) == gpu


def test_short_gaps_are_the_queues_own() -> None:
    def work(w: Rank, gap: float) -> None:
        for _ in range(10):
            w.host(20 + gap - 4)
            w.launch("gemm", 20, us=4)

    below, above = STREAM_GAP_NS / 1000, STREAM_GAP_NS / 1000 + 0.1
    assert loop(lambda w: work(w, below)).gpu_ns == 10 * (20_000 + STREAM_GAP_NS)
    assert loop(lambda w: work(w, above)).gpu_ns == 10 * (20_000 + QUEUE_GAP_NS)


def test_copies_that_nothing_hides_are_gpu_work() -> None:
    def work(w: Rank) -> None:
        w.copy("HtoD", 1000, 400)
        w.launch("gemm", 300)
        w.host(2000)

    assert loop(work).gpu_ns == 700_000 + QUEUE_GAP_NS


def test_communication_counts_where_launched_compute_waits_for_it() -> None:
    """An all-reduce of 500 us; the kernel after it needs its result."""

    def work(w: Rank) -> None:
        w.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 500, us=4, stream=17)
        w.stream_wait(7, on=17)
        w.launch("gemm", 300, us=4)
        w.host(2000)

    step = loop(work)
    # The kernel was launched 10 us after the collective: from then on it was held up.
    assert step.gpu_ns == 300_000 + (500_000 + 1_000 - 2_000 - 4_000) + QUEUE_GAP_NS


def test_communication_is_hidden_where_the_host_is_late() -> None:
    def work(w: Rank) -> None:
        w.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 500, us=4, stream=17)
        w.host(700)
        w.launch("gemm", 300, us=4)
        w.host(2000)

    assert loop(work).gpu_ns == 300_000 + 2 * QUEUE_GAP_NS


def late_rank(late_us: float, cost_us: float = 300) -> Workload:
    """Two ranks with an all-reduce of 250 us at the end of each step; the host of rank 1 is late."""
    w = Workload(ranks=2, closing_sync=False)
    for _ in range(6):
        steps = [rank.step() for rank in w.ranks]
        for step in steps:
            step.__enter__()
        for rank in w.ranks:
            rank.host(cost_us)
            rank.launch("gemm", 100, us=4)
        w.ranks[1].host(late_us)
        w.collective(gpu_us=250)
        for rank in w.ranks:
            rank.sync("device")
        for step in reversed(steps):
            step.__exit__(None, None, None)
    return w


def test_waiting_for_a_peer_is_no_work_of_one_own() -> None:
    sides = {side.rank: side for side in all_sides(late_rank(900).to_run())}
    alone = judged(late_rank(0).to_run())
    waiting, late = sides[0], sides[1]
    assert waiting.recorded_ns == late.recorded_ns
    # Rank 0 has the work that it has without a late peer.
    assert waiting.step_ns == pytest.approx(alone.step_ns, rel=0.02)
    assert late.step_ns == pytest.approx(waiting.step_ns + 900_000, rel=0.02)
    assert judged(late_rank(900).to_run()).rank == 1


def test_each_rank_is_judged_by_its_own_steps() -> None:
    """Two processes that do not wait for each other: the fast one does not take turns with anything."""
    w = Workload(ranks=2, closing_sync=False)
    for rank, pause in zip(w.ranks, (100, 400), strict=True):
        for _ in range(6):
            with rank.step():
                for _ in range(10):
                    rank.host(pause)
                    rank.launch("gemm", 50, us=4)
    fast, slow = all_sides(w.to_run())
    assert (fast.recorded_ns, slow.recorded_ns) == (1_040_000, 4_040_000)
    assert (fast.wait_ns, slow.wait_ns) == (0, 0)
    assert (fast.step_ns, slow.step_ns) == (10 * (100_000 + LAUNCH), 10 * (400_000 + LAUNCH))


def test_the_profiler_stretches_the_host_not_the_waits() -> None:
    """Operators take half of the recorded host; afterwards host and GPU take turns in the same proportion."""

    def work(w: Rank) -> None:
        for _ in range(5):
            w.host(0.001)
            for _ in range(20):
                w.leaf("aten::view", 10)
            w.host(0.001)
            w.launch("gemm", 200, us=4)
            w.sync()

    step = loop(work)
    assert step.profiler_share > 0.1
    # 20 operators of 10 us, each longer than a launch of 4 us, lose what recording an operator may cost.
    assert step.host_ns == pytest.approx(5 * (200_000 - 20 * 4_000 * (1 - OPERATOR) + LAUNCH + 3_600), rel=0.01)
    assert step.wait_ns / min(step.host_ns, step.gpu_ns) == pytest.approx(1.0, abs=0.05)


def test_without_calls_the_recorded_step_stands() -> None:
    w = Workload(closing_sync=False)
    for _ in range(6):
        for name in ("a", "b", "c", "d"):
            w.launch(name, 100)
        w.host(1000)
    del w.rows["runtime_calls"]
    step = judged(w.to_run())
    assert step.step_ns == step.recorded_ns == step.host_ns == 1_016_000 and step.wait_ns == 0


def test_no_steps_no_sides() -> None:
    assert two_sided(Run()) is None and all_sides(Run()) == []
    w = Workload(closing_sync=False)
    for _ in w.steps(3):
        w.host(100)
    step = judged(w.to_run())
    assert (step.gpu_ns, step.step_ns) == (0, 100_000)


@ANY
@given(runs(), st.tuples(*[st.integers(0, 1_000_000)] * 6))
def test_the_step_is_never_above_the_recorded_one_and_only_falls(run: Run, gone: tuple[int, ...]) -> None:
    times = step_times(run)
    for side in all_sides(run):
        assert side.recorded_ns == times[side.rank, side.process].step_ns
        assert 0 <= side.step_ns <= side.recorded_ns
        assert min(side.host_ns, side.gpu_ns, side.wait_ns) >= 0
        assert side.after() == side.step_ns
        assert 0 <= side.profiler_share <= 1
        less = {"host_ns": gone[0], "gpu_ns": gone[1], "wait_ns": gone[2]}
        more = {name: value + extra for (name, value), extra in zip(less.items(), gone[3:], strict=True)}
        assert 0 <= side.after(**more) <= side.after(**less) <= side.step_ns
        assert side.step_ns - side.after(**less) <= sum(less.values())
