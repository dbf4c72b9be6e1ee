"""idle-gpu: what nothing else explains, and what samples alone show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor import load
from advisor.model import Run
from advisor.rules.engine import analyze
from build import smi
from build.judge import judge
from build.workload import Rank, Workload

RULE = "idle-gpu"


def log(folder: Path, devices: int = 1, seconds: float = 120, fields: tuple[str, ...] = smi.FIELDS, **values: Any) -> Run:
    path = folder / "smi.csv"
    named = {key.replace("__", "."): value for key, value in values.items()}
    path.write_text(smi.query_csv(smi.samples(seconds, devices, values=named), fields))
    return load(path)


# Samples alone


def test_a_half_used_gpu(tmp_path: Path) -> None:
    """Ten seconds of start-up, then every other second without load, then the job has ended."""
    load_of = lambda s, gpu: 0 if s < 10 or s >= 110 else 90 if s % 2 == 0 else 0  # noqa: E731
    found = judge(log(tmp_path, utilization__gpu=load_of), RULE).finding
    assert found.title == "GPU 0 runs kernels only 45 % of the time between its first and last load"
    assert (found.severity, found.saving, found.confidence) == ("info", None, "medium")
    assert found.facts["span_s"] == 98.0 and found.facts["utilization"] == pytest.approx(45.5, abs=0.5)
    assert [fix.id for fix in found.fixes] == ["record-trace"]
    assert "GPU 0 ran kernels 45" in found.fixes[0].snippet


@pytest.mark.parametrize(("utilization", "outcome"), [(71, "clean"), (69, "found")])
def test_the_limit_of_utilisation(tmp_path: Path, utilization: float, outcome: str) -> None:
    assert judge(log(tmp_path, utilization__gpu=utilization), RULE).outcome == outcome


def test_time_before_and_after_the_job_does_not_count(tmp_path: Path) -> None:
    run = log(tmp_path, seconds=600, utilization__gpu=lambda s, gpu: 95 if 200 <= s < 260 else 0)
    assert judge(run, RULE).outcome == "clean"


def test_an_idle_gpu_beside_a_busy_one(tmp_path: Path) -> None:
    found = judge(log(tmp_path, 2, utilization__gpu=lambda s, gpu: 30 if gpu else 99), RULE).finding
    assert found.title.startswith("GPU 1 runs kernels only 30 %") and found.scope["devices"] == [1]
    assert [row[0] for row in found.evidence[0].rows] == [0, 1]


def test_a_gpu_that_nobody_uses_is_no_training(tmp_path: Path) -> None:
    """N10 and its kin: without load nothing is judged, by no rule on hardware."""
    run = log(
        tmp_path, fields=tuple(smi.FULL_LOAD | {"timestamp": 0, "index": 0}), utilization__gpu=0, pcie__link__gen__current=1,
        clocks__current__sm=210, clocks__current__memory=400, power__draw=60, clocks_event_reasons__active=1, pstate=8,
    )  # fmt: skip
    report = analyze(run)
    assert report.findings == []
    assert judge(run, RULE).outcome == "not-applicable"


def test_a_few_samples_say_nothing(tmp_path: Path) -> None:
    found = judge(log(tmp_path, seconds=4, utilization__gpu=20), RULE)
    assert found.outcome == "not-applicable" and "samples" in found.reason
    assert judge(log(tmp_path, seconds=5, utilization__gpu=20), RULE).outcome == "found"


def test_cannot_judge_nothing(tmp_path: Path) -> None:
    assert judge(Run(), RULE).outcome == "not-applicable"
    fields = tuple(field for field in smi.FIELDS if field != "utilization.gpu")
    assert judge(log(tmp_path, fields=fields), RULE).outcome == "not-applicable"


# With a trace


def loop(python_us: float, gpu_us: float = 100, count: int = 6, **how: Any) -> Workload:
    """Ten kernels a step; then Python that launches nothing."""
    w = Workload(**how)
    for _ in w.steps(count):
        for _ in range(10):
            w.launch("gemm", gpu_us)
        w.host(python_us)
        w.call("cudaEventRecord", 1)
    return w


def test_python_that_no_rule_explains() -> None:
    # The host launches 40 us, sits in Python for 1500; the GPU works 1000 us.
    found = judge(loop(1500).to_run(), RULE)
    finding = found.finding
    assert finding.title.startswith("the GPU is idle for 5") and "not recorded" in finding.title
    assert finding.confidence == "low" and finding.saving is not None
    assert (finding.saving.low_ns, finding.saving.expected_ns, finding.saving.basis) == (0, 0, "bound")
    # 1541 us a step without 24 us of the profiler's; 1000 us of kernels and a gap.
    assert finding.saving.high_ns == pytest.approx(1_541_000 - 24_000 - 1_001_000, rel=0.05)
    assert finding.severity == "info"
    assert [fix.id for fix in finding.fixes] == ["record-stacks"]
    rows = {row[0]: row[1] for row in finding.evidence[0].rows}
    assert rows["python"] == pytest.approx(536_000, rel=0.02) and sum(rows.values()) == 541_000


@pytest.mark.parametrize(("python_us", "outcome"), [(1000, "clean"), (1100, "found")])
def test_a_twentieth_of_the_step(python_us: float, outcome: str) -> None:
    """At 1000 us of Python 41 of 1041 us are idle, at 1100 it is 141 of 1141."""
    assert judge(loop(python_us).to_run(), RULE).outcome == outcome


def test_nsys_asks_for_operators() -> None:
    finding = judge(loop(1500, tool="nsys").to_run(), RULE).finding
    assert [fix.id for fix in finding.fixes] == ["record-operators"]


def test_time_with_a_known_cause_is_left_to_its_rule() -> None:
    def loaded(w: Rank) -> None:
        w.loader(1500)

    def waited(w: Rank) -> None:
        w.sync()
        w.host(1500)

    def operated(w: Rank) -> None:
        for _ in range(3):
            w.leaf("aten::sort", 500)

    for what in (loaded, waited, operated):
        w = Workload()
        for _ in w.steps(6):
            for _ in range(10):
                w.launch("gemm", 100)
            what(w)
        assert judge(w.to_run(), RULE).outcome in ("clean", "not-applicable"), what


def test_a_busy_gpu_is_healthy() -> None:
    assert judge(loop(100, gpu_us=1000).to_run(), RULE).outcome == "clean"


def test_what_the_profiler_made_is_not_judged() -> None:
    w = Workload()
    for _ in w.steps(6):
        for _ in range(10):
            w.host(0.001)
            for _ in range(10):
                w.leaf("aten::view", 10)
            w.launch("gemm", 5)
        w.host(300)
        w.call("cudaEventRecord", 1)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "profiler" in found.reason


def test_samples_beside_a_trace_do_not_judge() -> None:
    w = loop(100, gpu_us=1000)
    for _ in range(10):
        w.sample(utilization=30)
        w.host(100)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_a_file_that_ends_early_cannot_tell(tmp_path: Path) -> None:
    """Cut where the GPU's events stand, each step loses the same share of them: what is missing is no idle time."""
    sample = Path(__file__).resolve().parents[1] / "sample_traces" / "healthy.torch.json.gz"
    (tmp_path / "cut.json.gz").write_bytes(sample.read_bytes()[:200_000])
    found = judge(load([tmp_path / "cut.json.gz"]), "idle-gpu")
    assert found.outcome == "not-applicable" and "ends early" in found.reason
