"""The tracks that we add to a trace: steps, idle time by cause, exposed communication, findings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.derive.activity import CAUSES, activities, idle_causes, step_windows_of
from advisor.derive.intervals import IntervalSet, clip, merge, subtract
from advisor.derive.steps import steps
from advisor.export.places import Places
from advisor.export.selection import Selection
from advisor.export.words import microseconds
from advisor.model import Finding, Report, Run
from advisor.pictures import highlights


def lines(run: Run, report: Report, selection: Selection, places: Places, found: highlights.Places) -> Iterator[str]:
    """Events of all tracks of ours inside the selection."""
    yield from _steps(run, selection, places)
    yield from _gpu_time(run, selection, places)
    for number, finding in enumerate(report.findings):
        yield from _finding(run, report, number, finding, selection, places, found)


def _event(pid: int, tid: int, name: str, start: int, end: int, args: dict[str, Any] | None = None) -> str:
    event = (
        f'{{"ph":"X","cat":"advisor","pid":{pid},"tid":{tid},"ts":{microseconds(start)},"dur":{microseconds(end - start)},'
        f'"name":{json.dumps(name)}'
    )
    return event + (f',"args":{json.dumps(args)}}}' if args else "}")


def _steps(run: Run, selection: Selection, places: Places) -> Iterator[str]:
    found = steps(run)
    if found.source == "none":
        return
    chosen = np.array(selection.steps, np.int64)
    gpu_start, gpu_end = step_windows_of(found, chosen)
    reach: dict[tuple[int, str], int] = {}
    for i, step in enumerate(chosen.tolist()):
        rank, process = int(found.rank[step]), int(found.process[step])
        pid = places.own(rank)
        args = {
            "number": int(found.number[step]),
            "steady": bool(found.steady[step]),
            "held up by the profiler": bool(found.hitch[step]),
            "records lost": bool(found.incomplete[step]),
        }
        sides = [("host", int(found.start[step]), int(found.end[step]))]
        if found.gpu_period[step] > 0:
            sides.append(("GPU", int(gpu_start[i]), int(gpu_end[i])))
        for side, start, end in sides:
            tid = places.row(pid, ("steps", side, process), f"steps on the {side}", 1 if side == "host" else 2)
            start = max(start, reach.get((tid + pid, side), start))  # steps follow one another, whatever the clocks say
            reach[tid + pid, side] = max(end, start)
            if end > start:
                yield _event(pid, tid, f"step {int(found.number[step])}", start, end, args)


def _gpu_time(run: Run, selection: Selection, places: Places) -> Iterator[str]:
    """Idle time by cause, and communication that compute does not hide."""
    for activity in activities(run):
        gpu = activity.gpu
        low, high = selection.of(gpu.rank)
        busy = clip(activity.busy, low, high)
        if not len(busy[0]):
            continue
        if selection.whole:
            low, high = int(busy[0][0]), int(busy[1][-1])
        pid, name = places.own(gpu.rank), f"GPU {gpu.device}" if gpu.device >= 0 else "GPU"
        causes = idle_causes(run, activity, (np.array([low], np.int64), np.array([high], np.int64)))
        tid = places.row(pid, ("idle", gpu), f"{name} idle, by cause", 10)
        yield from _sets(pid, tid, {cause: causes[cause] for cause in CAUSES})
        exposed = subtract(clip(activity.communication, low, high), activity.compute)
        if len(exposed[0]):
            tid = places.row(pid, ("exposed", gpu), f"{name} exposed communication", 11)
            waiting = subtract(exposed, subtract(exposed, activity.peer_wait))
            moving = subtract(exposed, activity.peer_wait)
            yield from _sets(pid, tid, {"waiting for other ranks": waiting, "exposed communication": moving})


def _sets(pid: int, tid: int, sets: dict[str, IntervalSet]) -> Iterator[str]:
    for name, (starts, ends) in sets.items():
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            yield _event(pid, tid, name, start, end)


def _finding(
    run: Run,
    report: Report,
    number: int,
    finding: Finding,
    selection: Selection,
    places: Places,
    found: highlights.Places,
) -> Iterator[str]:
    """What the finding's fix changes, or what its evidence names, on the host and on the GPUs of each rank."""
    args: dict[str, Any] = {"title": finding.title, "severity": finding.severity, "confidence": finding.confidence}
    if finding.saving is not None:
        saving = finding.saving.to_dict(report.step_ns or 0)
        args["saving a step, ms"] = {key: saving[f"{key}_ns"] / 1e6 for key in ("low", "expected", "high")}
        if saving["expected_frac"] is not None:
            args["saving, share of the step"] = saving["expected_frac"]
    if finding.fixes:
        args["fix"] = finding.fixes[0].title
    for rank, process in sorted({(int(r), int(p)) for r, p in steps(run).members}) if len(steps(run)) else []:
        basis, seen = found.of(finding, rank, process)
        window = selection.of(rank)
        seen = seen.within(window, window)
        for side, parts in (("host", seen.threads.values()), ("GPU", seen.streams.values())):
            whole = merge(*parts)
            if not len(whole[0]):
                continue
            pid = places.own(rank)
            shown = "what its fix changes" if basis == "change" else "what its evidence names"
            tid = places.row(pid, ("finding", number, side), f"{number + 1}. {finding.rule} ({side})", 20 + 2 * number)
            yield from (
                _event(pid, tid, finding.rule, start, end, {**args, "shown": shown})
                for start, end in zip(*(side_.tolist() for side_ in whole), strict=True)
            )
