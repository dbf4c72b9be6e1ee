"""The steady step of every GPU as a partition: compute, exposed communication, exposed copies, idle by cause."""

from __future__ import annotations

import numpy as np

from advisor.derive.activity import CAUSES, Activity, activities, idle_causes, step_windows, window
from advisor.derive.intervals import IntervalSet, intersect, length, merge, subtract
from advisor.model import Breakdown, Run


def breakdown(run: Run) -> list[Breakdown]:
    """One entry a GPU with work. Without steps the whole window is the one step."""
    return run.derived(_breakdown)


def _breakdown(run: Run) -> list[Breakdown]:
    return [breakdown_within(run, activity, windows) for activity, windows in _with_windows(run)]


def _with_windows(run: Run) -> list[tuple[Activity, IntervalSet]]:
    result = []
    for activity in activities(run):
        windows = step_windows(run, activity.gpu)
        if not len(windows[0]):
            start, end = window(run)
            windows = (np.array([start]), np.array([end]))
        result.append((activity, windows))
    return result


def breakdown_within(run: Run, activity: Activity, windows: IntervalSet) -> Breakdown:
    """The mean of the given windows (at least one) on one GPU."""
    n = len(windows[0])
    # Windows of consecutive steps touch; as one set they are merged, the count keeps the divisor.
    span = merge(windows)
    compute = intersect(activity.compute, span)
    exposed = subtract(intersect(activity.communication, span), compute)
    waiting = intersect(exposed, activity.peer_wait)
    copies = subtract(subtract(intersect(activity.copies, span), compute), exposed)
    idle = idle_causes(run, activity, span)
    parts = {
        "compute_ns": length(compute),
        "exposed_communication_ns": length(exposed),
        "exposed_copy_ns": length(copies),
        **{cause: length(idle[cause]) for cause in CAUSES},
    }
    each = {name: value // n for name, value in parts.items()}
    step = length(span) // n
    each["unexplained"] += max(step - sum(each.values()), 0)  # rounding, below one ns a part
    return Breakdown(
        rank=None if activity.gpu.rank < 0 else activity.gpu.rank,
        device=activity.gpu.device,
        step_ns=step,
        busy_ns=each["compute_ns"] + each["exposed_communication_ns"] + each["exposed_copy_ns"],
        compute_ns=each["compute_ns"],
        exposed_communication_ns=each["exposed_communication_ns"],
        exposed_communication_wait_ns=min(length(waiting) // n, each["exposed_communication_ns"]),
        exposed_copy_ns=each["exposed_copy_ns"],
        idle_ns=sum(each[cause] for cause in CAUSES),
        idle_by_cause={cause: each[cause] for cause in CAUSES},
    )
