"""The steady step as a partition, whatever the run; and the parts of runs that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from advisor.derive.activity import CAUSES, activities, idle_causes, step_windows, window, within
from advisor.derive.breakdown import breakdown
from advisor.derive.gpus import gpu_work
from advisor.derive.intervals import complement, intersect, length, merge, subtract, union
from advisor.model import Breakdown, Run
from build.any_run import renamed, reranked, runs, scaled, shifted
from build.workload import Rank, Workload

ANY = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking a run takes minutes
)
PARTS = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")


def only(run: Run) -> Breakdown:
    found = breakdown(run)
    assert len(found) == 1
    return found[0]


@ANY
@given(runs())
def test_the_parts_are_the_step(run: Run) -> None:
    parts = breakdown(run)
    assert len(parts) == len(gpu_work(run).gpus)
    for part in parts:
        values = [getattr(part, name) for name in PARTS]
        assert sum(values) == part.step_ns
        assert min(*values, *part.idle_by_cause.values()) >= 0
        assert set(part.idle_by_cause) == set(CAUSES) and sum(part.idle_by_cause.values()) == part.idle_ns
        assert part.busy_ns == part.step_ns - part.idle_ns
        assert 0 <= part.exposed_communication_wait_ns <= part.exposed_communication_ns


@ANY
@given(runs())
def test_busy_is_the_union_of_all_work(run: Run) -> None:
    work = gpu_work(run)
    for index, activity in enumerate(activities(run)):
        mine = work.of(index)
        busy = union(work.start[mine], work.end[mine])
        assert [side.tolist() for side in activity.busy] == [side.tolist() for side in busy]
        assert length(merge(activity.compute, activity.communication, activity.copies)) == length(busy)
        assert length(subtract(activity.peer_wait, activity.communication)) == 0
        windows = step_windows(run, activity.gpu)
        steps, inside = len(windows[0]), length(intersect(busy, merge(windows)))
        # Each of the three parts of a step is rounded down.
        assert inside - 3 * steps <= breakdown(run)[index].busy_ns * steps <= inside or not steps
        low, high = window(run)
        whole = within(activity, low, high)
        assert whole["busy_ns"] <= whole["compute_ns"] + whole["exposed_communication_ns"] + whole["copy_ns"]
        assert max(whole["compute_ns"], whole["copy_ns"], whole["communication_ns"]) <= whole["busy_ns"] <= high - low


@ANY
@given(runs())
def test_causes_split_the_idle_time(run: Run) -> None:
    for activity in activities(run):
        windows = merge(step_windows(run, activity.gpu))
        if not len(windows[0]):
            continue
        causes = idle_causes(run, activity, windows)
        idle = intersect(complement(activity.busy, int(windows[0][0]), int(windows[1][-1])), windows)
        assert sum(length(cause) for cause in causes.values()) == length(idle)
        assert length(merge(*causes.values())) == length(idle)  # no moment has two


def told(run: Run) -> list[tuple[Any, ...]]:
    """The breakdown without the names of ranks."""
    return [
        (b.device, b.step_ns, *(getattr(b, name) for name in PARTS), b.exposed_communication_wait_ns, *b.idle_by_cause.values())
        for b in breakdown(run)
    ]


@ANY
@given(runs())
def test_neither_the_clocks_zero_nor_names_matter(run: Run) -> None:
    expected = told(run)
    assert told(shifted(run, 1_700_000_000_000_000_000)) == expected
    assert told(renamed(run)) == expected
    assert told(reranked(run)) == expected


@ANY
@given(runs())
def test_a_slower_run_has_longer_parts(run: Run) -> None:
    """Limits in ns decide about causes of idle time and about what is one collective; the rest scales."""
    for one, other in zip(breakdown(run), breakdown(scaled(run, 3)), strict=True):
        for name in ("step_ns", *PARTS):
            assert getattr(other, name) == pytest.approx(3 * getattr(one, name), abs=12)


# Known runs


def loop(work: Any, count: int = 6, **how: Any) -> Run:
    w = Workload(closing_sync=False, **how)
    for _ in w.steps(count):
        work(w)
    return w.to_run()


def test_compute_and_the_pause_of_the_host() -> None:
    def work(w: Rank) -> None:
        w.launch("gemm", 300, us=4)
        w.host(590)
        w.call("cudaEventRecord", 10)

    part = only(loop(work))
    # Per step 604 us: 300 us of kernel; the host was in no operator and no call for long.
    assert (part.step_ns, part.compute_ns, part.idle_ns, part.busy_ns) == (604_000, 300_000, 304_000, 300_000)
    # 10 us of the record, 4 us of launching the next one; 1 us until it starts, when the host is in Python again.
    assert part.idle_by_cause == {**dict.fromkeys(CAUSES, 0), "launch": 14_000, "python": 290_000}
    assert (part.rank, part.device) == (None, 0)


def test_copies_count_where_nothing_else_runs() -> None:
    def work(w: Rank) -> None:
        w.launch("gemm", 300, us=4)
        w.copy("HtoD", 1000, 500, stream=13)  # 300 us beside the kernel, less 5 us of its own launch
        w.host(900)

    part = only(loop(work))
    assert part.compute_ns == 300_000 and part.exposed_copy_ns == 500_000 - (300_000 - 5_000)


def test_a_copy_under_a_kernel_is_not_exposed() -> None:
    def work(w: Rank) -> None:
        w.launch("gemm", 300, us=4)
        w.copy("HtoD", 1000, 200, stream=13)
        w.host(900)

    part = only(loop(work))
    assert (part.compute_ns, part.exposed_copy_ns) == (300_000, 0)


def test_memsets_are_copies_and_whole_graphs_are_compute() -> None:
    def work(w: Rank) -> None:
        number = w.call("cudaGraphLaunch", 10)
        w.row("graph_executions", start=w.now + 1000, end=w.now + 401_000, device=0, stream=7, correlation=number, graph=3)
        w.host(500)
        w.memset(1 << 20, 50)
        w.host(500)

    part = only(loop(work))
    assert (part.compute_ns, part.exposed_copy_ns) == (400_000, 50_000)


def test_exposed_communication_is_split_at_the_last_arrival() -> None:
    """Rank 1 comes 400 us later to each all-reduce of 250 us; nothing else runs meanwhile."""
    w = Workload(ranks=2, closing_sync=False)
    for _ in range(6):
        steps = [rank.step() for rank in w.ranks]
        for step in steps:
            step.__enter__()
        for rank in w.ranks:
            rank.launch("gemm", 300, us=4)
            rank.host(350)
        w.ranks[1].host(400)
        w.collective(gpu_us=250)
        for rank in w.ranks:
            rank.sync("device")
        for step in reversed(steps):
            step.__exit__(None, None, None)
    first, second = breakdown(w.to_run())
    assert (first.rank, second.rank) == (0, 1)
    assert (first.exposed_communication_ns, first.exposed_communication_wait_ns) == (650_000, 400_000)
    assert (second.exposed_communication_ns, second.exposed_communication_wait_ns) == (250_000, 0)
    assert first.step_ns == second.step_ns
    assert second.idle_ns - first.idle_ns == 400_000


def test_communication_beside_compute_is_not_exposed() -> None:
    def work(w: Rank) -> None:
        w.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 200, us=4, stream=17)
        w.launch("gemm", 300, us=4)
        w.host(800)

    part = only(loop(work))
    # 3 us of the collective pass before the kernel starts (its launch).
    assert (part.compute_ns, part.exposed_communication_ns) == (300_000, 4_000)
    assert part.exposed_communication_wait_ns == 0


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_the_wait_and_the_refill_after_it_are_synchronisation(tool: str) -> None:
    """The queue is drained by the wait; the idle time until the next kernel is its work."""

    def work(w: Rank) -> None:
        w.launch("gemm", 300, us=4)
        w.sync("stream")
        w.host(200)

    part = only(loop(work, tool=tool))
    # After the wait: 5 us of waking up, 200 us of Python, 4 us of launch, 1 us until it runs.
    assert part.idle_by_cause == {**dict.fromkeys(CAUSES, 0), "host-sync": 210_000}


def test_loading_comes_before_all_other_causes() -> None:
    def work(w: Rank) -> None:
        w.loader(700)
        w.launch("gemm", 300, us=4)
        w.sync("stream")

    part = only(loop(work))
    assert part.idle_by_cause["dataloader"] == 700_000
    assert part.idle_by_cause["host-sync"] == 10_000


def test_a_loader_on_another_thread_is_no_cause() -> None:
    def work(w: Rank) -> None:
        with w.thread(4242, aside=True):
            w.call("cudaHostAlloc", 1)
            w.loader(700)
        w.launch("gemm", 300, us=4)
        w.host(700)

    part = only(loop(work))
    assert part.idle_by_cause["dataloader"] == 0 and part.idle_by_cause["python"] == pytest.approx(400_000, abs=5_000)


def test_memory_management() -> None:
    def work(w: Rank) -> None:
        w.launch("gemm", 100, us=4)
        w.host(150)
        w.call("cudaMalloc", 500)
        w.call("cudaFree", 200)

    part = only(loop(work))
    assert part.idle_by_cause["memory-management"] == 700_000
    assert part.idle_by_cause["host-sync"] == 0


def test_issuing_is_being_in_an_operator_or_a_call() -> None:
    def work(w: Rank) -> None:
        with w.op("aten::mm", us=800):
            w.launch("gemm", 100, us=4)
        w.host(300)

    part = only(loop(work))
    assert part.idle_by_cause == {**dict.fromkeys(CAUSES, 0), "launch": 804_000, "python": 200_000}


@pytest.mark.parametrize(("pause", "cause"), [(90, "launch"), (110, "python")])
def test_without_operators_a_short_pause_is_dispatching(pause: float, cause: str) -> None:
    def work(w: Rank) -> None:
        for _ in range(5):
            w.host(pause)
            w.launch("gemm", 10, us=4)
        w.call("cudaEventRecord", 2)

    part = only(loop(work, tool="nsys"))
    # In each pause a kernel runs for 10 us, in the first of a step for 9 us, since it follows the 2 us of a record.
    pauses = 1000 * (5 * pause - 4 * 10 - 9)
    assert part.idle_by_cause[cause] == pauses + (part.idle_ns - pauses if cause == "launch" else 0)
    assert part.idle_by_cause["launch"] + part.idle_by_cause["python"] == part.idle_ns


def test_where_the_host_was_not_recorded_nothing_is_known() -> None:
    w = Workload(closing_sync=False)
    for _ in range(6):
        for name in ("a", "b", "c", "d"):
            w.launch(name, 100)
        w.host(1000)
    del w.rows["runtime_calls"]
    part = only(w.to_run())
    assert part.idle_by_cause == {**dict.fromkeys(CAUSES, 0), "unexplained": part.idle_ns} and part.idle_ns > 500_000


def test_each_gpu_of_a_process_has_its_own() -> None:
    def work(w: Rank) -> None:
        w.launch("gemm", 100, us=4)
        w.launch("gemm", 300, us=4, device=1, stream=9)
        w.host(992)

    one, two = breakdown(loop(work))
    assert [(b.device, b.step_ns, b.compute_ns) for b in (one, two)] == [(0, 1_000_000, 100_000), (1, 1_000_000, 300_000)]


def test_windows_of_a_gpu_bound_loop_end_with_its_work() -> None:
    def work(w: Rank) -> None:
        for _ in range(10):
            w.launch("gemm", 200)

    run = loop(work)
    part = only(run)
    assert (part.step_ns, part.compute_ns, part.idle_ns) == (2_000_000, 2_000_000, 0)
    start, end = step_windows(run, gpu_work(run).gpus[0])
    assert np.array_equal(start[1:], end[:-1])


def test_nothing_recorded_nothing_told() -> None:
    assert breakdown(Run()) == [] and activities(Run()) == [] and window(Run()) == (0, 0)


def test_the_window_of_a_recording_without_gpu_work() -> None:
    w = Workload(closing_sync=False)
    w.host(50)
    with w.op("aten::mm", us=100):
        pass
    w.rows["runtime_calls"] = []
    assert window(w.to_run()) == (150_000, 250_000)
