"""What CUDA and HIP calls do, and which call launched which GPU work."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.derive.calls import CallKind, call_kind, call_kinds, is_kind, links
from advisor.derive.gpus import COPY, GRAPH, KERNEL, Gpu, device_of, gpu_work, is_memset, main_device, work_by_row
from advisor.model import Device, Run
from build.workload import Rank, Workload

K = CallKind
NAMES = {
    K.LAUNCH: """
        cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx
        cuLaunchCooperativeKernel cudaLaunch hipLaunchKernel hipModuleLaunchKernel hipExtModuleLaunchKernel
        hipExtLaunchKernel hipLaunchCooperativeKernel hipModuleLaunchCooperativeKernel hipLaunchKernelExC
        hipHccModuleLaunchKernel hipLaunchByPtr hipExtLaunchMultiKernelMultiDevice cuLaunchGridAsync cuLaunch
    """,
    K.GRAPH_LAUNCH: "cudaGraphLaunch cuGraphLaunch hipGraphLaunch",
    K.COPY: """
        cudaMemcpyAsync cudaMemcpy cuMemcpyHtoDAsync cudaMemcpy2DAsync cudaMemcpyPeerAsync hipMemcpyWithStream
        cudaMemcpyToSymbolAsync cuMemcpyDtoH hipMemcpyDtoDAsync
    """,
    K.MEMSET: "cudaMemsetAsync cuMemsetD32Async hipMemsetAsync cudaMemset cuMemsetD8",
    K.SYNC_DEVICE: "cudaDeviceSynchronize cuCtxSynchronize hipDeviceSynchronize cudaThreadSynchronize",
    K.SYNC_STREAM: "cudaStreamSynchronize cuStreamSynchronize hipStreamSynchronize",
    K.SYNC_EVENT: "cudaEventSynchronize cuEventSynchronize hipEventSynchronize",
    K.MALLOC: """
        cudaMalloc cudaMallocAsync cudaMallocManaged cudaMallocPitch cuMemAlloc cuMemAllocAsync cuMemCreate cuMemMap
        cuMemSetAccess cudaMallocFromPoolAsync hipMalloc hipExtMallocWithFlags hipMemCreate cudaMallocHost cudaHostAlloc
        cudaHostRegister cuMemHostAlloc cuMemAllocHost cuMemHostRegister hipHostMalloc hipHostRegister
    """,
    K.FREE: """
        cudaFree cudaFreeAsync cuMemFree cuMemFreeAsync cuMemRelease cuMemUnmap hipFree hipFreeAsync cudaFreeHost
        cudaHostUnregister cuMemFreeHost cuMemHostUnregister hipHostFree hipHostUnregister
    """,
    K.EVENT: "cudaEventRecord cudaEventRecordWithFlags cuEventCreate hipEventRecord cudaEventDestroy",
    K.WAIT_EVENT: "cudaStreamWaitEvent cuStreamWaitEvent hipStreamWaitEvent",
    K.MODULE: """
        cuModuleLoadData cuModuleLoadDataEx cuLibraryLoadData cuModuleGetFunction hipModuleLoadData cuLinkAddData
    """,
    K.TRIVIAL: """
        cudaGetLastError cudaPeekAtLastError cudaStreamIsCapturing cudaEventQuery hipEventQuery cudaGetDevice cudaSetDevice
        hipGetDevice __hipPushCallConfiguration cudaGetFuncBySymbol cudaThreadExchangeStreamCaptureMode INVALID
        cuGetProcAddress cudaFuncGetAttributes cudaDeviceGetAttribute cudaStreamGetCaptureInfo
        cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuCtxSetCurrent
    """,
    K.OTHER: """
        cudaGetDeviceProperties cudaStreamCreateWithPriority cudaGraphInstantiate cuInit cudaProfilerStop
        cudaMemPrefetchAsync
    """,
}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for kind, names in NAMES.items() for name in names.split()])
def test_kinds(name: str, kind: CallKind) -> None:
    assert call_kind(name) == kind


def test_no_name_is_of_no_kind() -> None:
    assert call_kind("") == K.OTHER


def test_kinds_of_rows() -> None:
    w = Workload(closing_sync=False)
    w.launch("gemm")
    w.call("cudaMalloc")
    w.launch("gemm")
    run = w.to_run()
    assert call_kinds(run).tolist() == [K.LAUNCH, K.MALLOC, K.LAUNCH]
    assert is_kind(run, K.MALLOC, K.FREE).tolist() == [False, True, False]
    assert len(call_kinds(Run())) == 0


def linked(run: Run) -> dict[str, list[str]]:
    """For each name of a call: the names of the kernels that it launched, in their order."""
    work, link, calls, kernels = gpu_work(run), links(run), run.table("runtime_calls"), run.table("kernels")
    result: dict[str, list[str]] = {}
    for place, call in enumerate(link.call.tolist()):
        if work.source[place] == KERNEL:
            name = run.strings[int(calls["name"][call])] if call >= 0 else "lost"
            result.setdefault(name, []).append(run.strings[int(kernels["name"][work.row[place]])])
    return result


def test_the_same_correlation_in_two_ranks_is_not_the_same_launch() -> None:
    w = Workload(ranks=2, closing_sync=False)
    for rank in w.ranks:
        rank.host(30 * rank.number)
        rank.launch(f"kernel_{rank.number}", api=f"cuLaunchKernel{rank.number}")
    run = w.to_run()
    assert run.table("kernels")["correlation"].tolist() == [1, 1]
    assert linked(run) == {"cuLaunchKernel0": ["kernel_0"], "cuLaunchKernel1": ["kernel_1"]}


def test_the_same_correlation_in_two_processes_of_one_recording() -> None:
    w = Workload(closing_sync=False)
    other = Rank(-1, "nsys", w.device, 40)
    other.process = other.current_thread = 2000
    w.launch("first", api="cuLaunchKernel1")
    other.launch("second", api="cuLaunchKernel2")
    w.ranks.append(other)
    run = w.to_run()
    assert linked(run) == {"cuLaunchKernel1": ["first"], "cuLaunchKernel2": ["second"]}
    assert gpu_work(run).gpus == [Gpu(-1, 1000, 0), Gpu(-1, 2000, 0)]


def test_one_graph_launch_has_hundreds_of_kernels() -> None:
    w = Workload(closing_sync=False)
    w.launch("before")
    w.graph([(f"node_{i}", 2) for i in range(300)])
    run = w.to_run()
    link, work = links(run), gpu_work(run)
    assert link.count.tolist() == [1, 300]
    assert len(linked(run)["cudaGraphLaunch"]) == 300
    last = run.table("kernels")["name"][work.row[link.last_work[1]]]
    assert run.strings[int(last)] == "node_299"


def test_a_graph_recorded_as_a_whole() -> None:
    w = Workload(closing_sync=False)
    number = w.call("cudaGraphLaunch", 10)
    w.row("graph_executions", start=w.now + 1000, end=w.now + 900_000, device=0, stream=7, correlation=number, graph=3)
    run = w.to_run()
    work, link = gpu_work(run), links(run)
    assert work.source.tolist() == [GRAPH] and link.call.tolist() == [0] and link.count.tolist() == [1]


def test_kernels_without_a_launch_and_launches_without_a_kernel() -> None:
    w = Workload(closing_sync=False)
    w.launch("first")
    w.launch("second")
    w.launch("third")
    del w.rows["runtime_calls"][0]
    del w.rows["kernels"][1]
    run = w.to_run()
    link = links(run)
    assert link.call.tolist() == [-1, 1]
    assert link.count.tolist() == [0, 1] and link.last_work.tolist() == [-1, 1]


def test_operations_without_a_correlation_are_linked_to_nothing() -> None:
    w = Workload(closing_sync=False)
    w.launch("first")
    w.call("cudaMalloc")
    w.rows["kernels"][0]["correlation"] = -1
    w.rows["runtime_calls"][1]["correlation"] = -1
    assert links(w.to_run()).call.tolist() == [-1]


def test_a_call_inside_another_does_not_take_its_work() -> None:
    """The driver's call inside the runtime's carries its correlation in some recordings: the outer one launched."""
    w = Workload(closing_sync=False)
    work = w.launch("gemm", us=10)
    w.row("runtime_calls", name="cuLaunchKernel", start=w.now - 8000, end=w.now - 1000, correlation=work.correlation)
    assert linked(w.to_run()) == {"cudaLaunchKernel": ["gemm"]}


def test_waits_and_records_are_no_launches_of_what_shares_their_correlation() -> None:
    w = Workload(closing_sync=False)
    w.call("cudaStreamSynchronize")
    w.call("cudaEventRecord")
    w.launch("gemm")
    for row in w.rows["runtime_calls"] + w.rows["kernels"]:
        row["correlation"] = 9
    assert linked(w.to_run()) == {"cudaLaunchKernel": ["gemm"]}


def test_copies_and_memsets_are_work_too() -> None:
    w = Workload(closing_sync=False)
    w.copy("HtoD", 1000, 10)
    w.memset(1000, 10)
    w.launch("gemm", 10)
    work, link = gpu_work(w.to_run()), links(w.to_run())
    assert work.source.tolist() == [COPY, COPY, KERNEL] and link.call.tolist() == [0, 1, 2]
    assert is_memset(w.to_run()).tolist() == [False, True]
    assert work_by_row(work, COPY, 2).tolist() == [0, 1] and work_by_row(work, KERNEL, 1).tolist() == [2]


def test_the_delay_of_a_launch() -> None:
    w = Workload(closing_sync=False)
    w.launch("gemm", 100)
    w.launch("gemm", 100)
    del w.rows["runtime_calls"][0]
    run = w.to_run()
    work, call = gpu_work(run), run.table("runtime_calls")
    # The second one waits for the first: 100 us less the 4 us of its own call.
    assert links(run).delay(work, call["start"]).tolist() == [-1, 101_000]


def test_work_comes_in_order_of_start_over_tables_and_ranks() -> None:
    w = Workload(ranks=2, closing_sync=False)
    w.launch("late", 10, start_us=500)
    w.ranks[1].copy("HtoD", 1, 10)
    w.ranks[1].launch("later", 10, start_us=900)
    run = w.to_run()
    work = gpu_work(run)
    assert np.all(np.diff(work.start) >= 0) and work.rank.tolist() == [1, 0, 1]
    assert [work.gpus[g].rank for g in work.gpu] == [1, 0, 1]
    assert work.of(0).tolist() == [1]
    assert [edge.tolist() for edge in work.busy(0)] == [[500_000], [510_000]]


def test_the_device_of_a_gpu() -> None:
    mine, other = Device(0, name="A", rank=0, process=1000), Device(0, name="B", rank=1, process=1001)
    run = Run(devices=[other, mine])
    assert device_of(run, Gpu(0, 1000, 0)) is mine and device_of(run, Gpu(1, 1001, 0)) is other
    assert device_of(run, Gpu(5, 9, 0)) is other  # the same ordinal is the best guess
    assert device_of(run, Gpu(0, 1000, 3)) is None
    assert device_of(Run(devices=[mine]), Gpu(-1, -1, 3)) is mine
    assert main_device(Run(devices=[mine])) is mine and main_device(Run()) is None


def test_the_main_device_did_most() -> None:
    w = Workload(closing_sync=False)
    w.launch("gemm", 10, device=0)
    w.launch("gemm", 500, device=1, stream=8)
    run = w.to_run()
    run.devices = [Device(0, name="idle one"), Device(1, name="busy one")]
    found = main_device(run)
    assert found is not None and found.name == "busy one"
