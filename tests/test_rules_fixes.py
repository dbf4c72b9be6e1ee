"""Which fixes are printed: by what is known of the GPU and of torch, also by the day of the recording."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from advisor.detectors.words import counted, name_text
from advisor.ingest import load
from advisor.model import Device, Fix, Options, Run
from advisor.report import render
from advisor.rules.engine import analyze
from advisor.rules.fixes import filled, fixes_for
from advisor.rules.rule import FixTemplate, Rule
from advisor.rules.validity import Validity, newest_torch
from build.reports import starved_loader
from build.workload import H200, V100, Workload

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"


def template(name: str, valid: Validity) -> FixTemplate:
    return FixTemplate(name, name, "pytorch", "python", "x = 1", "same-numerics", "minutes", valid=valid)


@pytest.mark.parametrize(
    ("day", "newest"),
    [((2021, 6, 8), (1, 9)), ((2023, 1, 5), (2, 0)), ((2026, 1, 1), None), ((1970, 1, 2), None), (None, None)],
)
def test_the_newest_torch_of_a_day(day: tuple[int, int, int] | None, newest: tuple[int, int] | None) -> None:
    epoch = None if day is None else int(datetime(*day, tzinfo=UTC).timestamp()) * 10**9
    assert newest_torch(Run(epoch_ns=epoch)) == newest


def test_what_the_run_cannot_have_stands_behind() -> None:
    fixes = (template("compile", Validity(min_torch=(2, 0))), template("foreach", Validity(min_torch=(1, 9))))
    rule = Rule(id="a", family="b", title="c", summary="d", fixes=fixes)
    old = fixes_for(rule, None, {}, None, None, newest=(1, 9))
    assert [fix.id for fix in old] == ["foreach", "compile"]
    assert old[1].caveats == ["Needs torch 2.0, which is newer than the recording."]
    assert [fix.id for fix in fixes_for(rule, None, {}, None, None)] == ["compile", "foreach"]
    assert [fix.id for fix in fixes_for(rule, None, {}, None, (2, 4), newest=(1, 9))] == ["compile", "foreach"]


@pytest.mark.parametrize(
    ("device", "order"), [(H200, ["compile", "library"]), (V100, ["library", "compile"]), (None, ["compile", "library"])]
)
def test_what_needs_triton_stands_behind_on_old_gpus(device: Device | None, order: list[str]) -> None:
    compiled = replace(template("compile", Validity()), snippet="model = torch.compile(model)")
    rule = Rule(id="a", family="b", title="c", summary="d", fixes=(compiled, template("library", Validity())))
    fixes = fixes_for(rule, None, {}, device, None)
    assert [fix.id for fix in fixes] == order
    told = [text for fix in fixes for text in fix.caveats]
    assert ([text.startswith("Recent releases of Triton") for text in told] == [True]) is (device is V100)


def test_a_finding_without_a_fix_says_why() -> None:
    w = Workload()
    for _ in w.steps(6):
        for _ in range(40):
            with w.op("aten::add", us=5):
                w.launch("void at::native::vectorized_elementwise_kernel<4, add>", gpu_us=100)
    run = w.to_run()
    run.options = Options(torch_version="1.13")
    (finding,) = analyze(run, select=["unfused-elementwise"]).findings
    assert finding.fixes == []
    assert "No fix is printed: valid for torch 2.0 and newer; this run has 1.13." in finding.caveats


def test_conditions_are_never_cut_from_the_notes() -> None:
    report = starved_loader()
    notes = ["One.", "Two.", "Three.", "Valid for torch 2.0 and newer, which the input does not tell."]
    report.findings[0].fixes = [replace(report.findings[0].fixes[0], caveats=notes)]
    text = render(report, "text", width=100)
    assert "Valid for torch 2.0" in text and "Two." in text and "Three." not in text and "and 1 more note (-v)" in text
    assert "Three." in render(report, "text", width=100, verbosity=1)
    assert isinstance(report.findings[0].fixes[0], Fix)


def test_a_mean_over_steps_has_one_decimal() -> None:
    fix = replace(template("a", Validity()), snippet="n = <<waits_per_step>>", example={"waits_per_step": 3})
    assert [filled(fix, {"waits_per_step": n}) for n in (3.32, 3.0, 3)] == ["n = 3.3", "n = 3", "n = 3"]


def test_one_is_one() -> None:
    assert counted(1, "matrix product", "are") == "1 matrix product a step is"
    assert counted(1, "matrix product", "reach") == "1 matrix product a step reaches"
    assert counted(2, "matrix kernel", "run") == "2 matrix kernels a step run"


def test_parts_below_a_thousandth_are_no_evidence(tmp_path: Path) -> None:
    # Half a microsecond of loading in a step of 4 ms would be a row "dataloader".
    w = Workload()
    for _ in w.steps(6):
        for _ in range(10):
            w.launch("gemm", 100)
        w.host(3000)
        w.loader(0.5)
        w.host(1000)
    report = analyze(load(w.write_kineto(tmp_path)), select=["idle-gpu"])
    assert report.findings and report.breakdown[0].idle_by_cause["dataloader"] == 500
    shares = [row[2] for finding in report.findings for table in finding.evidence for row in table.rows]
    assert all(share >= 0.001 for share in shares)


def test_long_names_say_that_they_are_cut() -> None:
    assert name_text("gemm") == "gemm" and name_text("k" * 90) == "k" * 90
    assert name_text("k" * 91) == "k" * 89 + "…"
