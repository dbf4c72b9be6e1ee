"""How good a recording is."""

from __future__ import annotations

import pytest

from advisor.derive.capture import capture_quality, lost_graph_launches
from advisor.derive.profiler_cost import OPERATOR
from advisor.model import Run
from build.workload import Workload


def loop(count: int = 6, **how: object) -> Workload:
    w = Workload(**how)  # type: ignore[arg-type]
    for _ in w.steps(count):
        for _ in range(10):
            with w.op("aten::mm", us=20, shapes=[[4, 4]]):
                w.launch("gemm", 10)
    return w


def test_a_good_recording() -> None:
    found = capture_quality(loop().to_run())
    assert (found.steps, found.steady, found.hitches, found.incomplete, found.source) == (6, 5, 0, 0, "profiler-step")
    assert (found.kernels, found.unlinked_share, found.empty_launch_share) == (60, 0, 0)
    assert found.lacks == ("source lines", "memory", "clocks and power")


def test_lost_launches_and_kernels() -> None:
    w = loop()
    del w.rows["runtime_calls"][20:26]
    del w.rows["kernels"][40:43]
    found = capture_quality(w.to_run())
    assert found.unlinked_share == pytest.approx(6 / 57)
    assert found.empty_launch_share == pytest.approx(3 / 54)
    assert found.incomplete == 1 and found.steady == 4


def test_work_from_before_the_recording_is_no_loss() -> None:
    w = loop()
    for number in range(30):
        w.row(
            "kernels", name="early", start=1000 * number, end=1000 * number + 500, device=0, stream=7, correlation=9000 + number
        )
    assert capture_quality(w.to_run()).unlinked_share == 0


def test_what_the_profiler_did() -> None:
    w = Workload()
    for number in w.steps(6):
        w.host(0.001)
        for _ in range(50):
            w.leaf("aten::view", 10)
        w.host(0.001)
        w.launch("gemm", 10, us=10)
        if number == 2:
            w.overhead("Command Buffer Full", 3000)
        w.launch("gemm", 10, us=10)
    found = capture_quality(w.to_run())
    assert (found.hitches, found.steady) == (1, 4)
    # Operators that take as long as a launch keep OPERATOR of it; that is nearly all of the step.
    assert found.profiler_share == pytest.approx(1 - OPERATOR, abs=0.03)


def test_without_marks_there_are_no_steps() -> None:
    w = Workload(closing_sync=False)
    w.launch("gemm", 10)
    found = capture_quality(w.to_run())
    assert (found.source, found.steps, found.steady) == ("none", 0, 0)
    empty = capture_quality(Run())
    assert (empty.steps, empty.kernels, empty.profiler_share) == (0, 0, 0.0)
    assert empty.lacks[0] == "GPU kernels"


def test_of_several_ranks_the_one_with_most_steps_counts() -> None:
    w = Workload(ranks=2)
    for rank, count in zip(w.ranks, (3, 6), strict=True):
        for _ in range(count):
            with rank.step():
                rank.launch("gemm", 10)
    found = capture_quality(w.to_run())
    assert (found.steps, found.steady) == (6, 5)


def test_what_is_lacking() -> None:
    w = Workload(tool="nsys", closing_sync=False)
    w.launch("gemm", 10)
    w.copy("HtoD", 10, 10)
    lacks = capture_quality(w.to_run()).lacks
    assert "operators or ranges" in lacks and "kind of host memory of copies" not in lacks and "shapes" not in lacks
    del w.rows["runtime_calls"]
    assert "CUDA calls" in capture_quality(w.to_run()).lacks
    full = loop(2)
    with full.frame("train.py(3): main"):
        full.alloc(100)
    full.sample(utilization=5)
    assert capture_quality(full.to_run()).lacks == ()


@pytest.mark.parametrize(("lost", "unlinked", "counts"), [(6, 0, 6), (4, 0, 4), (3, 0, 0), (6, 5, 6), (6, 6, 0)])
def test_graphs_without_their_work(lost: int, unlinked: int, counts: int) -> None:
    """Of six graph launches more than half must be without work, and that work must not lie there without its launch."""
    w = Workload()
    for number in w.steps(6):
        if number < lost:
            w.call("cudaGraphLaunch", 10)
        else:
            w.graph([("gemm", 10.0)] * 3)
        w.launch("gemm", 10)
        if number < unlinked:
            w.row("kernels", name="gemm", start=w.now, end=w.now + 1000, device=0, stream=9, correlation=9000 + number)
        w.host(100)
    assert lost_graph_launches(w.to_run()) == counts


def test_work_of_before_the_recording_has_no_launch_without_steps_either() -> None:
    """Irregular kernels, no marks: the ten that were queued before the first recorded launch do not count, a later one does."""
    w = Workload(closing_sync=False)
    for i in range(10):
        w.launch(f"before{i}", 20 + 7 * i)
    w.rows["runtime_calls"].clear()
    for i in range(20):
        w.launch(f"kernel{i}", 10 + 3 * i)
        w.host(5 * i)
    assert capture_quality(w.to_run()).source == "none"
    assert capture_quality(w.to_run()).unlinked_share == 0
    w.rows["runtime_calls"].pop(7)
    assert capture_quality(w.to_run()).unlinked_share == pytest.approx(1 / 20)
