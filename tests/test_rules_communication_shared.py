"""The rules on communication and kernels on recorded training loops whose fault and gain are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.ingest import load
from advisor.model import Report
from advisor.rules.engine import analyze

CORPUS = Path(__file__).resolve().parents[1] / "../shared/corpus"
MINE = ["communication", "underfilled-gpu", "unfused-attention", "fp32-matmul"]

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not CORPUS.is_dir(), reason="no recorded loops here")]


def report(name: str, variant: str, kind: str, ranks: str = "*") -> Report:
    return analyze(load(sorted((CORPUS / name / variant).glob(f"trace_{kind}{ranks}.json.gz"))), select=MINE)


def shares(made: Report, rule: str) -> tuple[float, float]:
    """Expected and high saving of the rule's finding as shares of the step; -1 without one."""
    found = [finding.saving for finding in made.findings if finding.rule == rule and finding.saving]
    if not found or not made.step_ns:
        return -1.0, -1.0
    return found[0].expected_ns / made.step_ns, found[0].high_ns / made.step_ns


@pytest.mark.parametrize("kind", ["light", "full"])
@pytest.mark.parametrize(
    ("name", "rule"),
    [("p2p_disabled", "low-bus-bandwidth"), ("manual_attention", "unfused-attention"), ("fp32_matmul", "fp32-matmul")],
)
def test_planted_fault_comes_first_with_its_measured_worth(name: str, rule: str, kind: str) -> None:
    made = report(name, "before", kind)
    assert made.findings[0].rule == rule
    gains = json.loads((CORPUS / name / "truth.json").read_text())["measured_gain_frac"]
    expected, high = shares(made, rule)
    assert min(gains) - 0.08 <= expected <= max(gains) + 0.05
    assert high >= min(gains)


@pytest.mark.parametrize("kind", ["light", "full"])
def test_the_straggler_and_what_it_does(kind: str) -> None:
    made = report("ddp_straggler", "before", kind)
    finding = next(finding for finding in made.findings if finding.rule == "straggler-rank")
    assert finding.facts["late_rank"] == 1 and finding.facts["cause"] == "extra kernels"
    assert finding.facts["kernels_on_late"] - finding.facts["kernels_on_other"] == pytest.approx(362, abs=2)
    assert finding.facts["work_ratio"] == pytest.approx(1.42, abs=0.04)
    expected, high = shares(made, "straggler-rank")
    # The gain was 0.25 and 0.37; the light recording is bound by the wrong rank's host.
    assert 0 <= expected <= 0.37 and high >= 0.25


@pytest.mark.parametrize("kind", ["light", "full"])
def test_collectives_after_backward_promise_nothing_in_a_host_bound_loop(kind: str) -> None:
    assert shares(report("ddp_after_backward", "before", kind), "exposed-communication")[0] < 0.1


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_alone_sees_the_low_bandwidth(rank: int) -> None:
    made = report("p2p_disabled", "before", "light", f"_rank{rank}")
    finding = next(finding for finding in made.findings if finding.rule == "low-bus-bandwidth")
    assert finding.confidence == "low"
    assert finding.facts["bus_bandwidth_gb_per_s"] == pytest.approx(27, abs=1)


@pytest.mark.parametrize(
    ("name", "variant", "kind"),
    [
        ("ddp_healthy", "before", "light"),
        ("ddp_healthy", "before", "full"),
        ("ddp_healthy", "after", "full"),
        ("ddp_straggler", "after", "light"),
        ("ddp_straggler", "after", "full"),
        ("ddp_after_backward", "after", "light"),
        ("p2p_disabled", "after", "light"),
        ("p2p_disabled", "after", "full"),
    ],
)
def test_healthy_communication_is_left_alone(name: str, variant: str, kind: str) -> None:
    made = report(name, variant, kind)
    # Small models on an H200 leave SMs empty: that is true of some of these loops.
    assert [finding.title for finding in made.findings if finding.rule != "underfilled-gpu"] == []


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_of_a_healthy_pair_is_no_finding(rank: int) -> None:
    assert report("ddp_healthy", "before", "light", f"_rank{rank}").findings == []


@pytest.mark.parametrize(
    ("name", "variant"),
    [("healthy", "before"), ("unfused_pointwise", "before"), ("unfused_pointwise", "after"), ("fp32_matmul", "after")],
)
def test_full_kernels_are_no_finding(name: str, variant: str) -> None:
    assert all(finding.rule != "underfilled-gpu" for finding in report(name, variant, "light").findings)


@pytest.mark.parametrize("kind", ["light", "full"])
def test_kernels_of_a_batch_of_one_leave_sms_empty(kind: str) -> None:
    assert any(finding.rule == "underfilled-gpu" for finding in report("small_batch_idle_sms", "before", kind).findings)
    assert all(finding.rule != "underfilled-gpu" for finding in report("small_batch_idle_sms", "after", kind).findings)
