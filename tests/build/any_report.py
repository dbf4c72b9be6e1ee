"""A Hypothesis strategy for reports of any content that the data classes can hold, hostile names included."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from advisor.model import (
    Accepted,
    BaselineVerdict,
    Breakdown,
    Condition,
    Evidence,
    Finding,
    Fix,
    Location,
    Notice,
    Report,
    RuleOutcome,
    Saving,
    Verdict,
)
from advisor.model.report import CONFIDENCES, SEVERITIES

HOSTILE = (
    "[red]x[/]",
    "[/]",
    "[link=https://bad.example]x[/link]",
    ":smile: :warning:",
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;https://bad.example\x1b\\click\x1b]8;;\x1b\\",
    "a\rb",
    "line\nbreak\n\n# heading",
    "\x9b31m",
    "\u202egnp.exe",
    "\u200b\u2028\ufeff",
    "\udcff",
    "a|b||c",
    "`tick` ``two`` ```fence",
    "```\nescape\n```",
    "</details><script>alert(1)</script>",
    "<!-- comment",
    "@everyone #12 www.bad.example https://bad.example/x",
    "[text](https://bad.example) ![image](https://bad.example/i.png)",
    "&lt;b&gt; *bold* _it_ ~~gone~~ $x$",
    "1. list",
    "- item",
    "> quote",
    "\\",
    "\\|",
    "\u5b57\u5e55" * 30,
    "x" * 500,
    "",
)
NS = st.integers(0, 10**13)
SHARES = st.none() | st.floats(0, 1)
TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=40)
NAMES = st.sampled_from(["launch-bound", "pageable-copy", "straggler-rank"]) | TEXTS
CELLS = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats() | TEXTS
COLUMNS = st.sampled_from(["wait_ns", "total_bytes", "share_frac", "calls", "name"]) | TEXTS


@st.composite
def savings(draw: Any) -> Saving:
    low, expected, high = sorted(draw(st.tuples(NS, NS, NS)))
    return Saving(low, expected, high, draw(st.sampled_from(["replay", "bound"])))


@st.composite
def evidence(draw: Any) -> Evidence:
    columns = draw(st.lists(COLUMNS, max_size=6))
    row = st.lists(CELLS, min_size=len(columns), max_size=len(columns))
    return Evidence(draw(TEXTS), columns, draw(st.lists(row, max_size=8)))


FIXES = st.builds(
    Fix,
    id=TEXTS,
    title=TEXTS,
    framework=TEXTS,
    language=TEXTS,
    snippet=TEXTS,
    safety=TEXTS,
    effort=TEXTS,
    caveats=st.lists(TEXTS, max_size=3),
    references=st.lists(TEXTS, max_size=3),
)
LOCATIONS = st.builds(Location, file=TEXTS, line=st.none() | st.integers(0, 10**6), function=st.none() | TEXTS, share=SHARES)
FINDINGS = st.builds(
    Finding,
    rule=NAMES,
    family=TEXTS,
    title=TEXTS,
    severity=st.sampled_from(SEVERITIES),
    confidence=st.sampled_from(CONFIDENCES),
    saving=st.none() | savings(),
    scope=st.dictionaries(TEXTS, st.lists(st.integers(0, 9), max_size=3), max_size=2),
    facts=st.dictionaries(TEXTS, CELLS, max_size=3),
    evidence=st.lists(evidence(), max_size=3),
    locations=st.lists(LOCATIONS, max_size=4),
    fixes=st.lists(FIXES, max_size=3),
    caveats=st.lists(TEXTS, max_size=3),
    alternative_to=st.none() | NAMES,
    fingerprint=TEXTS,
)
BREAKDOWNS = st.builds(
    Breakdown,
    rank=st.none() | st.integers(0, 99),
    device=st.integers(0, 15),
    step_ns=NS,
    busy_ns=NS,
    compute_ns=NS,
    exposed_communication_ns=NS,
    exposed_communication_wait_ns=NS,
    exposed_copy_ns=NS,
    idle_ns=NS,
    idle_by_cause=st.dictionaries(st.sampled_from(["dataloader", "launch", "unexplained"]) | TEXTS, NS, max_size=4),
)
RULES = st.builds(
    RuleOutcome,
    id=NAMES,
    outcome=st.sampled_from(["found", "clean", "not-applicable", "error"]),
    reason=st.none() | TEXTS,
    capture=st.none() | TEXTS,
)
STEPS = st.fixed_dictionaries(
    {
        "count": st.integers(0, 1000),
        "source": st.sampled_from(["profiler-step", "nvtx", "user-pattern", "inferred", "none"]),
        "median_ns": st.none() | NS,
        "recorded_median_ns": st.none() | NS,
        "p10_ns": st.none() | NS,
        "p90_ns": st.none() | NS,
    }
)
DEVICE = st.fixed_dictionaries(
    {
        "rank": st.none() | st.integers(0, 9),
        "index": st.integers(0, 9),
        "name": st.none() | TEXTS,
        "compute_capability": st.none() | st.just("9.0"),
        "sm_count": st.none() | st.integers(0, 200),
        "memory_bytes": st.none() | st.integers(0, 10**12),
    }
)
SOURCE = st.fixed_dictionaries(
    {
        "path": TEXTS,
        "format": st.sampled_from(["torch-trace", "nsys-sqlite"]) | TEXTS,
        "format_version": st.none() | TEXTS,
        "rank": st.none() | st.integers(0, 9),
    }
)
FLAG = st.none() | st.booleans()
RUNS = st.fixed_dictionaries(
    {
        "sources": st.lists(SOURCE, max_size=7),
        "ranks": st.lists(st.none() | st.integers(0, 99), max_size=20),
        "world_size": st.none() | st.integers(1, 1000),
        "devices": st.lists(DEVICE, max_size=4),
        "steps": st.none() | STEPS,
        "replay": st.none() | st.fixed_dictionaries({"error_frac": SHARES, "basis": st.sampled_from(["replay", "bound"])}),
        "window_ns": st.none() | NS,
        "profiler_overhead": st.none()
        | st.fixed_dictionaries({"stacks": FLAG, "shapes": FLAG, "memory": FLAG, "estimated_frac": SHARES}),
    }
)
EXTRA = st.fixed_dictionaries(
    {},
    optional={
        "throughput": st.fixed_dictionaries({"items_per_step": st.floats(0, 1e9), "items_per_second": st.floats(0, 1e12)}),
        "good_news": st.lists(TEXTS, max_size=3),
    },
)
AMOUNTS = st.none() | st.integers(0, 10**13) | st.floats(0, 1)
CONDITIONS = st.builds(
    Condition,
    name=TEXTS,
    kind=st.sampled_from(["budget", "finding", "regression"]),
    state=st.sampled_from(["passed", "failed", "not-judged"]),
    text=TEXTS,
    limit=AMOUNTS,
    actual=AMOUNTS,
    unit=st.sampled_from(["ns", "bytes", "fraction", "count", None]),
    bound=st.sampled_from(["at-most", "at-least"]),
    source=st.none() | TEXTS,
    reason=st.none() | TEXTS,
    findings=st.lists(TEXTS, max_size=3).map(tuple),
    origin=st.none() | TEXTS,
)
ENTRIES = st.builds(
    Accepted,
    fingerprint=TEXTS,
    rule=NAMES,
    title=TEXTS,
    state=st.sampled_from(["accepted", "worse", "fixed", "not-judged"]),
    then_ns=st.none() | NS,
    now_ns=st.none() | NS,
)
BASELINES = st.builds(
    BaselineVerdict,
    path=TEXTS,
    margin_frac=st.floats(0, 1),
    entries=st.lists(ENTRIES, max_size=4).map(tuple),
    new=st.lists(TEXTS, max_size=3).map(tuple),
)
VERDICTS = st.builds(
    Verdict,
    conditions=st.lists(CONDITIONS, max_size=5).map(tuple),
    strict=st.booleans(),
    advisory=st.booleans(),
    baseline=st.none() | BASELINES,
)


def _within_step(report: Report) -> Report:
    """Savings cut to the step: the engine promises no more than that."""
    step = report.step_ns or 0
    for finding in report.findings:
        finding.saving = _cut(finding.saving, step)
    report.combined = _cut(report.combined, step)
    return report


def _cut(saving: Saving | None, step: int) -> Saving | None:
    if saving is None:
        return None
    return Saving(min(saving.low_ns, step), min(saving.expected_ns, step), min(saving.high_ns, step), saving.basis)


REPORTS = st.builds(
    Report,
    version=TEXTS,
    run=RUNS,
    step_ns=st.none() | NS,
    breakdown=st.lists(BREAKDOWNS, max_size=12),
    findings=st.lists(FINDINGS, max_size=7),
    combined=st.none() | savings(),
    rules=st.lists(RULES, max_size=8),
    notices=st.lists(st.builds(Notice, code=TEXTS, message=TEXTS), max_size=3),
    extra=EXTRA,
    gates=st.none() | VERDICTS,
).map(_within_step)
