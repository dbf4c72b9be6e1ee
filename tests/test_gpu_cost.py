"""--gpu-hour-cost: what findings are worth a day on the GPUs of the job."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from advisor.cli import main
from advisor.model import Report, Run
from advisor.report import render
from advisor.report.json_document import schema
from advisor.report.text import money
from advisor.rules.engine import analyze
from build.workload import Workload

RULE = "host-sync-in-step"


def waiting(ranks: int = 1, world_size: int | None = None) -> Workload:
    """1 ms of host work and 1 ms of kernels take turns: beside each other they take half."""
    w = Workload(ranks=ranks, world_size=world_size)
    for rank in w.ranks:
        for _ in rank.steps(6):
            for _ in range(6):
                with rank.op("aten::mm", us=1000):
                    rank.launch("gemm", gpu_us=1000)
                rank.item()
    return w


def priced(run: Run, price: float | None = 2.0) -> Report:
    run.options.gpu_hour_cost = price
    return analyze(run, select=[RULE, "capture-quality"])


@pytest.mark.parametrize(
    ("ranks", "world_size", "gpus"), [(1, None, 1), (2, None, 2), (1, 8, 8), (2, 16, 16)], ids=["one", "two", "of 8", "two of 16"]
)
def test_a_share_of_what_the_job_costs(ranks: int, world_size: int | None, gpus: int) -> None:
    report = priced(waiting(ranks, world_size).to_run())
    finding = report.findings[0]
    assert finding.saving is not None and report.step_ns
    share = finding.saving.expected_ns / report.step_ns
    assert share == pytest.approx(0.5, abs=0.03)
    assert finding.cost_per_day == pytest.approx(2.0 * 24 * gpus * share, abs=0.01)
    cost = report.extra["cost"]
    assert (cost["gpu_hour"], cost["gpus"], cost["per_day"]) == (2.0, gpus, 48.0 * gpus)
    assert cost["combined_per_day"] == pytest.approx(finding.cost_per_day, rel=0.01)


def test_the_json_report_holds_it_for_every_finding() -> None:
    document = json.loads(render(priced(waiting().to_run()), "json"))
    jsonschema.validate(document, schema())
    assert all("cost_per_day" in finding for finding in document["findings"])
    assert {f["cost_per_day"] is None for f in document["findings"] if f["saving"]["basis"] == "none"} <= {True}


def test_without_a_price_nothing_is_said_of_money() -> None:
    report = priced(waiting().to_run(), None)
    document = json.loads(render(report, "json"))
    assert "cost" not in document and all("cost_per_day" not in finding for finding in document["findings"])
    assert "a day" not in render(report, "text") + render(report, "markdown")


def test_people_read_it_too() -> None:
    report = priced(waiting(1, 8).to_run(), 2.5)
    worth = f"{report.findings[0].cost_per_day:,.0f} a day"
    text = " ".join(render(report, "text", width=100).split())
    assert "480 a day for 8 GPUs at 2.50 a GPU hour; all fixes together are worth" in text
    assert f"Worth {worth} on the job's GPUs" in text
    assert f"Worth **{worth}**" in render(report, "markdown")


def test_samples_tell_the_number_of_gpus_but_no_saving() -> None:
    w = Workload(closing_sync=False)
    for _ in range(10):
        for device in (0, 1, 2):
            w.sample(device, utilization=90.0 if device < 2 else 0.0)
        w.host(1_000_000)
    run = w.to_run()
    run.options.gpu_hour_cost = 1.0
    cost = analyze(run).extra["cost"]
    assert cost == {"gpu_hour": 1.0, "gpus": 2, "per_day": 48.0, "combined_per_day": None}


def test_the_number_of_gpus_may_be_unknown() -> None:
    run = Run()
    run.options.gpu_hour_cost = 1.0
    report = analyze(run)
    assert report.extra["cost"] == {"gpu_hour": 1.0, "gpus": None, "per_day": None, "combined_per_day": None}
    assert "the number of GPUs is unknown" in render(report, "text")


@pytest.mark.parametrize(
    ("amount", "text"),
    [(1234.5, "1,234"), (99.994, "99.99"), (3.456, "3.46"), (0.004, "<0.01"), (0, "0.00"), (1e9, "1,000,000,000")],
)
def test_amounts(amount: float, text: str) -> None:
    assert money(amount) == text


@pytest.mark.parametrize("price", ["0", "-1", "nan", "inf", "cheap"])
def test_a_price_is_a_number_above_nothing(price: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["analyze", str(waiting().write_kineto(tmp_path)[0]), "--gpu-hour-cost", price])
    assert left.value.code == 2 and "--gpu-hour-cost" in capsys.readouterr().err
