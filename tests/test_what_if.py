"""--what-if: the step with the findings of chosen rules mended, alone and together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from advisor.cli import main
from advisor.model import InputError, Run
from advisor.model.what_if import WhatIf
from advisor.report.style import Style
from advisor.report.what_if import render, schema
from advisor.rules.engine import analyze
from advisor.rules.what_if import what_if
from build.workload import Workload

SYNC, LOADER, OPTIMIZER = "host-sync-in-step", "single-process-dataloader", "unfused-optimizer"
Advisor = Callable[..., tuple[int, str, str]]


def loop() -> Workload:
    """Each step: 4 ms in the loader, then 6 times 1 ms of host work, 1 ms of kernels and a read that makes them take turns."""
    w = Workload()
    for _ in w.steps(6):
        w.loader(4000)
        for _ in range(6):
            with w.op("aten::mm", us=1000):
                w.launch("gemm", gpu_us=1000)
            w.item()
    return w


@pytest.fixture(scope="module")
def run() -> Run:
    return loop().to_run()


@pytest.fixture
def advisor(capsys: pytest.CaptureFixture[str]) -> Advisor:
    """advisor(arguments...) -> (exit status, standard output, standard error)."""

    def run_it(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(left.value.code or 0), out, err

    return run_it


def test_alone_it_is_what_the_report_promises(run: Run) -> None:
    answer = what_if(run, [SYNC, LOADER])
    report = analyze(run, select=[SYNC, LOADER])
    assert answer.step_ns == report.step_ns
    promised = {finding.rule: finding.saving for finding in report.findings}
    assert {one.rule: one.saving for one in answer.alone} == promised
    assert [one.findings for one in answer.alone if one.rule == SYNC] == [
        [finding.title for finding in report.findings if finding.rule == SYNC]
    ]


def test_together_is_one_replay_and_no_sum(run: Run) -> None:
    answer = what_if(run, [SYNC, LOADER])
    assert answer.together is not None and answer.step_ns
    savings = [one.saving.expected_ns for one in answer.alone if one.saving]
    assert max(savings) < answer.together.expected_ns <= sum(savings) + answer.step_ns // 50
    # Without the loader and the turns what is left are 6 ms of kernels beside 6 ms of host work.
    assert answer.step_ns - answer.together.expected_ns == pytest.approx(6e6, rel=0.1)
    assert answer.together.basis == "replay"


def test_two_that_share_their_time_save_it_once(run: Run) -> None:
    both = what_if(run, [LOADER, "dataloader-bound"])
    single = next(one.saving for one in both.alone if one.rule == LOADER)
    assert both.together is not None and single is not None
    assert both.together.expected_ns == pytest.approx(single.expected_ns, rel=0.02)


def test_rules_stand_in_the_order_asked_for(run: Run) -> None:
    assert [one.rule for one in what_if(run, [f"{SYNC}, {OPTIMIZER}", LOADER]).alone] == [SYNC, OPTIMIZER, LOADER]
    assert {one.rule for one in what_if(run, ["input"]).alone} >= {LOADER, "dataloader-bound", "epoch-start-stall"}


def test_a_rule_that_finds_nothing_changes_nothing(run: Run) -> None:
    answer = what_if(run, [OPTIMIZER, "python-gap"])
    assert [one.saving for one in answer.alone] == [None, None] and answer.together is None
    assert answer.alone[1].outcome == "not-applicable" and answer.alone[1].capture
    document = answer.to_dict()
    assert document["together"]["step"] == dict.fromkeys(("best_ns", "expected_ns", "worst_ns"), answer.step_ns)
    assert document["together"]["saving"]["basis"] == "none"


def test_findings_too_small_for_the_report_count() -> None:
    w = Workload()
    for _ in w.steps(8):
        for _ in range(100):
            with w.op("aten::mul", us=166):
                w.launch("elementwise", gpu_us=1)
        w.item()
    run = w.to_run()
    assert not analyze(run, select=[SYNC]).findings
    assert what_if(run, [SYNC]).alone[0].findings


def test_unknown_rules(run: Run) -> None:
    with pytest.raises(InputError, match="did you mean 'host-sync-in-step'"):
        what_if(run, ["host-sync-in-stp"])


@pytest.mark.parametrize("format", ["json", "text", "markdown"])
@pytest.mark.parametrize("empty", [False, True])
def test_every_format_renders(run: Run, format: str, empty: bool) -> None:
    answer = what_if(Run() if empty else run, [SYNC, LOADER, OPTIMIZER])
    text = render(answer, format, Style(width=100))
    assert text.endswith("\n") and all(rule in text for rule in (SYNC, LOADER, OPTIMIZER))
    if format == "json":
        jsonschema.validate(json.loads(text), schema())
    elif empty:
        assert "no step in this input" in text
    else:
        assert "all together" in text and "→" in text


def test_an_unknown_format(run: Run) -> None:
    with pytest.raises(ValueError, match="no format 'html'"):
        render(what_if(run, [SYNC]), "html", Style())


def test_the_table_in_text(run: Run) -> None:
    answer = what_if(run, [SYNC, LOADER])
    lines = render(answer, "text", Style(width=100)).splitlines()
    row = next(line.split() for line in lines if line.split()[:1] == [LOADER] and "%" in line)
    assert row[1:3] == ["4.0", "ms"] or row[1:3] == ["4", "ms"]
    assert sum("all together" in line for line in lines) == 1
    assert "all together" not in render(what_if(run, [SYNC]), "text", Style(width=100))


def test_throughput(run: Run) -> None:
    run.options.items_per_step = 32.0
    try:
        document = what_if(run, [SYNC]).to_dict()
    finally:
        run.options.items_per_step = None
    jsonschema.validate(document, schema())
    assert document["together"]["items_per_second"] == pytest.approx(32e9 / document["together"]["step"]["expected_ns"])


def test_at_the_command_line(advisor: Advisor, tmp_path: Path) -> None:
    path = loop().write_kineto(tmp_path)[0]
    code, out, err = advisor("analyze", path, "--what-if", f"{SYNC},{LOADER}", "--format", "json")
    document: dict[str, Any] = json.loads(out)
    assert (code, err) == (0, "") and document["schema"] == "advisor.whatif/1"
    assert [one["rule"] for one in document["alone"]] == [SYNC, LOADER]
    assert advisor("analyze", path, "--what-if", f"{SYNC},{LOADER}", "--format", "json")[1] == out
    code, out, _ = advisor("analyze", path, "--what-if", SYNC, "--output", tmp_path / "answer.txt")
    assert (code, out) == (0, "") and "What if" in (tmp_path / "answer.txt").read_text()
    code, _, err = advisor("analyze", path, "--what-if", "host-sync-in-stp")
    assert code == 2 and "did you mean" in err


@pytest.mark.parametrize(
    "more", [["--select", SYNC], ["--ignore", SYNC], ["--fail-on", "high"], ["--gpu-hour-cost", "2"]], ids=lambda more: more[0]
)
def test_options_that_have_no_meaning_beside_it(advisor: Advisor, tmp_path: Path, more: list[str]) -> None:
    code, _, err = advisor("analyze", tmp_path / "absent.json", "--what-if", SYNC, *more)
    assert code == 2 and "goes without" in err


def test_every_key_is_documented() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "report-json.md").read_text("utf-8")
    section = page[page.index("## What if") :]
    for key in _keys(schema(), schema()):
        assert f"`{key}`" in section, key


def _keys(node: dict[str, Any], document: dict[str, Any], where: str = "") -> Iterator[str]:
    """Keys of the document, but not those of savings, which are the report's, and of the run."""
    for key, value in node.get("properties", {}).items():
        if key in ("saving", "run", "code", "message"):
            continue
        yield where + key
        inner = value.get("items", value)
        inner = document["$defs"]["step"] if inner.get("$ref", "").endswith("step") else inner
        yield from _keys(inner, document, f"{where}{key}{'[]' if value.get('type') == 'array' else ''}.")


def test_the_answer_is_plain_data() -> None:
    answer = WhatIf("1", {}, None, [], None)
    assert json.loads(json.dumps(answer.to_dict()))["together"]["step"] == {
        "best_ns": None,
        "expected_ns": None,
        "worst_ns": None,
    }
