"""What the user asked of a run, and whether it holds: budgets, `--fail-on`, allowed regressions, a baseline of findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["passed", "failed", "not-judged"]
Kind = Literal["budget", "finding", "regression"]
Unit = Literal["ns", "bytes", "fraction", "count"]
Acceptance = Literal["accepted", "worse", "fixed", "not-judged"]

STATES: tuple[State, ...] = ("failed", "not-judged", "passed")


@dataclass(frozen=True)
class Condition:
    """One condition and what became of it.

    name: as the user wrote it (`step-time`, `high`, `regression>3%`), unique within a verdict together with `kind`.
    text: one sentence for people that says limit and outcome: "step time is 131 ms, at most 120 ms are allowed".
    limit, actual: numbers in `unit`; None where there is none (conditions on findings count them: limit 0).
    bound: whether `actual` may be at most or has to be at least `limit`.
    source: where in the report's JSON `actual` stands, for example `run.steps.median_ns`.
    reason: why it could not be judged; None if it was.
    findings: fingerprints of the findings because of which it failed.
    origin: where it was asked for, for example `advisor.toml, line 12` or `--fail-on`.
    """

    name: str
    kind: Kind
    state: State
    text: str
    limit: float | None = None
    actual: float | None = None
    unit: Unit | None = None
    bound: Literal["at-most", "at-least"] = "at-most"
    source: str | None = None
    reason: str | None = None
    findings: tuple[str, ...] = ()
    origin: str | None = None


@dataclass(frozen=True)
class Accepted:
    """An entry of the baseline beside what the run shows now; savings in ns a step, None without a promise.

    state: `accepted` (stands as it did), `worse` (by more than the margin, so it counts again), `fixed` (the rule judged and
    no longer finds it), `not-judged` (nobody can say: the rule was not selected, or could not judge this recording).
    """

    fingerprint: str
    rule: str
    title: str
    state: Acceptance
    then_ns: int | None = None
    now_ns: int | None = None


@dataclass(frozen=True)
class BaselineVerdict:
    """The entries of a baseline file, each once, and the fingerprints that it does not hold."""

    path: str
    margin_frac: float
    entries: tuple[Accepted, ...] = ()
    new: tuple[str, ...] = ()

    def of(self, *states: Acceptance) -> list[Accepted]:
        return [entry for entry in self.entries if entry.state in states]


@dataclass(frozen=True)
class Verdict:
    """All conditions of one call.

    strict: a condition that cannot be judged counts as failed.
    advisory: nothing fails the command (`--fail-on never`); the states are told all the same.
    """

    conditions: tuple[Condition, ...] = ()
    strict: bool = False
    advisory: bool = False
    baseline: BaselineVerdict | None = field(default=None)

    @property
    def failing(self) -> list[Condition]:
        """The conditions because of which the command ends with status 1; empty if it does not."""
        states = {"failed", "not-judged"} if self.strict else {"failed"}
        return [] if self.advisory else [one for one in self.conditions if one.state in states]

    @property
    def failed(self) -> bool:
        return bool(self.failing)

    def accepts(self, fingerprint: str) -> bool:
        """Whether the baseline holds this finding and it is no worse than it was: formats list such findings apart."""
        return self.baseline is not None and any(entry.fingerprint == fingerprint for entry in self.baseline.of("accepted"))

    def __bool__(self) -> bool:
        """False if nothing was asked: then no format mentions conditions at all."""
        return bool(self.conditions) or self.baseline is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the key `gates` of the report, as docs/report-json.md says."""
        return {
            "failed": self.failed,
            "strict": self.strict,
            "advisory": self.advisory,
            "conditions": [{**vars(one), "findings": list(one.findings)} for one in self.conditions],
            "baseline": None if self.baseline is None else _baseline(self.baseline),
        }


def _baseline(found: BaselineVerdict) -> dict[str, Any]:
    return {
        "path": found.path,
        "margin_frac": found.margin_frac,
        "entries": [dict(vars(entry)) for entry in found.entries],
        "new": list(found.new),
    }
