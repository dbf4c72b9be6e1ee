"""Steps that make no sense: numbers that go back, steps of no length, kernels side by side, patterns that never end."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.derive import marks
from advisor.derive.bounds import two_sided
from advisor.derive.marks import marked_steps
from advisor.derive.sequence import sequence
from advisor.ingest import load
from advisor.model import InputError, Options, Report
from advisor.rules import engine, pace
from build.recordings import kineto

MS = 1_000_000


def report(folder: Path, document: dict[str, Any], **options: Any) -> Report:
    path = folder / "trace.json"
    path.write_text(json.dumps(document))
    made = engine.analyze(load([path], Options(**options)))
    assert [one for one in made.rules if one.outcome == "error"] == []
    return made


def marks_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["name"].startswith("ProfilerStep")]


def test_numbers_that_go_back_are_positions(tmp_path: Path) -> None:
    for numbers in ([3, 2, 1, 0], [0, 1, 0, 1], [5, 5, 5, 5]):
        document = kineto(steps=4)
        for event, number in zip(marks_of(document), numbers, strict=True):
            event["name"] = f"ProfilerStep#{number}"
        made = report(tmp_path, document)
        assert "replay-failed" not in [notice.code for notice in made.notices]
        assert marked_steps(load([tmp_path / "trace.json"])).number.tolist() == [0, 1, 2, 3]
    document = kineto(steps=4)
    for event, number in zip(marks_of(document), [7, 8, 11, 12], strict=True):
        event["name"] = f"ProfilerStep#{number}"
    report(tmp_path, document)
    assert marked_steps(load([tmp_path / "trace.json"])).number.tolist() == [7, 8, 11, 12]


def test_a_number_in_no_decimal_digits(tmp_path: Path) -> None:
    document = kineto(steps=4)
    for event, number in zip(marks_of(document), "²³¹²", strict=True):
        event["name"] = f"round {number}"
    report(tmp_path, document, step_pattern=r"round (.)")


def test_steps_of_no_length_are_none(tmp_path: Path) -> None:
    document = kineto(steps=3)
    for event in document["traceEvents"]:
        event["ts"], event["dur"] = 1e9, 0
    made = report(tmp_path, document)
    assert made.to_dict()["run"]["steps"] is None and made.step_ns is None
    assert two_sided(load([tmp_path / "trace.json"])) is None


def test_kernels_side_by_side_take_no_more_than_the_step(tmp_path: Path) -> None:
    document = kineto(steps=4)
    kernels = [event for event in document["traceEvents"] if event["cat"] == "kernel"]
    for event in kernels:
        event["dur"], event["args"]["stream"] = 9000, 7
    for stream in range(8, 12):
        for event in kernels:
            document["traceEvents"].append(event | {"tid": stream, "args": event["args"] | {"stream": stream}})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    run = load([path])
    found, step = sequence(run), two_sided(run)
    assert step is not None and found.gpu_ns.sum() > 4 * step.step_ns
    assert found.per_step(found.gpu_ns, np.ones(len(found), bool)) == step.step_ns


def test_a_pattern_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_PATIENCE_S", 0.2)
    document = kineto(steps=4)
    marks_of(document)[0]["name"] = "a" * 60 + "b"
    begin, before = time.monotonic(), signal.getsignal(signal.SIGALRM)
    with pytest.raises(InputError, match="step pattern takes too long"):
        report(tmp_path, document, step_pattern="(a+)+$")
    assert time.monotonic() - begin < 20
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    report(tmp_path, document, step_pattern="ProfilerStep")


def test_a_replay_that_fails_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(run: object) -> None:
        raise IndexError("4 is out of bounds\x1b[31m")

    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)
    monkeypatch.setattr(pace, "replay", fails)
    made = report(tmp_path, kineto(steps=4))
    notice = next(notice for notice in made.notices if notice.code == "replay-failed")
    assert "IndexError: 4 is out of bounds" in notice.message and notice.message.isprintable()
    assert made.to_dict()["run"]["replay"]["basis"] == "bound"
