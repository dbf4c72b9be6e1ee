"""capture-quality: what a recording leaves uncertain."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.model import Run
from build.judge import judge
from build.workload import Workload

RULE = "capture-quality"


def loop(count: int = 6, kernels: int = 20, **how: Any) -> Workload:
    w = Workload(**how)
    for _ in w.steps(count):
        for _ in range(kernels):
            w.host(50)
            w.launch("gemm", 40)
    return w


def problems(w: Workload) -> dict[str, str]:
    found = judge(w.to_run(), RULE)
    return dict(found.finding.evidence[0].rows) if found.findings else {}


def test_a_good_recording_is_left_alone() -> None:
    found = judge(loop().to_run(), RULE)
    assert (found.outcome, found.reason) == ("clean", "")


@pytest.mark.parametrize(("count", "told"), [(2, True), (3, True), (4, False)])
def test_too_few_steps(count: int, told: bool) -> None:
    """Of four recorded steps three are steady."""
    found = judge(loop(count).to_run(), RULE)
    assert bool(found.findings) is told
    if told:
        assert found.finding.title == ("only 1 steady step recorded" if count == 2 else "only 2 steady steps recorded")
        assert (found.finding.severity, found.finding.saving, found.finding.confidence) == ("info", None, "high")
        assert found.finding.facts["steady_steps"] == count - 1
        assert found.finding.fixes[0].id == "record-torch"


def test_no_steps() -> None:
    w = Workload(closing_sync=False)
    for number in range(30):
        w.host(50)
        w.launch(f"kernel_{number}", 40)
    assert problems(w) == {"no step is marked and none repeats": "the whole window is judged as one step"}


def test_no_gpu_work() -> None:
    w = Workload(closing_sync=False)
    for _ in w.steps(5):
        w.leaf("aten::view", 100)
    found = judge(w.to_run(), RULE)
    assert found.finding.title == "no GPU work was recorded" and len(found.finding.evidence[0].rows) == 1


@pytest.mark.parametrize(("lost", "told"), [(23, False), (26, True)])
def test_kernels_without_launches(lost: int, told: bool) -> None:
    """A fifth of 120."""
    w = loop()
    del w.rows["runtime_calls"][-1 - lost - 20 : -1 - 20]
    assert ("22% of the GPU operations have no recorded launch" in problems(w)) is told
    assert bool(problems(w)) is told


@pytest.mark.parametrize(("lost", "told"), [(2, False), (3, True)])
def test_launches_without_kernels(lost: int, told: bool) -> None:
    """A tenth of 20 in each step."""
    w = loop()
    kept = [row for i, row in enumerate(w.rows["kernels"]) if i % 20 >= lost]
    w.rows["kernels"] = kept
    assert ("15% of the launches have no recorded kernel" in problems(w)) is told


def test_steps_that_lost_records_or_were_held_up() -> None:
    w = Workload()
    for number in w.steps(8):
        for _ in range(20):
            w.host(50)
            if number == 5:
                w.overhead("Command Buffer Full", 300)
            w.launch("gemm", 40)
    del w.rows["kernels"][40:46]
    found = problems(w)
    assert set(found) == {"GPU records of 1 step are lost in part", "the profiler itself held up 1 step"}


def test_the_title_counts_the_rest() -> None:
    w = loop(3)
    del w.rows["kernels"][30:36]
    finding = judge(w.to_run(), RULE).finding
    assert finding.title == f"{finding.evidence[0].rows[0][0]} (and {len(finding.evidence[0].rows) - 1} more)"


@pytest.mark.parametrize(("ops", "told"), [(2, False), (9, True)])
def test_the_profilers_share(ops: int, told: bool) -> None:
    """Operators that take as long as a launch lose three quarters; the rest of 60 us is Python."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(20):
            w.host(0.001)
            for _ in range(ops):
                w.leaf("aten::view", 10)
            w.launch("gemm", 5, us=10)
            w.host(60)
            w.call("cudaEventRecord", 1)
    texts = [text for text in problems(w) if text.startswith("the profiler takes about")]
    assert bool(texts) is told


def test_nsys_recordings_are_told_how_nsys_records() -> None:
    finding = judge(loop(2, tool="nsys").to_run(), RULE).finding
    assert [fix.id for fix in finding.fixes] == ["record-nsys", "record-torch"]


def test_samples_alone_are_no_recording() -> None:
    w = Workload(closing_sync=False)
    for _ in range(10):
        w.sample(utilization=90)
        w.host(100)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "only samples" in found.reason
    assert judge(Run(), RULE).outcome == "not-applicable"
