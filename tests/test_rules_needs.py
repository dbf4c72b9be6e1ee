"""What a rule lacks, and whether recording again would help: advice that cannot help is not printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model import Report, RuleOutcome, Run
from advisor.rules.catalogue import catalogue
from advisor.rules.engine import analyze
from advisor.rules.rule import SAMPLING
from build.rank import H200
from build.workload import Workload


def outcome(report: Report, rule: str) -> RuleOutcome:
    return next(one for one in report.rules if one.id == rule)


def loop(**given: object) -> Run:
    w = Workload(**given)  # type: ignore[arg-type]
    for _ in w.steps(6):
        for _ in range(10):
            with w.op("aten::mm", us=60):
                w.launch("sgemm_128x64_nn", gpu_us=1000)
    return w.to_run()


@pytest.mark.parametrize("rule", ["straggler-rank", "low-bus-bandwidth", "small-collectives"])
def test_one_rank_is_not_asked_for_its_peers(rule: str) -> None:
    one = outcome(analyze(loop(), select=[rule]), rule)
    assert (one.outcome, one.reason, one.capture) == ("not-applicable", "the recording shows one rank and no peers", None)


def test_one_rank_of_several_is_asked_for_its_peers() -> None:
    run = loop()
    run.world_size = 2
    assert outcome(analyze(run, select=["straggler-rank"]), "straggler-rank").capture


def test_what_a_trace_would_hold_is_not_asked_for_again() -> None:
    one = outcome(analyze(loop(), select=["pageable-copy"]), "pageable-copy")
    assert (one.reason, one.capture) == ("the input holds no copies", None)
    assert outcome(analyze(Run(), select=["pageable-copy"]), "pageable-copy").capture


def test_a_torch_trace_without_a_loader_is_told_to_mark_it() -> None:
    w = Workload()
    for _ in w.steps(6):
        with w.range("forward"), w.op("aten::mm", us=60):
            w.launch("gemm", gpu_us=1000)
    run = w.to_run()
    run.capture.tool = "torch.profiler"
    for rule in ("single-process-dataloader", "epoch-start-stall"):
        assert "record_function" in (outcome(analyze(run, select=[rule]), rule).capture or "")
    run = w.to_run()
    run.capture.tool = "nsys"
    assert "torch.profiler" in (outcome(analyze(run, select=["epoch-start-stall"]), "epoch-start-stall").capture or "")


def test_no_recording_gives_an_old_gpu_tf32() -> None:
    volta = replace(H200, name="Tesla V100-SXM2-16GB", compute_capability=(7, 0), sm_count=80)
    one = outcome(analyze(loop(device=volta), select=["fp32-matmul"]), "fp32-matmul")
    assert one.outcome == "not-applicable" and "needs compute capability 8.0" in (one.reason or "") and one.capture is None


def test_one_command_samples_for_all_rules() -> None:
    hints = [entry.rule.capture or "" for entry in catalogue()[0]]
    assert sum(SAMPLING in hint for hint in hints) >= 5 and not any("--query-gpu" in hint or "<<" in hint for hint in hints)
