"""Clocks held down by the power limit: a fact about the machine, rarely a fault."""

from __future__ import annotations

import numpy as np

from advisor.derive.attribution import matching_codes
from advisor.derive.bounds import two_sided
from advisor.derive.health import DeviceHealth, device_health
from advisor.derive.kernel_classes import MATRIX_CLASSES
from advisor.derive.sequence import sequence
from advisor.detectors.hardware.clock_throttle import evidence
from advisor.model import ThrottleReason
from advisor.rules.contract import Change, Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    healths = [h for h in device_health(ctx.run) if h.busy_samples]
    judged = [h for h in healths if h.clock_ratio is not None and (h.reasons or h.power_violation is not None)]
    if not judged:
        raise NotApplicable("the samples lack SM clocks with their maximum, or the reasons for clocks")
    capped = [
        h for h in judged if _share(h) >= ctx.threshold("min_share") and 1 - (h.clock_ratio or 1) >= ctx.threshold("min_loss")
    ]
    if not capped:
        return None
    worst = min(capped, key=lambda h: (h.clock_ratio or 1.0, h.device))
    loss = 1 - (worst.clock_ratio or 1.0)
    limit = f" of {worst.power_limit:.0f} W" if worst.power_limit else ""
    return Draft(
        title=f"the power limit{limit} holds GPU {worst.device} {loss:.0%} below its highest clock",
        confidence="medium",
        change=_change(ctx, loss) if loss >= ctx.threshold("promise_loss") else None,
        facts={
            "device": worst.device,
            "clock_loss_frac": round(loss, 4),
            "power_limit_w": worst.power_limit,
            "power_w": None if worst.power is None else round(worst.power, 1),
        },
        evidence=[evidence(capped)],
        scope={"devices": sorted(h.device for h in capped)},
        caveats=["Kernels bound by memory bandwidth gain nothing from a higher SM clock."],
        subject=["power"],
    )


def _share(health: DeviceHealth) -> float:
    if health.reasons:
        return health.reasons.get(ThrottleReason.SW_POWER_CAP, 0.0)
    return (health.power_violation or 0.0) / 100


def _change(ctx: Context, loss: float) -> Change | None:
    """Only matrix kernels run at the SM clock for certain; without a trace nothing is promised.

    A matrix times a vector, as in decoding, reads all of the matrix for little arithmetic: memory bounds it.
    """
    if two_sided(ctx.run) is None:
        return None
    found = sequence(ctx.run)
    names = ctx.run.table("kernels")["name"][found.row]
    arithmetic = np.isin(found.kind, MATRIX_CLASSES) & ~np.isin(names, matching_codes(ctx.run, names, "(?i)gemv|dot_kernel"))
    gained = found.per_step(found.gpu_ns, arithmetic) * loss
    return Change(gpu_ns=round(gained)) if gained > 0 else None
