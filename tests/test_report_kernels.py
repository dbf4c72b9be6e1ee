"""What a report carries so that two of them can be compared: kernels, samples of steps, the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.api import analyze, load
from advisor.model import Report
from advisor.report.json_document import render
from advisor.rules.kernel_times import LISTED, LONGEST_NAME

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"


@pytest.fixture(scope="module")
def starved() -> Report:
    return analyze(load(SAMPLES / "loader-starved.torch.json.gz"))


def test_kernels_add_up(starved: Report) -> None:
    kernels = starved.extra["kernels"]
    assert kernels["distinct"] == len(kernels["listed"]) and kernels["rest_ns"] == kernels["least_ns"] == 0
    listed, kinds = (sum(one["ns"] for one in kernels[key]) for key in ("listed", "kinds"))
    assert abs(kernels["total_ns"] - listed) <= kernels["distinct"]
    assert abs(kernels["total_ns"] - kinds) <= len(kernels["kinds"])
    # One stream, so kernels do not overlap: their sum is what the GPU computes in a step.
    assert kernels["total_ns"] == pytest.approx(starved.breakdown[0].compute_ns, rel=0.02)
    times = [one["ns"] for one in kernels["listed"]]
    assert times == sorted(times, reverse=True)


def test_kernels_are_bounded() -> None:
    for path in sorted(SAMPLES.glob("*.json.gz")):
        kernels = analyze(load(path)).extra["kernels"]
        assert len(kernels["listed"]) <= LISTED
        assert max(len(one["name"]) for one in kernels["listed"]) <= LONGEST_NAME


def test_samples_of_steps(starved: Report) -> None:
    steps = starved.run["steps"]
    assert len(steps["samples_ns"]) == 7 and steps["steps_per_sample"] == 1 and steps["paced_by"] == "host"
    assert sorted(steps["samples_ns"])[3] == steps["recorded_median_ns"]


def test_program(starved: Report) -> None:
    program = starved.run["program"]
    assert program["compiled"] is False and program["cuda_graphs"] is False and program["matrix_flops"] is None
    assert program["input_bytes"] > 0
    full = analyze(load(SAMPLES / "host-sync.torch-stacks.json.gz")).run["program"]
    assert full["matrix_flops"] > 0 and all(len(shape) == 5 for shape in full["matrix_shapes"])


def test_same_bytes(starved: Report) -> None:
    again = render(analyze(load(SAMPLES / "loader-starved.torch.json.gz")))
    assert again == render(starved) and json.loads(again)["kernels"]["distinct"] > 0
