"""What the recording itself leaves uncertain, and how to record it better."""

from __future__ import annotations

from advisor.derive.capture import CaptureQuality, capture_quality
from advisor.derive.gpus import gpu_work
from advisor.detectors.words import count_text
from advisor.model import Evidence
from advisor.rules.contract import Context, Draft, NotApplicable


def detect(ctx: Context) -> Draft | None:
    if not any(len(ctx.run.table(name)) for name in ("kernels", "copies", "runtime_calls", "host_ops", "ranges")):
        raise NotApplicable("there is no trace, only samples")
    quality = capture_quality(ctx.run)
    problems = list(_problems(ctx, quality))
    if not problems:
        return None
    return Draft(
        title=problems[0][0] + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""),
        confidence="high",
        facts={
            "steps": quality.steps,
            "steady_steps": quality.steady,
            "profiler_share_frac": round(quality.profiler_share, 4),
            "unlinked_frac": round(quality.unlinked_share, 4),
            "empty_launch_frac": round(quality.empty_launch_share, 4),
        },
        evidence=[Evidence("What limits the judgement", ["problem", "effect"], [list(pair) for pair in problems])],
        fixes=_fixes(ctx, quality),
    )


def _problems(ctx: Context, quality: CaptureQuality) -> list[tuple[str, str]]:
    """(what is wrong, what follows), the gravest first."""
    found: list[tuple[str, str]] = []
    if not len(gpu_work(ctx.run)):
        return [("no GPU work was recorded", "nothing about the GPU can be judged")]
    if quality.source == "none":
        found.append(("no step is marked and none repeats", "the whole window is judged as one step"))
    elif quality.steady < ctx.threshold("min_steps"):
        found.append((f"only {count_text(quality.steady, 'steady step')} recorded", "spread and outliers cannot be told"))
    if quality.incomplete:
        found.append((f"GPU records of {count_text(quality.incomplete, 'step')} are lost in part", "left out of the judgement"))
    if quality.hitches:
        found.append((f"the profiler itself held up {count_text(quality.hitches, 'step')}", "left out of the judgement"))
    if quality.lost_graphs:
        text = f"the GPU work of CUDA graphs was not recorded, lost launches: {quality.lost_graphs}"
        found.append((text, "the GPU was not idle then: nothing that depends on its time is judged"))
    if quality.unlinked_share > ctx.threshold("max_unlinked"):
        text = f"{quality.unlinked_share:.0%} of the GPU operations have no recorded launch"
        found.append((text, "causes of idle time are uncertain"))
    if quality.empty_launch_share > ctx.threshold("max_empty_launches") and quality.kernels:
        text = f"{quality.empty_launch_share:.0%} of the launches have no recorded kernel"
        found.append((text, "idle time is an upper bound"))
    if quality.profiler_share > ctx.threshold("max_profiler_share"):
        text = f"the profiler takes about {quality.profiler_share:.0%} of the recorded step"
        found.append((text, "times of the host are estimates"))
    return found


def _fixes(ctx: Context, quality: CaptureQuality) -> list[str]:
    if ctx.run.capture.tool == "nsys" or any(trace.format.startswith("nsys") for trace in ctx.run.traces):
        return ["record-nsys", "record-torch"]
    return ["record-torch", "record-nsys"]
