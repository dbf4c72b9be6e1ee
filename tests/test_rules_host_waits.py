"""host-sync-in-step and device-synchronize-in-step: what a wait is worth, which is seldom its length."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.workload import Workload

SYNC, DEVICE, LAUNCH = "host-sync-in-step", "device-synchronize-in-step", "launch-bound"


def layers(
    host_us: float, gpu_us: float, wait: str | None = "item", *, count: int = 6, steps: int = 6, tool: str = "torch"
) -> Workload:
    """Each step: layers of host work that end in one kernel and a wait for it."""
    w = Workload(tool=tool)
    for _ in w.steps(steps):
        for _ in range(count):
            with w.op("aten::mm", us=host_us):
                w.launch("gemm", gpu_us=gpu_us)
            if wait == "item":
                w.item()
            elif wait:
                w.sync(wait)
    return w


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_turn_taking_goes_with_the_waits(tool: str) -> None:
    """1 ms of host work and 1 ms of kernels take turns: beside each other they take half."""
    found = judge(layers(1000, 1000, tool=tool).to_run(), SYNC)
    assert found.part() == pytest.approx(0.5, abs=0.03)
    assert found.finding.facts["waits_per_step"] == 6
    assert found.finding.title.startswith("The host waits for the GPU 6 times a step")
    row = dict(zip(found.finding.evidence[0].columns, found.finding.evidence[0].rows[0], strict=True))
    assert row["call"] == "cudaStreamSynchronize" and row["per_step"] == 6
    assert row["operator"] == ("aten::item" if tool == "torch" else None)
    assert row["wait_ns"] == pytest.approx(6e6, rel=0.05)
    assert judge(layers(1000, 1000, tool=tool).to_run(), DEVICE).outcome == "clean"


def test_a_blocking_read_is_one_wait() -> None:
    w = Workload()
    for _ in w.steps(5):
        with w.op("aten::mm", us=1000):
            w.launch("gemm", gpu_us=1000)
        with w.op("aten::to"):
            w.copy("DtoH", 4000, 3, target="pageable")
            w.sync()
    found = judge(w.to_run(), SYNC)
    assert found.finding.facts["waits_per_step"] == 1
    assert "in aten::to" in found.finding.title


def test_a_slow_host_gains_next_to_nothing() -> None:
    """17 ms of host work, 0.1 ms on the GPU, one read a step: removing it was worth 4 %, not the GPU's 99 % idle time."""
    w = Workload()
    for _ in w.steps(8):
        for _ in range(100):
            with w.op("aten::mul", us=166):
                w.launch("elementwise", gpu_us=1)
        w.item()
    run = w.to_run()
    found = judge(run, SYNC)
    assert found.outcome == "clean" and "worth at most" in found.reason
    assert judge(run, LAUNCH).part() > 0.5


def test_many_short_waits_are_bounded_by_their_wake_ups() -> None:
    found = judge(layers(1000, 10).to_run(), SYNC)
    limit = found.finding.saving.high_ns
    assert limit <= 6 * (50_000 + 10_000 + 30_000)
    assert found.part() < 0.03
    assert any("The host sets the pace" in text for text in found.finding.caveats)


def test_the_loss_read_once_a_step_on_a_busy_gpu() -> None:
    """45 ms in cudaStreamSynchronize each step, but only the 4 ms in which the queue is refilled can be gained."""
    w = Workload()
    for _ in w.steps(6):
        w.host(4000)
        for _ in range(40):
            with w.op("aten::mm", us=996):
                w.launch("gemm", gpu_us=2125)
        w.item()
    found = judge(w.to_run(), SYNC)
    assert found.finding.evidence[0].rows[0][3] == pytest.approx(45e6, rel=0.05)
    assert found.part("high") < 0.07 and found.part() == pytest.approx(5 / 90, abs=0.015)
    assert found.finding.title.startswith("The host waits for the GPU once a step in aten::item; the GPU then idles for 5")
    assert found.finding.facts["at_step_end"] is True
    assert any("refilling of the queue" in text for text in found.finding.caveats)
    assert "one wait in 50 steps instead of 1 a step" in found.finding.fixes[0].snippet


def test_waits_that_leave_the_gpu_busy_do_not_count() -> None:
    w = Workload()
    for _ in w.steps(5):
        for _ in range(20):
            with w.op("aten::mm", us=10):
                w.launch("gemm", gpu_us=500)
        w.copy("DtoH", 1000, 2, stream=9)
        w.sync("stream", stream=9)
    run = w.to_run()
    assert judge(run, SYNC).outcome == judge(run, DEVICE).outcome == "clean"


def test_events_reached_already_do_not_count() -> None:
    w = Workload()
    for _ in w.steps(5):
        w.launch("gemm", gpu_us=100)
        w.host(1000)
        w.sync("event")
    assert judge(w.to_run(), SYNC).outcome == "clean"


def test_waits_for_pageable_input_belong_to_the_copy() -> None:
    w = Workload()
    for _ in w.steps(5):
        with w.op("aten::to"):
            w.copy("HtoD", 50_000_000, 5000, source="pageable")
            w.sync()
        w.launch("gemm", gpu_us=5000)
    run = w.to_run()
    assert judge(run, SYNC).outcome == "clean"
    assert judge(run, "pageable-copy").outcome == "found"


def test_a_wait_every_third_step_is_what_the_fix_asks_for() -> None:
    w = Workload()
    for number in w.steps(10):
        with w.op("aten::mm", us=1000):
            w.launch("gemm", gpu_us=900)
        if number % 3 == 0:
            w.item()
    assert judge(w.to_run(), SYNC).outcome == "clean"


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_device_synchronisations(tool: str) -> None:
    found = judge(layers(1000, 1000, "device", count=8, tool=tool).to_run(), DEVICE, SYNC)
    assert found.finding.title.startswith("8 device synchronisations a step; the GPU then idles for 8")
    assert found.part() == pytest.approx(0.5, abs=0.03)
    assert [finding.rule for finding in found.report.findings] == [DEVICE]
    assert {fix.id for fix in found.finding.fixes} == {"remove", "time-with-events"}


def test_a_device_synchronisation_after_each_step() -> None:
    """10 ms of preparation, then 30 ms of kernels; without the wait the preparation hides behind them: 25 %."""
    w = Workload()
    for _ in w.steps(8):
        w.host(10_000)
        for _ in range(30):
            with w.op("aten::mm", us=26):
                w.launch("gemm", gpu_us=1000)
        w.sync("device")
    found = judge(w.to_run(), DEVICE)
    assert found.part() == pytest.approx(0.25, abs=0.02)
    assert found.finding.facts["synchronisations_per_step"] == 1.0


def test_the_closing_synchronisation_is_the_profilers() -> None:
    """26 us of GPU work, no steps, 1.8 ms in the profiler's own cudaDeviceSynchronize at the end."""
    w = Workload(closing_sync=False)
    for index in range(13):
        with w.op("aten::add", us=50):
            w.launch(f"add_{index}", gpu_us=2)
    w.sync("device", us=1780)
    run = w.to_run()
    assert judge(run, DEVICE).outcome == judge(run, SYNC).outcome == "clean"


@pytest.mark.parametrize(("count", "outcome"), [(7, "clean"), (8, "found")])
def test_without_steps_only_many_waits_count(count: int, outcome: str) -> None:
    w = Workload(tool="nsys")
    for index in range(count + 2):  # the window begins with the first kernel; the last wait closes the recording
        w.host(1000)
        w.launch(f"kernel_{index}", gpu_us=1000)
        w.sync("device")
    found = judge(w.to_run(), DEVICE)
    assert found.outcome == outcome
    if outcome == "found":
        assert found.finding.confidence == "low" and "8 device synchronisations in the recording" in found.finding.title


def test_the_lines_that_wait() -> None:
    w = Workload()
    for _ in w.steps(5):
        with w.frame("train.py(10): step"):
            for line in (30, 30, 31):
                with w.frame(f"model.py({line}): forward"):
                    with w.op("aten::mm", us=1000):
                        w.launch("gemm", gpu_us=1000)
                    w.item()
    places = judge(w.to_run(), SYNC).finding.locations
    assert [(place.file, place.line) for place in places] == [("model.py", 30), ("model.py", 31)]
    assert places[0].share == pytest.approx(2 / 3, abs=0.05)


def test_cannot_judge_without_cuda_calls() -> None:
    w = Workload(closing_sync=False)
    for _ in w.steps(3):
        w.row("kernels", start=w.now, end=w.now + 1000, device=0, stream=7, name="gemm")
        w.host(10)
    run = w.to_run()
    assert judge(run, SYNC).outcome == judge(run, DEVICE).outcome == "not-applicable"
    assert "record CUDA API calls" in next(one.capture for one in judge(run, SYNC).report.rules)
