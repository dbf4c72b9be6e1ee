"""Tables, text, devices and statements of several traces in one run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.ingest import join
from advisor.model import Capture, Device, Notice, Strings, Table, Trace
from build.recordings import program_trace, sample_trace


def test_text_codes_are_those_of_the_run() -> None:
    a, b = program_trace("a", rank=0, name="gemm"), program_trace("b", rank=1, name="softmax", shapes=True)
    run = join([a, b])
    names = {
        rank: {run.strings[int(c)] for c, r in zip(k["name"], k["rank"], strict=True) if r == rank}
        for k in [run.table("kernels")]
        for rank in (0, 1)
    }
    assert names == {0: {"gemm"}, 1: {"softmax"}}
    ops = run.table("host_ops")
    assert {run.strings[int(c)] for c in ops["shapes"][ops["rank"] == 0]} == {""}  # not recorded stays not recorded
    assert {run.strings[int(c)] for c in ops["shapes"][ops["rank"] == 1]} == {"[[2, 2]]"}
    assert len(set(run.strings.values)) == len(run.strings.values)


def test_inputs_are_not_changed_and_their_tables_are_let_go() -> None:
    trace = program_trace("a", rank=0, start=50)
    before = trace.tables["kernels"]["start"].copy()
    run = join([trace, program_trace("b", rank=1)])
    assert (trace.tables["kernels"]["start"] == before).all() and trace.tables["kernels"]["rank"].tolist() == [-1] * 4
    assert all(t.tables == {} and len(t.strings) == 0 for t in run.traces)
    assert [t.path for t in run.traces] == ["a", "b"] and [t.rank for t in run.traces] == [0, 1]


def test_rows_are_in_order() -> None:
    run = join([program_trace("a", rank=0, start=1), program_trace("b", rank=1)])
    start = run.table("kernels")["start"]
    assert (start[1:] >= start[:-1]).all()


def test_rank_of_a_row_survives_taking_rows() -> None:
    run = join([program_trace("a", rank=3)])
    assert run.table("kernels").take(np.array([0, 2])).to_pandas()["rank"].tolist() == [3, 3]


def test_statements_are_joined() -> None:
    a = replace(
        program_trace("a", rank=0, world_size=2, facts={"nccl_version": "2.28"}, environment={"NCCL_DEBUG": "INFO"}),
        capture=Capture(tool="torch.profiler", stacks=False, shapes=True, memory=None),
    )
    b = replace(
        program_trace("b", rank=1, facts={"nccl_version": "2.27", "backend": "nccl"}),
        capture=Capture(tool="torch.profiler", stacks=False, shapes=False),
    )
    run = join([a, b])
    assert run.world_size == 2 and run.environment == {"NCCL_DEBUG": "INFO"}
    assert run.facts == {"nccl_version": "2.28", "backend": "nccl"}
    assert (run.capture.stacks, run.capture.shapes, run.capture.memory) == (False, True, None)


def test_devices_once_each_and_completed_by_the_log() -> None:
    a = program_trace("a", rank=0, devices=[Device(0, "NVIDIA H200", sm_count=132), Device(1, "NVIDIA H200", sm_count=132)])
    b = program_trace("b", rank=1, devices=[Device(1, "NVIDIA H200", sm_count=132)])
    log = replace(
        sample_trace("s", None, 1),
        devices=[Device(0, "NVIDIA H200", memory_bytes=141 << 30), Device(1, "Tesla T4", memory_bytes=15 << 30)],
    )
    run = join([a, b, log])
    assert [(d.rank, d.index, d.name, d.sm_count, d.memory_bytes) for d in run.devices] == [
        (0, 0, "NVIDIA H200", 132, 141 << 30),
        (0, 1, "NVIDIA H200", 132, None),
        (1, 1, "NVIDIA H200", 132, None),
        (None, 1, "Tesla T4", None, 15 << 30),
    ]


def test_notices_name_their_file_and_come_once() -> None:
    same = Notice("events-dropped", "3 events left out")
    traces = [program_trace(f"t/rank{i}.json", rank=i, notices=[same]) for i in range(3)]
    traces[1].notices.append(Notice("input-cut-short", "ends early"))
    assert [n.message for n in join(traces).notices if n.code != "clock-unknown"] == [
        "rank0.json and 2 more: 3 events left out",
        "rank1.json: ends early",
    ]
    assert join(traces[:1]).notices == [same]


def test_links_of_a_topology_are_kept() -> None:
    strings = Strings(["GPU0", "GPU1", "NV18"])
    links = Table("links", {"a": [0], "b": [1], "link": [2]})
    run = join([program_trace("t"), Trace("topo.txt", "nvidia-smi-topology", tables={"links": links}, strings=strings)])
    table = run.table("links")
    assert [run.strings[int(table[c][0])] for c in ("a", "b", "link")] == ["GPU0", "GPU1", "NV18"] and run.notices == []
