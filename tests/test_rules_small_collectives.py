"""small-collectives: starts that merging would save, on the host and where compute waits; nothing that must stay apart."""

from __future__ import annotations

import pytest

from build.judge import Verdict, judge
from build.parallel import all_steps, together
from build.workload import Workload

RULE = "small-collectives"
UNITS = 48


def fsdp(units: int = UNITS, *, elements: int = 1 << 20, hook_us: float = 300, gpu_us: float = 20, **given: object) -> Workload:
    """A gather, `hook_us` of FSDP's own work and a layer of 60 us for each unit; one large unit around all. On two ranks."""
    w = Workload(ranks=2, **given)  # type: ignore[arg-type]

    def gather(unit: str, size: int, took: float) -> None:
        label = f"FSDP::all_gather ({unit})" if unit else "FSDP::all_gather"
        with together(rank.range(label) for rank in w.ranks):
            for rank in w.ranks:
                with rank.op("fsdp::all_gather_copy_in", us=hook_us if unit else 10):
                    rank.launch("copy_in_elementwise_kernel", 3, stream=22)
            w.collective("_allgather_base", size, took, dtype="BFloat16", stream=22)

    for _ in range(5):
        with all_steps(w):
            gather("", 1 << 25, 300)
            for unit in range(units):
                gather(f"blocks.{unit // 4}.linear{unit % 4}", elements, gpu_us)
                for rank in w.ranks:
                    rank.stream_wait(7, on=22)
                    with rank.op("aten::linear", us=20):
                        rank.launch("gemm", 60)
    return w


def loop(count: int, elements: int, *, us: float = 40, backward_us: float = 500, **given: object) -> Workload:
    """Backward of one kernel, then one all-reduce after the other."""
    w = Workload(ranks=2, **given)  # type: ignore[arg-type]
    for _ in range(5):
        with all_steps(w):
            for rank in w.ranks:
                with rank.backward(), rank.op("autograd::engine::evaluate_function: Linear", us=20):
                    rank.launch("gemm", backward_us)
            for _ in range(count):
                for rank in w.ranks:
                    rank.host(us)
                w.collective("allreduce", elements, 15, stream=7)
                for rank in w.ranks:
                    with rank.op("aten::div_", us=3):
                        rank.launch("div_elementwise_kernel", 2)
    return w


def verdict(w: Workload, *others: str) -> Verdict:
    return judge(w.to_run(), RULE, *others)


def test_fsdp_around_every_linear() -> None:
    """48 units of 2 MB would be 4 of 25 MB: of 48 x (300 + 22) us of host work, 44 shares are gone."""
    found = verdict(fsdp())
    finding = found.finding
    assert finding.facts["collectives_per_step"] == UNITS and finding.facts["source"] == "FSDP units"
    assert finding.facts["merged_per_step"] == -(-UNITS * (2 << 20) // 25_000_000) == 5
    assert finding.facts["median_bytes"] == 2 << 20
    # What the profiler added does not count, so the share of the step is what can be compared.
    assert found.part() == pytest.approx((1 - 5 / UNITS) * finding.facts["host_ns"] / found.report.step_ns, abs=0.02)
    assert 0.6 < found.part() < 0.85
    assert found.part("low") == pytest.approx(found.part() / 2, abs=0.08)
    assert finding.title.startswith("48 small collectives a step (FSDP units, median 2.1 MB) where 5 would do: issuing")
    assert finding.fixes[0].id == "fsdp2-units" and "today: 48 small collectives" in finding.fixes[0].snippet
    assert finding.confidence == "medium" and finding.saving.basis == "replay"
    row = dict(zip(finding.evidence[0].columns, finding.evidence[0].rows[0], strict=True))
    assert (row["collective"], row["message_bytes"], row["calls"]) == ("all-gather", 2 << 20, 48)
    assert row["median_transfer_ns"] == pytest.approx(20_000, rel=0.05)


def test_one_rank_of_it_says_the_same_less_surely() -> None:
    w = fsdp()
    alone = Workload(ranks=1, world_size=2)
    alone.rows = w.ranks[0].rows
    alone.number = 0
    found = judge(alone.to_run(), RULE)
    assert found.finding.confidence == "low" and found.part() > 0.5


def test_units_of_whole_blocks_are_large_enough() -> None:
    """25 MB a unit take longer than a start, however much host work each costs."""
    assert verdict(fsdp(units=12, elements=25 << 19, gpu_us=70)).outcome == "clean"


@pytest.mark.parametrize(("elements", "outcome"), [(5_000_000, "found"), (6_000_000, "clean")])
def test_small_is_what_takes_less_time_than_a_start(elements: int, outcome: str) -> None:
    """20 us at 0.6 of 450 GB/s are 5.4 MB on each link; of a gather on two ranks half of the message passes."""
    assert verdict(fsdp(elements=elements)).outcome == outcome


def test_collectives_beside_compute_count_by_their_host_time_alone() -> None:
    """Layers of 1 ms hide gathers and host work: nothing to gain, however many collectives."""
    w = Workload(ranks=2)
    for _ in range(5):
        with all_steps(w):
            for unit in range(24):
                with together(rank.range(f"FSDP::all_gather (layers.{unit})") for rank in w.ranks):
                    w.collective("_allgather_base", 1 << 20, 20, dtype="BFloat16", stream=22)
                for rank in w.ranks:
                    with rank.op("aten::linear", us=5):
                        rank.launch("gemm", 1000)
            for rank in w.ranks:
                rank.stream_wait(22, on=7)
    found = verdict(w)
    assert found.outcome == "clean"


def test_a_loop_over_parameters() -> None:
    """40 all-reduces of 4 kB: 39 of 40 issues and starts are gone."""
    found = verdict(loop(40, 1024))
    assert found.finding.facts["source"] == "a loop over tensors"
    assert found.finding.facts["merged_per_step"] == 1
    assert [fix.id for fix in found.finding.fixes][:2] == ["flat-buffer", "ddp"]
    assert 0.3 < found.part() < 0.9


def test_starts_on_the_compute_stream_count_on_the_gpu() -> None:
    """The host needs 200 us in all, the GPU 500 + 40 x 17: 39 starts of 15 us go."""
    found = verdict(loop(40, 1024, us=0))
    assert found.part("high") >= 0.3


@pytest.mark.parametrize(("count", "outcome"), [(15, "clean"), (17, "found")])
def test_few_are_left_alone(count: int, outcome: str) -> None:
    assert verdict(loop(count, 1024)).outcome == outcome


def test_results_that_are_needed_at_once_cannot_be_merged() -> None:
    """Tensor parallelism and synchronised batch norm: each collective stands between the work before and after it."""
    w = Workload(ranks=2)
    for _ in range(5):
        with all_steps(w):
            for _ in range(40):
                for rank in w.ranks:
                    with rank.op("aten::linear", us=20):
                        rank.launch("gemm", 10)
                w.collective("allreduce", 1024, 15, stream=7)
    assert verdict(w).outcome == "clean"


def test_tiny_buckets() -> None:
    """A hook on accumulated gradients sends each alone."""
    w = Workload(ranks=2)
    for _ in range(5):
        with all_steps(w):
            for _ in range(40):
                for rank in w.ranks:
                    with rank.backward(), rank.op("autograd::engine::evaluate_function: Linear", us=20):
                        rank.launch("gemm", 10)
                hook = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
                with together(rank.op(hook, us=80) for rank in w.ranks):
                    w.collective("allreduce", 1 << 18, 15)
    found = verdict(w)
    assert found.finding.facts["source"] == "gradient buckets" and found.finding.facts["merged_per_step"] == 2
    assert found.finding.fixes[0].id == "ddp-buckets" and "1048576 bytes" in found.finding.fixes[0].snippet


def test_cannot_judge() -> None:
    w = Workload(world_size=2)
    for _ in w.steps(4):
        w.launch("gemm", 1000)
    found = verdict(w)
    assert found.outcome == "not-applicable" and "collective" in found.reason
    w = Workload(ranks=2)
    for _ in range(4):
        with all_steps(w):
            w.collective("allreduce", -1, 15)
    found = verdict(w)
    assert found.outcome == "not-applicable" and "sizes" in found.reason
