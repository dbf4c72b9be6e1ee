"""Samples of GPUs in short: what a log says where there is no trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.ingest import load
from advisor.report import render
from advisor.rules.engine import analyze

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"


def test_a_log_without_findings_is_summed_up() -> None:
    report = analyze(load([SAMPLES / "loader-starved.smi.csv"]), select=["memory-headroom"])
    (gpu,) = report.to_dict()["gpu_samples"]
    assert (gpu["device"], gpu["samples"], gpu["busy_samples"]) == (0, 58, 48)
    assert gpu["utilization_percent"] == pytest.approx(15.4, abs=0.1) and gpu["power_limit_w"] == 700
    text = render(report, "text", width=100)
    assert "GPUs in the samples" in text
    assert "15.4 %  7.8 GiB of 140 GiB  212 of 700 W     44 C  1,980 of 1,980 MHz" in text
    assert "| 0 | 58 | 48 | 15.4 % |" in render(report, "markdown")


def test_beside_a_trace_it_is_a_detail() -> None:
    report = analyze(load([SAMPLES / "loader-starved.torch.json.gz", SAMPLES / "loader-starved.smi.csv"]), select=["input"])
    assert "GPUs in the samples" not in render(report, "text", width=100)
    assert "GPUs in the samples" in render(report, "text", width=100, verbosity=1)


def test_what_was_not_sampled_stays_empty() -> None:
    report = analyze(load([SAMPLES / "loader-starved.dmon.txt"]), select=["memory-headroom"])
    assert "unknown" not in render(report, "text").split("GPUs in the samples")[1].split("Not judged")[0]
