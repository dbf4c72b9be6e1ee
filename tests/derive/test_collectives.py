"""Collectives: which kernels of several ranks are one collective, who waited in it, and how fast it moved its data."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.derive.collectives import KINDS, collective_kind, collectives
from build.workload import Workload


def lock_step(late_us: float, sizes: tuple[int, ...], gpu_us: float = 100.0) -> Workload:
    """Rank 1 comes `late_us` later to each collective."""
    w = Workload(ranks=2)
    for _ in range(3):
        for elements in sizes:
            w.ranks[1].host(late_us)
            w.collective("allreduce", elements, gpu_us)
    return w


def test_waiting_and_transfer_are_told_apart() -> None:
    w = lock_step(400, (1 << 20,), gpu_us=800)
    found = collectives(w.to_run())
    first = found.match == found.match[0]
    rank = w.to_run().table("kernels")["rank"][found.kernel]
    assert found.wait_ns[first & (rank == 0)].tolist() == [400_000]
    assert found.wait_ns[first & (rank == 1)].tolist() == [0]
    assert found.transfer_ns[first].tolist() == [800_000, 800_000]
    assert found.last[rank == 1].all() and not found.last[first & (rank == 0)].any()
    # 4 MiB in 800 us; an all-reduce over two ranks sends its size once: 2 (n - 1) / n = 1.
    assert found.bus_bandwidth()[0] == pytest.approx(4 * (1 << 20) / 800e-6)


def test_one_rank_alone_tells_no_waiting() -> None:
    w = Workload(world_size=2)
    w.collective("allreduce", 1 << 20, 100)
    found = collectives(w.to_run())
    assert found.wait_ns.tolist() == [-1] and found.match.tolist() == [-1]
    assert np.isnan(found.bus_bandwidth()).all()


def test_ends_far_apart_do_not_shift_the_match() -> None:
    """Through host memory the ranks end at different moments, and one rank recorded a collective more at the beginning."""
    w = Workload(ranks=2)
    w.ranks[1].launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 90, stream=17)
    for elements in (1 << 22, 1 << 23, 1 << 24) * 4:
        w.collective("allreduce", elements, 1000)
        w.ranks[0].rows["kernels"][-1]["end"] += 700_000
        w.ranks[0].free[17] += 700_000
    found = collectives(w.to_run())
    known = found.bytes > 0
    for match in np.unique(found.match[known]):
        assert len(set(found.bytes[found.match == match].tolist())) == 1
        assert (found.match == match).sum() == 2
    assert (found.match[known] >= 0).all() and (found.match[~known] == -1).all()


def test_a_lost_record_does_not_shift_all_that_follow() -> None:
    w = lock_step(0, (1 << 20, 1 << 22, 1 << 24), gpu_us=500)
    del w.ranks[1].rows["kernels"][0]
    found = collectives(w.to_run())
    matched = found.match >= 0
    assert matched.sum() == 16  # of 17: what rank 1 lost stays alone
    for match in np.unique(found.match[matched]):
        assert len(set(found.bytes[found.match == match].tolist())) == 1


def test_groups_of_some_ranks_are_matched_by_themselves() -> None:
    """Ranks 0 and 1, and ranks 2 and 3, reduce in pairs: four kernels at a time, two collectives."""
    w = Workload(ranks=4)
    for _ in range(4):
        for pair, name in (((0, 1), "tp0"), ((2, 3), "tp1")):
            for number in pair:
                rank = w.ranks[number]
                work = rank.launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 50 + 10 * number, stream=17)
                rank.row(
                    "collective_calls", start=work.start, correlation=work.correlation, collective="allreduce",
                    dtype="BFloat16", elements_in=1 << 20, elements_out=1 << 20, group_size=2, group=name,
                    group_ranks=str(list(pair)),
                )  # fmt: skip
    run = w.to_run()
    found = collectives(run)
    rank = run.table("kernels")["rank"][found.kernel]
    sets = {tuple(sorted(rank[found.match == match].tolist())) for match in np.unique(found.match)}
    assert sets == {(0, 1), (2, 3)}


@pytest.mark.parametrize(
    "name, kind",
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "all-reduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float(x)", "reduce-scatter"),
        ("_allgather_base", "all-gather"),
        ("all_to_allv", "all-to-all"),
        ("ncclDevKernel_SendRecv(x)", "send-recv"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", "reduce"),
        ("barrier", "unknown"),
    ],
)
def test_kinds(name: str, kind: str) -> None:
    assert KINDS[collective_kind(name)] == kind
