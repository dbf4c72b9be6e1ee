"""The kernels of the steady steps in launch order, what launching them costs, and which calls are the optimizer's."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.derive.gpus import gpu_work
from advisor.derive.host import host_sides
from advisor.derive.kernel_classes import KernelClass
from advisor.derive.phases import optimizer_calls, optimizer_name
from advisor.derive.profiler_cost import LAUNCH as LAUNCH_SHARE
from advisor.derive.sequence import (
    Sequence,
    costliest,
    host_cost,
    on_gpu,
    runs_of,
    sequence,
    sequence_of,
    sequences,
    source_lines,
    steady_calls,
)
from advisor.derive.steady import steady
from advisor.model import Location, Run
from build.workload import Rank, Workload

LAUNCH = round(4_000 * (1 - LAUNCH_SHARE))  # a recorded launch call of 4 us, without the profiler


def names(run: Run, found: Sequence) -> list[str]:
    return [run.strings[int(code)] for code in run.table("kernels")["name"][found.row]]


def test_kernels_stand_by_stream_in_launch_order() -> None:
    w = Workload()
    for _ in w.steps(3):
        w.launch("gemm", 100)
        w.launch("other", 5, stream=9)
        w.launch("softmax", 50)
    run = w.to_run()
    found = sequence(run)
    # The first step is not steady.
    assert found.steps == 2 and found.stream.tolist() == [7] * 4 + [9] * 2
    assert names(run, found) == ["gemm", "softmax"] * 2 + ["other"] * 2
    assert found.kind[:2].tolist() == [KernelClass.GEMM, KernelClass.SOFTMAX]
    assert (np.diff(found.launch[:4]) > 0).all()
    assert found.per_step(found.gpu_ns, found.stream == 7) == 150_000
    assert gpu_work(run).row[found.work].tolist() == found.row.tolist()
    chosen = on_gpu(run, found, found.stream == 9)
    assert chosen.sum() == 2 and gpu_work(run).stream[chosen].tolist() == [9, 9]


def test_kernels_belong_to_the_step_that_launched_them() -> None:
    """A GPU that is a step behind runs kernels of the first step while the second one is recorded."""
    w = Workload()
    for number in w.steps(4):
        w.launch(f"kernel_{number}", 1000)
    run = w.to_run()
    assert names(run, sequence(run)) == ["kernel_1", "kernel_2", "kernel_3"]


def test_the_cost_of_a_launch_is_its_call_and_what_led_to_it() -> None:
    w = Workload()
    for _ in w.steps(3):
        w.host(100)
        w.launch("a", 10, us=4)
        w.host(30)
        w.launch("b", 10, us=4)
    found = sequence(w.to_run())
    assert found.host_ns.tolist() == [100_000 + LAUNCH, 30_000 + LAUNCH] * 2


@pytest.mark.parametrize("streams", [(7, 7), (7, 9)])
def test_one_graph_launch_is_paid_once(streams: tuple[int, int]) -> None:
    w = Workload()
    for _ in w.steps(3):
        w.host(200)
        w.graph([("a", 10), ("b", 10), ("c", 10), ("d", 10)], us=40)
        for row, stream in zip(w.rows["kernels"][-2:], streams, strict=True):
            row["stream"] = stream
    run = w.to_run()
    found = sequence(run)
    assert len(found) == 8
    assert found.host_ns.sum() == 2 * (200_000 + round(40_000 * (1 - LAUNCH_SHARE)))
    assert np.count_nonzero(found.host_ns) == 2


def test_what_was_launched_before_the_recording_is_left_out() -> None:
    w = Workload()
    for number in w.steps(3):
        w.launch(f"kernel_{number}", 100)
        w.launch(f"lost_{number}", 100)
    calls = w.rows["runtime_calls"]
    del calls[5], calls[3]  # the launches of lost_1 and lost_2
    w.row("kernels", name="early", start=1000, end=2000, device=0, stream=7, correlation=999)
    run = w.to_run()
    found = sequence(run)
    assert names(run, found) == ["kernel_1", "lost_1", "kernel_2", "lost_2"]
    lost = names(run, found).index("lost_1")
    # It was launched after the kernel before it on its stream, and nobody knows at what cost.
    assert (found.call[lost], found.host_ns[lost]) == (-1, 0)
    assert found.launch[lost] == found.launch[lost - 1]


def test_without_any_launch_kernels_are_placed_by_their_own_start() -> None:
    w = Workload(closing_sync=False)
    for _ in w.steps(3):
        w.launch("kernel", 100)
        w.host(500)
    del w.rows["runtime_calls"]
    run = w.to_run()
    assert sequence(run).launch.tolist() == run.table("kernels")["start"][1:].tolist()


def test_every_rank_has_its_own() -> None:
    w = Workload(ranks=2)
    for rank in w.ranks:
        for _ in range(3):
            with rank.step():
                rank.host(100 + 400 * rank.number)
                rank.launch(f"kernel_{rank.number}", 10)
    run = w.to_run()
    assert names(run, sequence(run)) == ["kernel_1"] * 2  # the slower one
    assert [names(run, one) for one in sequences(run)] == [["kernel_0"] * 2, ["kernel_1"] * 2]
    assert names(run, sequence_of(run, 0, 1000)) == ["kernel_0"] * 2


def test_costliest_and_lines() -> None:
    w = Workload()
    for _ in w.steps(3):
        with w.frame("model.py(3): forward"):
            for _ in range(4):
                w.launch("gemm", 100)
        with w.frame("train.py(9): loss"):
            w.launch("softmax", 100)
            w.launch("copy_kernel", 100)
    run = w.to_run()
    found = sequence(run)
    every = np.ones(len(found), bool)
    assert costliest(run, found, every, 2) == [("gemm", 4.0, 400_000), ("copy_kernel", 1.0, 100_000)]
    assert source_lines(run, found, found.kind == KernelClass.SOFTMAX) == [Location("train.py", 9, "loss", 1.0)]
    assert source_lines(run, found, every)[0] == Location("model.py", 3, "forward", 0.6667)


def test_runs_of() -> None:
    mask = np.array([1, 1, 0, 1, 1, 1, 0], bool)
    group = np.array([7, 7, 7, 7, 9, 9, 9])
    assert runs_of(mask, group).tolist() == [0, 0, -1, 1, 2, 2, -1]
    assert runs_of(mask, group, np.array([0, 1, 1, 1, 1, 2, 2])).tolist() == [0, 1, -1, 2, 3, 4, -1]
    assert runs_of(mask[:0], group[:0]).tolist() == []


def test_an_empty_run() -> None:
    assert len(sequence(Run())) == 0 and sequences(Run()) == []
    assert len(host_cost(Run())) == 0 and steady(Run()) is None
    assert optimizer_calls(Run()) is None and optimizer_name(Run()) is None


def test_calls_of_steady_steps() -> None:
    w = Workload()
    for _ in w.steps(3):
        w.launch("a")
        w.call("cudaEventRecord")
    run = w.to_run()
    side = host_sides(run)[-1, 1000]
    # Two calls a step; the closing wait is in none.
    assert steady_calls(run, side).tolist() == [False] * 2 + [True] * 4 + [False]


# The optimizer


def training(w: Rank, mark: str | None = None, count: int = 3) -> None:
    for _ in range(count):
        for _ in range(60):
            w.launch("gemm", 5)
        if mark is None:
            adam(w)
        else:
            with w.range(mark, nvtx=True):
                adam(w)


def adam(w: Rank) -> None:
    for _ in range(5):
        for name in ("lerp_kernel", "addcmul_kernel", "sqrt_kernel", "addcdiv_kernel"):
            w.launch(name, 2)


@pytest.mark.parametrize("mark", ["Optimizer.step#AdamW.step", "optimizer", "opt_step", "Optimizer step", "[optim]", None])
def test_the_optimizer_is_known_by_its_range_or_its_kernels(mark: str | None) -> None:
    w = Workload(closing_sync=False)
    training(w, mark)
    found = optimizer_calls(w.to_run())
    assert found is not None
    expected = ([False] * 60 + [True] * 20) * 3
    # Steps are cut at the first kernel that occurs once in each; without marks the last step is no whole one.
    assert found.tolist() == expected or (mark is None and found.tolist()[80:160] == expected[80:160])


def test_other_ranges_are_no_optimizer() -> None:
    w = Workload(closing_sync=False)
    for _ in range(3):
        with w.range("adopt", nvtx=True):
            for _ in range(20):
                w.launch("gemm", 5)
    assert optimizer_calls(w.to_run()) is None


def test_the_name_of_the_optimizer() -> None:
    w = Workload()
    with w.optimizer("SGD"):
        w.launch("a")
    assert optimizer_name(w.to_run()) == "SGD"


# Ordinary steps


def stalled_loop() -> Run:
    """Ten steps of about 1 ms with a wait; two of them write a checkpoint for 8 ms."""
    w = Workload()
    for number in w.steps(11):
        w.host(500)
        w.launch("gemm", 300, us=4)
        w.sync()
        w.host(200)
        if number in (4, 8):
            w.host(8000)
    return w.to_run()


def test_stalled_steps_are_no_ordinary_ones() -> None:
    """A stall after the last launch of a step lengthens that step on the host and the next one on the GPU."""
    found = steady(stalled_loop())
    assert found is not None and found.source == "profiler-step"
    assert found.count == 6 and (found.end - found.start).tolist() == [1_010_000] * 6
    assert len(found.at) == len(found.side) and (np.bincount(found.at[found.at >= 0]) == [2] * 6).all()


def test_amounts_per_ordinary_step() -> None:
    run = stalled_loop()
    found = steady(run)
    assert found is not None
    assert found.each(found.side.wait, np.ones(len(found.side), bool)) == 300_000
    middle = (found.start + 100_000, found.start + 350_000)
    assert found.within(middle) == 250_000
    # Python between the launches: no operators, so the profiler added nothing.
    assert found.host_within(middle) == pytest.approx(250_000, abs=2)
    busy = found.activity.busy
    assert found.within(busy) == 300_000
    assert found.within(found.idle) == 710_000
    assert found.turns(0) == 0 and found.turns(10**12) == found.step.wait_ns
    whole = int(found.side.wait[found.at >= 0].sum())
    assert found.turns(whole // 2) == pytest.approx(found.step.wait_ns / 2, abs=2)
