"""The rules on input, copies and the host on recorded training loops whose fault and gain are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.ingest import load
from advisor.model import Report
from advisor.rules.engine import analyze

CORPUS = Path(__file__).resolve().parents[1] / "../shared/corpus"
MINE = ["input", "transfer", "host"]

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not CORPUS.is_dir(), reason="no recorded loops here")]


def report(name: str, variant: str, kind: str) -> Report:
    pattern = "nsys-*.sqlite.gz" if kind == "nsys" else f"trace_{kind}*.json.gz"
    return analyze(load(sorted((CORPUS / name / variant).glob(pattern))), select=MINE)


def share(report: Report, rule: str) -> float:
    """Expected saving of the rule's best finding as a share of the step; -1 without one."""
    found = [finding.saving.expected_ns for finding in report.findings if finding.rule == rule and finding.saving]
    return max(found) / report.step_ns if found and report.step_ns else -1.0


PLANTED = [
    ("loader_starved", "light", "single-process-dataloader"),
    ("loader_starved", "full", "single-process-dataloader"),
    ("loader_starved", "nsys", "dataloader-bound"),
    ("pageable_h2d", "light", "pageable-copy"),
    ("pageable_h2d", "full", "pageable-copy"),
    ("pageable_h2d", "nsys", "pageable-copy"),
    ("ckpt_stall", "light", "checkpoint-stall"),
    ("ckpt_stall", "full", "checkpoint-stall"),
    ("launch_bound", "light", "launch-bound"),
    ("launch_bound", "full", "launch-bound"),
    ("launch_bound", "nsys", "launch-bound"),
]


@pytest.mark.parametrize(("name", "kind", "rule"), PLANTED)
def test_planted_fault_comes_first_with_its_measured_worth(name: str, kind: str, rule: str) -> None:
    made = report(name, "before", kind)
    assert made.findings[0].rule == rule
    gains = json.loads((CORPUS / name / "truth.json").read_text())["measured_gain_frac"]
    assert min(gains) - 0.08 <= share(made, rule) <= max(gains) + 0.05


@pytest.mark.parametrize("kind", ["light", "full"])
def test_plans_for_every_length(kind: str) -> None:
    made = report("fragmentation", "before", kind)
    assert made.findings[0].rule == "recompilation"
    assert "cudnn_attention" in made.findings[0].title


@pytest.mark.parametrize("kind", ["light", "full", "nsys"])
def test_waits_in_a_host_bound_loop_promise_little(kind: str) -> None:
    made = report("sync_item_layers", "before", kind)
    finding = next(finding for finding in made.findings if finding.rule == "host-sync-in-step")
    assert finding.facts["waits_per_step"] == 6
    assert 0 <= share(made, "host-sync-in-step") < 0.1
    assert finding.saving.high_ns >= 0.01 * made.step_ns


@pytest.mark.parametrize("kind", ["light", "full"])
def test_device_synchronisations(kind: str) -> None:
    made = report("sync_synchronize", "before", kind)
    finding = next(finding for finding in made.findings if finding.rule == "device-synchronize-in-step")
    assert finding.facts["synchronisations_per_step"] == 8
    assert share(made, "device-synchronize-in-step") < 0.14


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("healthy", "before"),
        ("ddp_healthy", "before"),
        ("loader_starved", "after"),
        ("pageable_h2d", "after"),
        ("ckpt_stall", "after"),
        ("unfused_pointwise", "after"),
        ("fp32_matmul", "before"),
        ("manual_attention", "before"),
    ],
)
@pytest.mark.parametrize("kind", ["light", "full"])
def test_nothing_on_the_host_is_wrong_here(name: str, variant: str, kind: str) -> None:
    assert [finding.title for finding in report(name, variant, kind).findings] == []
