"""Clocks held down by heat or by the hardware's own protection."""

from __future__ import annotations

from advisor.derive.bounds import two_sided
from advisor.derive.breakdown import breakdown
from advisor.derive.health import DeviceHealth, device_health
from advisor.model import Evidence, ThrottleReason
from advisor.rules.contract import Change, Context, Draft, NotApplicable

HARMFUL = (
    ThrottleReason.HW_SLOWDOWN,
    ThrottleReason.SW_THERMAL,
    ThrottleReason.HW_THERMAL,
    ThrottleReason.HW_POWER_BRAKE,
)
WORDS = {
    ThrottleReason.HW_SLOWDOWN: "hardware slowdown",
    ThrottleReason.SW_THERMAL: "heat (software)",
    ThrottleReason.HW_THERMAL: "heat (hardware)",
    ThrottleReason.HW_POWER_BRAKE: "power brake",
    ThrottleReason.SW_POWER_CAP: "power cap",
}


def detect(ctx: Context) -> Draft | None:
    healths = [h for h in device_health(ctx.run) if h.busy_samples]
    if not any(h.reasons or h.thermal_violation is not None for h in healths):
        raise NotApplicable("the samples do not say why clocks were held down, or the GPU never worked")
    held = [h for h in healths if _held(h) >= ctx.threshold("min_share")]
    if not held:
        return None
    worst = max(held, key=lambda h: (1 - (h.clock_ratio or 1.0), _held(h), -h.device))
    # Without reasons there is only dmon's measure of thermal violation.
    reason = WORDS[max(HARMFUL, key=lambda r: worst.reasons.get(r, 0.0))] if worst.reasons else "heat"
    lost = max(1 - worst.clock_ratio, 0.0) if worst.clock_ratio else 0.0
    clocks = f", at {worst.sm_clock:.0f} of {worst.sm_clock_max:.0f} MHz" if worst.clock_ratio else ""
    return Draft(
        title=f"GPU {worst.device} was held down by {reason} for {_held(worst):.0%} of its busy time{clocks}",
        confidence="medium",
        severity=None if two_sided(ctx.run) else "high",
        change=_change(ctx, lost),
        facts={
            "device": worst.device,
            "share": round(_held(worst), 4),
            "clock_ratio": None if worst.clock_ratio is None else round(worst.clock_ratio, 4),
            "temperature_c": worst.temperature_max,
        },
        evidence=[evidence(held)],
        scope={"devices": sorted(h.device for h in held)},
        subject=[reason],
    )


def _held(health: DeviceHealth) -> float:
    """Largest share of busy time of a harmful reason; without reasons the driver's own measure of thermal violation."""
    if health.reasons:
        return max(health.reasons.get(reason, 0.0) for reason in HARMFUL)
    return (health.thermal_violation or 0.0) / 100


def _change(ctx: Context, lost: float) -> Change | None:
    """Compute runs at the clock: with full clocks it takes the lost share less. Memory-bound work gains less, so a bound."""
    parts = breakdown(ctx.run)
    if two_sided(ctx.run) is None or not parts or lost <= 0:
        return None
    return Change(gpu_ns=round(max(part.compute_ns for part in parts) * lost))


def evidence(healths: list[DeviceHealth]) -> Evidence:
    """One row a GPU: clocks, heat and power while it was busy."""
    columns = ["device", "busy_samples", "sm_clock_mhz", "max_clock_mhz", "hottest_c", "power_w", "limit_w", "reasons"]
    rows = [
        [
            h.device,
            h.busy_samples,
            None if h.sm_clock is None else round(h.sm_clock),
            None if h.sm_clock_max is None else round(h.sm_clock_max),
            h.temperature_max,
            None if h.power is None else round(h.power, 1),
            h.power_limit,
            ", ".join(f"{WORDS[r]} {share:.0%}" for r, share in h.reasons.items() if r in WORDS and share > 0) or None,
        ]
        for h in healths[:8]
    ]
    return Evidence("GPUs while busy", columns, rows)
