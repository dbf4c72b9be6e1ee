"""Which steps are recorded, and how step times are kept: no torch needed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hook.clock import StepClock
from advisor.hook.plan import Durations, Plan, Schedule, Trigger, on_signal, on_slow_step, on_touch


def recordings(plan: Plan, steps: int, length: int = 4, ns: int = 1_000_000) -> list[tuple[int, str]]:
    """(step, reason) of every recording, each taking `length` steps."""
    found, busy_until = [], -1
    for step in range(1, steps + 1):
        if step < busy_until:
            continue
        if step == busy_until:
            plan.recorded(step, found[-1][1])
        plan.durations.add(ns)
        reason = plan.due(step)
        if reason:
            found.append((step, reason))
            busy_until = step + length
    return found


def test_one_recording_after_the_wait_by_default() -> None:
    assert recordings(Plan(Schedule(wait=20)), 200) == [(20, "schedule")]


def test_repeats_keep_their_distance() -> None:
    assert recordings(Plan(Schedule(wait=10, repeat=3)), 200) == [(10, "schedule"), (24, "schedule"), (38, "schedule")]


def test_at_given_steps() -> None:
    assert recordings(Plan(Schedule(at=(7, 100))), 200) == [(7, "step 7"), (100, "step 100")]


def test_repeat_0_records_nothing_unless_asked() -> None:
    plan = Plan(Schedule(repeat=0))
    assert recordings(plan, 50) == []
    plan.ask("by hand")
    assert plan.due(51) == "by hand" and plan.due(52) is None


def test_windows_of_a_recording() -> None:
    assert Schedule().windows() == [("timing", 8), ("evidence", 3)]
    assert Schedule(light=True, evidence=0).windows() == [("light", 8)]


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"warmup": 0}, {"active": 1.5}, {"repeat": True}, {"at": (-3,)}])
def test_numbers_that_select_nothing(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Schedule(**wrong)  # type: ignore[arg-type]


def test_slow_steps_trigger_after_three_in_a_row() -> None:
    trigger, durations = on_slow_step(2.0), Durations()
    for _ in range(64):
        durations.add(100)
        assert not trigger.due(0, durations)
    answers = []
    for ns in (201, 201, 199, 201, 201, 201, 201):
        durations.add(ns)
        answers.append(trigger.due(0, durations))
    assert answers == [False, False, False, False, False, True, False]


def test_triggers_are_limited() -> None:
    always = Trigger("always", lambda step, durations: True)
    plan = Plan(Schedule(wait=5, repeat=0), [always], most=3)
    assert recordings(plan, 100) == [(1, "always"), (10, "always"), (19, "always")]


def test_touched_file(tmp_path: Path) -> None:
    file = tmp_path / "now"
    trigger = on_touch(file, every=1)
    assert not trigger.due(1, Durations())
    file.touch()
    assert trigger.due(2, Durations()) and not trigger.due(3, Durations())
    os.utime(file, ns=(1, 1))
    assert trigger.due(4, Durations())
    file.unlink()
    assert not trigger.due(5, Durations())


def test_signal_keeps_the_program_s_handler() -> None:
    seen = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number))
    try:
        trigger = on_signal(signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert trigger.due(1, Durations()) and not trigger.due(2, Durations())
        assert seen == [signal.SIGUSR2]
        trigger.close()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert seen == [signal.SIGUSR2] * 2 and not trigger.due(3, Durations())
    finally:
        signal.signal(signal.SIGUSR2, before)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40), st.integers(1, 12))
def test_the_clock_keeps_the_latest_steps(durations: list[int], size: int) -> None:
    clock, now = StepClock(size), 0
    clock.start_ns = 0
    for i, taken in enumerate(durations):
        now += taken
        assert clock.end(now, i % 3) == taken
    kept = clock.kept()
    first = kept["first"]
    assert kept["count"] == len(durations)
    assert len(kept["durations_ns"]) == len(kept["states"]) == len(durations) - first
    assert kept["durations_ns"] == durations[first:]
    assert kept["begin_ns"] == sum(durations[:first])
    assert kept["states"] == [i % 3 for i in range(first, len(durations))]
    assert len(kept["durations_ns"]) >= min(len(durations), size) - 1


def test_disturbed_steps_are_marked() -> None:
    clock = StepClock()
    clock.disturb(2)
    for now in range(1, 5):
        clock.end(now, 0)
    assert clock.kept()["states"] == [1, 1, 0, 0]
