"""A recording when the GPU idles: which readings fire the trigger, and how they get to it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import advisor.hook.sampler as sampler_module
from advisor.hook.idle import IdleWatch, on_idle_gpu
from advisor.hook.plan import Durations, Plan, Schedule
from advisor.hook.sampler import Sampler

DRIVER = Path(__file__).parent / "build" / "driver"


def firings(utilization: list[float | None], share: float = 0.5, seconds: float = 10.0, every: float = 1.0) -> list[int]:
    """Readings, by number, after which the trigger fired; the training loop looks after each."""
    trigger = on_idle_gpu(share, seconds)
    assert trigger.readings is not None
    found = []
    for i, value in enumerate(utilization):
        trigger.readings(100.0 + i * every, value)
        if trigger.due(i, Durations()):
            found.append(i)
    return found


def test_an_idle_gpu_fires_once_each_ten_seconds() -> None:
    assert firings([0] * 25) == [10, 20]
    assert firings([40] * 12) == [10] and firings([40] * 12, share=0.7) == []


def test_a_busy_gpu_or_a_short_pause_does_not() -> None:
    assert firings([90] * 60) == []
    assert firings(([100] * 6 + [0] * 4) * 6) == []
    assert firings([100] * 30 + [0] * 11) == [35]  # six of the latest eleven


def test_the_share_must_be_exceeded() -> None:
    assert firings([50] * 40) == []
    assert firings([49] * 12) == [10]


def test_what_the_gpu_does_not_tell_is_not_idleness() -> None:
    assert firings([None] * 40) == []
    assert firings([0, None, None, None] * 5, every=1.0) == [12]
    assert firings([0, 0], seconds=0.5) == []  # two readings tell nothing


@pytest.mark.parametrize("jump", [3600.0, -50.0])
def test_a_clock_that_jumps_begins_anew(jump: float) -> None:
    watch = IdleWatch(0.5, 10)
    for i in range(10):
        watch.add(i, 0)
    watch.add(9 + jump, 0)
    assert not watch.fired
    for i in range(1, 11):
        watch.add(9 + jump + i, 0)
    assert watch.fired


@given(st.lists(st.floats(0, 100), max_size=60), st.floats(0.01, 0.99), st.floats(1, 12))
def test_it_fires_only_where_the_latest_readings_say_so(values: list[float], share: float, seconds: float) -> None:
    before = -1  # the reading that fired last
    for at in firings(list(values), share, seconds):
        recent = [value for i, value in enumerate(values) if before < i <= at and i >= at - seconds]
        assert 1 - sum(recent) / len(recent) / 100 > share - 1e-9 and at - max(before, 0) >= seconds
        before = at


@given(st.lists(st.floats(51, 100), max_size=60))
def test_it_never_fires_while_the_gpu_is_busy(values: list[float]) -> None:
    assert firings(list(values)) == []


@pytest.mark.parametrize(
    "wrong", [{"share": 0}, {"share": 1}, {"share": float("nan")}, {"seconds": 0}, {"seconds": float("inf")}]
)
def test_numbers_that_mean_nothing(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        on_idle_gpu(**wrong)


def test_the_plan_names_the_reason() -> None:
    trigger = on_idle_gpu(0.5, 2)
    plan = Plan(Schedule(repeat=0), [trigger])
    assert trigger.readings is not None and plan.due(1) is None
    for second in range(4):
        trigger.readings(second, 10)
    assert plan.due(2) == "GPU idle above 50%" and plan.due(3) is None


def test_the_sampler_hands_its_readings_over_and_goes_on_when_the_file_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(DRIVER))
    monkeypatch.delitem(__import__("sys").modules, "pynvml", raising=False)
    monkeypatch.setenv("FAKE_NVML", json.dumps([{"utilization": [7, 8, None, 9]}]))
    monkeypatch.setattr(sampler_module, "_MOST_ROWS", 3)
    got: list[tuple[float, float | None]] = []
    enough = threading.Event()

    def listener(at: float, utilization: float | None) -> None:
        got.append((at, utilization))
        if len(got) == 6:
            enough.set()

    bundle: Any = SimpleNamespace(folder=tmp_path)
    sampler = Sampler(bundle, 0.001, [listener])
    sampler._address = None
    thread = threading.Thread(target=sampler._run)
    thread.start()
    assert enough.wait(30)
    sampler.end()
    thread.join(10)
    assert not thread.is_alive() and [value for _, value in got[:6]] == [7, 8, None, 9, 9, 9]
    assert [at for at, _ in got] == sorted(at for at, _ in got)
    assert len((tmp_path / "smi.csv").read_text().splitlines()) == 4 and sampler.about()["rows"] == 3


def test_readings_start_a_recording(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from advisor.hook import attach

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trigger = on_idle_gpu(0.5, 5)
    schedule = Schedule(repeat=0, warmup=1, active=2, evidence=0)
    with attach(optimizer, schedule=schedule, triggers=[trigger], output=str(tmp_path), analyze=False) as attached:
        for step in range(20):
            assert trigger.readings is not None
            trigger.readings(float(step), 10)  # as the sampler's thread would
            model(torch.randn(2, 4)).mean().backward()
            optimizer.step()
    assert attached.folder is not None
    found = json.loads((attached.folder / "rank-0" / "manifest.json").read_text())
    assert [(window["kind"], window["reason"]) for window in found["windows"]] == [("timing", "GPU idle above 50%")]
