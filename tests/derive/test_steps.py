"""What a step takes, and which steps are steady."""

from __future__ import annotations

import pytest

from advisor.derive.activity import step_windows
from advisor.derive.gpus import gpu_work
from advisor.derive.steps import Steps, StepTime, step_time, steps
from advisor.model import Options, Run
from build.workload import Rank, Workload

LAUNCH = 4_000


def kernels(rank: Rank, count: int, gpu_us: float, host_us: float = 0) -> None:
    for _ in range(count):
        rank.host(host_us)
        rank.launch("gemm", gpu_us)


def taken(run: Run) -> StepTime:
    found = step_time(run)
    assert found is not None
    return found


def lengths(found: Steps) -> list[int]:
    return (found.end - found.start).tolist()


def test_a_host_bound_step_lasts_from_start_to_start() -> None:
    w = Workload()
    for _ in w.steps(5):
        kernels(w, 10, gpu_us=5, host_us=100)
        w.host(250)
    run = w.to_run()
    found = steps(run)
    step = 10 * (100_000 + LAUNCH) + 250_000
    assert lengths(found) == [step] * 5
    assert found.gpu_period.tolist() == [-1] + [step] * 4
    assert found.steady.tolist() == [False] + [True] * 4
    assert (taken(run).step_ns, taken(run).count, taken(run).mean_used) == (step, 4, False)
    assert (taken(run).p10_ns, taken(run).p90_ns) == (step, step)


def test_the_host_runs_ahead_of_a_gpu_bound_step() -> None:
    """Host ranges last 40 us, the GPU works 2 ms a step: that is what a step takes."""
    w = Workload()
    for _ in w.steps(6):
        kernels(w, 10, gpu_us=200)
    run = w.to_run()
    found = steps(run)
    assert lengths(found) == [10 * LAUNCH] * 6
    assert found.gpu_period.tolist() == [-1] + [2_000_000] * 5
    assert taken(run).step_ns == 2_000_000
    work = gpu_work(run)
    start, end = step_windows(run, work.gpus[0])
    assert (end - start).tolist() == [2_000_000] * 5 and end.max() == work.end.max()


def test_the_launch_decides_to_which_step_work_belongs() -> None:
    """All kernels run long after their step's range has closed."""
    w = Workload()
    for number in w.steps(4):
        w.launch("gemm", 100, start_us=10_000 + 500 * number)
        w.host(40)
    found = steps(w.to_run())
    assert found.gpu_end.tolist() == [10_100_000, 10_600_000, 11_100_000, 11_600_000]
    assert found.gpu_period.tolist() == [-1, 500_000, 500_000, 500_000]


def test_the_closing_wait_of_the_profiler_is_in_no_step() -> None:
    w = Workload()
    for _ in w.steps(4):
        kernels(w, 10, gpu_us=200)
    open_end = w.now
    run = w.to_run()
    assert w.now > open_end + 5_000_000  # the closing wait is in the recording
    found = steps(run)
    assert found.end.max() == open_end
    assert taken(run).step_ns == 2_000_000


def test_a_single_step() -> None:
    w = Workload()
    for _ in w.steps(1):
        kernels(w, 10, gpu_us=50, host_us=100)
    run = w.to_run()
    found = steps(run)
    assert len(found) == 1 and found.steady.tolist() == [True] and found.gpu_period.tolist() == [-1]
    assert (taken(run).count, taken(run).step_ns) == (1, 10 * (100_000 + LAUNCH))


def test_a_slow_first_step_does_not_count() -> None:
    w = Workload()
    for number in w.steps(4):
        if number == 0:
            w.host(80_000)
        kernels(w, 10, gpu_us=5, host_us=100)
    run = w.to_run()
    assert taken(run).step_ns == 10 * (100_000 + LAUNCH) and taken(run).mean_ns == taken(run).median_ns


def test_steps_without_gpu_work_have_no_gpu_side() -> None:
    w = Workload()
    for number in w.steps(5):
        w.host(1000)
        if number != 2:
            kernels(w, 1, gpu_us=5)
    found = steps(w.to_run())
    assert found.gpu_end[2] == 0
    assert found.gpu_period.tolist() == [-1, 1_004_000, -1, -1, 1_004_000]
    assert found.time().tolist() == lengths(found)


# A:B


def growing() -> Workload:
    """Step n has kernels of n ms in all."""
    w = Workload()
    for number in w.steps(8):
        kernels(w, 10, gpu_us=100 * number)
    return w


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [((3, 6), [3, 4, 5]), ((None, 3), [0, 1, 2]), ((6, None), [6, 7]), ((None, None), list(range(8))), ((-2, None), [6, 7])],
)
def test_the_chosen_steps_are_those_at_the_positions(chosen: tuple[int | None, int | None], expected: list[int]) -> None:
    run = growing().to_run()
    run.options = Options(steps=chosen)
    assert steps(run).number.tolist() == expected


def test_the_first_chosen_step_has_a_step_before_it_and_counts() -> None:
    run = growing().to_run()
    run.options = Options(steps=(4, 5))
    found = steps(run)
    assert (found.number.tolist(), found.steady.tolist()) == ([4], [True])
    assert found.gpu_period.tolist() == [4_000_000]
    assert taken(run).step_ns == 4_000_000
    run = growing().to_run()
    run.options = Options(steps=(3, 6))
    assert taken(run).count == 3 and taken(run).median_ns == 4_000_000


def test_a_choice_of_nothing_leaves_no_steps() -> None:
    run = growing().to_run()
    run.options = Options(steps=(20, 30))
    assert len(steps(run)) == 0 and step_time(run) is None


# What the profiler disturbed


def test_a_hitch_of_the_profiler_leaves_the_step_out() -> None:
    w = Workload()
    for number in w.steps(6):
        kernels(w, 10, gpu_us=50, host_us=100)
        if number == 3:
            w.overhead("Command Buffer Full", 4000)
    run = w.to_run()
    found = steps(run)
    assert found.hitch.tolist() == [False, False, False, True, True, False]
    # Nothing was launched after the pause: what it delays on the GPU is the end of the next step's work.
    assert found.steady.tolist() == [False, True, True, False, False, True]
    assert taken(run).step_ns == 10 * (100_000 + LAUNCH)


def test_a_hitch_while_the_gpu_stays_busy_is_harmless() -> None:
    w = Workload()
    for number in w.steps(6):
        kernels(w, 10, gpu_us=2000)
        if number == 3:
            w.overhead("Buffer Flush", 8000)
    found = steps(w.to_run())
    assert not found.hitch.any() and found.gpu_period[1:].tolist() == [20_000_000] * 5


@pytest.mark.parametrize(("share", "hit"), [(0.15, False), (0.3, True)])
def test_only_a_hitch_of_a_fifth_of_a_step_counts(share: float, hit: bool) -> None:
    w = Workload()
    for number in w.steps(6):
        kernels(w, 10, gpu_us=1, host_us=100)
        if number == 3:
            w.overhead("Activity Buffer Request", share * 10 * 104)
    assert bool(steps(w.to_run()).hitch.any()) is hit


def test_other_overheads_are_no_hitch() -> None:
    w = Workload()
    for number in w.steps(6):
        kernels(w, 10, gpu_us=1, host_us=100)
        if number == 3:
            w.overhead("Lazy Function Loading", 5000)
    assert not steps(w.to_run()).hitch.any()


def test_a_hitch_on_one_rank_spoils_the_step_of_all() -> None:
    w = Workload(ranks=2)
    for number in range(6):
        for rank in w.ranks:
            with rank.step():
                kernels(rank, 10, gpu_us=50, host_us=100)
                if number == 2 and rank.number == 1:
                    rank.overhead("Command Buffer Full", 4000)
    found = steps(w.to_run())
    assert found.number[found.hitch].tolist() == [2, 3, 2, 3]
    assert set(found.rank[found.hitch].tolist()) == {0, 1}


def test_a_number_that_comes_back_does_not_spread_a_hitch() -> None:
    """Two epochs count their batches from 0."""
    w = Workload(tool="nsys")
    for epoch in range(2):
        for number in range(4):
            with w.range(f"batch {number}", nvtx=True):
                kernels(w, 10, gpu_us=50, host_us=100)
                if epoch == 0 and number == 2:
                    w.overhead("Command Buffer Full", 4000)
    found = steps(w.to_run())
    assert found.hitch.tolist() == [False, False, True, True, False, False, False, False]


def test_steps_that_lost_records_are_left_out() -> None:
    w = Workload()
    for number in w.steps(6):
        kernels(w, 20, gpu_us=50, host_us=100)
        if number == 4:
            del w.rows["kernels"][-5:]
    run = w.to_run()
    found = steps(run)
    assert found.incomplete.tolist() == [False] * 4 + [True, False]
    assert found.steady.tolist() == [False, True, True, True, False, True]
    # The one after has nothing to be measured from.
    assert found.gpu_period[5] == -1


def test_a_lost_record_in_twenty_is_no_loss() -> None:
    w = Workload()
    for number in w.steps(6):
        kernels(w, 20, gpu_us=50, host_us=100)
        if number == 4:
            del w.rows["kernels"][-1:]
    assert not steps(w.to_run()).incomplete.any()


def test_where_no_step_is_whole_all_are_used() -> None:
    w = Workload()
    for _ in w.steps(3):
        kernels(w, 10, gpu_us=5, host_us=100)
        w.overhead("Command Buffer Full", 4000)
    found = steps(w.to_run())
    assert found.hitch.all() and found.steady.all()


# Stalls


def stalled(every: int, count: int = 13) -> Run:
    w = Workload()
    for number in w.steps(count):
        kernels(w, 10, gpu_us=5, host_us=100)
        if number % every == every - 1:
            w.host(9000)
    return w.to_run()


def test_periodic_stalls_count_as_far_as_they_cost() -> None:
    """Every fourth step writes a checkpoint of 9 ms: the median does not see what the mean does."""
    found = taken(stalled(4))
    usual = 10 * (100_000 + LAUNCH)
    assert found.median_ns == usual and found.mean_used
    assert found.step_ns == found.mean_ns == usual + 3 * 9_000_000 // 12


def test_even_steps_keep_the_median() -> None:
    found = taken(stalled(100))
    assert not found.mean_used and found.step_ns == found.median_ns


# Ranks


def test_the_slowest_rank_sets_the_step() -> None:
    w = Workload(ranks=3)
    for rank, host_us in zip(w.ranks, (100, 300, 200), strict=True):
        for _ in range(4):
            with rank.step():
                kernels(rank, 10, gpu_us=5, host_us=host_us)
    found = taken(w.to_run())
    assert (found.rank, found.process) == (1, 1001)
    assert found.step_ns == 10 * (300_000 + LAUNCH)


def test_ranks_with_different_numbers_of_steps() -> None:
    w = Workload(ranks=2)
    for rank, count in zip(w.ranks, (3, 7), strict=True):
        for _ in range(count):
            with rank.step():
                kernels(rank, 10, gpu_us=5, host_us=100 + 10 * rank.number)
    run = w.to_run()
    found = steps(run)
    assert [int(found.steady[found.of(*member)].sum()) for member in found.members] == [2, 6]
    assert (taken(run).rank, taken(run).count) == (1, 6)


def test_two_processes_without_ranks_are_two_members() -> None:
    w = Workload()
    other = Rank(-1, "torch", w.device, 100)
    other.process = other.current_thread = 2000
    for rank in (w, other):
        for _ in range(3):
            with rank.step():
                kernels(rank, 10, gpu_us=5, host_us=100)
    w.ranks.append(other)
    found = steps(w.to_run())
    assert found.members == [(-1, 1000), (-1, 2000)]
    assert [len(found.of(*member)) for member in found.members] == [3, 3]
