"""GPUs of one job that work unequally hard."""

from __future__ import annotations

import numpy as np

from advisor.derive.health import BUSY_UTILIZATION
from advisor.model import Evidence
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    samples = ctx.run.table("device_samples")
    known = samples.take(samples.known("utilization"))
    spans = {int(d): _span(known["time"], known["utilization"], known["device"] == d) for d in np.unique(known["device"])}
    working = {device: span for device, span in spans.items() if span is not None}
    if len(working) < 2:
        raise NotApplicable("the samples show fewer than two GPUs at work")
    # Judged is the time in which all of them are part of the job.
    start, end = max(low for low, _ in working.values()), min(high for _, high in working.values())
    rows = []
    for device in sorted(working):
        mine = known.take((known["device"] == device) & (known["time"] >= start) & (known["time"] <= end))
        if len(mine) < ctx.threshold("least_samples"):
            raise NotApplicable(
                f"fewer than {ctx.threshold('least_samples'):.0f} samples in which the GPUs work at the same time"
            )
        power = mine["power"][mine.known("power")]
        rows.append((device, float(mine["utilization"].mean()), float(power.mean()) if len(power) else None, len(mine)))
    by_time = _apart([row[1] for row in rows])
    spread = rows[by_time[1]][1] - rows[by_time[0]][1]
    powers = [row[2] for row in rows]
    if all(power is not None for power in powers):
        by_power = _apart([power or 0.0 for power in powers])
        lost = 1 - (powers[by_power[0]] or 0.0) / max(powers[by_power[1]] or 0.0, 1.0)
        if lost >= ctx.threshold("power_spread"):
            return _draft(rows, by_power, spread)
        # A GPU that waits in a collective runs a kernel all the time, at low power: time alone says little.
        return None
    return _draft(rows, by_time, spread) if spread >= ctx.threshold("spread") else None


def _apart(values: list[float]) -> tuple[int, int]:
    """Positions of the smallest and the largest value, the first of equals."""
    return min(range(len(values)), key=values.__getitem__), max(range(len(values)), key=values.__getitem__)


def _draft(rows: list[tuple[int, float, float | None, int]], apart: tuple[int, int], spread: float) -> Draft:
    low, high = rows[apart[0]], rows[apart[1]]
    watts = "" if low[2] is None or high[2] is None else f" at {low[2]:.0f} W"
    more = "" if not watts else f" at {high[2]:.0f} W"
    return Draft(
        title=f"GPU {low[0]} works {low[1]:.0f} % of the time{watts}, GPU {high[0]} {high[1]:.0f} %{more}",
        confidence="medium",
        severity="low",
        facts={"spread_points": round(spread, 1), "least_busy": low[0], "most_busy": high[0]},
        evidence=[
            Evidence(
                "While all of them worked",
                ["device", "samples", "utilization_percent", "power_w"],
                [[d, n, round(u, 1), None if p is None else round(p, 1)] for d, u, p, n in rows[:8]],
            )
        ],
        scope={"devices": sorted({low[0], high[0]})},
        caveats=[
            "Utilisation is time with any kernel: a GPU that waits in a collective counts as busy, so the late one can be either."
        ],
        subject=["utilization"],
    )


def _span(time: np.ndarray, utilization: np.ndarray, mine: np.ndarray) -> tuple[int, int] | None:
    """First and last busy moment of a GPU; None if it never worked."""
    busy = np.flatnonzero(mine & (utilization >= BUSY_UTILIZATION))
    return (int(time[busy[0]]), int(time[busy[-1]])) if len(busy) > 1 else None
