"""What a detector gets and gives back.

A detector is one module with one function::

    def detect(ctx: Context) -> Draft | None:      # None: judged, and nothing to report

It raises `NotApplicable` when the input lacks what it needs. Prose, thresholds and fixes live in the rule's TOML file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from advisor.model import Device, Evidence, Location, Run, Saving
from advisor.model.report import Confidence, Severity
from advisor.replay.changes import Edit

if TYPE_CHECKING:
    from advisor.rules.rule import Rule


class NotApplicable(Exception):
    """The rule cannot judge this input. `capture`: the command or setting that would let it; None: that of the rule's TOML;
    empty: none would.
    """

    def __init__(self, reason: str, capture: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.capture = capture


@dataclass(frozen=True)
class Change:
    """What a fix takes from one steady step, in nanoseconds, seen from both sides of the step.

    host_ns: host work that vanishes (Python, launches, loading, API calls) on the thread that drives the GPU.
    gpu_ns:  GPU time that vanishes (kernels, copies and gaps on the busiest stream order).
    wait_ns: time in which host and GPU waited for one another (synchronisation, a stall) and that can overlap afterwards.
    limit_ns: the interval limit; the saving can never be more. None: host_ns + gpu_ns + wait_ns. What it exceeds their sum
              by counts as GPU time too, unless the change takes host time or waits alone.
    """

    host_ns: int = 0
    gpu_ns: int = 0
    wait_ns: int = 0
    limit_ns: int | None = None


@dataclass
class Draft:
    """A finding before the engine adds the rule's prose, severity, fixes and fingerprint.

    Give `edits` (the engine replays the steps with them) together with `change` (the same seen from both sides of the
    step, for recordings that cannot be replayed), or `change` alone, or `saving` when the size of the saving is known
    otherwise, or none of them when the finding warns or informs.

    at_best_ns: what may be saved in a step beyond what a replay shows (wake-ups of waiting threads): goes into high alone.
    facts: numbers that the title rests on; also the values for the placeholders of the fixes' snippets.
    fixes: ids of the rule's fixes that are valid here, best first; None: all of them.
    subject: words without times that tell this finding from another of the same rule (operator names, places).
    severity: only for dangers that have no saving.
    alternative_to: id of the rule whose saving competes for the same time.
    """

    title: str
    confidence: Confidence = "medium"
    edits: list[Edit] = field(default_factory=list)
    at_best_ns: int = 0
    change: Change | None = None
    saving: Saving | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)
    locations: list[Location] = field(default_factory=list)
    fixes: list[str] | None = None
    scope: dict[str, list[Any]] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)
    subject: list[str] = field(default_factory=list)
    severity: Severity | None = None
    alternative_to: str | None = None


@dataclass(frozen=True)
class Context:
    """The run under judgement and the rule that judges it. Facts about the run come from the functions of advisor.derive."""

    run: Run
    rule: Rule

    def threshold(self, name: str) -> float:
        """Value of a threshold of the rule's TOML. KeyError if the rule declares no such threshold."""
        return self.rule.thresholds[name].value

    @property
    def device(self) -> Device | None:
        """The GPU that did the work: of the rank under judgement, else the first that has any."""
        from advisor.derive.gpus import main_device

        return main_device(self.run)
