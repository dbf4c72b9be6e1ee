"""A light recording beside a fuller one: a wait that both show is one finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.ingest import load
from build.judge import judge

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"


def test_the_fuller_recording_names_the_wait_and_the_light_one_measures_it() -> None:
    run = load([SAMPLES / "loader-starved.torch.json.gz", SAMPLES / "loader-starved.nsys.sqlite.gz"])
    found = judge(run, "single-process-dataloader", "dataloader-bound")
    report, combined = found.report, found.report.combined
    assert [finding.rule for finding in report.findings] == ["single-process-dataloader"]
    assert found.finding.confidence == "high" and combined == found.finding.saving
    assert found.part() == pytest.approx(0.80, abs=0.01)
    assert report.step_ns is not None and combined is not None
    assert report.step_ns - combined.expected_ns > 18_700_000  # what the GPU computes in a step
    assert "fuller recording has it" in found.finding.caveats[0]
