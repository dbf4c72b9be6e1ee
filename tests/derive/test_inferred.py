"""Steps where nothing marks them: the period of the kernel sequence, else the whole window."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.derive.steps import Steps, step_time, steps
from advisor.model import Options, Run
from build.workload import Rank, Workload

LAYERS, INSIDE = 6, ("gemm", "gelu", "gemm_2", "norm")
PER_STEP = 2 + LAYERS * len(INSIDE) + 2


def forward_backward(rank: Rank, pause_us: float = 400, *, layers: int = LAYERS, extra: bool = False, gpu_us: float = 20) -> None:
    """One step: what occurs once, layers that repeat, what occurs once; then the host pauses."""
    rank.launch("embedding", gpu_us)
    rank.launch("position", gpu_us)
    for _ in range(layers):
        for name in INSIDE:
            rank.launch(name, gpu_us)
    if extra:
        rank.launch("log_histogram", gpu_us)
    rank.launch("cross_entropy", gpu_us)
    rank.launch("adam", gpu_us)
    rank.host(pause_us)


def loop(count: int = 8, **how: float) -> Workload:
    w = Workload(closing_sync=False)
    for _ in range(count):
        forward_backward(w, **how)  # type: ignore[arg-type]
    return w


def lengths(found: Steps) -> list[int]:
    return (found.end - found.start).tolist()


def launches_of(run: Run, name: str) -> list[int]:
    code = run.strings.find(name)
    kernels, calls = run.table("kernels"), run.table("runtime_calls")
    at = dict(zip(calls["correlation"].tolist(), calls["start"].tolist(), strict=True))
    return [at[c] for c in kernels["correlation"][kernels["name"] == code].tolist()]


def test_the_period_of_the_kernels_is_the_step() -> None:
    run = loop(pause_us=2000).to_run()
    found = steps(run)
    assert found.source == "inferred"
    # Launching takes 4 us a kernel and the GPU 20: the pause of the host lets the GPU run dry, a step begins after it.
    assert found.start.tolist() == launches_of(run, "embedding")[:-1]
    assert set(lengths(found)) == {2_000_000 + 4000 * PER_STEP}
    assert found.number.tolist() == list(range(7))
    assert found.steady.tolist() == [False] + [True] * 6


def test_a_gpu_bound_loop_takes_the_gpus_period() -> None:
    run = loop(pause_us=0).to_run()
    found, taken = steps(run), step_time(run)
    assert found.source == "inferred" and taken is not None
    assert taken.step_ns == 20_000 * PER_STEP


def test_no_kernel_needs_to_occur_once_a_step() -> None:
    """The rarest kernel, a fused optimizer's, comes four times in a row."""
    w = Workload(closing_sync=False)
    begins = []
    for _ in range(8):
        begins.append(w.now)
        for _ in range(LAYERS):
            for name in INSIDE:
                w.launch(name, 20)
        for _ in range(4):
            w.launch("adam", 20)
        w.host(3000)
    found = steps(w.to_run())
    assert found.source == "inferred" and found.start.tolist() == begins[:-1]


def test_layers_are_no_steps() -> None:
    """Forty layers repeat better than the steps do; still the step is the period."""
    w = Workload(closing_sync=False)
    for _ in range(5):
        forward_backward(w, 2000, layers=40)
    found = steps(w.to_run())
    assert found.source == "inferred" and set(lengths(found)) == {2_000_000 + 4000 * (4 + 40 * len(INSIDE))}


def test_a_kernel_now_and_then_does_not_turn_layers_into_steps() -> None:
    w = Workload(closing_sync=False)
    for number in range(9):
        forward_backward(w, 2000, layers=40, extra=number % 3 == 1)
    found = steps(w.to_run())
    usual = 2_000_000 + 4000 * (4 + 40 * len(INSIDE))
    if found.source == "inferred":
        assert float(np.median(lengths(found))) == pytest.approx(usual, rel=0.01)
    else:
        assert found.source == "none"


def test_without_launches_the_kernels_own_times_are_the_bounds() -> None:
    w = loop(pause_us=2000)
    del w.rows["runtime_calls"]
    run = w.to_run()
    found, taken = steps(run), step_time(run)
    assert found.source == "inferred" and taken is not None
    code = run.strings.find("embedding")
    kernels = run.table("kernels")
    assert found.start.tolist() == kernels["start"][kernels["name"] == code].tolist()[:-1]
    assert (found.gpu_period == -1).all()
    assert taken.step_ns == 2_000_000 + 4000 * PER_STEP


def test_one_graph_launch_a_step() -> None:
    w = Workload(closing_sync=False)
    begins = []
    for _ in range(6):
        begins.append(w.now)
        w.graph([("embedding", 20), *[(name, 20) for _ in range(LAYERS) for name in INSIDE], ("adam", 20)])
        w.host(3000)
    found = steps(w.to_run())
    assert found.source == "inferred"
    assert found.start.tolist() == begins[:-1]


def test_layers_inside_one_graph_are_no_steps() -> None:
    w = Workload(closing_sync=False)
    w.graph([(name, 20) for _ in range(20) for name in INSIDE])
    found = steps(w.to_run())
    assert found.source == "none" and len(found) == 1


def test_two_gpus_of_one_process_are_one_sequence_of_steps() -> None:
    w = Workload(closing_sync=False)
    for _ in range(6):
        for device in (0, 1):
            for name in ("embedding", *INSIDE, "loss"):
                w.launch(name, 20, device=device, stream=7 + device)
        w.host(2000)
    found = steps(w.to_run())
    assert found.source == "inferred"
    assert set(lengths(found)) == {2_000_000 + 4000 * 12}


def test_each_rank_has_its_own_period() -> None:
    w = Workload(ranks=2, closing_sync=False)
    for rank, pause in zip(w.ranks, (1000, 3000), strict=True):
        for _ in range(6):
            forward_backward(rank, pause)
    run = w.to_run()
    found, taken = steps(run), step_time(run)
    assert found.members == [(0, 1000), (1, 1001)] and taken is not None
    assert (taken.rank, taken.step_ns) == (1, 3_000_000 + 4000 * PER_STEP)


def test_too_few_repeats_are_no_period() -> None:
    found = steps(loop(2, pause_us=2000).to_run())
    assert found.source == "none"


def test_kernels_in_no_order_have_no_period() -> None:
    w = Workload(closing_sync=False)
    order = np.random.default_rng(3).integers(0, 12, 400)
    for name in order:
        w.launch(f"kernel_{name}", 10)
    found = steps(w.to_run())
    assert found.source == "none" and len(found) == 1


def test_the_whole_window_is_one_step() -> None:
    w = Workload()
    w.host(500)
    first = w.launch("gemm", gpu_us=100)
    w.host(900)
    last = w.launch("loss", gpu_us=50)
    run = w.to_run()
    found, taken = steps(run), step_time(run)
    assert found.source == "none" and taken is not None
    assert (found.start.tolist(), found.end.tolist()) == ([first.start], [last.end])
    assert found.steady.tolist() == [True]
    assert (taken.count, taken.step_ns) == (1, last.end - first.start)


def test_an_empty_run_has_no_steps() -> None:
    assert len(steps(Run())) == 0 and step_time(Run()) is None
    assert steps(Run()).members == []
    assert step_time(Run(options=Options(steps=(1, 2)))) is None
