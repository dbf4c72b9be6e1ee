"""The host side: segments, calls and waits of the threads that drive the GPU, and what the profiler added to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.derive.calls import CallKind
from advisor.derive.host import SUBMISSION_NS, HostSide, driving_threads, host_sides
from advisor.derive.nesting import thread_keys
from advisor.derive.profiler_cost import FLOOR, FRAME, FRAME_LIMIT, LAUNCH, OPERATOR
from advisor.model import Run
from build.workload import Workload


def side(w: Workload) -> HostSide:
    found = host_sides(w.to_run())
    assert len(found) == 1
    return next(iter(found.values()))


def quiet() -> Workload:
    return Workload(closing_sync=False)


def names(w: Workload, found: HostSide) -> list[str]:
    run = w.to_run()
    return [run.strings[int(code)] for code in run.table("runtime_calls")["name"][found.call]]


def test_segments_reach_from_call_to_call() -> None:
    w = quiet()
    w.launch("a", us=4)
    w.host(100)
    w.launch("b", us=6)
    w.host(40)
    w.call("cudaEventRecord", 2)
    found = side(w)
    assert found.kind.tolist() == [CallKind.LAUNCH, CallKind.LAUNCH, CallKind.EVENT]
    assert found.before.tolist() == [0, 100_000, 40_000]
    assert found.own.tolist() == [4_000, 6_000, 2_000] and not found.wait.any()
    assert found.between(int(found.start[1]), int(found.end[2])) == slice(1, 3)


def test_forward_and_autograd_thread_are_one() -> None:
    w = quiet()
    w.launch("forward", us=4)
    w.host(30)
    with w.backward():
        w.host(20)
        w.launch("backward", us=4)
    w.host(10)
    w.launch("optimizer", us=4)
    found = side(w)
    assert found.before.tolist() == [0, 50_000, 10_000]


def test_each_rank_has_its_own_side() -> None:
    w = Workload(ranks=2, closing_sync=False)
    for rank in w.ranks:
        rank.launch("a")
        rank.host(10 * (1 + rank.number))
        rank.launch("b")
    found = host_sides(w.to_run())
    assert {key: one.before.tolist() for key, one in found.items()} == {(0, 1000): [0, 10_000], (1, 1001): [0, 20_000]}


def test_threads_that_launch_nothing_are_left_out() -> None:
    w = quiet()
    w.launch("a")
    with w.thread(50, aside=True):
        w.call("cudaHostAlloc", 500)
        w.call("cudaEventSynchronize", 900)
    w.host(20)
    w.launch("b")
    run = w.to_run()
    assert names(w, side(w)) == ["cudaLaunchKernel", "cudaLaunchKernel"]
    assert driving_threads(run).tolist() == [int(thread_keys(run.table("runtime_calls"))[0])]


def test_a_thread_that_only_copies_counts_where_nobody_launches() -> None:
    w = quiet()
    w.launch("a")
    with w.thread(50, aside=True):
        w.copy("HtoD", 1000, 20, stream=13)
    w.host(50)
    w.launch("b")
    assert names(w, side(w)) == ["cudaLaunchKernel", "cudaLaunchKernel"]
    alone = quiet()
    alone.copy("HtoD", 1000, 20)
    alone.sync()
    assert names(alone, side(alone)) == ["cudaMemcpyAsync", "cudaStreamSynchronize"]


def test_calls_of_no_weight_are_left_out() -> None:
    w = quiet()
    w.launch("a")
    w.call("cudaGetLastError", 1)
    w.call("cudaStreamIsCapturing", 1)
    w.launch("b")
    found = side(w)
    assert found.before.tolist() == [0, 2_000]


def test_a_drivers_call_is_part_of_the_runtimes() -> None:
    w = quiet()
    w.launch("a", us=10)
    w.row("runtime_calls", name="cuLaunchKernel", start=w.now - 9_000, end=w.now - 1_000, correlation=900)
    w.row("runtime_calls", name="cuMemAlloc", start=w.now - 900, end=w.now, correlation=901)
    w.host(5)
    w.launch("b", us=10)
    found = side(w)
    assert names(w, found) == ["cudaLaunchKernel", "cudaLaunchKernel"]
    assert (found.before.tolist(), found.own.tolist()) == ([0, 5_000], [10_000, 10_000])


def test_calls_of_two_threads_at_once_count_each_moment_once() -> None:
    """A second thread launches while the first one waits for 500 us."""
    w = quiet()
    w.launch("a", 500, us=4)
    begin = w.now
    w.sync()
    end = w.now
    w.now = begin + 100_000
    with w.thread(60):
        w.launch("b", us=4, stream=9)
        w.host(500)
        w.launch("c", us=4, stream=9)
    found = side(w)
    assert names(w, found) == ["cudaLaunchKernel", "cudaStreamSynchronize", "cudaLaunchKernel", "cudaLaunchKernel"]
    assert (found.own + found.wait).tolist() == [4_000, end - begin, 0, 4_000]
    assert found.before.tolist() == [0, 0, 0, begin + 604_000 - end]
    total = int((found.before + found.own + found.wait).sum())
    assert total == int(found.end.max() - found.start.min())


@pytest.mark.parametrize("what", ["stream", "device", "event"])
def test_a_wait_is_the_time_in_which_the_gpu_works_on(what: str) -> None:
    w = quiet()
    w.launch("a", 100, us=4)
    w.sync(what)
    found = side(w)
    # The kernel begins 1 us after the launch; the thread wakes up 5 us after its end.
    assert (found.wait.tolist(), found.own.tolist()) == ([0, 100_000], [4_000, 6_000])


def test_a_wait_for_an_idle_gpu_is_work_of_its_own() -> None:
    w = quiet()
    w.launch("a", 10)
    w.host(50)
    w.sync("device", us=7)
    found = side(w)
    assert (found.wait[1], found.own[1]) == (0, 7_000)


@pytest.mark.parametrize(
    ("direction", "ends", "waits"),
    [
        ("HtoD", {"source": "pageable"}, True),
        ("DtoH", {"target": "pageable"}, True),
        ("HtoD", {"source": "pinned"}, False),
        ("DtoH", {"target": "pinned"}, False),
    ],
)
def test_copies_wait_where_memory_is_pageable(direction: str, ends: dict[str, str], waits: bool) -> None:
    w = quiet()
    w.launch("a", 40, us=4)
    w.copy(direction, 1 << 20, 300, us=5, **ends)  # type: ignore[arg-type]
    found = side(w)
    assert found.kind[1] == CallKind.COPY
    # From the call's beginning the kernel runs for 41 us (its first one is its launch's latency), then the copy.
    assert found.wait[1] == (340_000 if waits else 0)
    assert found.own[1] == (6_000 if waits else 5_000)


@pytest.mark.parametrize(
    ("name", "waits"),
    [("cudaFree", True), ("hipFree", True), ("cudaFreeAsync", False), ("cuMemFreeAsync", False), ("cudaMalloc", False)],
)
def test_a_release_waits_for_the_gpu(name: str, waits: bool) -> None:
    w = quiet()
    w.launch("a", 200, us=4)
    w.call(name, 150)
    found = side(w)
    assert found.wait[1] == (149_000 if waits else 0)
    assert found.own[1] == (1_000 if waits else 150_000)


def test_a_launch_waits_for_room_in_the_queue() -> None:
    w = quiet()
    for _ in range(20):
        w.launch("a", 100, us=4)
    w.launch("a", 100, us=500)
    w.launch("a", 100, us=30)  # longer than usual, but no wait
    found = side(w)
    assert found.wait.tolist() == [0] * 20 + [500_000, 0]
    assert found.own[20:].tolist() == [0, 30_000]
    assert not found.launches_block


def test_launches_that_block() -> None:
    w = quiet()
    for _ in range(10):
        w.launch("a", 100, us=4, blocking=True)
    found = side(w)
    assert found.launches_block
    assert found.wait.tolist() == [100_000] * 10
    assert found.own.tolist() == [10_000] * 10


def test_without_calls_there_is_no_side() -> None:
    assert host_sides(Run()) == {}
    w = quiet()
    w.launch("a")
    del w.rows["runtime_calls"]
    assert host_sides(w.to_run()) == {}


# What the profiler added


def test_an_operator_keeps_a_part_of_a_launch() -> None:
    w = quiet()
    w.launch("a", us=20)
    for _ in range(6):
        with w.op("outer", us=20), w.op("inner", us=9.999):
            pass
        w.host(0.001)
        w.launch("a", us=20)
    w.host(100)  # Python without operators keeps its length
    w.launch("a", us=20)
    found = side(w)
    assert found.events.tolist() == [0] + [2] * 6 + [0]
    assert (found.cost.operator_ns, found.cost.frame_ns, found.cost.launch_ns) == (15_000, 0, 20_000)
    each = 30_000 - 2 * (15_000 - OPERATOR * 20_000)
    assert found.deflated_before.tolist() == [0] + [each] * 6 + [100_000]


def test_what_takes_longer_than_a_launch_is_work() -> None:
    w = quiet()
    w.launch("a", us=4)
    for _ in range(6):
        w.host(0.001)
        w.leaf("aten::sort", 49.998)
        w.host(0.001)
        w.launch("a", us=4)
    found = side(w)
    assert found.cost.operator_ns == 4_000
    assert found.deflated_before[1:].tolist() == [round(50_000 - 4_000 * (1 - OPERATOR))] * 6


def test_the_median_is_over_operators_not_over_segments() -> None:
    w = quiet()
    w.launch("a", us=50)
    for count in (1, 1, 1, 8):
        w.host(0.001)
        for _ in range(count):
            w.leaf("leaf", 40 if count == 1 else 10)
        w.host(0.001)
        w.launch("a", us=50)
    assert side(w).cost.operator_ns == pytest.approx(10_000, rel=0.01)


def test_a_segment_with_many_operators_stops_at_the_floor() -> None:
    w = quiet()
    w.launch("a", us=40)
    for count in (2, 2, 2, 2, 2, 2, 2, 2, 2, 10):
        w.host(0.001)
        for _ in range(count):
            w.leaf("leaf", 79.998 / count)
        w.host(0.001)
        w.launch("a", us=40)
    found = side(w)
    assert found.cost.operator_ns == 40_000
    assert found.deflated_before[-1] == round(FLOOR * 80_000)


def test_frames_cost_what_their_segments_hold_beyond_operators() -> None:
    w = quiet()
    w.launch("a", us=10)
    for _ in range(4):
        w.host(0.001)
        with w.frame("train.py(3): step", us=3), w.frame("model.py(5): forward", us=2.998):
            pass
        w.host(0.001)
        w.launch("a", us=10)
    w.host(0.001)
    with w.frame("data.py(3): load", us=499.998):  # a frame that works is charged like any other
        pass
    w.host(0.001)
    w.launch("a", us=10)
    found = side(w)
    assert found.frames.tolist() == [0, 2, 2, 2, 2, 1]
    assert found.cost.frame_ns == 3_000
    assert found.deflated_before.tolist() == [0] + [round(6_000 - 2 * FRAME * 3_000)] * 4 + [round(500_000 - FRAME * 3_000)]


def test_a_frame_is_never_charged_with_more_than_a_share_of_a_launch() -> None:
    w = quiet()
    w.launch("a", us=10)
    w.host(0.001)
    with w.frame("data.py(3): load", us=499.998):
        pass
    w.host(0.001)
    w.launch("a", us=10)
    found = side(w)
    assert found.cost.frame_ns == FRAME_LIMIT * 10_000
    assert found.deflated_before[-1] == 500_000 - FRAME * FRAME_LIMIT * 10_000


def test_where_launches_block_only_the_part_before_the_kernel_is_the_launch() -> None:
    w = quiet()
    for _ in range(8):
        w.host(50)
        w.launch("a", 100, us=9, blocking=True)
    found = side(w)
    begun = int(w.rows["kernels"][0]["start"] - w.rows["runtime_calls"][0]["start"])
    assert found.launches_block
    assert found.cost.launch_ns == min(begun - SUBMISSION_NS, int(found.own[0]))


def test_recorded_calls_cost_what_a_launch_costs_more() -> None:
    w = quiet()
    for _ in range(5):
        w.launch("a", us=4)
    w.call("cudaMalloc", 20)
    w.call("cudaEventRecord", 3)
    found = side(w)
    overhead = 4_000 * LAUNCH
    assert found.deflated_own.tolist() == [round(4_000 - overhead)] * 5 + [round(20_000 - overhead), round(3_000 * (1 - LAUNCH))]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 30), st.integers(0, 8), st.booleans(), st.integers(1, 300)), max_size=30
    )
)
def test_what_remains_is_never_negative_nor_more_than_was_recorded(
    pieces: list[tuple[int, int, int, bool, int]],
) -> None:
    w = quiet()
    w.launch("a")
    for pause, ops, frames, sync, length in pieces:
        for _ in range(ops):
            w.leaf("leaf", 1)
        for _ in range(frames):
            with w.frame("a.py(1): f"):
                w.host(0.5)
        w.host(pause)
        if sync:
            w.sync()
        w.launch("a", gpu_us=length, us=length / 10)
    found = side(w)
    for recorded, deflated in ((found.before, found.deflated_before), (found.own, found.deflated_own)):
        assert (deflated >= 0).all() and (deflated <= recorded).all()
    assert (found.wait >= 0).all() and (found.wait + found.own == found.end - found.start).all()
    assert (found.deflated_before >= np.floor(FLOOR * found.before)).all()
