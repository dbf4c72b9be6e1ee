"""Which part of a run is written: whole steps of every rank, or everything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.derive.activity import step_windows_of
from advisor.derive.bounds import two_sided
from advisor.derive.steps import steps
from advisor.model import InputError, Run
from advisor.pictures.view import representative

EVER = (-(1 << 62), 1 << 62)
NEIGHBOURS = 1


@dataclass(frozen=True)
class Selection:
    """window: by rank (-1: unknown) the part of its time line, [low, high); ranks that are missing are written as a whole.

    steps: positions in `steps(run)`; whole: nothing is left out. said: the selection in words.
    """

    window: dict[int, tuple[int, int]]
    steps: tuple[int, ...]
    whole: bool
    said: str

    def of(self, rank: int) -> tuple[int, int]:
        return self.window.get(rank, EVER)


def select(run: Run, wanted: tuple[int | None, int | None] | None = None, everything: bool = False) -> Selection:
    """The representative steady step and its neighbours; else the half-open range of step positions; else everything.

    InputError where the range holds no step.
    """
    found = steps(run)
    every = tuple(range(len(found)))
    if everything or not len(found) or found.source == "none":
        if wanted is not None and not everything:
            raise InputError("no steps were found in this recording, so none can be selected; --all writes everything")
        return Selection({}, every, True, "everything" if len(found) else "everything: no steps were found")
    pace = two_sided(run)
    member = (pace.rank, pace.process) if pace else found.members[0]
    if wanted is None:
        middle = representative(found, *member)
        if middle is None:
            return Selection({}, every, True, "everything: no step of any length was found")
        at = int(np.flatnonzero(found.of(*member) == middle)[0])
        part, said = slice(max(at - NEIGHBOURS, 0), at + NEIGHBOURS + 1), f"step {at} (counted from 0) and its neighbours"
    else:
        low, high = wanted
        part, said = slice(low, high), f"steps {'' if low is None else low}:{'' if high is None else high}"
    window: dict[int, tuple[int, int]] = {}
    chosen: list[int] = []
    for rank, process in found.members:
        mine = found.of(rank, process)[part]
        if not len(mine):
            continue
        chosen += mine.tolist()
        start, end = step_windows_of(found, mine)
        first = min(int(found.start[mine].min()), int(start.min()))
        last = max(int(found.end[mine].max()), int(end.max()))
        before = window.get(rank, (first, last))
        window[rank] = (min(first, before[0]), max(last, before[1]))
    if not chosen:
        raise InputError(f"{said} holds no step: there are {max(len(found.of(*one)) for one in found.members)}")
    for rank in {int(one) for one in found.rank} - set(window):
        window[rank] = (0, 0)
    return Selection(window, tuple(chosen), False, said)
