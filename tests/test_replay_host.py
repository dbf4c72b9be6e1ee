"""How long the host takes in a replay: without the profiler, beside other ranks, at another time, and held by the GPU."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.derive.calls import CallKind
from advisor.derive.profiler_cost import LAUNCH, OPERATOR
from advisor.replay.build import MOST_UNLIKE, graphs
from advisor.replay.changes import GONE, Edit, amounts
from advisor.replay.engine import DRIFT, replay
from build.workload import Workload


def test_a_launch_that_costs_less_reaches_the_gpu_earlier() -> None:
    w = Workload(tool="nsys")
    for _ in w.steps(4):
        for _ in range(10):
            w.host(50)
            w.launch("kernel", gpu_us=5, us=20)
            w.sync()
    (graph,) = graphs(w.to_run())
    plain, real = amounts(graph, None), amounts(graph, 1.0)
    assert set((plain.latency - real.latency).tolist()) == {round(LAUNCH * 20_000)}


def test_launches_that_wait_for_work_of_an_earlier_step_take_no_host_time() -> None:
    """The queue is full of operations of steps that are not replayed: the launch's own cost stays that of any launch."""
    w = Workload(tool="nsys")
    with w.step():
        for _ in range(700):
            w.host(1)
            w.launch("kernel", gpu_us=100, us=5)
    for _ in range(2):
        with w.step():
            for number in range(200):
                w.host(1)
                w.launch("kernel", gpu_us=100, us=300 if number % 3 == 0 else 5)
    (graph,) = graphs(w.to_run())
    launches = graph.kind == CallKind.LAUNCH
    assert launches.sum() == 400
    assert set(graph.own[launches].tolist()) == {5_000}


@pytest.mark.parametrize(("slow_us", "speeds"), [(12, 1.2), (40, MOST_UNLIKE)])
def test_ranks_are_replayed_on_like_hosts(slow_us: float, speeds: float) -> None:
    """The launch call of one rank takes longer: recording slowed that host, or it is a slow one, beyond what recording does."""
    w = Workload(ranks=2)
    for _ in range(5):
        for rank, us in zip(w.ranks, (8.333, slow_us), strict=True):
            with rank.step():
                for _ in range(20):
                    rank.host(30)
                    rank.launch("kernel", gpu_us=5, us=us)
    fast, slow = graphs(w.to_run())
    assert (fast.speed, 1 / slow.speed) == pytest.approx((speeds, speeds), rel=0.01)
    assert amounts(slow, None).own.tolist() == slow.own.tolist()  # unchanged, it is what was recorded
    assert amounts(slow, 1.0).own.sum() == pytest.approx(slow.own.sum() * (1 - LAUNCH) * slow.speed, rel=0.01)


def test_one_rank_has_its_own_speed() -> None:
    w = Workload()
    for _ in w.steps(4):
        w.launch("kernel", gpu_us=5, us=30)
    assert [graph.speed for graph in graphs(w.to_run())] == [1.0]


def test_work_in_python_may_take_longer_at_another_time() -> None:
    """100 us of Python a kernel of 50 us: no profiler explains them, and without them the GPU rules."""
    w = Workload(tool="nsys")
    for _ in w.steps(5):
        for _ in range(20):
            w.host(100)
            w.launch("kernel", gpu_us=50, us=1)
    run = w.to_run()
    again = replay(run)
    assert again is not None
    calls = np.ones(len(run.table("runtime_calls")), bool)
    gain = again.gain([Edit(calls=calls, host=GONE)])
    left = 51 / 100.7
    assert gain.expected == pytest.approx(1 - left, abs=0.01)
    assert (gain.low, gain.high) == pytest.approx((1 - left * DRIFT, 1 - left / DRIFT), abs=0.01)


def test_operators_without_the_profiler_are_a_part_of_a_launch() -> None:
    w = Workload()
    for _ in w.steps(5):
        for _ in range(20):
            w.host(0.001)
            for _ in range(5):
                w.leaf("aten::view", 8)
            w.host(0.001)
            w.launch("kernel", gpu_us=1, us=8)
    again = replay(w.to_run())
    assert again is not None
    each = 5 * 8_000 * OPERATOR + 8_000 * (1 - LAUNCH)
    assert again.step_ns == pytest.approx(20 * each, rel=0.02)
