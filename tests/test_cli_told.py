"""What the user tells beside the files: steps, patterns, GPU, version. What cannot be is an error, what is of no use is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.cli import main
from advisor.model import InputError, Options
from build.workload import Workload

Program = Callable[..., tuple[int, str, str]]


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    """program(arguments...) -> (exit status, standard output, standard error)."""

    def run_it(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        return int(left.value.code or 0), *capsys.readouterr()

    return run_it


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight steps."""
    w = Workload()
    for _ in w.steps(8):
        for _ in range(10):
            with w.op("aten::mm", us=60):
                w.launch("gemm", gpu_us=100)
    return w.write_kineto(tmp_path_factory.mktemp("told"))[0]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that does not name its GPU."""
    path = tmp_path_factory.mktemp("told") / "smi.csv"
    rows = [f"2026/01/02 03:04:{second:02d}.000, 0, 97 %, 300.00 W" for second in range(30)]
    path.write_text("\n".join(["timestamp, index, utilization.gpu [%], power.draw [W]", *rows]) + "\n")
    return path


@pytest.mark.parametrize("steps", ["20:50", "8:", "-2:3"])
def test_steps_that_select_none(program: Program, trace: Path, steps: str) -> None:
    status, out, err = program("analyze", trace, f"--steps={steps}")
    expected = f"error: steps {steps} selects none of the 8 steps (0 to 7)\n" if "-" not in steps else None
    assert status == 2 and not out
    assert expected is None or err == expected


def test_steps_in_the_wrong_order(program: Program, trace: Path) -> None:
    status, _, err = program("analyze", trace, "--steps", "5:2")
    assert status == 2 and "5:2 selects nothing" in err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--gpu", "foo", "no known GPU 'foo'; write its product name"),
        ("--gpu", "H1000", "no known GPU 'H1000'; did you mean "),
        ("--gpu", "a100", "did you mean 'NVIDIA A100"),
        ("--torch-version", "abc", "torch version 'abc' is no version"),
    ],
)
def test_what_cannot_be(program: Program, trace: Path, option: str, value: str, words: str) -> None:
    status, out, err = program("analyze", trace, option, value)
    assert status == 2 and not out and err.count("\n") == 1 and words in err


def test_a_program_is_told_too(trace: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'NVIDIA A100"):
        advisor.analyze(advisor.load(trace, Options(gpu="a100")))


def test_the_gpu_of_a_log_that_does_not_name_it(program: Program, log: Path, trace: Path) -> None:
    device = json.loads(program("analyze", log, "--gpu", "h100", "--format", "json")[1])["run"]["devices"][0]
    assert device["name"] == "NVIDIA H100 SXM" and device["compute_capability"] == "9.0"
    report = json.loads(program("analyze", trace, "--gpu", "NVIDIA T4", "--format", "json")[1])
    assert [device["name"] for device in report["run"]["devices"]] == ["NVIDIA H200"]
    assert "gpu-option-unused" in [notice["code"] for notice in report["notices"]]


def test_a_pattern_that_matches_nothing(program: Program, trace: Path) -> None:
    report = json.loads(program("analyze", trace, "--step-pattern", "Foo", "--format", "json")[1])
    assert [n["message"] for n in report["notices"] if n["code"] == "step-pattern-unmatched"] == [
        "no range matches the step pattern 'Foo': steps were found without it"
    ]
    report = json.loads(program("analyze", trace, "--step-pattern", "ProfilerStep", "--format", "json")[1])
    assert "step-pattern-unmatched" not in [notice["code"] for notice in report["notices"]]


def test_a_command_that_does_not_exist(program: Program, trace: Path) -> None:
    status, _, err = program(trace, "-q")
    assert status == 2 and f"did you mean `advisor analyze {trace} -q`?" in err
    assert "did you mean `advisor analyze`?" in program("analyse", "x")[2]
    assert "there are analyze, " in program("frobnicate")[2]


def test_rules_say_what_they_need(program: Program) -> None:
    lines = program("rules")[1].splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("pageable-copy "))
    assert lines[at + 1].strip().startswith("needs copies")


def test_only_selected_rules_are_spoken_of(program: Program, tmp_path: Path) -> None:
    w = Workload()
    for _ in w.steps(6):
        with w.op("aten::mm", us=900):
            w.launch("gemm", gpu_us=100)
    out = program("analyze", w.write_kineto(tmp_path)[0], "--select", "unfused-attention", "-q")[1]
    assert out.startswith("None of the selected rules names a fix, yet the GPU is idle")
