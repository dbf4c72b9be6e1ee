"""Where a finding shows on a timeline: what its fix changes, else the events that its evidence names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from advisor.derive.detail import fewer
from advisor.derive.intervals import IntervalSet, clip, union
from advisor.model import Finding, Run
from advisor.model.pictures import Highlight
from advisor.pictures.tracks import Events
from advisor.replay.changes import Edit
from advisor.replay.touched import touched

if TYPE_CHECKING:
    from advisor.pictures.timeline import View

Basis = Literal["change", "evidence", "none"]
MOST_INTERVALS = 300  # of one finding


def highlight(
    run: Run, view: View, finding: Finding, edits: Sequence[Edit], events: Sequence[Events], cleaned: Callable[[int], str]
) -> Highlight:
    """The finding's intervals, each on the track (its place in `events`) of the thread or stream that it is on.

    cleaned: a text of the run by its code, as the finding's tables print it.
    """
    basis, found = intervals(run, view, finding, edits, events, cleaned)
    if not found:
        return Highlight([], [], [], "none")
    total = sum(len(part[0]) for part in found.values())
    share = max(MOST_INTERVALS // len(found), 1)
    track, start, length = [], [], []
    for number in sorted(found):
        kept = fewer(found[number], share)
        track += [number] * len(kept[0])
        start += (kept[0] - view.low).tolist()
        length += (kept[1] - kept[0]).tolist()
    return Highlight(track, start, length, basis, total)


def intervals(
    run: Run, view: View, finding: Finding, edits: Sequence[Edit], events: Sequence[Events], cleaned: Callable[[int], str]
) -> tuple[Basis, dict[int, IntervalSet]]:
    """(basis, track -> intervals) of a finding inside the view."""
    if edits:
        seen = touched(run, edits, view.rank, view.process).within(view.host, view.gpu)
        found: dict[int, IntervalSet] = {}
        for number, each in enumerate(events):
            part = None
            if each.kind == "host" and each.thread is not None:
                part = seen.threads.get(each.thread)
            elif each.kind == "stream" and each.stream is not None:
                part = seen.streams.get((each.device if each.device is not None else -1, each.stream))
            if part is not None and len(part[0]):
                found[number] = part
        if found:
            return "change", found
    named = _named(view, finding, events, cleaned)
    return ("evidence" if named else "none"), named


def _named(view: View, finding: Finding, events: Sequence[Events], cleaned: Callable[[int], str]) -> dict[int, IntervalSet]:
    """Events whose names stand in the finding's tables."""
    cells = {cell for table in finding.evidence for row in table.rows for cell in row if isinstance(cell, str) and cell}
    if not cells:
        return {}
    result = {}
    for number, each in enumerate(events):
        if each.kind not in ("host", "frames", "ranges", "stream"):
            continue
        codes = [code for code in np.unique(each.name).tolist() if code >= 0 and cleaned(code) in cells]
        hit: npt.NDArray[np.bool_] = np.isin(each.name, codes)
        if hit.any():
            window = view.gpu if each.kind == "stream" else view.host
            part = clip(union(each.start[hit], each.end[hit]), *window)
            if len(part[0]):
                result[number] = part
    return result
