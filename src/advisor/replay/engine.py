"""Replays of a run: does the graph reproduce it, how long is a step without the profiler, and what does a change save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.derive.profiler_cost import STRENGTH, STRONG, WEAK
from advisor.derive.steps import steps
from advisor.derive.unprofiled import Unprofiled, unprofiled_step
from advisor.model import Run
from advisor.replay.build import graphs
from advisor.replay.changes import EXPECTED, LEAST, MOST, Edit, amounts, changed_calls
from advisor.replay.execute import step_ns
from advisor.replay.graph import Graph

# The graph must give the recorded step back this well, or its answers are not used.
MOST_ERROR = 0.05
# How much the profiler slows the host is not known better than this range; its ends go into low and high.
STRENGTHS = (WEAK, STRENGTH, STRONG)
NO_PROFILER = 0.0  # the strength that takes nothing off
_STRONGEST = 3.0  # beyond it only the floors of segments and launches are left
_HALVINGS = 10  # to about 0.3 % of the expected strength
_SPREAD = 1.1  # the timed step is the mean over all code, and single pieces of code differ from it
# The same loop on the same host takes so many times as long, or as short, at another time (two thirds of the repeats of 18
# loops that the host rules lie within); the GPU's time stays. What the recording shows is one such moment.
DRIFT = 1.15


@dataclass(frozen=True)
class Gain:
    """What a change saves, as shares of the step: in the worst, the expected and the best case."""

    low: float
    expected: float
    high: float


class Replay:
    """The replays of one run. `error`: relative difference of the unchanged replay to the recorded step.

    timed: the step while nothing recorded it, where the program's hook timed it: it tells the profiler's strength.
    """

    def __init__(self, built: list[Graph], timed: Unprofiled | None = None) -> None:
        self.graphs = built
        self.timed = timed
        self.recorded_ns = max(graph.recorded_ns for graph in built)
        unchanged = step_ns(built, [amounts(graph, None) for graph in built])
        self.error = abs(unchanged / self.recorded_ns - 1) if self.recorded_ns else 1.0
        self.weak, self.strength, self.strong = STRENGTHS if timed is None else _strengths(built, timed)
        strengths = (self.weak, self.strength, self.strong)
        self._unprofiled = {s: step_ns(built, [amounts(g, s) for g in built]) for s in strengths}
        self._drifted = {at: step_ns(built, [amounts(g, self.strength, host=at) for g in built]) for at in (1 / DRIFT, DRIFT)}

    @property
    def usable(self) -> bool:
        return self.error <= MOST_ERROR and min(self._unprofiled.values()) > 0

    @property
    def step_ns(self) -> int:
        """The step without the profiler, ns."""
        if self.timed is not None:
            return self.timed.step_ns
        return round(min(self._unprofiled[self.strength], self.recorded_ns))

    def after_ns(self, edits: Sequence[Edit], strength: float | None = None, level: int = EXPECTED) -> float:
        """The step with the edits applied, ns; by default at the expected strength of the profiler."""
        strength = self.strength if strength is None else strength
        return step_ns(self.graphs, [amounts(graph, strength, edits, level) for graph in self.graphs])

    def gain(self, edits: Sequence[Edit]) -> Gain:
        """What the edits save together. Low and high are the extremes over the profiler's strength, the edits' range and the
        host's speed, which is another one at another time.

        The profiler does not slow all code alike: where few operators are recorded, it costs less. So the changed part of
        the host's side may be slowed weakly while the rest is slowed strongly, and the other way round.
        """
        cases = [(self.strength, EXPECTED), (self.weak, LEAST), (self.strong, LEAST)]
        if any(edit.ranged for edit in edits):
            cases += [(self.weak, MOST), (self.strong, MOST)]
        shares = [1 - self.after_ns(edits, strength, level) / self._unprofiled[strength] for strength, level in cases]
        shares += self._unevenly(edits) + self._at_another_time(edits)
        return Gain(_share(min(shares)), _share(shares[0]), _share(max(shares)))

    def _at_another_time(self, edits: Sequence[Edit]) -> list[float]:
        """Gains on a host that is slower or faster than the recorded one."""
        return [
            1 - step_ns(self.graphs, [amounts(g, self.strength, edits, host=host) for g in self.graphs]) / before
            for host, before in self._drifted.items()
        ]

    def _unevenly(self, edits: Sequence[Edit]) -> list[float]:
        """Gains where the profiler slows what the edits change by another strength than the rest."""
        changed = [changed_calls(graph, edits) for graph in self.graphs]
        if not any(mask.any() for mask in changed):
            return []
        gains = []
        for strength, other, level in ((self.strong, self.weak, MOST), (self.weak, self.strong, LEAST)):
            before = step_ns(
                self.graphs, [amounts(g, strength, touched=(m, other)) for g, m in zip(self.graphs, changed, strict=True)]
            )
            after = step_ns(
                self.graphs, [amounts(g, strength, edits, level, (m, other)) for g, m in zip(self.graphs, changed, strict=True)]
            )
            gains.append(1 - after / before if before > 0 else 0.0)
        return gains


def _strengths(built: list[Graph], timed: Unprofiled) -> tuple[float, float, float]:
    """(weak, expected, strong): the strengths at which the replayed step is the timed one, and those of its spread."""

    def at(wanted: int) -> float:
        # A stronger profiler leaves a shorter step: bisection.
        low, high = NO_PROFILER, _STRONGEST
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if step_ns(built, [amounts(graph, middle) for graph in built]) > wanted:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    expected = at(timed.step_ns)
    weak, strong = min(at(timed.high_ns), expected / _SPREAD), max(at(timed.low_ns), expected * _SPREAD)
    return max(weak, NO_PROFILER), expected, strong


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def replay(run: Run) -> Replay | None:
    """None where launches or GPU work were not recorded, or nothing marks steps."""
    return run.derived(_replay)


def _replay(run: Run) -> Replay | None:
    found, built = steps(run), graphs(run)
    if found.source == "none" or len(built) != len(found.members) or not built:
        return None
    return Replay(built, unprofiled_step(run))
