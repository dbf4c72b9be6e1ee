"""What a fix changes in the graph, in the terms in which a detector sees it: rows of calls and of GPU work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from advisor.derive.intervals import IntervalSet, covered, merge
from advisor.derive.profiler_cost import without_profiler
from advisor.replay.graph import NO_WAIT, Amounts, Graph, recorded_amounts

Mask = npt.NDArray[np.bool_]


class Factor(NamedTuple):
    """What is left of a time: in the case that saves least, in the expected case, in the case that saves most."""

    least: float
    expected: float
    most: float


GONE = Factor(0.0, 0.0, 0.0)
LEAST, EXPECTED, MOST = 0, 1, 2


@dataclass(frozen=True)
class Edit:
    """One change. Give the masks that are meant; the rest of the graph stays.

    calls: mask over `runtime_calls`; with `host`: what is left of their own work and of the segments before them; with
        `own`: of their own work alone; with `waits` False: they no longer wait for the GPU.
    intervals: host time that vanishes, from whatever segments and calls lie inside, for the rank and process `of`.
    work: mask over `gpu_work`; with `gpu`: what is left of the operations' time; with `vanish`: they are gone, together with
        the calls that launched nothing else and the segments before those; with `aside`: they run beside their stream.
    """

    calls: Mask | None = None
    host: Factor | None = None
    own: Factor | None = None
    waits: bool = True
    intervals: IntervalSet | None = None
    of: tuple[int, int] | None = None
    work: Mask | None = None
    gpu: Factor | None = None
    vanish: bool = False
    aside: bool = False

    @property
    def ranged(self) -> bool:
        """Whether the worst case of the edit is another than its best."""
        return any(factor is not None and factor.least != factor.most for factor in (self.host, self.own, self.gpu))


def amounts(
    graph: Graph,
    strength: float | None,
    edits: Sequence[Edit] = (),
    level: int = EXPECTED,
    touched: tuple[Mask, float] | None = None,
    host: float = 1.0,
) -> Amounts:
    """The weights of the graph without the profiler's cost at that strength (None: as recorded), after the edits.

    touched: calls for which, with the segments before them, the profiler has another strength; host: how many times as long
    as in the recording all host work takes.
    """
    result = recorded_amounts(graph)
    if strength is not None:
        before, own = _unprofiled(graph, strength)
        if touched is not None:
            other_before, other_own = _unprofiled(graph, touched[1])
            before, own = np.where(touched[0], other_before, before), np.where(touched[0], other_own, own)
        speed = host * graph.speed
        if speed != 1.0:
            before, own = (before * speed).astype(np.int64), (own * speed).astype(np.int64)
        # A launch that takes less time reaches the GPU that much earlier.
        sooner = np.repeat(graph.own - own, np.diff(graph.first))
        result = replace(result, before=before, own=own, latency=np.maximum(graph.latency - sooner, 0))
    # Time that several edits name vanishes once.
    gone = [edit.intervals for edit in edits if edit.intervals is not None and edit.of in (None, (graph.rank, graph.process))]
    if gone:
        result = _without(graph, result, merge(*gone))
    for edit in edits:
        result = _apply(graph, result, edit, level)
    return result


def changed_calls(graph: Graph, edits: Sequence[Edit]) -> Mask:
    """Calls whose own work, or the segment before them, the edits change."""
    plain, edited = amounts(graph, None), amounts(graph, None, edits)
    return np.asarray((plain.before != edited.before) | (plain.own != edited.own), bool)


def _unprofiled(graph: Graph, strength: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return without_profiler(graph.kind, graph.before, graph.events, graph.frames, graph.own, graph.cost, strength)


def _apply(graph: Graph, a: Amounts, edit: Edit, level: int) -> Amounts:
    if edit.calls is not None:
        chosen = edit.calls[graph.call]
        if edit.host is not None:
            left = edit.host[level]
            a = replace(a, before=_scaled(a.before, chosen, left), own=_scaled(a.own, chosen, left))
        if edit.own is not None:
            a = replace(a, own=_scaled(a.own, chosen, edit.own[level]))
        if not edit.waits:
            a = replace(a, wait_kind=np.where(chosen, NO_WAIT, a.wait_kind).astype(np.int8))
    if edit.work is not None:
        a = _on_work(graph, a, edit, edit.work[graph.work], level)
    return a


def _on_work(graph: Graph, a: Amounts, edit: Edit, chosen: Mask, level: int) -> Amounts:
    if edit.gpu is not None:
        a = replace(a, length=_scaled(a.length, chosen, edit.gpu[level]))
    if edit.aside:
        a = replace(a, on_stream=a.on_stream & ~chosen)
    if edit.vanish:
        idle = _calls_left_idle(graph, chosen)
        a = replace(
            a,
            length=np.where(chosen, 0, a.length),
            gap=np.where(chosen, 0, a.gap),
            latency=np.where(chosen, 0, a.latency),
            before=np.where(idle, 0, a.before),
            own=np.where(idle, 0, a.own),
        )
    return a


def _calls_left_idle(graph: Graph, gone: Mask) -> Mask:
    """Calls that issued something, all of which is gone."""
    issued = np.diff(graph.first)
    lost = np.diff(np.concatenate(([0], np.cumsum(gone)))[graph.first])
    return np.asarray((issued > 0) & (lost == issued), bool)


def _without(graph: Graph, a: Amounts, gone: IntervalSet) -> Amounts:
    """Segments lose the share of them that the intervals cover; calls that begin inside lose their own work."""
    length = np.maximum(graph.before, 1)
    share = covered(gone, graph.begin - graph.before, graph.begin) / length
    inside = covered(gone, graph.begin, graph.begin + np.maximum(graph.own, 1)) / np.maximum(graph.own, 1)
    left, own_left = np.clip(1 - share, 0, 1), np.clip(1 - inside, 0, 1)
    return replace(a, before=(a.before * left).astype(np.int64), own=(a.own * own_left).astype(np.int64))


def _scaled(values: npt.NDArray[np.int64], chosen: Mask, left: float) -> npt.NDArray[np.int64]:
    return np.where(chosen, values * left, values).astype(np.int64)
