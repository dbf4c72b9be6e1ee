"""Collectives: which kernels of several ranks are one collective, who waited in it, and how fast it moved its data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from advisor.derive.collectives import KINDS, Collectives, collective_kind, collectives
from advisor.model import Run
from build.any_run import runs
from build.workload import Workload, ns
from derive.test_breakdown import ANY


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


def group_of(size: int, kind: str, elements: int, elements_out: int, gpu_us: float, dtype: str = "Float") -> Collectives:
    """One collective of two recorded ranks of a group, which both arrive at once."""
    w = Workload(ranks=2, world_size=size)
    w.collective(kind, elements, gpu_us, elements_out=elements_out, dtype=dtype, kernel="ncclDevKernel_Any(x)")
    return collectives(w.to_run())


@pytest.mark.parametrize(
    ("kind", "elements", "elements_out", "factor"),
    [
        # nccl-tests, PERFORMANCE.md: bus bandwidth = size / time * factor for n ranks, size the larger of both ends.
        ("allreduce", 1 << 20, 1 << 20, 2 * 7 / 8),
        ("_allgather_base", 1 << 17, 1 << 20, 7 / 8),
        ("_reduce_scatter_base", 1 << 20, 1 << 17, 7 / 8),
        ("all_to_all", 1 << 20, 1 << 20, 7 / 8),
        ("broadcast", 1 << 20, 1 << 20, 1),
        ("reduce", 1 << 20, 1 << 20, 1),
        ("send", 1 << 20, 1 << 20, 1),
    ],
)
def test_bus_bandwidth_of_eight_ranks(kind: str, elements: int, elements_out: int, factor: float) -> None:
    found = group_of(8, kind, elements, elements_out, 500)
    assert found.bytes.tolist() == [4 << 20, 4 << 20]
    assert found.bus_bandwidth().tolist() == pytest.approx([(4 << 20) * factor / 500e-6] * 2)
    doubled = found.bus_bandwidth(transfer_ns=np.array([ns(1000), ns(250)]))
    assert doubled.tolist() == pytest.approx([(4 << 20) * factor / 1000e-6, (4 << 20) * factor / 250e-6])


def test_bandwidth_is_unknown_where_a_part_of_it_is() -> None:
    assert np.isnan(group_of(8, "gather", 1 << 20, 1 << 20, 500).bus_bandwidth()).all()
    assert np.isnan(group_of(8, "allreduce", 1 << 20, 1 << 20, 500, dtype="Mystery").bus_bandwidth()).all()
    w = Workload(ranks=2)
    w.collective(gpu_us=500)
    for rank in w.ranks:
        for row in rank.rows["collective_calls"]:
            del row["group_size"]
    found = collectives(w.to_run())
    assert np.isnan(found.bus_bandwidth()).all()
    assert found.bus_bandwidth(4).tolist() == pytest.approx([(4 << 20) * 1.5 / 500e-6] * 2)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("Float", 4), ("BFloat16", 2), ("Half", 2), ("c10::Half", 2), ("Double", 8), ("Long", 8), ("Int", 4), ("Byte", 1),
        ("Char", 1), ("Bool", 1), ("Float8_e4m3fn", 1), ("c10::Float8_e5m2", 1), ("ComplexFloat", 8), ("ncclBfloat16", 2),
        ("float32", 4), ("ncclInt64", 8),
    ],
)  # fmt: skip
def test_sizes_by_element_type(dtype: str, size: int) -> None:
    assert group_of(2, "allreduce", 1000, 1000, 10, dtype=dtype).bytes.tolist() == [1000 * size] * 2


def test_bytes_that_the_file_states_win() -> None:
    w = Workload(ranks=2)
    w.collective("allreduce", 1000)
    for rank in w.ranks:
        rank.rows["collective_calls"][0]["bytes"] = 77
    assert collectives(w.to_run()).bytes.tolist() == [77, 77]


def test_a_wait_for_a_collective_moves_nothing() -> None:
    """The host's wait is recorded like a collective of one rank and one byte, and may stand before the real row."""
    for group_size in (1, 2):
        w = Workload(ranks=2)
        w.collective("allreduce", 1000, 50)
        for rank in w.ranks:
            real = rank.rows["collective_calls"][0]
            wait = {**real, "collective": "wait", "dtype": "Byte", "elements_in": 0, "group_size": group_size}
            rank.rows["collective_calls"].insert(0, {**wait, "start": real["start"] - 10})
        found = collectives(w.to_run())
        assert found.bytes.tolist() == [4000, 4000] and [KINDS[k] for k in found.kind] == ["all-reduce"] * 2
    w.rows["collective_calls"].pop()
    assert collectives(w.to_run()).bytes.tolist() == [-1, 4000]


def test_arguments_come_by_the_operator_where_the_kernel_has_none() -> None:
    w = Workload(ranks=2)
    w.collective("allreduce", 1000, 50)
    for rank in w.ranks:
        call, kernel = rank.rows["collective_calls"][0], rank.rows["kernels"][0]
        call["op"], call["correlation"] = kernel["op"], -1
    found = collectives(w.to_run())
    assert found.bytes.tolist() == [4000, 4000] and (found.match >= 0).all()


def test_clocks_that_disagree_match_nothing() -> None:
    w = lock_step(0, (1 << 20,), gpu_us=500)
    for row in w.ranks[1].rows["kernels"] + w.ranks[1].rows["runtime_calls"]:
        row["start"] += ns(50_000)
        row["end"] += ns(50_000)
    found = collectives(w.to_run())
    assert (found.match == -1).all() and (found.wait_ns == -1).all() and (found.transfer_ns == -1).all()
    assert not found.last.any()


def test_kinds_that_differ_are_not_one_collective() -> None:
    w = Workload(ranks=2)
    for rank, kind in zip(w.ranks, ("AllReduce", "AllGather"), strict=True):
        for _ in range(3):
            rank.launch(f"ncclDevKernel_{kind}_Sum_f32_RING_LL(x)", 100, stream=17)
    assert (collectives(w.to_run()).match == -1).all()


def test_compute_kernels_are_no_collectives() -> None:
    w = Workload(ranks=2)
    for rank in w.ranks:
        rank.launch("reduce_kernel<512>", 10)
    assert len(collectives(w.to_run())) == 0 and len(collectives(Run())) == 0


@ANY
@given(runs())
def test_waiting_and_transfer_lie_inside_the_kernel(run: Run) -> None:
    found, kernels = collectives(run), run.table("kernels")
    matched = found.match >= 0
    length = (kernels["end"] - kernels["start"])[found.kernel]
    assert (found.wait_ns[matched] >= 0).all() and (found.transfer_ns[matched] >= 0).all()
    assert (found.wait_ns + found.transfer_ns <= length)[matched].all()
    assert (found.wait_ns[~matched] == -1).all() and (found.transfer_ns[~matched] == -1).all()
    rank = kernels["rank"][found.kernel]
    for match in np.unique(found.match[matched]):
        same = found.match == match
        assert len(set(rank[same].tolist())) == same.sum() >= 2  # each rank once
        assert found.last[same].any() and (found.wait_ns[same & found.last] == 0).all()
        assert len(set(found.transfer_ns[same].tolist())) == 1
