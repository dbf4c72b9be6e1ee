"""clock-throttle: clocks held down by heat or by the hardware, from a log alone and beside a trace."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor import load
from advisor.model import Run
from build import smi
from build.judge import judge
from build.workload import Rank, Workload

RULE = "clock-throttle"
HOT, HOT_HARDWARE, SLOW, BRAKE, CAP, IDLE = 0x20, 0x40, 0x8, 0x80, 0x4, 0x1
FIELDS = (
    "timestamp", "index", "name", "uuid", "utilization.gpu", "power.draw", "enforced.power.limit", "temperature.gpu",
    "clocks.current.sm", "clocks.max.sm", "clocks_event_reasons.active",
)  # fmt: skip


def log(folder: Path, devices: int = 1, seconds: float = 60, fields: tuple[str, ...] = FIELDS, **values: Any) -> Run:
    """A run of which only a log exists; names of fields with "_" for "."."""
    named = {key.replace("__", "."): value for key, value in values.items()}
    path = folder / "smi.csv"
    path.write_text(smi.query_csv(smi.samples(seconds, devices, values=named), fields))
    return load(path)


def test_a_hot_gpu(tmp_path: Path) -> None:
    run = log(
        tmp_path, 2, clocks_event_reasons__active=lambda s, gpu: HOT | CAP if gpu else 0,
        clocks__current__sm=lambda s, gpu: 990 if gpu else 1980, temperature__gpu=lambda s, gpu: 88 if gpu else 60,
    )  # fmt: skip
    found = judge(run, RULE).finding
    assert found.title == "GPU 1 was held down by heat (software) for 100% of its busy time, at 990 of 1980 MHz"
    # Without a trace nothing can be promised; a job with such a GPU is in trouble all the same.
    assert (found.severity, found.saving, found.confidence) == ("high", None, "medium")
    assert found.facts == {"device": 1, "share": 1.0, "clock_ratio": 0.5, "temperature_c": 88.0}
    assert found.scope["devices"] == [1]
    (row,) = found.evidence[0].rows
    assert dict(zip(found.evidence[0].columns, row, strict=True)) == {
        "device": 1, "busy_samples": 60, "sm_clock_mhz": 990, "max_clock_mhz": 1980, "hottest_c": 88.0, "power_w": 650.0,
        "limit_w": 700.0, "reasons": "power cap 100%, heat (software) 100%",
    }  # fmt: skip
    assert "-i 1" in found.fixes[0].snippet


@pytest.mark.parametrize(
    ("mask", "words"),
    [(HOT, "heat (software)"), (HOT_HARDWARE, "heat (hardware)"), (SLOW, "hardware slowdown"), (BRAKE, "power brake")],
)
def test_every_harmful_reason(tmp_path: Path, mask: int, words: str) -> None:
    assert f"held down by {words} for" in judge(log(tmp_path, clocks_event_reasons__active=mask), RULE).finding.title


@pytest.mark.parametrize("mask", [0, CAP, 0x2, 0x10, 0x100])
def test_harmless_reasons(tmp_path: Path, mask: int) -> None:
    """A power cap has a rule of its own; clocks that somebody set, sync boost and displays are no trouble."""
    assert judge(log(tmp_path, clocks_event_reasons__active=mask, clocks__current__sm=1200), RULE).outcome == "clean"


@pytest.mark.parametrize(("every", "outcome"), [(25, "clean"), (15, "found")])
def test_a_twentieth_of_the_busy_time(tmp_path: Path, every: int, outcome: str) -> None:
    run = log(tmp_path, seconds=300, clocks_event_reasons__active=lambda s, gpu: HOT if s % every == 1 else 0)
    assert judge(run, RULE).outcome == outcome


def test_an_idle_gpu_is_not_judged(tmp_path: Path) -> None:
    """Low clocks and a slowdown flag without load."""
    run = log(
        tmp_path,
        utilization__gpu=lambda s, gpu: 100 if s < 30 else 0,
        clocks__current__sm=lambda s, gpu: 1980 if s < 30 else 210,
        clocks_event_reasons__active=lambda s, gpu: 0 if s < 30 else SLOW | IDLE,
    )
    assert judge(run, RULE).outcome == "clean"
    run = log(tmp_path, utilization__gpu=0, clocks_event_reasons__active=HOT)
    found = judge(run, RULE)
    assert found.outcome == "not-applicable" and "never worked" in found.reason


def test_the_worst_gpu_is_the_one_with_the_lowest_clock(tmp_path: Path) -> None:
    run = log(
        tmp_path, 3, clocks_event_reasons__active=lambda s, gpu: HOT if gpu else 0,
        clocks__current__sm=lambda s, gpu: (1980, 1900, 1100)[gpu],
    )  # fmt: skip
    found = judge(run, RULE).finding
    assert found.title.startswith("GPU 2") and found.scope["devices"] == [1, 2]


def test_dmon_tells_thermal_violations_only(tmp_path: Path) -> None:
    path = tmp_path / "dmon.txt"
    path.write_text(smi.dmon(smi.samples(60, values={"tviol": 1, "pviol": 0})))
    found = judge(load(path), RULE).finding
    assert found.title == "GPU 0 was held down by heat for 100% of its busy time"
    path.write_text(smi.dmon(smi.samples(60, values={"tviol": 0, "pviol": 40})))
    assert judge(load(path), RULE).outcome == "clean"


def test_cannot_judge_without_reasons(tmp_path: Path) -> None:
    found = judge(log(tmp_path, fields=FIELDS[:-1], clocks__current__sm=900), RULE)
    assert found.outcome == "not-applicable" and found.report.rules[0].capture.startswith("nvidia-smi -q -x")
    assert judge(Workload().to_run(), RULE).outcome == "not-applicable"


# Beside a trace


def traced(gpu_us: float, host_us: float, clock: int = 990, reasons: int = HOT) -> Run:
    """Ten kernels a step; samples of the GPU while it runs."""
    w = Workload()

    def sample(rank: Rank) -> None:
        rank.sample(utilization=100, sm_clock=clock, sm_clock_max=1980, throttle_reasons=reasons, temperature=88)

    for _ in w.steps(6):
        for _ in range(10):
            w.host(host_us)
            w.launch("gemm", gpu_us)
        sample(w)
    return w.to_run()


def test_half_the_clock_is_at_most_half_the_compute() -> None:
    found = judge(traced(gpu_us=1000, host_us=10), RULE)
    assert found.finding.severity == "high"
    assert found.part() == pytest.approx(0.5, abs=0.03) and found.part("high") == pytest.approx(0.5, abs=0.03)
    assert found.finding.saving is not None and found.finding.saving.low_ns <= 0.5 * found.report.step_ns


def test_a_host_bound_loop_gains_nothing_from_clocks() -> None:
    found = judge(traced(gpu_us=50, host_us=200), RULE)
    assert found.outcome == "clean" or found.part() < 0.01


def test_a_log_beside_a_trace(tmp_path: Path) -> None:
    """Both as files: the log covers the time of the trace."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(10):
            w.launch("gemm", 10_000)
    trace = w.write_kineto(tmp_path)
    run = load(trace)
    assert run.epoch_ns is not None
    begin = smi.START.__class__.fromtimestamp(run.epoch_ns / 1e9) - timedelta(seconds=2)
    rows = smi.samples(
        8,
        interval=0.1,
        start=begin,
        values={"clocks_event_reasons.active": HOT, "clocks.current.sm": 1485, "name": "NVIDIA H200"},
    )
    (tmp_path / "smi.csv").write_text(smi.query_csv(rows, FIELDS))
    found = judge(load([*trace, tmp_path / "smi.csv"]), RULE)
    assert found.finding.title.startswith("GPU 0 was held down by heat")
    assert found.part("high") == pytest.approx(0.25, abs=0.02)
