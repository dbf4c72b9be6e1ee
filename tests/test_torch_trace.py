"""What each kind of event of a torch.profiler trace becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.ingest import torch_trace
from advisor.ingest.source import Source
from advisor.model import CopyKind, InputError, MemoryKind, RangeKind, SyncKind, Trace
from build.kineto import ZERO_NS, Kineto, training


def read(tmp_path: Path, kineto: Kineto | bytes, times: str = "decimal", layout: str = "kineto") -> Trace:
    path = tmp_path / "trace.json"
    path.write_bytes(kineto if isinstance(kineto, bytes) else kineto.text(layout, times))
    return torch_trace.read(Source(path), processes=1)


def rows(trace: Trace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table with text in place of codes."""
    frame = trace.table(table).to_pandas(trace.strings)[list(columns)].astype(object)
    return list(frame.where(frame.notna(), None).itertuples(index=False, name=None))


def one(trace: Trace, table: str) -> dict[str, Any]:
    (record,) = trace.table(table).to_pandas(trace.strings).to_dict("records")
    return record


def codes(trace: Trace) -> set[str]:
    return {notice.code for notice in trace.notices}


def test_a_training_step(tmp_path: Path) -> None:
    trace = read(tmp_path, training(3))
    assert {name: len(table) for name, table in trace.tables.items()} == {
        "kernels": 6,
        "copies": 6,
        "runtime_calls": 9,
        "host_ops": 6,
        "python_frames": 3,
        "ranges": 3,
        "memory_events": 6,
        "overheads": 3,
        "forward_backward": 3,
    }
    assert (trace.format, trace.format_version) == ("torch-trace", "kineto schema 1")
    assert trace.epoch_ns == ZERO_NS + 1_000_000  # the first step is the first event
    assert [n for n in trace.notices if n.code != "gpu-rows-without-launch"] == []


def test_kernels(tmp_path: Path) -> None:
    k = Kineto()
    k.launch("void f<int>()", 100, 50, 1_234, 5_678, correlation=9)
    kernel = one(read(tmp_path, k), "kernels")
    assert (kernel["start"], kernel["end"]) == (1_134, 6_812)
    expected = {"name": "void f<int>()", "process": 1187, "device": 0, "context": 1, "stream": 7, "correlation": 9, "op": 1}
    expected |= {"grid_x": 4, "grid_y": 2, "grid_z": 1, "block_x": 128, "registers": 32, "shared_memory": 1024, "graph_node": -1}
    assert {key: kernel[key] for key in expected} == expected
    assert kernel["occupancy"] == 50.0


def test_calls(tmp_path: Path) -> None:
    k = Kineto()
    k.call("cudaLaunchKernel_v7000", 0, 10, correlation=1)
    k.call("cuMemcpyHtoDAsync_v2", 20, 10, correlation=2, cat="cuda_driver")
    k.call("hipLaunchKernel", 40, 10, correlation=3, stream="0x0", grid=[1, 1, 1], kernel="f")
    found = rows(read(tmp_path, k), "runtime_calls", "start", "end", "name", "correlation", "process", "thread", "op")
    assert found == [
        (0, 10, "cudaLaunchKernel", 1, 1187, 1187, 1),
        (20, 30, "cuMemcpyHtoDAsync", 2, 1187, 1187, 1),
        (40, 50, "hipLaunchKernel", 3, 1187, 1187, 1),
    ]


@pytest.mark.parametrize(
    ("name", "kind", "source", "target"),
    [
        ("Memcpy HtoD (Pageable -> Device)", CopyKind.HOST_TO_DEVICE, MemoryKind.PAGEABLE, MemoryKind.DEVICE),
        ("Memcpy HtoD (Pinned -> Device)", CopyKind.HOST_TO_DEVICE, MemoryKind.PINNED, MemoryKind.DEVICE),
        ("Memcpy DtoH (Device -> Pageable)", CopyKind.DEVICE_TO_HOST, MemoryKind.DEVICE, MemoryKind.PAGEABLE),
        ("Memcpy DtoD (Device -> Device)", CopyKind.DEVICE_TO_DEVICE, MemoryKind.DEVICE, MemoryKind.DEVICE),
        ("Memcpy PtoP (Device -> Device)", CopyKind.PEER_TO_PEER, MemoryKind.DEVICE, MemoryKind.DEVICE),
        ("Memcpy HtoD (Host -> Device)", CopyKind.HOST_TO_DEVICE, MemoryKind.UNKNOWN, MemoryKind.DEVICE),
        ("Memset (Device)", CopyKind.MEMSET, MemoryKind.UNKNOWN, MemoryKind.DEVICE),
        ("something new", CopyKind.UNKNOWN, MemoryKind.UNKNOWN, MemoryKind.UNKNOWN),
    ],
)
def test_copies(tmp_path: Path, name: str, kind: CopyKind, source: MemoryKind, target: MemoryKind) -> None:
    k = Kineto()
    k.gpu("gpu_memset" if "set" in name else "gpu_memcpy", name, 0, 10, correlation=3, bytes=4096)
    copy = one(read(tmp_path, k), "copies")
    assert (copy["kind"], copy["source"], copy["target"], copy["bytes"]) == (kind, source, target, 4096)


def test_a_copy_whose_size_only_the_call_tells(tmp_path: Path) -> None:
    k = Kineto()
    k.call("hipMemcpyWithStream", 0, 10, correlation=3, size="512", src="0x7f00", dst="0x7e00")
    k.gpu("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 5, 3, correlation=3)
    assert one(read(tmp_path, k), "copies")["bytes"] == 512


def test_operators(tmp_path: Path) -> None:
    k = Kineto()
    dims = {
        "Input Dims": [[2, 3], [], [[1], [2, 2]]],
        "Input type": ["float", "Scalar", "TensorList"],
        "Concrete Inputs": ["", "1"],
    }
    k.op("aten::cat", 0, 10, external=5, **{"Sequence number": 77, "Fwd thread id": 2}, **dims)
    k.op("aten::add", 20, 10)
    found = rows(
        read(tmp_path, k), "host_ops", "name", "op", "sequence", "forward_thread", "shapes", "types", "strides", "inputs"
    )
    assert found == [
        ("aten::cat", 5, 77, 2, "[[2, 3], [], [[1], [2, 2]]]", '["float", "Scalar", "TensorList"]', None, '["", "1"]'),
        ("aten::add", -1, -1, -1, None, None, None, None),
    ]


def test_the_oldest_spelling(tmp_path: Path) -> None:
    k = Kineto()
    place = {"pid": 0, "tid": "stream 7"}
    k.complete("Operator", "ProfilerStep#5", 0, 90_000, tid="1187")
    k.complete("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1_000, 5_000, tid="1187")
    k.complete(
        "Operator", "aten::mm", 8_000, 5_000, tid="1187", args={"Call stack": "/home/me/a.py(1): f;b.py(2): g", "External id": 3}
    )
    k.complete("Runtime", "cudaLaunchKernel", 9_000, 2_000, tid="1187", args={"correlation": 4, "external id": 3})
    kernel = {"correlation": 4, "external id": 3, "stream": 7, "theoretical occupancy %": 25}
    k.complete("Kernel", "sgemm", 15_000, 3_000, **place, args=kernel)
    k.complete("Memset", "Memset (Device)", 20_000, 0, **place, args={"correlation": 5, "bytes": 4})
    k.flow("async", 4, (9_000, 1187, 1187), (15_000, 0, "stream 7"))
    trace = read(tmp_path, k, times="integer")
    assert rows(trace, "ranges", "name", "kind", "thread") == [
        ("ProfilerStep#5", RangeKind.RECORD_FUNCTION, 1187),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", RangeKind.RECORD_FUNCTION, 1187),
    ]
    assert rows(trace, "host_ops", "name", "op", "thread", "stack") == [("aten::mm", 3, 1187, "~/a.py(1): f;b.py(2): g")]
    assert rows(trace, "runtime_calls", "name", "op") == [("cudaLaunchKernel", 3)]
    assert rows(trace, "kernels", "start", "end", "op", "device", "stream", "occupancy") == [(15_000, 18_000, 3, 0, 7, 25.0)]
    assert rows(trace, "copies", "start", "end", "stream") == [(20_000, 20_000, 7)]
    assert trace.capture.stacks


def test_the_profiler_before_kineto(tmp_path: Path) -> None:
    row = '{"name": "%s", "ph": "X", "ts": %s, "dur": 5.0, "tid": %d, "pid": "%s functions", "args": {}}'
    arrow = '{"name": "mm", ph": "s", "ts": 2.0, "tid": 1, "pid": "CPU functions", "id": 1, "cat": "cpu_to_cuda", "args": {}}'
    text = (
        "[" + ", ".join([row % ("mm", 1.5, 3, "CPU"), arrow, row % ("sgemm", 20.25, 1, "CUDA"), row % ("add", 7, 3, "CPU")]) + "]"
    )
    trace = read(tmp_path, text.encode())
    assert rows(trace, "host_ops", "name", "start", "end", "thread", "process") == [
        ("mm", 0, 5000, 3, -1),
        ("add", 5500, 10500, 3, -1),
    ]
    assert rows(trace, "kernels", "name", "start", "device", "stream") == [("sgemm", 18750, 1, -1)]
    assert [(n.code, n.message) for n in trace.notices] == [("events-dropped", "1 event left out: 1 malformed")]


def test_steps_once_although_the_gpu_mirrors_them(tmp_path: Path) -> None:
    k = training(2)
    assert [name for (name,) in rows(read(tmp_path, k), "ranges", "name")] == ["ProfilerStep#0", "ProfilerStep#1"]


def test_frames(tmp_path: Path) -> None:
    k = Kineto()
    k.frame("train.py(1): main", 0, 100, number=1)
    k.frame("<built-in method append of list object at 0x7f17c92d5f40>", 10, 1, number=2, parent=1)
    k.complete(
        "python_function", "nn.Module: Linear_3", 20, 5, args={"Python id": 3, "Python parent id": 1, "Python module id": 3}
    )
    assert rows(read(tmp_path, k), "python_frames", "name", "frame", "parent", "module") == [
        ("train.py(1): main", 1, -1, -1),
        ("<built-in method append of list object>", 2, 1, -1),
        ("nn.Module: Linear_3", 3, 1, 3),
    ]


def test_synchronisations(tmp_path: Path) -> None:
    k = Kineto()
    k.call("cudaStreamSynchronize", 0, 100, correlation=1)
    for i, kind in enumerate(("Stream Sync", "Event Sync", "Context Sync", "Stream Wait Event", "Else")):
        k.gpu("cuda_sync", kind, 10 * i, 5, correlation=i, stream=-1 if kind == "Context Sync" else 20, cuda_sync_kind=kind)
    waits = {"wait_on_stream": 13, "wait_on_cuda_event_id": 3, "wait_on_cuda_event_record_corr_id": 99}
    k.gpu("cuda_sync", "Stream Wait Event", 90, 5, correlation=9, stream=7, cuda_sync_kind="Stream Wait Event", **waits)
    trace = read(tmp_path, k)
    found = rows(trace, "sync_events", "kind", "stream", "event", "wait_stream", "wait_correlation")
    kinds = [SyncKind.STREAM, SyncKind.EVENT, SyncKind.DEVICE, SyncKind.STREAM_WAIT_EVENT, SyncKind.UNKNOWN]
    assert found == [*((kind, -1 if kind == SyncKind.DEVICE else 20, -1, -1, -1) for kind in kinds), (4, 7, 3, 13, 99)]
    assert "kernels" not in trace.tables
    assert trace.devices == []  # waiting is no work


def test_collectives_of_operator_and_kernel(tmp_path: Path) -> None:
    args = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 2}
    args |= {"Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
    k = Kineto()
    k.op("record_param_comms", 0, 10, external=8, **args)
    k.op("record_param_comms", 20, 10, external=9, **(args | {"Collective name": "wait", "Group size": 1}))
    k.call("cudaLaunchKernelExC", 2, 3, correlation=5)
    k.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 30, 100, correlation=5, **args)
    columns = (
        "collective",
        "op",
        "correlation",
        "process",
        "dtype",
        "elements_in",
        "elements_out",
        "group_size",
        "group",
        "group_ranks",
    )
    assert rows(read(tmp_path, k), "collective_calls", *columns) == [
        ("allreduce", 8, -1, 1187, "Float", 1024, 1024, 2, "0", "[0, 1]"),
        ("wait", 9, -1, 1187, "Float", 1024, 1024, 1, "0", "[0, 1]"),
        ("allreduce", -1, 5, 1187, "Float", 1024, 1024, 2, "0", "[0, 1]"),
    ]


def test_memory_and_overhead(tmp_path: Path) -> None:
    k = Kineto()
    k.memory(0, 512, total=2048, address=(1 << 64) - 4096)
    k.memory(10, -512, device=-1)
    k.complete("overhead", "Command Buffer Full", 20, 300, pid=-1, tid=0)
    trace = read(tmp_path, k)
    columns = ("time", "device", "bytes", "address", "allocated", "reserved", "process")
    assert rows(trace, "memory_events", *columns) == [(0, 0, 512, -4096, 2048, 4096, 1187), (10, -1, -512, 4096, 0, 0, 1187)]
    assert rows(trace, "overheads", "start", "end", "name") == [(20, 320, "Command Buffer Full")]
    assert trace.capture.memory


def test_forward_and_backward_are_joined_by_id_within_their_own_arrows(tmp_path: Path) -> None:
    k = Kineto()
    k.op("aten::mm", 0, 10)
    k.flow("fwdbwd", 1, (0, 1187, 1187), (500, 1187, 1197))
    k.flow("ac2g", 1, (3, 1187, 1187), (600, 0, 7))  # the same number in another space
    k.flow("fwdbwd", 2, (5, 1187, 1187), None)  # unpaired: no error
    k.flow("fwdbwd", 3, None, (700, 1187, 1197))
    columns = ("start", "forward_thread", "backward_start", "backward_thread", "process")
    assert rows(read(tmp_path, k), "forward_backward", *columns) == [(0, 1187, 500, 1197, 1187)]


def test_begin_and_end_rows_pair_within_a_thread(tmp_path: Path) -> None:
    k = Kineto()
    for phase, name, at, tid in (
        ("B", "outer", 0, 1),
        ("B", "other", 5, 2),
        ("B", "inner", 10, 1),
        ("E", "inner", 20, 1),
        ("E", "", 40, 1),
    ):
        k.events.append({"ph": phase, "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": f"@ns{at}"})
    k.events.append({"ph": "E", "cat": "cpu_op", "name": "alone", "pid": 1, "tid": 3, "ts": "@ns50"})
    trace = read(tmp_path, k)
    assert rows(trace, "host_ops", "name", "start", "end", "thread") == [("outer", 0, 40, 1), ("inner", 10, 20, 1)]
    (notice,) = trace.notices
    assert notice.code == "events-dropped" and "2 events" in notice.message


def test_categories_in_any_case_and_unknown_ones_are_counted(tmp_path: Path) -> None:
    k = Kineto()
    k.complete("CPU_OP", "aten::mm", 0, 10)
    k.complete("mtia_ccp_events", "x", 5, 10)
    k.complete(None, "free", 6, 10)
    trace = read(tmp_path, k)
    assert rows(trace, "host_ops", "name") == [("aten::mm",)]
    (notice,) = trace.notices
    assert (notice.code, notice.message) == (
        "other-categories",
        "2 events of other kinds left out: 1 mtia_ccp_events, 1 without category",
    )


def test_job_and_versions(tmp_path: Path) -> None:
    job = {"backend": "nccl", "rank": 3, "world_size": 8, "nccl_version": "2.28.9", "pg_config": [{"ranks": list(range(300))}]}
    private = {"username": "jane", "host_name": "node17", "tw_job": "/home/jane/secret", "trace_id": "ABC"}
    k = training(1, distributedInfo=job, cuda_driver_version=12080, hip_runtime_version=60443483, with_stack=1, **private)
    trace = read(tmp_path, k)
    assert (trace.rank, trace.world_size) == (3, 8)
    assert trace.facts == {
        "backend": "nccl",
        "nccl_version": "2.28.9",
        "cuda_driver_version": "12.8",
        "hip_runtime_version": "6.4",
    }
    capture = trace.capture
    assert (capture.tool, capture.stacks, capture.shapes, capture.memory, capture.cuda) == (
        "torch.profiler",
        True,
        True,
        True,
        True,
    )
    told = repr((trace.facts, trace.devices, trace.notices, trace.strings.values, capture))
    assert not any(word in told for word in ("jane", "node17", "secret"))


@pytest.mark.parametrize("job", [None, {}, {"rank": None}, {"rank": -1}, {"rank": True}, {"rank": "x"}, [1], "unknown"])
def test_no_rank(tmp_path: Path, job: Any) -> None:
    trace = read(tmp_path, training(1, distributedInfo=job))
    assert trace.rank is None and trace.world_size is None


def test_devices_are_those_that_worked(tmp_path: Path) -> None:
    listed = [
        {"id": i, "name": f"GPU {i}", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "totalGlobalMem": 80} for i in range(8)
    ]
    k = Kineto(deviceProperties=listed)
    k.kernel("f", 0, 10, correlation=1, device=3)
    k.kernel("g", 0, 10, correlation=2, device=9)
    known, unknown = read(tmp_path, k).devices
    assert (known.index, known.name, known.compute_capability, known.sm_count, known.memory_bytes) == (
        3,
        "GPU 3",
        (9, 0),
        132,
        80,
    )
    assert (unknown.index, unknown.name, unknown.compute_capability) == (9, None, None)


@pytest.mark.parametrize("properties", [[], None, [{"id": 0, "name": ""}], {"id": 0}, [None, 3]])
def test_unknown_device(tmp_path: Path, properties: Any) -> None:
    k = Kineto(deviceProperties=properties)
    k.kernel("f", 0, 10, correlation=1)
    (device,) = read(tmp_path, k).devices
    assert (device.index, device.name) == (0, None)


def test_gpu_rows_belong_to_the_process_that_launched_them(tmp_path: Path) -> None:
    k = Kineto()
    k.call("cudaLaunchKernel", 0, 5, correlation=1)
    k.call("cudaLaunchKernel", 10, 5, correlation=2)
    k.events[-1]["pid"] = 2000
    k.call("cudaLaunchKernel", 20, 5, correlation=3)
    for correlation in (1, 2, 3, 4):
        k.kernel("f", 100 * correlation, 10, correlation=correlation)
    assert [p for (p,) in rows(read(tmp_path, k), "kernels", "process")] == [1187, 2000, 1187, 1187]


def test_lost_launches_are_told(tmp_path: Path) -> None:
    k = training(1)
    k.kernel("f", 2_000_000, 10, correlation=900)
    notices = read(tmp_path, k).notices
    assert [n.code for n in notices] == ["gpu-rows-without-launch"]
    assert notices[0].message.startswith("2 of 5 GPU rows")


def test_one_launch_of_many_kernels(tmp_path: Path) -> None:
    k = Kineto()
    k.call("cudaGraphLaunch", 0, 50, correlation=1)
    for i in range(20):
        k.kernel("f", 100 + i, 1, correlation=1, **{"graph node id": i})
    trace = read(tmp_path, k)
    assert rows(trace, "kernels", "correlation", "graph_node") == [(1, i) for i in range(20)]
    assert trace.notices == []


def test_process_and_thread_that_are_text(tmp_path: Path) -> None:
    k = Kineto()
    k.op("aten::a", 0, 10, tid="25738")
    k.op("aten::b", 20, 10, tid="thread 1197 (pt_autograd_0)")
    k.op("aten::c", 40, 10, tid="main")
    k.op("aten::d", 60, 10, tid="main")
    k.op("aten::e", 80, 10, tid="other")
    a, b, c, d, e = (thread for (thread,) in rows(read(tmp_path, k), "host_ops", "thread"))
    assert (a, b) == (25738, 1197)
    assert c == d < -1 and e < -1 and c != e


def test_64_bit_streams(tmp_path: Path) -> None:
    k = Kineto()
    k.kernel("f", 0, 10, correlation=1, stream=94_857_374_857_312)
    k.kernel("g", 20, 10, correlation=2, stream=(1 << 64) - 1)
    assert [s for (s,) in rows(read(tmp_path, k), "kernels", "stream")] == [94_857_374_857_312, -1]


def test_no_times_or_only_metadata_is_an_error(tmp_path: Path) -> None:
    k = Kineto()
    k.name_process()
    with pytest.raises(InputError, match="without GPU or host events"):
        read(tmp_path, k)
    with pytest.raises(InputError, match="without GPU or host events"):
        read(tmp_path, json.dumps({"traceEvents": []}).encode())


def test_host_only(tmp_path: Path) -> None:
    k = Kineto()
    k.op("aten::mm", 0, 10)
    trace = read(tmp_path, k)
    assert list(trace.tables) == ["host_ops"] and trace.devices == [] and trace.capture.cuda is None
