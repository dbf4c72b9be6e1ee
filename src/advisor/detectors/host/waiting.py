"""What the rules on host waits share: what goes when waits go, and their evidence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import locations
from advisor.derive.calls import CallKind
from advisor.derive.nesting import thread_keys
from advisor.derive.steady import Steady, steadies
from advisor.derive.waits import Waits
from advisor.detectors.words import time_text
from advisor.model import Evidence, Location, Run
from advisor.replay.changes import GONE, Edit, Factor
from advisor.rules.contract import Change


def change(steady: Steady, found: Waits, wake_up_ns: float) -> Change:
    """Host and GPU no longer take turns at these waits.

    Of the time in which the two took turns, the waits' share of all waiting goes; in a loop that the GPU rules, at most
    what the GPU was idle after them. At most, a wake-up of the waiting thread goes with each wait; and host and GPU can
    overlap no longer than the shorter of both.
    """
    step, n = steady.step, max(steady.count, 1)
    if step.gpu_bound:
        wait = min(step.wait_ns, found.total_idle_ns // n)
    else:
        wait = steady.turns(int(found.wait_ns.sum()))
    host = int(found.cost_ns.sum()) // n
    most = min(wait + int(wake_up_ns * len(found) / n), max(min(step.host_ns, step.gpu_ns), wait))
    return Change(host_ns=host, wait_ns=wait, limit_ns=host + most)


def edits(run: Run, found_in: Callable[[Run, Steady], Waits]) -> list[Edit]:
    """The waits that `found_in` gives, and the copies to the host that they follow, are gone on all ranks."""
    waiting, reading = (np.zeros(len(run.table("runtime_calls")), bool) for _ in range(2))
    for steady in steadies(run):
        side, found = steady.side, found_in(run, steady)
        before = np.maximum(found.side - 1, 0)
        read = before[(side.kind[before] == CallKind.COPY) & (found.side > 0)]
        waiting[side.call[found.side]] = True
        reading[side.call[read]] = True
    waiting |= reading
    # Of the segment before a read, the operators of the read itself go too: about half of what is recorded there.
    return [Edit(calls=reading, host=Factor(1.0, 0.5, 0.0)), Edit(calls=waiting, own=GONE, waits=False)]


def at_best(steady: Steady, found: Waits, wake_up_ns: float) -> int:
    """A waiting thread sleeps, and waking it up takes the time that goes with the wait; no replay shows it."""
    return int(wake_up_ns * len(found) / max(steady.count, 1))


def evidence(run: Run, steady: Steady, found: Waits) -> Evidence:
    """The waits by call and operator, per step."""
    calls, n = run.table("runtime_calls"), max(steady.count, 1)
    call, operator = calls["name"][steady.side.call[found.side]], operators(run, found)
    distinct, group = np.unique(np.stack([call, operator]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    wait = np.bincount(group, weights=found.wait_ns)
    idle = np.bincount(group, weights=np.maximum(found.idle_ns, 0))
    count = np.bincount(group)
    order = np.argsort(-(wait + idle), kind="stable")[:8]
    rows = [
        [
            run.strings[int(distinct[0, i])],
            run.strings[int(distinct[1, i])] or None,
            round(count[i] / n, 2),
            int(wait[i]) // n,
            int(idle[i]) // n,
        ]
        for i in order
    ]
    return Evidence("Waits per steady step", ["call", "operator", "per_step", "wait_ns", "gpu_idle_after_ns"], rows)


def operators(run: Run, found: Waits) -> npt.NDArray[np.int64]:
    """Name code of the outermost operator around each wait, -1 without one."""
    ops = run.table("host_ops")
    if not len(ops):
        return np.full(len(found), -1, np.int64)
    return np.where(found.op >= 0, ops["name"][np.maximum(found.op, 0)], -1).astype(np.int64)


def caveats(steady: Steady, gone: Change, at_step_end: bool) -> list[str]:
    """What limits the saving, in words."""
    step = steady.step
    if steady.unmarked:
        return ["No steps are marked: the recording may hold the program's start, whose waits do not recur."]
    if not step.gpu_bound:
        return [
            f"The host sets the pace of this loop ({time_text(step.host_ns)} of host work a step, {time_text(step.gpu_ns)} "
            "on the GPU): without the waits it still has to issue everything, so they are worth at most "
            f"{time_text(gone.limit_ns or 0)} a step."
        ]
    if at_step_end:
        return ["All waits come after the last launch of a step: what can be gained is the refilling of the queue."]
    return []


def places(run: Run, steady: Steady, found: Waits) -> list[Location]:
    """The user's lines that wait."""
    rows = steady.side.call[found.side]
    calls = run.table("runtime_calls")
    weights = (found.wait_ns + np.maximum(found.idle_ns, 0) + 1).astype(float)
    return locations(run, thread_keys(calls)[rows], calls["start"][rows], weights)


def last_of_step(steady: Steady, found: Waits) -> npt.NDArray[np.bool_]:
    """Whether a wait is the last thing its step does with the GPU: no call after it launches anything."""
    side = steady.side
    last = np.full(steady.count, -1, np.int64)
    launching = np.flatnonzero(
        (steady.at >= 0) & np.isin(side.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY, CallKind.MEMSET))
    )
    np.maximum.at(last, steady.at[launching], launching)
    return found.side > last[steady.at[found.side]]
