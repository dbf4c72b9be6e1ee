"""pipeline-bubble: stages that wait for one another, by their number of micro-batches or their uneven work."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor import load
from build.judge import Verdict, judge
from build.parallel import all_steps, data_parallel, pipelined
from build.workload import Workload

RULE = "pipeline-bubble"


def told(w: Workload, folder: Path, *others: str) -> Verdict:
    files = w.write_nsys(folder / "report.sqlite") if w.tool == "nsys" else w.write_kineto(folder)
    return judge(load(files), RULE, *others)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (4, 4), (4, 8)])
def test_the_bubble_of_a_schedule(tmp_path: Path, stages: int, micro_batches: int) -> None:
    """(p - 1) / (m + p - 1) of the step is idle; twice as many micro-batches take half of that. Within 2 points."""
    found = told(pipelined(stages, micro_batches), tmp_path)
    ideal = (stages - 1) / (micro_batches + stages - 1)
    assert found.report.step_ns == pytest.approx((micro_batches + stages - 1) * 3e6, rel=0.05)
    facts = found.finding.facts
    assert (facts["stages"], facts["micro_batches"], facts["cause"]) == (stages, micro_batches, "few micro-batches")
    assert facts["bubble_frac"] == pytest.approx(ideal, abs=0.02) and facts["ideal_frac"] == pytest.approx(ideal, abs=1e-4)
    assert found.part() == pytest.approx(ideal / 2, abs=0.02)
    assert found.part("low") == 0 and found.part("high") == pytest.approx(ideal * 0.75, abs=0.03)
    assert found.finding.saving is not None and found.finding.saving.basis == "bound"
    assert [row[0] for row in found.finding.evidence[0].rows] == list(range(stages))
    assert f"n_microbatches={2 * micro_batches}" in found.finding.fixes[0].snippet


def test_many_micro_batches_are_clean(tmp_path: Path) -> None:
    assert told(pipelined(2, 12), tmp_path).outcome == "clean"


def test_a_stage_with_more_work(tmp_path: Path) -> None:
    """One of four stages has 1.6 times the work of the others: even, the step takes what the mean stage needs."""
    found = told(pipelined(4, 8, factors=(1, 1, 1.6)), tmp_path)
    facts = found.finding.facts
    assert facts["cause"] == "uneven stages" and facts["heaviest_rank"] == 2
    assert facts["work_ratio"] == pytest.approx(1.6 / 1.15, rel=0.02)
    assert found.part() == pytest.approx(1 - 1.15 / 1.6, abs=0.02)
    assert found.finding.fixes[0].id == "even-stages" and "rank 2 computes 1.39" in found.finding.fixes[0].snippet


def test_nsys_sees_the_same(tmp_path: Path) -> None:
    """By the ranges of NCCL; the sizes of groups are unknown, and the ranks that were recorded are the stages."""
    torch, nsys = told(pipelined(4, 4), tmp_path / "a"), told(pipelined(4, 4, tool="nsys"), tmp_path)
    assert nsys.part() == pytest.approx(torch.part(), abs=0.02)
    assert nsys.finding.facts["micro_batches"] == 4 and nsys.finding.facts["stages"] == 4


def test_some_stages_are_missing() -> None:
    """Two of four stages: the bubble is theirs all the same, the number of micro-batches is unknown."""
    run = pipelined(4, 4).to_run()
    w = pipelined(2, 2, world_size=4)
    for rank in w.ranks:
        for call in rank.rows["collective_calls"]:
            call["group_size"] = 4
    found = judge(w.to_run(), RULE)
    assert found.finding.facts["micro_batches"] is None and found.finding.confidence == "low"
    assert judge(run, RULE).finding.confidence == "medium"


def test_without_names_of_the_calls_nothing_is_said(tmp_path: Path) -> None:
    w = pipelined(4, 4, named=False)
    for rank in w.ranks:
        rank.rows["ranges"] = [row for row in rank.rows["ranges"] if not row["name"].startswith("nccl")]
    found = told(w, tmp_path)
    assert found.outcome == "not-applicable" and "names of their calls" in found.reason


def test_one_stage_alone_cannot_tell() -> None:
    w = pipelined(2, 2)
    w.ranks = w.ranks[:1]
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "at least two stages" in found.reason


def test_a_ring_is_no_pipeline() -> None:
    """Both ranks exchange at the same moments, and wait as long as a stage would: they begin at once."""
    w = Workload(ranks=2)
    for _ in range(6):
        with all_steps(w):
            for _ in range(4):
                for rank in w.ranks:
                    rank.stream_wait(7, on=17)
                    with rank.op("aten::linear"):
                        rank.launch("gemm", 1000)
                    rank.stream_wait(17, on=7)
                w.hand_on(0, 1, 500)
                w.hand_on(1, 0, 500)
            for rank in w.ranks:
                rank.stream_wait(7, on=17)
                rank.launch("fused_adam_kernel", 100)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_data_parallel_ranks_are_no_stages() -> None:
    assert judge(data_parallel().to_run(), RULE).outcome == "clean"


def test_the_bubble_takes_in_what_it_explains(tmp_path: Path) -> None:
    """All rules together: the bubble first, and nothing that calls the same waiting slow communication or a late rank."""
    from build.cases import told as judged

    case = judged(pipelined(4, 4), tmp_path)
    assert case.first.rule == RULE
    assert not {"exposed-communication", "waiting-in-collective", "straggler-rank", "idle-gpu"} & set(case.rules)
    assert case.combined < 0.4
