"""What the report says of the recording as a whole: two of one run, stalls that come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.derive.breakdown import breakdown
from advisor.derive.steps import steps
from advisor.ingest import load
from advisor.report import render
from advisor.report.summary import run_facts, verdict
from advisor.rules.engine import analyze
from build.judge import judge
from build.workload import Workload

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"


def test_the_fuller_recording_names_the_wait_and_the_light_one_measures_it() -> None:
    run = load([SAMPLES / "loader-starved.torch.json.gz", SAMPLES / "loader-starved.nsys.sqlite.gz"])
    found = judge(run, "single-process-dataloader", "dataloader-bound")
    report, combined = found.report, found.report.combined
    assert [finding.rule for finding in report.findings] == ["single-process-dataloader"]
    assert found.finding.confidence == "high" and combined == found.finding.saving
    assert found.part() == pytest.approx(0.82, abs=0.01)
    assert found.part("low") == pytest.approx(0.72, abs=0.02)  # what the fuller recording measured
    assert report.step_ns is not None and combined is not None
    assert report.step_ns - combined.expected_ns > 18_700_000  # what the GPU computes in a step
    assert "fuller recording has it" in found.finding.caveats[0]


def alternating(every: int) -> Workload:
    """Steps of 10 ms on the GPU; before each so-many-th the host is away for 200 ms."""
    w = Workload()
    for i, _ in enumerate(w.steps(13)):
        if i % every == 0:
            w.host(200_000)
        for _ in range(10):
            with w.op("aten::mm", us=100):
                w.launch("gemm", gpu_us=1000)
        w.sync()
    return w


@pytest.mark.parametrize(("every", "word"), [(2, "second"), (3, "third")])
def test_steps_that_stall_regularly_are_told(every: int, word: str) -> None:
    report = analyze(alternating(every).to_run(), select=["idle-gpu"])
    stalls = report.run["steps"]["stalls"]
    assert stalls["every"] == every and stalls["long_ns"] == pytest.approx(210e6, rel=0.02)
    assert stalls["short_ns"] == pytest.approx(10e6, rel=0.1)
    assert any(line.startswith(f"every {word} step stalls: 21") for line in dict(run_facts(report))["steps"])


def test_even_steps_stall_nowhere() -> None:
    assert "stalls" not in analyze(alternating(100).to_run(), select=["idle-gpu"]).run["steps"]


def test_the_verdict_names_what_carries_the_figure() -> None:
    report = analyze(alternating(2).to_run(), select=["dataloader-bound", "host-sync-in-step", "device-synchronize-in-step"])
    first = report.findings[0]
    assert (first.rule, first.confidence) == ("dataloader-bound", "low")
    assert first.saving is not None and first.saving.low_ns == 0  # the cause may be another one
    assert report.combined is not None and report.combined.low_ns < first.saving.expected_ns
    text = verdict(report)
    assert "but uncertain (inferred from names or partial data): the host spends" in text


@pytest.mark.parametrize(("size", "complete"), [(250_000, 2), (300_000, 5), (320_000, 7)])
def test_steps_whose_records_are_cut_off_are_left_out(tmp_path: Path, size: int, complete: int) -> None:
    whole = (SAMPLES / "healthy.torch.json.gz").read_bytes()
    (tmp_path / "cut.json.gz").write_bytes(whole[:size])
    run = load([tmp_path / "cut.json.gz"])
    assert int((~steps(run).incomplete).sum()) == complete
    part = breakdown(run)[0]
    assert part.compute_ns > 0.9 * part.step_ns  # as in the whole file


@pytest.mark.parametrize("size", [200_000, 300_000])
def test_the_verdict_says_that_a_file_is_cut(tmp_path: Path, size: int) -> None:
    (tmp_path / "cut.json.gz").write_bytes((SAMPLES / "healthy.torch.json.gz").read_bytes()[:size])
    report = analyze(load([tmp_path / "cut.json.gz"]))
    text = render(report, "text", verbosity=-1)
    assert text.startswith("The recording is cut short and lacks records: idle time and savings are")
    assert "GPU is idle for" not in verdict(report).split("Best lead")[0]
    assert {finding.confidence for finding in report.findings} <= {"low"}


def test_without_steps_nothing_is_said_of_a_step() -> None:
    w = Workload()
    for i in range(40):  # no marks, and no period: each kernel has a name of its own
        with w.op("aten::mm", us=3000 if i % 7 else 40_000):
            w.launch(f"gemm_{i * i}", gpu_us=100 + i)
        if i % 5 == 0:
            w.sync()
    report = analyze(w.to_run())
    assert report.run["steps"]["source"] == "none"
    texts = [verdict(report), *(f.title for f in report.findings), *(e.caption for f in report.findings for e in f.evidence)]
    assert report.findings and "of the recording" in texts[0]
    assert not [text for text in texts if " a step" in text or "each step" in text or "steady step" in text]


def test_the_bar_says_what_its_figures_are() -> None:
    report = analyze(load([SAMPLES / "loader-starved.torch.json.gz"]))
    text = render(report, "text", width=100)
    assert "verdict, titles and savings refer to the step without it" in " ".join(text.split())


@pytest.mark.parametrize("options", [{"verbosity": -1}, {}])
def test_recordings_that_are_left_out_are_told_before_the_verdict(options: dict[str, int]) -> None:
    report = analyze(load([SAMPLES / "two-ranks-p2p-disabled", SAMPLES / "healthy.torch.json.gz"]), select=["idle-gpu"])
    words = " ".join(render(report, "text", **options).split())
    assert words.index("These look like different runs") < words.index(verdict(report)[:20])
    assert "healthy.torch.json.gz" in words[: words.index("These look")]
    assert "These look like different runs" in render(report, "markdown")
