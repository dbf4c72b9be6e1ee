"""epoch-start-stall and dataloader-workers-starved."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.workload import Workload

EPOCH, WORKERS, BOUND = "epoch-start-stall", "dataloader-workers-starved", "dataloader-bound"


def epochs(length: int, steps: int = 13, start_us: float = 60_000, fork_us: float = 120_000) -> Workload:
    """Every `length` steps the workers are forked and make a first batch; a step takes 10 ms otherwise."""
    w = Workload()
    for number in w.steps(steps):
        first = number % length == 0 and number > 0
        if first:
            w.host(fork_us)
        w.loader(start_us if first else 50, workers=True)
        for _ in range(10):
            with w.op("aten::mm", us=200):
                w.launch("gemm", gpu_us=1000)
        w.item()
    return w


def test_starts_of_epochs() -> None:
    found = judge(epochs(5).to_run(), EPOCH, WORKERS, BOUND)
    assert [finding.rule for finding in found.report.findings] == [EPOCH]
    finding = found.finding
    assert finding.facts["interval_steps"] == 5 and finding.facts["starts"] == 2
    assert finding.facts["stall_ns"] == pytest.approx(180e6, rel=0.02)
    assert finding.facts["per_step_ns"] == pytest.approx(36e6, rel=0.02)
    assert finding.title == "Every 5 steps training stops for 180 ms while the data loader starts again"
    assert "an epoch has 5 steps" in finding.fixes[0].snippet


def test_one_start_tells_no_period() -> None:
    assert judge(epochs(8).to_run(), EPOCH).outcome == "clean"


@pytest.mark.parametrize(("pause_us", "outcome"), [(5_000, "clean"), (60_000, "found")])
def test_small_pauses_are_no_stalls(pause_us: float, outcome: str) -> None:
    assert judge(epochs(5, start_us=pause_us, fork_us=pause_us).to_run(), EPOCH).outcome == outcome


def test_long_steps_that_do_not_wait_for_the_loader() -> None:
    assert judge(epochs(5, start_us=50, fork_us=180_000).to_run(), EPOCH).outcome == "clean"


def test_epochs_cannot_be_seen_without_a_loader_or_in_few_steps() -> None:
    w = Workload()
    for _ in w.steps(8):
        w.launch("gemm", gpu_us=100)
    w.row("ranges", start=0, end=10, name="other", kind=2)
    assert judge(w.to_run(), EPOCH).outcome == "not-applicable"
    assert "few steps" in judge(epochs(2, steps=5).to_run(), EPOCH).reason


def starved(wait_us: float, workers: bool = True) -> Workload:
    w = Workload()
    for _ in w.steps(6):
        w.loader(wait_us, workers=workers)
        for _ in range(10):
            with w.op("aten::mm", us=50):
                w.launch("gemm", gpu_us=500)
        w.item()
    return w


def test_workers_that_cannot_keep_up() -> None:
    found = judge(starved(10_000).to_run(), WORKERS, BOUND)
    assert [finding.rule for finding in found.report.findings] == [WORKERS]
    assert found.part() == pytest.approx(10 / 15.1, abs=0.06)
    assert found.finding.facts["times_more"] == 3
    assert "the loader's workers are too slow" in found.finding.title.lower()


def test_a_loader_without_workers_has_its_own_rule() -> None:
    run = starved(10_000, workers=False).to_run()
    assert judge(run, WORKERS).outcome == "clean"
    assert judge(run, "single-process-dataloader").outcome == "found"


@pytest.mark.parametrize(("wait_us", "outcome"), [(300, "clean"), (1000, "found")])
def test_workers_that_keep_up(wait_us: float, outcome: str) -> None:
    assert judge(starved(wait_us).to_run(), WORKERS).outcome == outcome


def test_workers_cannot_be_seen_without_ranges() -> None:
    w = Workload(tool="nsys")
    for _ in w.steps(4):
        w.launch("gemm", gpu_us=100)
    assert judge(w.to_run(), WORKERS).outcome == "not-applicable"


def test_loaders_of_all_ranks() -> None:
    w = Workload(ranks=2)
    for rank in w.ranks:
        for _ in rank.steps(6):
            rank.loader(10_000, workers=True)
            for _ in range(10):
                with rank.op("aten::mm", us=50):
                    rank.launch("gemm", gpu_us=500)
            rank.item()
    assert judge(w.to_run(), WORKERS).part() == pytest.approx(10 / 15.1, abs=0.06)
