"""Where a finding shows on the time line: what its fix changes, else the events that its evidence names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from advisor.derive.detail import fewer
from advisor.derive.gpus import KERNEL, gpu_work
from advisor.derive.intervals import merge, union
from advisor.model import Finding, Run
from advisor.model.pictures import Highlight
from advisor.pictures.tracks import Events
from advisor.pictures.view import View
from advisor.replay.changes import Edit
from advisor.replay.touched import Touched, on_streams, touched

Basis = Literal["change", "evidence", "none"]
MOST_INTERVALS = 300  # of one finding, over all timelines
_HOST_TABLES = ("host_ops", "ranges", "runtime_calls", "python_frames")


class Places:
    """Finds the places of findings in a run, over all its steps.

    edits: what each finding's fix changes, by fingerprint. cleaned: a text of the run by its code, as findings print it.
    """

    def __init__(self, run: Run, edits: Mapping[str, Sequence[Edit]], cleaned: Callable[[int], str]) -> None:
        self._run = run
        self._edits = edits
        self._cleaned = cleaned

    def of(self, finding: Finding, rank: int, process: int) -> tuple[Basis, Touched]:
        """On one rank: by its change, where that is known and shows there, else by the names in its tables."""
        edits = self._edits.get(finding.fingerprint, ())
        found = touched(self._run, edits, rank, process) if edits else Touched()
        if found:
            return "change", found
        cells = {cell for table in finding.evidence for row in table.rows for cell in row if isinstance(cell, str) and cell}
        codes = np.array(sorted({code for cell in cells for code in self._codes.get(cell, ())}), np.int64)
        named = self._named(codes, rank, process) if len(codes) else Touched()
        return ("evidence" if named else "none"), named

    @cached_property
    def _codes(self) -> dict[str, list[int]]:
        """Names of events as findings print them -> their codes."""
        result: dict[str, list[int]] = {}
        names = [np.unique(self._run.table(name)["name"]) for name in ("kernels", *_HOST_TABLES)]
        for code in np.unique(np.concatenate(names)).tolist():
            if code >= 0:
                result.setdefault(self._cleaned(code), []).append(code)
        return result

    def _named(self, codes: np.ndarray[tuple[int], np.dtype[np.int64]], rank: int, process: int) -> Touched:
        run, work, found = self._run, gpu_work(self._run), Touched()
        kernel = np.zeros(len(work), bool)
        is_kernel = work.source == KERNEL
        kernel[is_kernel] = np.isin(run.table("kernels")["name"][work.row[is_kernel]], codes)
        on_streams(run, kernel, found, rank, process)
        for name in _HOST_TABLES:
            table = run.table(name)
            rows = np.flatnonzero(np.isin(table["name"], codes) & (table["rank"] == rank) & (table["process"] == process))
            for thread in np.unique(table["thread"][rows]).tolist():
                mine = rows[table["thread"][rows] == thread]
                more = union(table["start"][mine], table["end"][mine])
                found.threads[thread] = merge(found.threads[thread], more) if thread in found.threads else more
        return found


def highlight(places: Places, view: View, finding: Finding, events: Sequence[Events], most: int) -> Highlight:
    """The finding's intervals inside a view, at most so many, each on the track (its place in `events`) that it is on."""
    basis, seen = places.of(finding, view.rank, view.process)
    seen = seen.within(view.host, view.gpu)
    found = {}
    for number, each in enumerate(events):
        part = None
        if each.kind == "host" and each.thread is not None:
            part = seen.threads.get(each.thread)
        elif each.kind == "stream" and each.stream is not None:
            part = seen.streams.get((each.device if each.device is not None else -1, each.stream))
        if part is not None and len(part[0]):
            found[number] = part
    if not found:
        return Highlight([], [], [], "none")
    share = max(most // len(found), 1)
    track, start, length = [], [], []
    for number in sorted(found):
        kept = fewer(found[number], share)
        track += [number] * len(kept[0])
        start += (kept[0] - view.low).tolist()
        length += (kept[1] - kept[0]).tolist()
    return Highlight(track, start, length, basis, sum(len(part[0]) for part in found.values()))
