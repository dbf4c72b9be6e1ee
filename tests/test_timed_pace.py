"""Steps that the program's hook timed outside windows say how long a step takes and how strongly the profiler slowed it."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.model import Run, Table
from advisor.replay.engine import NO_PROFILER, replay
from advisor.rules.engine import analyze
from build.workload import Workload, ns


def recorded(gpu_us: float = 4, timed_us: float | None = None, steps: int = 40) -> Run:
    """Steps of 30 small kernels under operators: about 700 us of recorded host work."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(30):
            with w.op("aten::add", us=18):
                w.launch("add", gpu_us=gpu_us)
    run = w.to_run()
    if timed_us is not None:
        start = ns(timed_us) * np.arange(steps)
        columns = {
            "start": start,
            "end": start + ns(timed_us),
            "number": np.arange(steps) + 100,
            "state": np.zeros(steps, np.int8),
        }
        run.tables["step_times"] = Table("step_times", columns)
    return run


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_a_host_bound_step_is_as_long_as_it_was_timed(share: float) -> None:
    plain = analyze(recorded())
    taken = plain.run["steps"]["recorded_median_ns"] * share / 1000
    run = recorded(timed_us=taken)
    report = analyze(run)
    assert report.step_ns == pytest.approx(ns(taken), abs=1)
    assert report.run["steps"]["timed"]["median_ns"] == report.step_ns and "timed" not in plain.run["steps"]
    assert report.run["profiler_overhead"]["estimated_frac"] == pytest.approx(1 - share, abs=0.001)
    again = replay(run)
    assert again is not None and again.after_ns([]) == pytest.approx(ns(taken), rel=0.01)
    assert again.weak < again.strength < again.strong


def test_a_step_that_was_timed_longer_than_recorded_takes_nothing_off() -> None:
    taken = analyze(recorded()).run["steps"]["recorded_median_ns"] * 1.1 / 1000
    run = recorded(timed_us=taken)
    assert analyze(run).step_ns == pytest.approx(ns(taken), abs=1)
    again = replay(run)
    assert again is not None and again.strength == pytest.approx(NO_PROFILER, abs=0.01)
