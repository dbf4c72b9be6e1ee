"""waiting-in-collective: who is late and why, where the recording can tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from build.judge import Verdict, judge
from build.parallel import all_steps
from build.workload import Rank, Workload

RULE = "waiting-in-collective"


def loop(
    body: Callable[[Rank, int], None], *, ranks: int = 2, steps: int = 8, reduce_us: float = 300, **given: object
) -> Workload:
    """Each step: what `body(rank, step)` does and ten kernels of 200 us, then an all-reduce; all ranks in lock step."""
    w = Workload(ranks=ranks, **given)  # type: ignore[arg-type]
    for step in range(steps):
        with all_steps(w):
            for rank in w.ranks:
                body(rank, step)
                for _ in range(10):
                    with rank.op("aten::linear", us=5):
                        rank.launch("gemm", 200)
                rank.stream_wait(17, on=7)
            w.collective("allreduce", 1 << 24, reduce_us)
            for rank in w.ranks:
                rank.stream_wait(7, on=17)
                rank.launch("fused_adam_kernel", 100)
    return w


def verdict(body: Callable[[Rank, int], None], *others: str, **given: object) -> Verdict:
    return judge(loop(body, **given).to_run(), RULE, *others)  # type: ignore[arg-type]


def pause(us: float, *, every: int = 1, who: int = 1) -> Callable[[Rank, int], None]:
    def body(rank: Rank, step: int) -> None:
        if rank.number == who and step % every == 0:
            with rank.frame("train.py(31): log_metrics"):
                rank.host(us)

    return body


def test_one_ranks_host_pauses() -> None:
    """Rank 1 writes a log for 8 ms before it launches 2.4 ms of work: without that both take 2.4 ms."""
    found = verdict(pause(8000))
    finding = found.finding
    assert finding.facts["late_rank"] == 1 and finding.scope["ranks"] == [1]
    assert finding.facts["pause_ns"] == pytest.approx(8e6, rel=0.02) and finding.facts["others_pause_ns"] == 0
    assert finding.facts["waited_ns"] == pytest.approx(5.7e6, rel=0.05)  # from the end of its own 2.3 ms on
    assert found.report.step_ns == pytest.approx(8.25e6, rel=0.35)
    assert 0.55 < found.part() < 0.85
    assert finding.title.startswith(
        "rank 1 comes last to 100% of the collectives: its host pauses 8.0 ms a step, the others 0 ns"
    )
    assert [(place.file, place.line) for place in finding.locations] == [("train.py", 31)]
    assert finding.fixes[0].id == "same-work-on-all-ranks" and "Rank 1 pauses" in finding.fixes[0].snippet
    assert any("not slow" in text for text in finding.caveats)


def test_both_ranks_pause() -> None:
    assert verdict(lambda rank, step: rank.host(8000)).outcome == "clean"


def test_a_hitch_now_and_then_is_no_finding() -> None:
    """Every fourth step: a mean of 2 ms a step, but not what makes the rank late."""
    found = verdict(pause(8000, every=4))
    assert found.outcome in ("clean", "not-applicable")


def test_launching_slowly_may_be_the_profilers_doing() -> None:
    """The late rank spends 8 ms more in 200 recorded operators."""

    def body(rank: Rank, step: int) -> None:
        for _ in range(200 if rank.number else 0):
            rank.leaf("aten::view", 40)

    found = verdict(body)
    assert found.outcome == "not-applicable"
    assert "rank 1 comes last to 100% of them" in found.reason and "cannot tell" in found.reason


def test_the_threshold_on_waiting() -> None:
    """Pauses of 1.5 ms before transfers of 4: the wait is the smaller part."""
    assert verdict(pause(1500), reduce_us=4000).outcome == "clean"


@pytest.mark.parametrize(("ms", "found"), [(0.9, False), (3.0, True)])
def test_the_threshold_on_pauses(ms: float, found: bool) -> None:
    assert (verdict(pause(1000 * ms)).outcome == "found") is found


def test_another_rank_is_heaviest_each_step() -> None:
    """2 to 4 ms of work, on either rank in turn: with 3 ms each, every step gets 1 ms shorter."""

    def body(rank: Rank, step: int) -> None:
        for _ in range(10 if step % 2 == rank.number else 0):
            with rank.op("aten::linear", us=5):
                rank.launch("gemm", 200)

    found = verdict(body, steps=9)
    finding = found.finding
    assert finding.facts["cause"] == "uneven batches" and finding.facts["excess_ns"] == pytest.approx(1e6, rel=0.05)
    assert found.report.step_ns == pytest.approx(4.4e6, rel=0.01)
    assert found.part() == pytest.approx(1.0 / 4.4, abs=0.01) and found.part("high") == pytest.approx(2.0 / 4.4, abs=0.01)
    assert [fix.id for fix in finding.fixes] == ["even-batches"]
    assert [row[3] for row in finding.evidence[0].rows] == [0.5, 0.5]


def test_a_rank_with_more_work_is_left_to_straggler_rank() -> None:
    def body(rank: Rank, step: int) -> None:
        for _ in range(10 * rank.number):
            with rank.op("aten::linear", us=5):
                rank.launch("gemm", 200)

    found = verdict(body, "straggler-rank")
    assert found.outcome == "not-applicable" and "straggler-rank" in found.reason
    assert [finding.rule for finding in found.report.findings] == ["straggler-rank"]
    loader = verdict(lambda rank, step: rank.loader(8000 * rank.number + 1), "straggler-rank")
    assert loader.outcome == "not-applicable" and "straggler-rank" in loader.reason


def test_needs_several_ranks() -> None:
    one = judge(loop(pause(8000), ranks=1, world_size=2).to_run(), RULE)
    assert one.outcome == "not-applicable" and "at least two ranks" in one.reason


def test_one_of_four() -> None:
    found = verdict(pause(8000, who=2), ranks=4)
    assert found.finding.facts["late_rank"] == 2 and found.part() > 0.55


def test_nsys_sees_the_same() -> None:
    torch, nsys = verdict(pause(8000)), verdict(pause(8000), tool="nsys")
    assert nsys.part() == pytest.approx(torch.part(), abs=0.05)
