"""How long a steady step of the run takes without a profiler, and whether its steps can be replayed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from advisor.derive.bounds import TwoSided, two_sided
from advisor.derive.steps import step_time
from advisor.derive.unprofiled import unprofiled_step
from advisor.model import Run
from advisor.replay.engine import Replay, replay


@dataclass(frozen=True)
class Pace:
    """step: the steady step from both sides, None without a step; replay: None where it cannot be trusted.

    error: how far the unchanged replay is from the recorded step, None without a graph. fault: why the replay itself failed.
    """

    step: TwoSided | None
    replay: Replay | None = None
    error: float | None = None
    fault: str | None = None


def pace(run: Run) -> Pace:
    """The replay's step where it reproduces the recording, else the two-sided estimate; in both as long as it was timed."""
    return run.derived(_pace)


def _pace(run: Run) -> Pace:
    step, recorded, timed = two_sided(run), step_time(run), unprofiled_step(run)
    if step is None or recorded is None:
        return Pace(None)
    if timed is not None:
        step = _lasting(step, timed.step_ns)
    try:
        again = replay(run)
    except Exception as error:  # no recording may cost the report: bounds stand without a replay
        if os.environ.get("ADVISOR_DEBUG"):
            raise
        return Pace(step, fault=f"{type(error).__name__}: {error}")
    if again is None:
        return Pace(step)
    # Replayed are ordinary steps; where stalls belong to the run, a step costs more than those.
    if not again.usable or recorded.mean_used:
        return Pace(step, error=again.error)
    took = again.step_ns if timed is not None else min(again.step_ns, step.recorded_ns)
    return Pace(_lasting(step, took), again, again.error)


def _lasting(step: TwoSided, took: int) -> TwoSided:
    """The same step, known to take so long."""
    host, gpu = min(step.host_ns, took), min(step.gpu_ns, took)
    return replace(step, step_ns=took, host_ns=host, gpu_ns=gpu, wait_ns=took - max(host, gpu))
