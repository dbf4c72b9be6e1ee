"""gloo-backend: gradients that go through host memory; Gloo for anything else is no fault."""

from __future__ import annotations

import pytest

from build.judge import Verdict, judge
from build.parallel import all_steps
from build.workload import Workload

RULE = "gloo-backend"


def loop(
    *, megabytes: float = 100, gloo_us: float = 40_000, kind: str = "all_reduce", overlap_us: float = 0, copies: bool = True
) -> Workload:
    """10 ms of compute, then Gloo's collective for which the host waits, on two ranks."""
    w = Workload(ranks=2)
    size = int(megabytes * 1e6)
    for _ in range(5):
        with all_steps(w):
            for rank in w.ranks:
                with rank.backward(), rank.op("autograd::engine::evaluate_function: Linear", us=20):
                    rank.launch("gemm", 10_000)
                rank.sync()
                rank.copy("HtoD", 1000)
                if overlap_us:
                    rank.launch("gemm", overlap_us)
                with rank.thread(rank.process + 40), rank.range(f"gloo:{kind}"):
                    if copies:
                        rank.copy("DtoH", size, 2000, stream=30)
                    rank.host(gloo_us - 2000)
                    if copies:
                        rank.copy("HtoD", size, 2000, stream=30)
                    rank.sync(stream=30)
                with rank.optimizer():
                    rank.launch("fused_adam_kernel", 100)
                rank.sync()
    return w


def verdict(w: Workload, *others: str) -> Verdict:
    return judge(w.to_run(), RULE, *others)


def test_gradients_through_host_memory() -> None:
    """40 of 50 ms: NCCL moves 100 MB on two ranks at 0.6 of 450 GB/s in 0.37 ms."""
    found = verdict(loop())
    finding = found.finding
    assert finding.facts["moved_bytes"] == pytest.approx(100e6, rel=1e-4)
    assert finding.facts["nccl_ns"] == pytest.approx(100e6 / 270e9 * 1e9, rel=0.001)
    assert finding.facts["gpu_idle_ns"] == pytest.approx(40e6, rel=0.02)
    assert found.part() == pytest.approx(39.6 / 50.2, abs=0.06)
    assert found.part("high") >= found.part()
    assert finding.title.startswith("Gloo carries 100 MB a step of the GPU's data through host memory: 40 ms of every step in 1 ")
    assert [fix.id for fix in finding.fixes] == ["nccl", "lightning"]
    assert finding.evidence[0].rows[0][:2] == ["gloo:all_reduce", 1.0]


def test_it_leads_the_rules_on_what_it_causes() -> None:
    found = verdict(loop(), "host-sync-in-step", "python-gap", "idle-gpu", "device-to-host-in-step")
    assert [finding.rule for finding in found.report.findings][:1] == [RULE]


@pytest.mark.parametrize("kind", ["barrier", "gather_object", "monitoredBarrier"])
def test_barriers_are_no_data(kind: str) -> None:
    assert verdict(loop(kind=kind)).outcome == "clean"


def test_tensors_of_the_host_are_right_there() -> None:
    assert verdict(loop(copies=False)).outcome == "clean"


@pytest.mark.parametrize(("megabytes", "outcome"), [(0.4, "clean"), (0.6, "found")])
def test_metrics_are_small(megabytes: float, outcome: str) -> None:
    assert verdict(loop(megabytes=megabytes)).outcome == outcome


def test_behind_compute_it_costs_nothing() -> None:
    assert verdict(loop(overlap_us=60_000)).outcome == "clean"


def test_cannot_judge_without_ranges_or_operators() -> None:
    w = Workload(tool="nsys")
    for _ in range(4):
        w.launch("gemm", 1000)
    w.copy("HtoD", 100)
    assert verdict(w).outcome == "not-applicable"
