"""What if the findings of these rules were mended: each rule alone, and all of them together, by the same replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from advisor.derive.bounds import TwoSided
from advisor.model import Notice, Run, Saving
from advisor.model.what_if import Mended, WhatIf
from advisor.replay.engine import Replay
from advisor.rules.catalogue import adjusted, catalogue, chosen
from advisor.rules.engine import outcomes
from advisor.rules.findings import Candidate, candidates
from advisor.rules.pace import pace
from advisor.rules.runinfo import run_info, run_notices
from advisor.rules.saving import Claim, combined_saving
from advisor.rules.told import check_options, check_steps, told_notices


def what_if(
    run: Run,
    rules: Iterable[str],
    *,
    rule_dirs: Sequence[str | Path] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    version: str | None = None,
    redact: bool = False,
) -> WhatIf:
    """The step of the run with the fixes of these rules (names of rules or families) applied.

    All findings of a rule count, however small, and also those that compete for the same time: what was asked for is applied.
    InputError for unknown names, rules that cannot be loaded, and impossible options of the run.
    """
    from advisor import __version__

    known, notices = catalogue(rule_dirs)
    entries = chosen(adjusted(known, thresholds or {}), _ordered(rules))
    check_options(run.options)
    check_steps(run)
    paced = pace(run)
    step = paced.step
    judged, more = outcomes(run, entries, step)
    alone, everything = [], []
    for one in judged:
        made = candidates(one, run, paced, redact)
        everything += made
        alone.append(
            Mended(
                rule=one.rule.id,
                outcome=one.outcome,
                findings=[each.finding.title for each in made],
                saving=_saving(made, step, paced.replay),
                reason=one.reason,
                capture=one.capture,
            )
        )
    told: list[Notice] = [*run.notices, *notices, *told_notices(run), *run_notices(run, paced), *more]
    return WhatIf(
        version=version or __version__,
        run=run_info(run, paced),
        step_ns=step.step_ns if step else None,
        alone=_in_order(alone, rules),
        together=_saving(everything, step, paced.replay),
        items_per_step=run.options.items_per_step,
        notices=list(dict.fromkeys(told)),
    )


def _ordered(rules: Iterable[str]) -> list[str]:
    return [name.strip() for text in rules for name in text.split(",") if name.strip()]


def _in_order(alone: list[Mended], rules: Iterable[str]) -> list[Mended]:
    """As asked for; the members of a family in the order of the catalogue, at the end."""
    asked = {name: place for place, name in reversed(list(enumerate(_ordered(rules))))}
    return sorted(alone, key=lambda one: asked.get(one.rule, len(asked)))


def _saving(made: Sequence[Candidate], step: TwoSided | None, replay: Replay | None) -> Saving | None:
    """What all these findings save at once; None where none of them promises anything."""
    found = [Claim(one.finding.saving, one.change, one.edits, one.spares_gpu) for one in made if one.finding.saving is not None]
    return combined_saving(found, step, replay) if step is not None and found else None
