"""What chosen findings of a run save together, by the same replay as all of them: for a comparison of promise and outcome."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from advisor.model import Report, Run, Saving
from advisor.rules.catalogue import adjusted, catalogue, chosen
from advisor.rules.engine import outcomes
from advisor.rules.findings import candidates, claims
from advisor.rules.pace import pace
from advisor.rules.saving import combined_saving


def promised_together(
    run: Run,
    report: Report,
    fingerprints: Collection[str],
    rule_dirs: Sequence[str | Path] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
) -> Saving | None:
    """None without a step, or where none of these findings promises anything. `report`: what the engine made of the run."""
    paced = pace(run)
    rules = sorted({one.rule for one in report.findings if one.fingerprint in fingerprints})
    if paced.step is None or not rules:
        return None
    judged, _ = outcomes(run, chosen(adjusted(catalogue(rule_dirs)[0], thresholds or {}), rules, ()), paced.step)
    made = [each for one in judged for each in candidates(one, run, paced, False) if each.finding.fingerprint in fingerprints]
    found = claims(made)
    return combined_saving(found, paced.step, paced.replay) if found else None
