"""The replay reproduces what was recorded, and answers changes as the machine would."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.derive.calls import SYNCS, is_kind
from advisor.derive.gpus import gpu_work
from advisor.model import Run
from advisor.replay.build import graphs
from advisor.replay.changes import GONE, Edit, Factor, amounts
from advisor.replay.engine import Replay, replay
from advisor.replay.execute import step_ns
from build.workload import Workload


def loop(host_us: float = 20, gpu_us: float = 30, *, steps: int = 5, launches: int = 30, sync: bool = False) -> Run:
    w = Workload(tool="nsys")
    for _ in w.steps(steps):
        for _ in range(launches):
            w.host(host_us)
            w.launch("kernel", gpu_us=gpu_us, us=5)
        if sync:
            w.sync()
    return w.to_run()


def unchanged(run: Run) -> float:
    built = graphs(run)
    return step_ns(built, [amounts(graph, None) for graph in built])


@pytest.mark.parametrize(("host_us", "gpu_us"), [(20, 5), (5, 60), (20, 25)])
@pytest.mark.parametrize("sync", [False, True])
def test_unchanged_it_gives_the_recorded_step(host_us: float, gpu_us: float, sync: bool) -> None:
    run = loop(host_us, gpu_us, sync=sync)
    again = replay(run)
    assert again is not None
    assert again.error < 0.01
    assert again.usable


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 80), st.integers(1, 120), st.booleans()), min_size=4, max_size=25),
    st.integers(3, 5),
)
def test_unchanged_it_gives_any_regular_loop_back(parts: list[tuple[int, int, bool]], steps: int) -> None:
    w = Workload(tool="nsys")
    for _ in w.steps(steps):
        for host_us, gpu_us, sync in parts:
            w.host(host_us)
            w.launch("kernel", gpu_us=gpu_us)
            if sync:
                w.sync()
    again = replay(w.to_run())
    assert again is not None
    assert again.error < 0.02


def test_a_shorter_kernel_in_a_host_bound_step_saves_nothing() -> None:
    run = loop(host_us=40, gpu_us=10)
    again = replay(run)
    everything = np.ones(len(gpu_work(run)), bool)
    gain = again.gain([Edit(work=everything, gpu=Factor(0.5, 0.1, 0.0))])
    assert gain.expected < 0.01


def test_a_shorter_kernel_in_a_gpu_bound_step_saves_until_the_host_rules() -> None:
    run = loop(host_us=10, gpu_us=100)
    again = replay(run)
    everything = np.ones(len(gpu_work(run)), bool)
    assert again.gain([Edit(work=everything, gpu=Factor(0.5, 0.5, 0.5))]).expected == pytest.approx(0.5, abs=0.02)
    # Kernels of nothing: launches and segments of 12 to 15 us (of 101) are left.
    rest = 1 - again.gain([Edit(work=everything, gpu=GONE)]).expected
    assert 0.08 < rest < 0.16


def test_waits_are_worth_what_the_gpu_can_fill() -> None:
    """A device that is drained in every step: host and GPU take turns, and overlap without the wait."""
    run = loop(host_us=20, gpu_us=40, sync=True, launches=10)
    again = replay(run)
    gain = again.gain([Edit(calls=is_kind(run, *SYNCS), own=GONE, waits=False)])
    # With the wait: about 40 us until the first kernel starts, 10 kernels, the return. Without: 10 kernels.
    assert 0.03 < gain.expected < 0.15


def test_vanished_kernels_take_their_launches_along() -> None:
    run = loop(host_us=40, gpu_us=10, launches=20)
    work = gpu_work(run)
    half = np.arange(len(work)) % 2 == 0
    gain = replay(run).gain([Edit(work=half, vanish=True)])
    assert gain.expected == pytest.approx(0.5, abs=0.03)


def test_more_is_never_worse() -> None:
    run = loop(host_us=25, gpu_us=30)
    again, work = replay(run), gpu_work(run)
    shares = [again.gain([Edit(work=np.arange(len(work)) % 10 < n, gpu=Factor(0.2, 0.2, 0.2))]).expected for n in range(11)]
    assert shares == sorted(shares)
    assert shares[0] == 0.0 and shares[-1] < 1.0


def test_times_that_scale_scale_the_saving() -> None:
    gains = []
    for k in (1, 3):
        run = loop(host_us=10 * k, gpu_us=100 * k)
        everything = np.ones(len(gpu_work(run)), bool)
        gains.append(replay(run).gain([Edit(work=everything, gpu=Factor(0.5, 0.5, 0.5))]).expected)
    assert gains[0] == pytest.approx(gains[1], abs=0.02)


def test_ranks_wait_for_the_last_one() -> None:
    w = Workload(ranks=2, tool="nsys")
    for _ in range(5):
        marks = [rank.step() for rank in w.ranks]
        for mark in marks:
            mark.__enter__()
        for rank, gpu_us in zip(w.ranks, (100, 300), strict=True):
            for _ in range(5):
                rank.launch("kernel", gpu_us=gpu_us)
        w.collective(gpu_us=50)
        for mark in marks:
            mark.__exit__(None, None, None)
    run = w.to_run()
    again = replay(run)
    assert again is not None and len(again.graphs) == 2
    assert again.error < 0.05
    late = gpu_work(run).rank == 1
    # The late rank's kernels of 300 us become as long as the other's: 5 x 200 of 5 x 300 + 50 us go.
    gain = again.gain([Edit(work=late, gpu=Factor(1 / 3, 1 / 3, 1 / 3))])
    assert gain.expected == pytest.approx(1000 / 1550, abs=0.05)


def test_a_full_launch_queue_holds_the_host() -> None:
    run = loop(host_us=1, gpu_us=60, steps=4, launches=1500)
    assert replay(run).error < 0.02


def test_nothing_to_replay_without_steps_or_launches() -> None:
    assert replay(Run()) is None
    w = Workload(tool="nsys")
    w.launch("kernel", gpu_us=10)
    assert replay(w.to_run()) is None


def test_a_graph_of_a_hundred_thousand_nodes() -> None:
    run = loop(host_us=2, gpu_us=5, steps=4, launches=20_000)
    built = graphs(run)
    assert sum(graph.nodes for graph in built) > 100_000
    assert Replay(built).error < 0.02


def taking_turns(ranks: int = 2, steps: int = 9) -> Run:
    """In each step another rank has 4 ms of work, the others 2, and all wait for it in a collective of 0.3."""
    w = Workload(ranks=ranks, tool="nsys")
    for step in range(steps):
        marks = [rank.step() for rank in w.ranks]
        for mark in marks:
            mark.__enter__()
        for rank in w.ranks:
            rank.launch("kernel", gpu_us=4000 if step % ranks == rank.number else 2000, us=5)
            rank.stream_wait(17, on=7)
        w.collective("allreduce", 1 << 20, 300)
        for rank in w.ranks:
            rank.stream_wait(7, on=17)
            rank.launch("kernel", gpu_us=100, us=5)
        for mark in marks:
            mark.__exit__(None, None, None)
    return w.to_run()


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_are_late_in_turn_wait_for_each_other_in_every_step(ranks: int) -> None:
    """Alone, each rank would need 2.4 ms and a share of 2 more a step; together every step takes the longest."""
    again = replay(taking_turns(ranks))
    assert again is not None
    assert again.error < 0.01 and again.recorded_ns == pytest.approx(4.4e6, rel=0.01)


def test_ranks_that_issue_collectives_in_another_order_still_come_to_an_end() -> None:
    built = graphs(taking_turns())
    swapped = built[1].collective.copy()
    own = np.flatnonzero(swapped >= 0)
    swapped[own[:2]] = swapped[own[1::-1]]
    built[1] = dataclasses.replace(built[1], collective=swapped)
    assert step_ns(built, [amounts(graph, None) for graph in built]) > 2.3e6
