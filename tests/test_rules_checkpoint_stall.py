"""checkpoint-stall: long steps that carry the model to the host, spread over the steps between them."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from build.judge import judge
from build.workload import Workload

RULE = "checkpoint-stall"


def loop(
    stalls: Collection[int] = (3, 7),
    steps: int = 12,
    *,
    copies: int = 40,
    bytes: int = 10_000_000,
    copy_us: float = 1000,
    write_us: float = 200_000,
    spill_us: float = 0,
    tool: str = "torch",
) -> Workload:
    """Steps of 20 ms on the GPU; stalled ones copy the model to the host, write it, and write the rest in the next step."""
    w = Workload(tool=tool)
    for number in w.steps(steps):
        if number - 1 in stalls and spill_us:
            w.host(spill_us)
        for _ in range(100):
            with w.op("aten::mm", us=50):
                w.launch("gemm", gpu_us=200)
        if number in stalls:
            for _ in range(copies):
                with w.op("aten::copy_"):
                    w.copy("DtoH", bytes, copy_us, target="pageable")
                    w.sync()
            w.host(write_us)
    return w


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_two_stalls_tell_their_interval(tool: str) -> None:
    found = judge(loop(tool=tool).to_run(), RULE)
    assert found.finding.title == "A checkpoint stops training for 241 ms every 4 steps"
    assert found.finding.facts["interval_steps"] == 4 and found.finding.facts["stalls"] == 2
    assert found.finding.facts["stall_ns"] == pytest.approx(240e6, rel=0.05)
    assert found.finding.facts["bytes"] == 400_000_000
    # Eleven steady steps of 20 ms and two stalls of 240 ms.
    assert found.part() == pytest.approx(480 / (11 * 20 + 480), abs=0.03)
    assert found.finding.confidence == "medium"
    rows = {row[0]: row for row in found.finding.evidence[0].rows}
    assert rows[3][2:4] == [40, 400_000_000] and rows[2][2] == 0


def test_the_rest_of_the_writing_belongs_to_the_stall() -> None:
    found = judge(loop(spill_us=150_000).to_run(), RULE)
    assert found.finding.facts["stalls"] == 2
    assert found.finding.facts["stall_ns"] == pytest.approx(390e6, rel=0.07)


def test_one_stall_leaves_the_interval_open() -> None:
    found = judge(loop([5], steps=9).to_run(), RULE)
    assert found.finding.confidence == "low" and found.finding.facts["interval_steps"] is None
    assert "once in 9 recorded steps" in found.finding.title
    assert any("how often it recurs is unknown" in text for text in found.finding.caveats)


def test_a_rare_stall_comes_on_top_of_the_step() -> None:
    """120 ms in 60 steps: the report's step is the ordinary one, and the saving the stall's share of each step."""
    found = judge(loop([30], steps=60, write_us=80_000).to_run(), RULE)
    assert found.finding.saving.expected_ns == pytest.approx(120e6 / 60, rel=0.05)
    assert any("on top of it" in text for text in found.finding.caveats)


@pytest.mark.parametrize(("write_us", "outcome"), [(35_000, "clean"), (55_000, "found")])
def test_five_ordinary_steps_are_the_limit(write_us: float, outcome: str) -> None:
    # A stalled step has 20 ms of work and 40 ms of copies beside the writing.
    assert judge(loop(write_us=write_us).to_run(), RULE).outcome == outcome


def test_long_steps_without_the_model_are_no_checkpoints() -> None:
    assert judge(loop(copies=40, bytes=4).to_run(), RULE).outcome == "clean"
    assert judge(loop([]).to_run(), RULE).outcome == "clean"


def test_code_that_saves_is_enough() -> None:
    w = Workload()
    for number in w.steps(12):
        for _ in range(20):
            w.launch("gemm", gpu_us=1000)
        if number % 4 == 3:
            w.sync()
            with w.frame("train.py(50): main"), w.frame("torch/serialization.py(900): save"):
                w.host(300_000)
    found = judge(w.to_run(), RULE)
    assert found.finding.facts["stalls"] == 3
    assert (found.finding.locations[0].file, found.finding.locations[0].line) == ("train.py", 50)


def test_the_profilers_own_hitches_are_none() -> None:
    w = Workload()
    for number in w.steps(10):
        for _ in range(20):
            w.launch("gemm", gpu_us=1000)
        if number == 4:
            for _ in range(40):
                w.copy("DtoH", 10_000_000, 100)
            w.overhead("Command Buffer Full", 400_000)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_cannot_judge_three_steps() -> None:
    found = judge(loop([1], steps=3).to_run(), RULE)
    assert found.outcome == "not-applicable" and "too few steps" in found.reason


def test_pageable_copies_of_a_checkpoint_are_told_once() -> None:
    report = judge(loop().to_run(), RULE, "pageable-copy", "host-sync-in-step").report
    assert [finding.rule for finding in report.findings] == [RULE]
