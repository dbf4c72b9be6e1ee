"""exposed-communication: what overlap could hide, and nothing else."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.parallel import data_parallel
from build.workload import Workload

RULE = "exposed-communication"
# 4 x 0.5 ms forward, 4 x 1 ms backward, 0.2 ms optimizer.
COMPUTE_MS = 6.2


def test_gradients_reduced_after_the_backward_pass() -> None:
    """Four collectives of 0.5 ms on the compute stream: three could hide, beside 24 of 132 SMs that they take."""
    found = judge(data_parallel(serial=True).to_run(), RULE)
    step = COMPUTE_MS + 2.0
    assert found.report.step_ns == pytest.approx(step * 1e6, rel=0.02)
    assert found.part() == pytest.approx(1.5 * (1 - 24 / 132) / step, abs=0.01)
    assert found.part() <= found.part("high") <= 1.5 / step + 0.01
    finding = found.finding
    assert finding.title.startswith("4 collectives a step on the stream of the compute kernels: 2.0 ms of every step")
    assert finding.confidence == "medium" and finding.saving.basis == "replay"
    assert [fix.id for fix in finding.fixes] == ["ddp", "async-op", "megatron-overlap"]
    row = dict(zip(finding.evidence[0].columns, finding.evidence[0].rows[0], strict=True))
    assert row["collective"] == "all-reduce" and row["message_bytes"] == 4 << 24 and row["compute_stream"] is True
    assert row["calls"] == 4 and row["exposed_ns"] == pytest.approx(2e6, rel=0.01) and row["wait_ns"] < 20_000


def test_overlapped_gradients_leave_only_the_tail() -> None:
    assert judge(data_parallel().to_run(), RULE).outcome == "clean"


@pytest.mark.parametrize(("reduce_us", "outcome"), [(105, "clean"), (125, "found")])
def test_the_threshold(reduce_us: float, outcome: str) -> None:
    """Three collectives can hide: 5 % of the step are reached at 110 us each."""
    assert judge(data_parallel(serial=True, reduce_us=reduce_us).to_run(), RULE).outcome == outcome


def test_more_communication_than_the_backward_pass_can_hide() -> None:
    """2.5 ms each beside 1 ms of backward compute: only the first layer's backward kernel hides nothing yet."""
    found = judge(data_parallel(reduce_us=2500).to_run(), RULE)
    assert found.finding.facts["hideable_ns"] == pytest.approx(1e6, rel=0.02)
    assert found.part("high") <= 1.01e6 / found.report.step_ns
    assert [fix.id for fix in found.finding.fixes][:2] == ["ddp-buckets", "ddp-bf16-hook"]
    assert "bucket_cap_mb=32," in found.finding.fixes[0].snippet  # half of 64 MiB


def test_a_slow_host_gains_nothing() -> None:
    """The order is wrong by construction, but hidden communication would change nothing."""
    found = judge(data_parallel(serial=True, host_us=2500).to_run(), RULE)
    assert found.outcome == "clean" and "worth at most" in found.reason


def test_waiting_for_a_late_rank_is_not_communication() -> None:
    """Rank 1 comes 20 ms late: rank 0's kernels are long, and no collective is slow."""
    run = data_parallel(reduce_us=50, late_us=20_000).to_run()
    assert judge(run, RULE).outcome == "clean"


@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter"])
def test_shards_get_the_advice_of_sharding(kind: str) -> None:
    found = judge(data_parallel(serial=True, kind=kind).to_run(), RULE)
    assert found.finding.fixes[0].id == "fsdp2-prefetch"
    assert {"deepspeed-overlap", "fsdp1-prefetch"} < {fix.id for fix in found.finding.fixes}


def test_shards_gathered_only_when_the_layer_needs_them() -> None:
    """Backward under FSDP without prefetch: each layer's all-gather queues behind the reduce-scatter of the one before."""
    w = Workload(ranks=2)
    for _ in range(5):
        marks = [rank.step() for rank in w.ranks]
        for mark in marks:
            mark.__enter__()
        for _ in range(8):
            w.collective("allgather", 1 << 22, 250, stream=22, dtype="BFloat16")
            for rank in w.ranks:
                rank.stream_wait(7, on=22)
                with rank.backward(), rank.op("autograd::engine::evaluate_function: Linear"):
                    rank.launch("gemm_backward", 1000)
                rank.stream_wait(22, on=7)
            w.collective("reduce_scatter", 1 << 22, 150, stream=22, dtype="BFloat16")
        for mark in marks:
            mark.__exit__(None, None, None)
    found = judge(w.to_run(), RULE)
    # 250 us of every layer's 1400 stand in the way, and as reduce-scatter goes first, its 150 too.
    assert 0.15 < found.part() < 0.28
    assert found.finding.fixes[0].id == "fsdp2-prefetch"
    assert found.finding.evidence[0].rows[0][:3] == ["all-gather", 1 << 23, 22]


def test_other_collectives_get_the_general_advice() -> None:
    found = judge(data_parallel(serial=True, kind="all_to_all").to_run(), RULE)
    assert [fix.id for fix in found.finding.fixes] == ["async-op"]


def test_one_rank_alone_takes_the_shortest_for_the_transfer() -> None:
    w = data_parallel(ranks=1, world_size=2, serial=True, waits=(0, 3000, 700, 1500, 2000, 900))
    found = judge(w.to_run(), RULE)
    assert found.finding.confidence == "low"
    assert found.finding.facts["transfer_ns"] == pytest.approx(2e6, rel=0.02)
    assert any("shortest kernel" in text for text in found.finding.caveats)


def test_one_rank_whose_sizes_disagree_has_waited() -> None:
    """32 and 128 MiB take the same 3 ms: that is a late peer, not the links."""
    w = Workload(world_size=2)
    for _ in w.steps(5):
        w.launch("gemm", 3000)
        for elements in (1 << 23, 1 << 25):
            w.collective("allreduce", elements, 3000, stream=7)
            w.launch("gemm", 3000)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "wait for ranks that were not recorded" in found.reason


def test_one_rank_whose_kernels_always_wait_is_not_trusted() -> None:
    """Without the sizes nor equal steps nothing tells transfer from waiting; the finding says so."""
    w = Workload(world_size=2)
    for number in w.steps(5):
        for _ in range(10 + number % 2):
            w.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 500, grid=(24, 1, 1))
            w.launch("gemm", 1000)
    found = judge(w.to_run(), RULE)
    assert found.finding.confidence == "low"
    assert any("may be waiting for peers" in text for text in found.finding.caveats)


def test_cannot_judge_without_collectives() -> None:
    w = Workload(world_size=2)
    for _ in w.steps(4):
        w.launch("gemm", 1000)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "no collective" in found.reason
    w = Workload()
    for _ in w.steps(4):
        w.launch("gemm", 1000)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_nsys_sees_the_same() -> None:
    torch, nsys = (judge(data_parallel(serial=True, tool=tool).to_run(), RULE) for tool in ("torch", "nsys"))
    assert nsys.part() == pytest.approx(torch.part(), abs=0.02)
