"""Which ranges mark steps: names, nesting, threads, ranks, ranges that were never popped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from advisor.derive.marks import NAMED_STEP, NUMBERED_STEP, marked_steps
from advisor.derive.steps import steps
from advisor.model import Options, RangeKind, Run
from build.workload import Rank, Workload


def work(rank: Rank, us: float = 1000) -> None:
    """Some host work and a kernel that is as long."""
    rank.host(us)
    rank.launch("gemm", gpu_us=us)


@contextmanager
def labels(rank: Rank, *texts: str) -> Iterator[None]:
    """Ranges one inside the other, the first outermost."""
    with ExitStack() as stack:
        for text in texts:
            stack.enter_context(rank.range(text, nvtx=True))
        yield


def starts(run: Run) -> list[int]:
    return marked_steps(run).start.tolist()


@pytest.mark.parametrize(
    "label",
    ["step 7", "Step: 7", "iteration 7", "iter_7", "Iteration #7", "batch=7", "train_step: 7", "global step 7", "[step 7]"],
)
def test_numbered_labels(label: str) -> None:
    found = NUMBERED_STEP.match(label)
    assert found and found[1] == "7"


@pytest.mark.parametrize("label", ["train_step", "training step", "Iteration", "step", "train.batch", "batch"])
def test_named_labels(label: str) -> None:
    assert NAMED_STEP.match(label)


@pytest.mark.parametrize(
    "label",
    ["Optimizer.step#AdamW.step", "step7b", "substep 3", "batch_norm", "forward 3", "stepwise", "step 1 of 10", "val_step 3"],
)
def test_other_labels_are_no_steps(label: str) -> None:
    assert not NUMBERED_STEP.match(label) and not NAMED_STEP.match(label)


def test_profiler_steps_win_over_labels() -> None:
    w = Workload()
    begins = []
    for _ in range(4):
        with w.step(), w.range("iteration 5"):
            begins.append(w.now)
            work(w)
    found = marked_steps(w.to_run())
    assert found.source == "profiler-step"
    assert found.start.tolist() == begins
    assert found.number.tolist() == [0, 1, 2, 3]


def test_numbers_are_the_labels_own() -> None:
    w = Workload(tool="nsys")
    for number in (40, 41, 42):
        with labels(w, f"step {number}"):
            work(w)
    found = marked_steps(w.to_run())
    assert found.source == "nvtx" and found.number.tolist() == [40, 41, 42]


def test_named_steps_are_numbered_by_position() -> None:
    w = Workload(ranks=2, tool="nsys")
    for rank in w.ranks:
        for _ in range(3):
            with labels(rank, "train_step"):
                work(rank)
    found = marked_steps(w.to_run())
    assert sorted(zip(found.rank.tolist(), found.number.tolist(), strict=True)) == [(r, n) for r in (0, 1) for n in (0, 1, 2)]


def test_one_named_range_is_no_sequence_of_steps() -> None:
    w = Workload(tool="nsys")
    with labels(w, "train_step"):
        work(w)
    assert not len(marked_steps(w.to_run()))


def test_the_users_pattern_decides_alone() -> None:
    w = Workload()
    begins = []
    for number in range(3):
        with w.step():
            for half in range(2):
                begins.append(w.now)
                with w.range(f"microbatch {2 * number + half}"):
                    work(w)
    run = w.to_run()
    run.options = Options(step_pattern=r"^micro\w+ (\d+)")
    found = marked_steps(run)
    assert found.source == "user-pattern"
    assert found.start.tolist() == begins and found.number.tolist() == [0, 1, 2, 3, 4, 5]
    other = w.to_run()
    other.options = Options(step_pattern="nothing like it")
    assert not len(marked_steps(other))


def test_of_nested_labels_the_outermost_is_the_step() -> None:
    w = Workload(tool="nsys")
    begins = []
    for number in range(4):
        begins.append(w.now)
        with labels(w, f"step {number}"):
            for half in range(2):
                with labels(w, f"batch {2 * number + half}"):
                    work(w)
    run = w.to_run()
    assert starts(run) == begins
    assert steps(run).number.tolist() == [0, 1, 2, 3]


def test_a_label_that_is_nested_but_for_one_stays_inner() -> None:
    """A warm-up batch outside any step does not turn the batches inside steps into steps."""
    w = Workload(tool="nsys")
    with labels(w, "batch 0"):
        work(w)
    begins = []
    for number in range(4):
        begins.append(w.now)
        with labels(w, f"step {number}"), labels(w, f"batch {number + 1}"):
            work(w)
    assert starts(w.to_run()) == begins


def test_labels_side_by_side_do_not_halve_the_step() -> None:
    """An "iteration 3" is followed by "optimizer step 3": one of them marks the step, the longer one."""
    w = Workload(tool="nsys")
    begins = []
    for number in range(4):
        begins.append(w.now)
        with labels(w, f"iteration {number}"):
            work(w, 2000)
        with labels(w, f"optimizer step {number}"):
            work(w, 300)
    assert starts(w.to_run()) == begins


def test_ranges_that_were_never_popped() -> None:
    """range_push("step n") without a pop: each lies inside the one before, all end with the recording."""
    w = Workload(tool="nsys")
    begins = []
    for number in range(5):
        begins.append(w.now)
        w.row("ranges", name=f"step {number}", start=w.now, end=0, kind=int(RangeKind.PUSH_POP))
        w.row("ranges", name=f"batch {number}", start=w.now + 100, end=0, kind=int(RangeKind.PUSH_POP))
        work(w, 2000)
    w.host(50_000)
    for row in w.rows["ranges"]:
        row["end"] = w.now
    found = steps(w.to_run())
    assert found.start.tolist() == begins
    # The last one does not last to the end of the recording, but as long as the others.
    assert (found.end - found.start).tolist() == [2_004_000] * 5


def test_a_loader_thread_with_marks_of_its_own() -> None:
    w = Workload(tool="nsys")
    begins = []
    for number in range(4):
        with w.thread(77, aside=True), labels(w, f"batch {number}"):
            w.host(500)
        begins.append(w.now)
        with labels(w, f"step {number}"), labels(w, f"batch {number}"):
            work(w)
    assert starts(w.to_run()) == begins


def test_the_same_label_on_two_threads_counts_where_the_calls_are() -> None:
    w = Workload(tool="nsys")
    begins = []
    for number in range(4):
        with w.thread(5, aside=True):
            for half in range(3):
                with labels(w, f"batch {3 * number + half}"):
                    w.host(100)
        begins.append(w.now)
        with labels(w, f"batch {number}"):
            work(w)
    found = marked_steps(w.to_run())
    assert found.start.tolist() == begins and found.number.tolist() == [0, 1, 2, 3]


def test_without_calls_the_thread_with_most_marks_is_the_main_one() -> None:
    w = Workload(tool="nsys")
    with w.thread(5), labels(w, "step 99"):
        w.host(10)
    begins = []
    for number in range(3):
        begins.append(w.now)
        with labels(w, f"step {number}"):
            w.host(100)
    assert starts(w.to_run()) == begins


def test_ranks_keep_their_own_steps() -> None:
    w = Workload(ranks=2)
    for rank, count in zip(w.ranks, (3, 5), strict=True):
        for _ in range(count):
            with rank.step():
                work(rank)
    found = steps(w.to_run())
    assert found.members == [(0, 1000), (1, 1001)]
    assert [len(found.of(*member)) for member in found.members] == [3, 5]
    assert found.number[found.of(1, 1001)].tolist() == [0, 1, 2, 3, 4]
