"""What each table of an Nsight Systems export becomes: one test a fact, on exports of several generations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.ingest import nsys
from advisor.ingest.nsys.host import api_name
from advisor.ingest.source import Source
from advisor.model import CopyKind, MemoryKind, MemorySource, RangeKind, SyncKind, Trace
from build.nsys import DOMAIN, GENERATIONS, START_END, NsysExport, codes, column, global_id, texts


@pytest.fixture(params=GENERATIONS)
def export(request: pytest.FixtureRequest) -> NsysExport:
    return NsysExport(request.param)


@pytest.fixture
def read(tmp_path: Path):
    def _read(export: NsysExport, **options) -> Trace:
        return nsys.read(Source(export.write(tmp_path / "report.sqlite", **options)))

    return _read


def test_kernels_of_every_generation(export: NsysExport, read) -> None:
    launch = export.call("cudaLaunchKernel_v7000", 100, 110)
    export.kernel("void gemm<float>(int)", 200, 300, correlation=launch, gridX=12, blockX=256, registersPerThread=64,
                  staticSharedMemory=1000, dynamicSharedMemory=48, stream=13)  # fmt: skip
    export.kernel("relu", 150, 180, device=1)
    trace = read(export)
    assert texts(trace, "kernels") == ["relu", "void gemm<float>(int)"]  # in order of start
    assert column(trace, "kernels", "start") == [150, 200]
    assert column(trace, "kernels", "end") == [180, 300]
    gemm = trace.table("kernels").take(np.array([1]))
    wanted = {"grid_x": 12, "grid_y": 1, "block_x": 256, "registers": 64, "shared_memory": 1048, "stream": 13}
    assert {name: int(gemm[name][0]) for name in wanted} == wanted
    assert int(gemm["process"][0]) == 100
    assert int(gemm["correlation"][0]) == column(trace, "runtime_calls", "correlation")[0]
    assert not trace.table("kernels").has("graph_node")
    assert not trace.table("kernels").has("rank")
    assert trace.format == "nsys-sqlite"
    if export.generation == "2020":
        assert trace.format_version is None
    else:
        assert trace.format_version.startswith(f"nsys {export.generation}.3, schema ")
    assert trace.notices == []


def test_copies_and_memory_sets(export: NsysExport, read) -> None:
    export.copy(1, 10, 20, source=0, size=5)
    export.copy(2, 30, 40, source=2, target=1, size=6)
    export.copy(11, 50, 60, source=7, target=7, size=7)
    export.copy(99, 70, 80, source=55, target=-3, size=8)
    export.memset(25, 27, size=9)
    trace = read(export)
    kinds = [CopyKind.HOST_TO_DEVICE, CopyKind.MEMSET, CopyKind.DEVICE_TO_HOST, CopyKind.MANAGED_HOST_TO_DEVICE, CopyKind.UNKNOWN]
    assert column(trace, "copies", "kind") == kinds
    assert column(trace, "copies", "bytes") == [5, 9, 6, 7, 8]
    unknown = MemoryKind.UNKNOWN
    assert column(trace, "copies", "source") == [MemoryKind.PAGEABLE, unknown, MemoryKind.DEVICE, unknown, unknown]
    assert column(trace, "copies", "target") == [MemoryKind.DEVICE, MemoryKind.DEVICE, MemoryKind.PINNED, unknown, unknown]


@pytest.mark.parametrize(
    ("recorded", "name"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
        ("cudaStreamGetCaptureInfo_v2_v11030", "cudaStreamGetCaptureInfo_v2"),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync"),
        ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx"),
        ("_v2", "_v2"),
        ("", ""),
    ],
)
def test_api_names(recorded: str, name: str) -> None:
    assert api_name(recorded) == name


def test_calls_repeated_for_their_backtrace_count_once(export: NsysExport, read) -> None:
    launch = export.call("cudaLaunchKernel_v7000", 100, 110)
    export.call("cudaLaunchKernel", 99, 111, correlation=launch, event_class=67)
    export.call("cuLaunchKernelEx", 120, 130, event_class=1, thread=9)
    trace = read(export)
    assert texts(trace, "runtime_calls") == ["cudaLaunchKernel", "cuLaunchKernelEx"]
    assert column(trace, "runtime_calls", "start") == [100, 120]
    assert column(trace, "runtime_calls", "thread") == [7, 9]
    assert column(trace, "runtime_calls", "process") == [100, 100]


def test_ids_are_unsigned(read) -> None:
    export = NsysExport(process=0xFFFFFE)
    export.hardware = 254  # the identifiers are negative as SQLite stores them
    export.kernel("k", 10, 20, correlation=export.call("cudaLaunchKernel_v7000", 1, 2, thread=0xFFFFFF))
    trace = read(export)
    assert column(trace, "kernels", "process") == [0xFFFFFE]
    assert column(trace, "runtime_calls", "process") == [0xFFFFFE]
    assert column(trace, "runtime_calls", "thread") == [0xFFFFFF]


@pytest.mark.parametrize(
    ("call", "sync_type", "kind"),
    [
        ("cudaDeviceSynchronize_v3020", 1, SyncKind.DEVICE),
        ("cuCtxSynchronize", 4, SyncKind.DEVICE),
        ("cudaStreamSynchronize_v3020", 3, SyncKind.STREAM),
        ("cudaStreamSynchronize_v3020", 2, SyncKind.STREAM),
        ("cudaStreamWaitEvent_v3020", 3, SyncKind.STREAM_WAIT_EVENT),
        ("cudaEventSynchronize_v3020", 2, SyncKind.EVENT),
        ("cudaEventQuery_v3020", 1, SyncKind.EVENT_QUERY),
        ("cuProfilerStop", 1, SyncKind.UNKNOWN),
    ],
)
def test_the_call_tells_the_kind_of_a_synchronisation(read, call: str, sync_type: int, kind: SyncKind) -> None:
    export = NsysExport()
    export.sync(11, 19, correlation=export.call(call, 10, 20), kind=sync_type)
    export.sync(30, 40, correlation=77_777, kind=sync_type)  # no call joins
    export.sync(50, 60, correlation=0, kind=sync_type)
    trace = read(export)
    assert column(trace, "sync_events", "kind") == [kind, SyncKind.UNKNOWN, SyncKind.UNKNOWN]
    assert column(trace, "sync_events", "stream") == [-1, -1, -1]
    assert column(trace, "sync_events", "event") == [-1, -1, -1]


def test_a_call_of_another_process_does_not_join(read) -> None:
    export = NsysExport()
    same = export.call("cudaDeviceSynchronize_v3020", 10, 20, process=200)
    export.sync(11, 19, correlation=same)
    assert column(read(export), "sync_events", "kind") == [SyncKind.UNKNOWN]


def test_a_wait_knows_the_last_record_of_its_event(read) -> None:
    export = NsysExport()
    first = export.call("cudaEventRecord_v3020", 10, 12)
    export.event(5, correlation=first, stream=20)
    second = export.call("cudaEventRecord_v3020", 30, 32)
    export.event(5, correlation=second, stream=21)
    other = export.call("cudaEventRecord_v3020", 33, 34)
    export.event(6, correlation=other, stream=22)
    export.sync(15, 16, correlation=export.call("cudaStreamWaitEvent_v3020", 15, 16), event=5, stream=7)
    export.sync(40, 41, correlation=export.call("cudaEventSynchronize_v3020", 40, 41), event=5)
    export.sync(50, 51, correlation=export.call("cudaEventSynchronize_v3020", 50, 51), event=9)
    trace = read(export)
    assert column(trace, "event_records", "event") == [5, 5, 6]
    assert column(trace, "sync_events", "wait_stream") == [20, 21, -1]
    assert column(trace, "sync_events", "wait_correlation") == [first, second, -1]
    assert column(trace, "sync_events", "stream") == [7, -1, -1]


def test_newer_exports_say_which_record_a_wait_waits_for(read) -> None:
    export = NsysExport("2025.5")
    first = export.call("cudaEventRecord_v3020", 10, 12)
    export.event(5, correlation=first, stream=20, event_sync=1)
    export.event(5, correlation=export.call("cudaEventRecord_v3020", 20, 22), stream=21, event_sync=2)
    export.sync(40, 41, correlation=export.call("cudaEventSynchronize_v3020", 40, 41), event=5, event_sync=1)
    assert column(read(export), "sync_events", "wait_correlation") == [first]


def test_ranges(export: NsysExport, read) -> None:
    export.range("step 0", 100, 200, int32Value=4)
    export.range("registered", 110, 120, registered=True, doubleValue=2.5)
    export.range("spans threads", 130, 140, kind=START_END, endGlobalTid=global_id(100, 9))
    export.range("open at the end", 150, None)
    export.range("a mark", 160, None, kind=34)
    export.range("worker", -5_000, None, kind=39)
    export.range(None, 170, 180)
    trace = read(export)
    assert texts(trace, "ranges") == ["step 0", "registered", "spans threads", ""]
    assert column(trace, "ranges", "kind") == [RangeKind.PUSH_POP, RangeKind.PUSH_POP, RangeKind.START_END, RangeKind.PUSH_POP]
    assert column(trace, "ranges", "end_thread") == [-1, -1, 9, -1]
    np.testing.assert_array_equal(trace.table("ranges")["payload"], [4, 2.5, np.nan, np.nan])
    assert not trace.table("ranges").has("domain")
    assert "worker" not in trace.strings.values  # names of threads are nobody's business


def test_domains_belong_to_a_process(read) -> None:
    export = NsysExport()
    export.range("NCCL", -100, None, kind=DOMAIN, domain=1)
    export.range("DALI", -90, None, kind=DOMAIN, domain=1, process=200)
    export.range("library work", -80, None, kind=33, domain=1, category=3)
    export.range("ncclAllReduce", 10, 20, domain=1, category=3, registered=True)
    export.range("decode", 30, 40, domain=1, process=200, category=3)
    trace = read(export)
    assert texts(trace, "ranges", "domain") == ["NCCL", "DALI"]
    assert texts(trace, "ranges", "category") == ["library work", ""]


def test_a_domain_without_declaration_goes_by_its_number_or_its_library(read) -> None:
    export = NsysExport()
    export.range("ncclAllReduce", 10, 20, domain=1)
    export.range("decode", 30, 40, domain=2)
    assert texts(read(export), "ranges", "domain") == ["NCCL", "domain 2"]


def test_mpi_calls_are_ranges_as_they_were_in_older_exports(read) -> None:
    export = NsysExport()
    tid = global_id(100, 7)
    export.add("MPI_COLLECTIVES_EVENTS", start=10, end=20, globalTid=tid, textId=export.string("MPI_Allreduce"))
    trace = read(export)
    assert texts(trace, "ranges") == ["MPI_Allreduce"]
    assert texts(trace, "ranges", "domain") == ["MPI"]


def test_operators_that_pytorch_marks(read) -> None:
    export = NsysExport()
    export.range("step 3, op_id = none", 0, 100)
    export.range("aten::mm, seq = 12, op_id = 7, sizes = [[2, 3], [3, 4]], input_op_ids = [(1,0)]", 10, 20)
    export.range("MmBackward0, op_id = 9", 30, 40, thread=8)
    trace = read(export)
    assert texts(trace, "host_ops") == ["aten::mm", "MmBackward0"]
    assert column(trace, "host_ops", "op") == [7, 9]
    assert column(trace, "host_ops", "sequence") == [12, -1]
    assert texts(trace, "host_ops", "shapes") == ["[[2, 3], [3, 4]]", ""]
    assert column(trace, "host_ops", "thread") == [7, 8]
    assert len(trace.table("ranges")) == 3
    assert trace.capture.shapes is True


def test_graphs_traced_as_a_whole(read) -> None:
    export = NsysExport()
    launch = export.call("cudaGraphLaunch_v10000", 5, 8)
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": launch, "globalPid": global_id(100)}
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=10, end=90, graphId=3, graphExecId=4, **place)
    export.metadata("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph")
    trace = read(export)
    assert column(trace, "graph_executions", "graph") == [3]
    assert column(trace, "graph_executions", "correlation") == [launch]
    assert trace.capture.graph_nodes is False
    assert codes(trace) == ["graph-kernels-not-recorded"]


def test_kernels_of_graph_nodes_share_the_correlation_of_their_launch(read) -> None:
    export = NsysExport()
    launch = export.call("cudaGraphLaunch_v10000", 5, 8)
    for node in range(3):
        export.kernel("k", 10 + node, 11 + node, correlation=launch, graphNodeId=2 << 32 | node)
    export.metadata("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node")
    trace = read(export)
    assert column(trace, "kernels", "graph_node") == [2 << 32, 2 << 32 | 1, 2 << 32 | 2]
    assert column(trace, "kernels", "correlation") == [launch] * 3
    assert trace.capture.graph_nodes is True
    assert codes(trace) == []


def test_driver_memory(read) -> None:
    export = NsysExport()
    for start, operation, kind in ((10, 0, 2), (20, 1, 2), (30, 0, 1), (40, 7, 2)):
        export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=start, globalPid=global_id(100), deviceId=1, contextId=1, address=4096,
                   bytes=100, memKind=kind, memoryOperationType=operation)  # fmt: skip
    trace = read(export)
    assert column(trace, "memory_events", "bytes") == [100, -100, 100]
    assert column(trace, "memory_events", "device") == [1, 1, -1]  # pinned memory is the host's
    assert column(trace, "memory_events", "source") == [MemorySource.DRIVER] * 3
    assert trace.capture.memory is True


def test_overheads_have_one_spelling(export: NsysExport, read) -> None:
    tid = global_id(100, 7)
    export.kernel("k", 1, 2)
    for start, name, kind in (
        (10, "CUPTI: Buffer flush", 0),
        (20, "CUPTI Buffer flush", 3),
        (30, "dlopen(x)", 0),
        (40, "Unknown", 8),
    ):
        export.add("PROFILER_OVERHEAD", start=start, end=start + 5, globalTid=tid, nameId=export.string(name), overheadType=kind)
    trace = read(export)
    last = "Command Buffer Full" if export.generation >= "2025.5" else "Unknown"
    assert texts(trace, "overheads") == ["Buffer Flush", "Buffer Flush", "dlopen(x)", last]
    assert column(trace, "overheads", "thread") == [7] * 4


def test_gpu_metrics(read) -> None:
    export = NsysExport()
    export.gpu(id=1, cuDevice=0)
    export.gpu(id=0, cuDevice=1)
    kind = 1 << 48 | 1 << 32 | 1  # the last byte is the profiler's number of the GPU
    for metric, name in ((4, "SM Active"), (9, "Tensor Active")):
        export.add("TARGET_INFO_GPU_METRICS", typeId=kind, sourceId=1, typeName="", metricId=metric, metricName=name)
    for time, metric, value in ((-50, 4, 1), (50, 4, 80), (50, 9, 30), (150, 77, 5)):
        export.add("GPU_METRICS", timestamp=time, typeId=kind, metricId=metric, value=value)
    trace = read(export)
    assert texts(trace, "hardware_metrics", "metric") == ["SM Active", "SM Active", "Tensor Active"]
    assert column(trace, "hardware_metrics", "value") == [1.0, 80.0, 30.0]
    assert column(trace, "hardware_metrics", "time") == [-50, 50, 50]
    assert column(trace, "hardware_metrics", "device") == [0, 0, 0]
    assert trace.capture.gpu_metrics is True


def test_gpu_metrics_as_json_of_older_exports(read) -> None:
    export = NsysExport("2022.4")
    export.add("GENERIC_EVENT_SOURCES", sourceId=8, data='{"Name": "GpuMetrics"}')
    export.add("GENERIC_EVENT_SOURCES", sourceId=9, data='{"Name": "Ftrace"}')
    export.add("GENERIC_EVENT_TYPES", typeId=256, sourceId=8, data="{}")
    export.add("GENERIC_EVENT_TYPES", typeId=257, sourceId=9, data="{}")
    export.add(
        "GENERIC_EVENTS", rawTimestamp=5, typeId=256, data='{"SM Active": "40", "GPC Clock Frequency": "1935000000", "x": null}'
    )
    export.add("GENERIC_EVENTS", rawTimestamp=6, typeId=257, data='{"prev_comm": "3"}')
    export.add("GENERIC_EVENTS", rawTimestamp=7, typeId=256, data="{not json")
    trace = read(export)
    assert texts(trace, "hardware_metrics", "metric") == ["SM Active", "GPC Clock Frequency"]
    assert column(trace, "hardware_metrics", "value") == [40.0, 1.935e9]
    assert column(trace, "hardware_metrics", "device") == [0, 0]
    assert not any("prev_comm" in text for text in trace.strings.values)


def test_missing_names_and_useless_rows(read) -> None:
    export = NsysExport()
    export.kernel("k", 10, 20, demangledName=9_999_999, shortName=9_999_998)
    export.kernel("k", 30, 40, demangledName=9_999_999, shortName=export.string("short"))
    export.kernel("backwards", 60, 50)
    export.kernel("without end", 70, None)  # type: ignore[arg-type]
    export.kernel("text where a number belongs", "soon", 90)  # type: ignore[arg-type]
    trace = read(export)
    assert texts(trace, "kernels") == ["(kernel without a recorded name)", "short"]
    assert codes(trace) == ["rows-skipped", "no-api-calls"]
    assert trace.notices[0].message.startswith("3 rows of CUPTI_ACTIVITY_KIND_KERNEL")


def test_times_before_the_start_stay_negative(read) -> None:
    export = NsysExport()
    export.range("early", -50, -20)
    export.kernel("k", 1, 2)
    assert column(read(export), "ranges", "start") == [-50]


def test_empty_tables_are_as_good_as_none(read) -> None:
    export = NsysExport(lazy=False)
    export.kernel("k", 1, 2)
    trace = read(export)
    assert len(trace.table("kernels")) == 1
    assert all(len(table) == 0 for name, table in trace.tables.items() if name != "kernels")


def test_a_table_of_a_later_exporter_is_read_by_its_base_name(read) -> None:
    export = NsysExport()
    export.range("step 0", 1, 2)
    trace = read(export, rename={"NVTX_EVENTS": "NVTX_EVENTS_V3"})
    assert texts(trace, "ranges") == ["step 0"]
    assert "renamed-table" in codes(trace)
