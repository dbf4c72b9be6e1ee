"""straggler-rank: who is late and why; lateness that only the recording shows is no fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from advisor.model import Run
from build.judge import Verdict, judge
from build.workload import Rank, Workload

RULE = "straggler-rank"
Body = Callable[[Rank, int], None]


def loop(body: Body, *, ranks: int = 2, steps: int = 6, host_us: float = 5, **given: object) -> Workload:
    """Each step: what `body(rank, step)` does, then one all-reduce of 100 us and an optimizer kernel, in lock step."""
    w = Workload(ranks=ranks, **given)  # type: ignore[arg-type]
    for step in range(steps):
        marks = [rank.step() for rank in w.ranks]
        for mark in marks:
            mark.__enter__()
        for rank in w.ranks:
            rank.host(host_us)
            body(rank, step)
            rank.stream_wait(17, on=7)
        w.collective("allreduce", 1 << 20, 100)
        for rank in w.ranks:
            rank.stream_wait(7, on=17)
            rank.launch("fused_adam_kernel", 300)
        for mark in marks:
            mark.__exit__(None, None, None)
    return w


def gemms(rank: Rank, count: int, gpu_us: float = 200, name: str = "gemm", grid: int = 132) -> None:
    for _ in range(count):
        with rank.op("aten::linear", us=5):
            rank.launch(name, gpu_us, grid=(grid, 1, 1))


def verdict(body: Body, **given: object) -> Verdict:
    return judge(loop(body, **given).to_run(), RULE)  # type: ignore[arg-type]


def extra(rank: Rank, step: int) -> None:
    """Rank 1 runs ten kernels of its own."""
    with rank.frame("train.py(40): forward"):
        gemms(rank, 20)
    if rank.number == 1:
        with rank.frame("train.py(77): evaluate"):
            gemms(rank, 10, name="evaluation_kernel")


def longer(rank: Rank, step: int) -> None:
    """Rank 1 has twice the tokens: the same kernels with twice the blocks."""
    gemms(rank, 20, *((400, "gemm", 264) if rank.number == 1 else (200, "gemm", 132)))


def slower(rank: Rank, step: int) -> None:
    """The same kernels at the same size, but rank 1 takes 1.4 times as long for all but the optimizer's."""
    gemms(rank, 20, 280 if rank.number == 1 else 200)


def test_work_that_only_one_rank_does() -> None:
    """4.0 ms of kernels against 6.0: without the extra ones the step takes what rank 0 needs."""
    found = verdict(extra)
    finding = found.finding
    assert found.report.step_ns == pytest.approx(6.4e6, rel=0.02)
    assert found.part() == pytest.approx(2.0 / 6.4, abs=0.01)
    assert finding.title == "rank 1 holds up the others: 6.3 ms of GPU work a step against 4.3 ms on rank 0, 10 kernels more"
    assert finding.facts["cause"] == "extra kernels" and finding.facts["late_rank"] == 1
    assert finding.facts["work_ratio"] == pytest.approx(6.3 / 4.3, rel=0.01)
    assert finding.scope["ranks"] == [1] and finding.confidence == "medium"
    assert finding.fixes[0].id == "keep-extra-work-off-the-step"
    by_rank, by_kernel = finding.evidence
    rank1, rank0 = (dict(zip(by_rank.columns, row, strict=True)) for row in by_rank.rows)
    assert (rank1["rank"], rank0["rank"]) == (1, 0)
    assert rank0["waits_for_peers_ns"] == pytest.approx(2e6, rel=0.05) and rank1["waits_for_peers_ns"] < 50_000
    assert rank1["arrives_last_frac"] == 1.0
    assert [(place.file, place.line, place.share) for place in finding.locations] == [("train.py", 77, 1.0)]
    assert by_kernel.rows[0] == ["evaluation_kernel", 10.0, 0.0, 2_000_000, 0]


def test_larger_inputs_can_only_be_moved() -> None:
    """8.0 against 4.0 ms: balanced, both have 6.0; at most, the late one has 4.0."""
    found = verdict(longer)
    assert found.finding.facts["cause"] == "larger inputs"
    assert found.part() == pytest.approx(2.0 / 8.4, abs=0.01)
    assert found.part("high") == pytest.approx(4.0 / 8.4, abs=0.01)
    assert [fix.id for fix in found.finding.fixes] == ["balance-tokens"]


def test_more_micro_batches_can_only_be_moved() -> None:
    found = verdict(lambda rank, step: gemms(rank, 40 if rank.number == 1 else 20))
    assert found.finding.facts["cause"] == "larger inputs"


def test_a_slower_gpu_and_its_clock() -> None:
    w = loop(slower)
    for _ in range(5):
        for rank, clock in ((w.ranks[0], 1980.0), (w.ranks[1], 1410.0)):
            rank.sample(device=0, utilization=100.0, sm_clock=clock)
    found = judge(w.to_run(), RULE)
    assert found.finding.facts["cause"] == "slower GPU"
    assert found.finding.title.endswith("take 1.37 times as long as on rank 0, SM clock 1410 against 1980 MHz")
    assert found.part() == pytest.approx(1.6 / 6.0, abs=0.02)
    assert found.finding.fixes[0].id == "check-the-gpu"
    unknown = verdict(slower)
    assert any("Clocks were not recorded" in text for text in unknown.finding.caveats)


def test_a_slower_loader() -> None:
    def body(rank: Rank, step: int) -> None:
        rank.loader(9000 if rank.number == 1 else 500)
        gemms(rank, 20)

    found = verdict(body)
    assert found.finding.facts["cause"] == "data loading"
    assert "9.0 ms a step for its data loader, rank 0 500 µs" in found.finding.title
    assert found.part() == pytest.approx((9.0 - 4.3) / 9.2, abs=0.06)
    assert found.finding.fixes[0].id == "balance-loading"


@pytest.mark.parametrize(("count", "outcome"), [(3, "not-applicable"), (5, "found")])
def test_the_threshold(count: int, outcome: str) -> None:
    """20 kernels and the optimizer are 4.3 ms: 1.2 times as much are 4.3 kernels more."""

    def body(rank: Rank, step: int) -> None:
        gemms(rank, 20 + (count if rank.number == 1 else 0))

    assert verdict(body).outcome == outcome


def test_equal_ranks_are_clean() -> None:
    assert verdict(lambda rank, step: gemms(rank, 20)).outcome == "clean"


def test_lateness_from_recording_alone_is_not_judged() -> None:
    """Rank 1's host is slower, its GPU has no more to do: profilers do that in healthy runs."""
    found = verdict(lambda rank, step: rank.host(20_000 * rank.number) or gemms(rank, 20))
    assert found.outcome == "not-applicable"
    assert "rank 1 comes last to 100% of the collectives" in found.reason and "cannot tell" in found.reason


def test_compute_beside_waiting_collectives_is_not_more_work() -> None:
    """Rank 0 waits in collectives that take 24 of its 132 SMs; beside them its kernels take 1.22 times as long."""

    def run() -> Run:
        w = Workload(ranks=2)
        for _ in range(6):
            marks = [rank.step() for rank in w.ranks]
            for mark in marks:
                mark.__enter__()
            w.ranks[1].host(9000)
            for rank, stretch in ((w.ranks[0], 132 / 108), (w.ranks[1], 1.0)):
                rank.launch("gemm", 200)
                rank.stream_wait(17, on=7)
                gemms(rank, 20, 200 * stretch)
            w.collective("allreduce", 1 << 20, 100)
            for mark in marks:
                mark.__exit__(None, None, None)
        # The collective of rank 0 began when its first kernel was done.
        for step in range(6):
            first = [row for row in w.ranks[0].rows["kernels"] if row["name"] == "gemm"][21 * step]
            [row for row in w.ranks[0].rows["kernels"] if row["name"].startswith("nccl")][step]["start"] = first["end"]
        return w.to_run()

    found = judge(run(), RULE)
    assert found.outcome == "not-applicable" and "cannot tell" in found.reason


def test_another_rank_each_step_is_no_straggler() -> None:
    found = verdict(lambda rank, step: gemms(rank, 30 if step % 2 == rank.number else 20), steps=9)
    assert found.outcome == "clean"


def test_a_host_bound_loop_promises_nothing() -> None:
    """Both hosts need 12 ms a step, more than the heavier GPU."""
    found = verdict(extra, host_us=12_000)
    assert found.part() == pytest.approx(0, abs=0.01) and found.part("high") > 0.05


def test_stages_of_a_pipeline_are_not_compared() -> None:
    found = verdict(lambda rank, step: gemms(rank, 20 + 20 * rank.number, name=f"stage_{rank.number}_gemm"))
    assert found.outcome == "not-applicable" and "different kernels" in found.reason


def test_with_more_ranks_the_late_one_becomes_like_the_others() -> None:
    """Rank 2 has more to do, rank 3 less: without the excess the step is that of ranks 0 and 1."""

    def body(rank: Rank, step: int) -> None:
        gemms(rank, 18 if rank.number == 3 else 20)
        if rank.number == 2:
            gemms(rank, 10, name="evaluation_kernel")

    found = verdict(body, ranks=4)
    assert found.finding.facts["late_rank"] == 2
    assert found.part() == pytest.approx(2.0 / 6.4, abs=0.02)
    assert found.part("high") == pytest.approx(2.4 / 6.4, abs=0.02)


def test_needs_several_ranks_that_meet() -> None:
    one = judge(loop(lambda rank, step: gemms(rank, 20), ranks=1, world_size=2).to_run(), RULE)
    assert one.outcome == "not-applicable" and "at least two ranks" in one.reason
    assert "every rank" in one.report.rules[0].capture
    few = verdict(extra, world_size=128)
    assert few.outcome == "not-applicable" and "2 of 128 ranks" in few.reason
    apart = Workload(ranks=2)
    for _ in range(4):
        for rank in apart.ranks:
            with rank.step():
                gemms(rank, 20 + 10 * rank.number)
    assert judge(apart.to_run(), RULE).outcome == "not-applicable"


def test_nsys_sees_the_same() -> None:
    torch, nsys = verdict(extra), verdict(extra, tool="nsys")
    assert nsys.part() == pytest.approx(torch.part(), abs=0.02)


def test_one_of_sixteen_carries_the_long_answers() -> None:
    """28.4 ms on one rank, 14.4 on fifteen; balanced by tokens, a training phase went from 28.4 to 15.3."""

    def body(rank: Rank, step: int) -> None:
        late = rank.number == 11
        gemms(rank, 10, 2810 if late else 1410, grid=264 if late else 132)

    found = verdict(body, ranks=16, steps=4)
    assert found.finding.facts["late_rank"] == 11 and found.finding.facts["cause"] == "larger inputs"
    assert found.part() == pytest.approx(1 - 15.3 / 28.5, abs=0.02)


@pytest.mark.parametrize("rule", ["exposed-communication", "low-bus-bandwidth"])
def test_collectives_are_long_on_all_ranks_but_the_late_one_and_not_slow(rule: str) -> None:
    run = loop(slower, ranks=4).to_run()
    assert judge(run, rule).outcome == "clean"
    assert judge(run, RULE).finding.facts["cause"] == "slower GPU"
