"""expert-imbalance: ranks whose experts have more tokens than others', told from slower ranks and from other exchanges."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor import load
from build.judge import Verdict, judge
from build.parallel import data_parallel, experts, pipelined
from build.workload import Workload

RULE = "expert-imbalance"
UNEVEN = ((1.6, 0.8, 0.8, 0.8), (0.8, 0.8, 1.6, 0.8))  # another rank is hot in each layer; the mean is 1
STEP = 2 * (600 + 1600 + 200) + 100


def told(w: Workload, folder: Path, *others: str) -> Verdict:
    files = w.write_nsys(folder / "report.sqlite") if w.tool == "nsys" else w.write_kineto(folder)
    return judge(load(files), RULE, *others)


def test_the_heaviest_rank_of_each_layer_sets_the_pace(tmp_path: Path) -> None:
    """1.6 ms against a mean of 1.0 in both layers: even experts save 1.2 ms of a step. Within 2 points."""
    found = told(experts(UNEVEN), tmp_path)
    assert found.report.step_ns == pytest.approx(STEP * 1000, rel=0.04)
    facts = found.finding.facts
    assert facts["load_ratio"] == pytest.approx(1.6, rel=0.01) and facts["excess_ns"] == pytest.approx(1_200_000, rel=0.02)
    assert (facts["uneven_segments"], facts["segments"]) == (2, 5)
    assert found.part() == pytest.approx(1200 / STEP, abs=0.02)
    assert 0 < found.part("low") < found.part() <= found.part("high")
    assert found.finding.saving is not None and found.finding.saving.basis == "replay"
    table = found.finding.evidence[0]
    assert table.columns[4] == "rows_of_products"
    assert {row[0]: row[4] for row in table.rows} == {0: 1228, 1: 818, 2: 1228, 3: 818}
    assert "heaviest rank has 1.6 times" in found.finding.fixes[0].snippet


def test_one_hot_rank_is_named(tmp_path: Path) -> None:
    found = told(experts(((2.2, 0.6, 0.6, 0.6),) * 2), tmp_path)
    assert found.finding.facts["hottest_rank"] == 0 and found.finding.facts["hottest_frac"] == 1.0
    assert not any("Another rank" in text for text in found.finding.caveats)


@pytest.mark.parametrize(("heavy", "outcome"), [(1.24, "clean"), (1.4, "found")])
def test_the_threshold(heavy: float, outcome: str) -> None:
    others = (4 - heavy) / 3
    assert judge(experts(((heavy, others, others, others),) * 2).to_run(), RULE).outcome == outcome


def test_even_experts_are_clean(tmp_path: Path) -> None:
    assert told(experts(((1.0, 1.0, 1.0, 1.0),) * 2), tmp_path).outcome == "clean"


def test_a_slower_rank_is_not_its_experts() -> None:
    """All that rank 0 does takes 1.6 times as long."""
    w = experts(((1.6, 1.0), (1.6, 1.0)), dense_us=1000)
    for row in w.ranks[0].rows["kernels"]:
        if row["end"] - row["start"] == 1_000_000:
            row["end"] += 600_000
    # Work that was stretched above overlaps what follows, so only the verdict on experts is asked for.
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_an_exchange_of_embeddings_is_none_of_experts() -> None:
    run = experts(UNEVEN, product="embedding_bag_kernel").to_run()
    assert judge(run, RULE).outcome == "clean"


def test_without_names_nothing_is_said(tmp_path: Path) -> None:
    """As Nsight Systems records it: an all-to-all is a kernel of sends and receives."""
    found = told(experts(UNEVEN, named=False, tool="nsys"), tmp_path)
    assert found.outcome == "not-applicable" and "names of their calls" in found.reason


def test_other_communication_is_clean() -> None:
    assert judge(data_parallel().to_run(), RULE).outcome == "clean"
    assert judge(pipelined(2, 4).to_run(), RULE).outcome == "clean"


def test_one_rank_alone_cannot_tell() -> None:
    w = experts(UNEVEN)
    w.ranks = w.ranks[:1]
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "at least two ranks" in found.reason


def test_it_takes_in_what_it_explains(tmp_path: Path) -> None:
    from build.cases import told as judged

    case = judged(experts(((2.2, 0.6, 0.6, 0.6),) * 2), tmp_path)
    assert case.first.rule == RULE
    assert not {"straggler-rank", "waiting-in-collective", "exposed-communication"} & set(case.rules)
