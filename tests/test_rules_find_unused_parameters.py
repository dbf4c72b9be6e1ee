"""find-unused-parameters: the search in every step, with its map."""

from __future__ import annotations

import pytest

from build.judge import Verdict, judge
from build.parallel import all_steps, together
from build.workload import Workload

RULE = "find-unused-parameters"
SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


def loop(*, search_us: float = 500, mapped: bool = True, wrapped: bool = True, gemm_us: float = 5, layers: int = 50) -> Workload:
    w = Workload(ranks=2)
    for _ in range(6):
        with all_steps(w):
            label = "DistributedDataParallel.forward" if wrapped else "forward"
            with together(rank.range(label) for rank in w.ranks):
                for rank in w.ranks:
                    for _ in range(layers):
                        with rank.op("aten::linear", us=20):
                            rank.launch("gemm", gemm_us)
                    if search_us:
                        rank.leaf(SEARCH, search_us)
            if mapped:
                w.collective("allreduce", 147, 6, dtype="Int", stream=7)
            w.collective("allreduce", 1 << 20, 30, stream=7)
    return w


def verdict(w: Workload) -> Verdict:
    return judge(w.to_run(), RULE)


def test_search_and_map_go() -> None:
    found = verdict(loop())
    finding, step = found.finding, found.report.step_ns or 1
    assert finding.facts["parameters"] == 147 and finding.facts["searches_per_step"] == 1
    assert finding.facts["search_ns"] == pytest.approx(500e3, rel=0.01)
    assert found.part() * step == pytest.approx(finding.facts["host_ns"], rel=0.1)
    assert finding.title == (
        "DDP searches for unused parameters in every step: 500 µs as recorded, and a map of 147 parameters is reduced"
    )
    assert [fix.id for fix in finding.fixes] == ["switch-off", "static-graph", "lightning"]
    search, reduction = finding.evidence[0].rows
    assert search[1:] == [1.0, pytest.approx(500e3, rel=0.01)] and reduction[1] == 1.0


def test_gradients_are_not_taken_for_the_map() -> None:
    found = verdict(loop(mapped=False))
    assert found.finding.facts["parameters"] is None and "map of" not in found.finding.title


@pytest.mark.parametrize(("search_us", "outcome"), [(10, "clean"), (400, "found")])
def test_worth_an_edit(search_us: float, outcome: str) -> None:
    assert verdict(loop(search_us=search_us, mapped=False, layers=100)).outcome == outcome


def test_behind_long_kernels_it_costs_nothing() -> None:
    assert verdict(loop(gemm_us=400, mapped=False)).outcome == "clean"


def test_without_the_search() -> None:
    assert verdict(loop(search_us=0, mapped=False)).outcome == "clean"


def test_cannot_judge_without_ddp() -> None:
    found = verdict(loop(search_us=0, wrapped=False))
    assert found.outcome == "not-applicable" and "DistributedDataParallel" in found.reason
