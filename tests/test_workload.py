"""The synthetic training run that the tests of rules are built from: what it states is what the facts read."""

import json

import numpy as np
import pytest

from advisor.derive.bounds import two_sided
from advisor.derive.calls import CallKind, is_kind, links
from advisor.derive.collectives import collectives
from advisor.derive.steps import steps
from advisor.ingest import load
from advisor.model import CopyKind, MemoryKind
from build.workload import V100, Workload


def gpu_bound() -> Workload:
    """5 steps of 4 kernels of 500 us whose launches take 40 us together."""
    w = Workload()
    for _ in w.steps(5):
        for _ in range(4):
            with w.op("aten::mm", us=6, shapes=[[64, 64]], types=["float"]):
                w.launch("sgemm", gpu_us=500)
        w.sync()
    return w


def test_a_gpu_bound_loop_has_the_step_of_its_kernels() -> None:
    run = gpu_bound().to_run()
    found = steps(run)
    assert found.source == "profiler-step" and len(found) == 5
    side = two_sided(run)
    assert side is not None and side.gpu_ns == pytest.approx(2_000_000, rel=0.02)
    assert side.step_ns == pytest.approx(2_015_000, rel=0.02)
    assert (links(run).call >= 0).all()
    assert int(is_kind(run, CallKind.SYNC_DEVICE).sum()) == 1  # the profiler's own, after the last step


def test_kernels_wait_for_their_stream_and_their_launch() -> None:
    w = Workload(start_us=0)
    first = w.launch("a", gpu_us=10, us=4)
    second = w.launch("b", gpu_us=10, us=4)
    other = w.launch("c", gpu_us=10, us=4, stream=9)
    assert (first.start, first.end) == (5_000, 15_000)
    assert second.start == first.end
    assert other.start == 13_000
    w.stream_wait(9, on=7)
    assert w.launch("d", gpu_us=1, stream=9).start == second.end
    assert w.sync(stream=7) == max(2_000, second.end + 5_000 - 18_000)


def test_a_pageable_copy_holds_the_host_and_a_pinned_one_does_not() -> None:
    w = Workload(start_us=0)
    w.copy("HtoD", 1 << 20, gpu_us=100, source="pageable")
    assert w.now == 111_000
    w.copy("HtoD", 1 << 20, gpu_us=100)
    assert w.now == 116_000
    copies = w.to_run().table("copies")
    assert copies["source"].tolist() == [MemoryKind.PAGEABLE, MemoryKind.PINNED]
    assert copies["kind"].tolist() == [CopyKind.HOST_TO_DEVICE] * 2


def test_nested_operators_and_ids() -> None:
    w = Workload()
    with w.op("aten::linear"), w.op("aten::addmm"):
        w.launch("gemm")
    run = w.to_run()
    ops = run.frame("host_ops").set_index("name")
    assert ops.loc["aten::linear", "start"] < ops.loc["aten::addmm", "start"]
    assert ops.loc["aten::linear", "end"] >= ops.loc["aten::addmm", "end"]
    assert run.table("kernels")["op"].tolist() == [ops.loc["aten::addmm", "op"]]
    assert run.ranks == [None] and set(run.table("kernels")["rank"].tolist()) == {-1}


def test_a_collective_ends_for_all_when_the_last_has_come() -> None:
    w = Workload(ranks=2)
    with w.step(), w.ranks[1].step():
        w.ranks[1].host(300)
        w.collective("allreduce", elements=1000, gpu_us=50)
    run = w.to_run()
    found = collectives(run)
    assert sorted(found.wait_ns.tolist()) == [0, 300_000]
    assert found.transfer_ns.tolist() == [50_000, 50_000]
    assert found.bytes.tolist() == [4000, 4000] and run.ranks == [0, 1] and run.world_size == 2


def test_nsys_sees_no_operators_and_its_own_step_labels() -> None:
    w = Workload(tool="nsys", device=V100)
    for _ in w.steps(2):
        w.loader(100)
        with w.op("aten::mm"), w.frame("train.py(3): main"):
            w.launch("gemm")
    run = w.to_run()
    assert not len(run.table("host_ops")) and not len(run.table("python_frames"))
    assert run.frame("ranges")["name"].tolist() == ["step 0", "step 1"]
    assert run.devices[0].compute_capability == (7, 0)


def test_kineto_files_hold_the_same_run(tmp_path) -> None:
    w = gpu_bound()
    (path,) = w.write_kineto(tmp_path)
    events = json.loads(path.read_text())["traceEvents"]
    assert {e["cat"] for e in events} == {"cpu_op", "user_annotation", "kernel", "cuda_runtime"}
    run = w.to_run()
    for table, categories in (("kernels", {"kernel"}), ("runtime_calls", {"cuda_runtime"}), ("host_ops", {"cpu_op"})):
        rows = sorted((e["ts"], e["dur"]) for e in events if e["cat"] in categories)
        expected = run.table(table)
        assert len(rows) == len(expected)
        lengths = np.array([round(dur * 1000) for _, dur in rows])
        assert lengths.tolist() == (expected["end"] - expected["start"]).tolist()


def test_an_nsys_export_holds_the_same_run(tmp_path) -> None:
    w = Workload(tool="nsys")
    for _ in w.steps(4):
        w.copy("HtoD", 1_000_000, source="pageable")
        w.memset(64)
        for _ in range(3):
            w.host(20)
            w.launch("gemm", gpu_us=300, stream=9)
        w.sync("device")
    expected, read = w.to_run(), load([w.write_nsys(tmp_path / "report.sqlite")])
    for table, columns in (
        ("kernels", ("start", "end", "stream", "grid_x")),
        ("copies", ("start", "end", "kind", "source", "target", "bytes")),
        ("runtime_calls", ("start", "end")),
    ):
        for column in columns:
            shift = read.table(table)["start"][0] - expected.table(table)["start"][0] if column in ("start", "end") else 0
            assert (read.table(table)[column] - shift).tolist() == expected.table(table)[column].tolist(), (table, column)
    mine, theirs = two_sided(expected), two_sided(read)
    assert mine is not None and theirs is not None
    assert (mine.step_ns, mine.gpu_ns, mine.wait_ns) == (theirs.step_ns, theirs.gpu_ns, theirs.wait_ns)


def test_kineto_files_read_back_as_the_same_run(tmp_path) -> None:
    w = gpu_bound()
    mine, theirs = two_sided(w.to_run()), two_sided(load(w.write_kineto(tmp_path)))
    assert mine is not None and theirs is not None
    assert (mine.step_ns, mine.host_ns, mine.gpu_ns, mine.wait_ns) == (
        theirs.step_ns,
        theirs.host_ns,
        theirs.gpu_ns,
        theirs.wait_ns,
    )
