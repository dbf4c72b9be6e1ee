"""Memory errors that the GPU counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.detectors.words import count_text
from advisor.model import Evidence, Run
from advisor.rules.contract import Context, Draft, NotApplicable


@dataclass(frozen=True)
class Errors:
    """Highest counts of one GPU, and by how much they rose between its first and last sample."""

    device: int
    uncorrected: int
    uncorrected_rise: int
    corrected: int
    corrected_rise: int


def detect(ctx: Context) -> Draft | None:
    samples = ctx.run.table("device_samples")
    if not (samples.has("ecc_uncorrected") or samples.has("ecc_corrected")):
        raise NotApplicable("the samples hold no ECC error counts, or the GPU has no ECC")
    found = [errors for errors in _errors(ctx.run) if _bad(ctx, errors)]
    if not found:
        return None
    worst = max(found, key=lambda one: (one.uncorrected, one.corrected_rise, one.corrected, -one.device))
    if worst.uncorrected:
        what = count_text(worst.uncorrected, "uncorrected memory error")
        more = f", {worst.uncorrected_rise} of them while it was watched" if worst.uncorrected_rise else ""
    else:
        what = count_text(worst.corrected, "corrected memory error")
        more = f", {worst.corrected_rise} of them while it was watched" if worst.corrected_rise else ""
    return Draft(
        title=f"GPU {worst.device} counted {what} since its driver was loaded{more}",
        confidence="high",
        severity="high" if worst.uncorrected else "low",
        facts={
            "device": worst.device,
            "uncorrected": worst.uncorrected,
            "corrected": worst.corrected,
            "rise": worst.uncorrected_rise or worst.corrected_rise,
        },
        evidence=[
            Evidence(
                "ECC errors",
                ["device", "uncorrected", "uncorrected_rise", "corrected", "corrected_rise"],
                [[e.device, e.uncorrected, e.uncorrected_rise, e.corrected, e.corrected_rise] for e in found[:8]],
            )
        ],
        scope={"devices": sorted(errors.device for errors in found)},
        subject=["ecc", f"gpu {worst.device}"],
    )


def _bad(ctx: Context, errors: Errors) -> bool:
    return errors.uncorrected > 0 or errors.corrected_rise >= ctx.threshold("corrected_rise")


def _errors(run: Run) -> list[Errors]:
    samples = run.table("device_samples")
    result = []
    for device in np.unique(samples["device"]):
        counts = []
        for column in ("ecc_uncorrected", "ecc_corrected"):
            rows = np.flatnonzero((samples["device"] == device) & samples.known(column))
            values = samples[column][rows]
            counts += [int(values.max()), int(max(values[-1] - values[0], 0))] if len(values) else [0, 0]
        result.append(Errors(int(device), *counts))
    return result
