"""Made-up reports in pairs: a side is a step, its samples, findings and what was recorded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from advisor.comparing import Recording
from advisor.model import Finding, Fix, Location, Report, RuleOutcome, Saving
from build.reports import MS, part, run_facts

RULES = ("host-sync-in-step", "launch-bound", "unfused-elementwise", "pageable-copy", "small-batch")


def finding(rule: str, saving: float | None, subject: str = "1", **changes: Any) -> Finding:
    """A finding that promises `saving` milliseconds, give or take a tenth."""
    family = {"unfused-elementwise": "kernel", "pageable-copy": "transfer"}.get(rule, "host")
    defaults: dict[str, Any] = {
        "rule": rule,
        "family": family,
        "title": f"{rule} costs time",
        "severity": "high",
        "confidence": "high",
        "saving": None if saving is None else Saving(*(round(saving * share * MS) for share in (0.9, 1, 1.1)), "replay"),
        "locations": [Location("train.py", 12, "step", 0.9)],
        "fixes": [Fix("mend", "Mend it", "pytorch", "python", "mend()", "same-numerics", "minutes")],
        "fingerprint": f"{rule}:{subject}",
    }
    return Finding(**defaults | changes)


def samples(step: float, spread: float = 0.004, count: int = 20, seed: int = 1) -> list[int]:
    """Step times in nanoseconds around `step` milliseconds, log-normal."""
    draw = random.Random(seed)
    return [round(step * MS * draw.lognormvariate(0, spread)) for _ in range(count)]


def report(
    step: float = 20.0,
    findings: Sequence[Finding] = (),
    *,
    spread: float = 0.004,
    seed: int = 1,
    paced_by: str = "gpu",
    outcomes: Sequence[RuleOutcome] = (),
    program: dict[str, Any] | None = None,
    kernels: dict[str, float] | None = None,
    idle: float = 0.0,
    inflation: float = 1.0,
    **run: Any,
) -> Report:
    """A report of `step` milliseconds. Rules that have no finding and no outcome of their own are clean."""
    facts = run_facts(step)
    times = samples(step * inflation, spread, seed=seed)
    middle = sorted(times)[(len(times) - 1) // 2]
    facts["steps"] |= {
        "recorded_median_ns": middle,
        "median_ns": round(middle / inflation),
        "samples_ns": times,
        "steps_per_sample": 1,
        "paced_by": paced_by,
        "count": len(times),
    }
    facts["program"] = {
        "versions": {"torch_version": "2.11.0"},
        "variables": {},
        "compiled": False,
        "cuda_graphs": False,
        "input_bytes": None,
        "matrix_flops": None,
        "matrix_shapes": None,
        **(program or {}),
    }
    told = {one.id: one for one in outcomes}
    found = {one.rule for one in findings}
    rules = [told.get(id) or RuleOutcome(id, "found" if id in found else "clean") for id in RULES]
    extra: dict[str, Any] = {}
    if kernels:
        listed = [{"name": name, "kind": "elementwise", "ns": round(ms * MS), "calls": 1.0} for name, ms in kernels.items()]
        total = sum(one["ns"] for one in listed)
        kinds = [{"kind": "elementwise", "ns": total, "calls": float(len(listed))}]
        extra["kernels"] = {
            "distinct": len(listed),
            "total_ns": total,
            "rest_ns": 0,
            "least_ns": 0,
            "kinds": kinds,
            "listed": sorted(listed, key=lambda one: -one["ns"]),
        }
    whole = step * inflation
    return Report(
        version="0.1.0",
        run=facts | run,
        step_ns=facts["steps"]["median_ns"],
        breakdown=[part(whole, compute=whole - idle, launch=idle)],
        findings=list(findings),
        combined=None,
        rules=rules,
        extra=extra,
    )


def recording(*arguments: Any, name: str = "run.json", combined: Saving | None = None, **changes: Any) -> Recording:
    return Recording(name, report(*arguments, **changes), combined)


def repeats(step: float, count: int = 4, between: float = 0.004, seed: int = 1, **changes: Any) -> list[Recording]:
    """Recordings whose steps spread by `between` around `step`."""
    draw = random.Random(seed)
    return [
        recording(step * draw.lognormvariate(0, between), seed=seed * 100 + i, name=f"run{i}.json", **changes)
        for i in range(count)
    ]
