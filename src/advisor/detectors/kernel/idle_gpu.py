"""GPU time that goes unused for no reason that another rule names."""

from __future__ import annotations

from advisor.derive.bounds import TwoSided, two_sided
from advisor.derive.breakdown import breakdown
from advisor.derive.health import device_health
from advisor.derive.steps import CUT_SHORT
from advisor.detectors.words import time_text
from advisor.model import Evidence, Saving
from advisor.rules.contract import Context, Draft, NotApplicable

# Idle time of these causes has rules of its own.
UNNAMED = ("python", "unexplained")
# Below this many busy samples a mean says nothing.
_FEWEST_SAMPLES = 5


def detect(ctx: Context) -> Draft | None:
    pace = two_sided(ctx.run)
    return _from_trace(ctx, pace) if pace else _from_samples(ctx)


def _from_trace(ctx: Context, pace: TwoSided) -> Draft | None:
    if any(notice.code == CUT_SHORT for notice in ctx.run.notices):
        raise NotApplicable("the file ends early: where GPU records are missing from every step, the GPU only looks idle", "")
    parts = [part for part in breakdown(ctx.run) if part.step_ns]
    if not parts:
        raise NotApplicable("no GPU work was recorded")
    if pace.profiler_share > ctx.threshold("max_profiler_share"):
        raise NotApplicable(
            f"the profiler takes about {pace.profiler_share:.0%} of the recorded step, more than the idle time in question"
        )
    worst = max(parts, key=lambda part: (sum(part.idle_by_cause[c] for c in UNNAMED) / part.step_ns, -part.device))
    unnamed = sum(worst.idle_by_cause[cause] for cause in UNNAMED)
    # The profiler stretches the host's side of the recorded step; what remains without it is at most the idle time left.
    idle = max(pace.step_ns - pace.gpu_ns, 0)
    limit = min(idle, round(unnamed * pace.step_ns / worst.step_ns))
    if limit < ctx.threshold("min_idle") * pace.step_ns:
        return None
    return Draft(
        title=f"the GPU is idle for {time_text(limit)} of each step while the host does something that was not recorded",
        confidence="low",
        saving=Saving(0, 0, limit, "bound"),
        facts={"idle_ns": limit, "idle_frac": round(limit / pace.step_ns, 4)},
        evidence=[
            Evidence(
                "Idle time of the recorded step by cause",
                ["cause", "idle_ns", "share_frac"],
                [
                    [cause, idle_ns, round(idle_ns / worst.step_ns, 4)]
                    for cause, idle_ns in sorted(worst.idle_by_cause.items(), key=lambda item: (-item[1], item[0]))
                    if idle_ns >= 0.001 * worst.step_ns
                ],
            )
        ],
        scope={"devices": [worst.device]},
        fixes=["record-stacks"] if ctx.run.capture.tool != "nsys" else ["record-operators"],
        subject=["idle"],
    )


def _from_samples(ctx: Context) -> Draft | None:
    known = [h for h in device_health(ctx.run) if h.utilization is not None and h.busy_samples >= _FEWEST_SAMPLES]
    if not known:
        raise NotApplicable("neither a trace nor enough utilisation samples of a working GPU")
    idle = [h for h in known if (h.utilization or 0.0) < ctx.threshold("min_utilization")]
    if not idle:
        return None
    worst = min(idle, key=lambda h: (h.utilization or 0.0, h.device))
    return Draft(
        title=f"GPU {worst.device} runs kernels only {worst.utilization:.0f} % of the time between its first and last load",
        confidence="medium",
        facts={"device": worst.device, "utilization": round(worst.utilization or 0.0, 1), "span_s": round(worst.span_s, 1)},
        evidence=[
            Evidence(
                "Utilisation while the job ran",
                ["device", "samples", "busy_samples", "span_s", "utilization_percent"],
                [[h.device, h.samples, h.busy_samples, round(h.span_s, 1), round(h.utilization or 0.0, 1)] for h in known[:8]],
            )
        ],
        scope={"devices": sorted(h.device for h in idle)},
        fixes=["record-trace"],
        caveats=["Utilisation counts time with any kernel at all, however small: the real gap can be larger."],
        subject=["utilization", f"gpu {worst.device}"],
    )
