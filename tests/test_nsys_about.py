"""What an export says of its machine, its capture and itself, and what the reader says is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.ingest import nsys
from advisor.ingest.source import Source
from advisor.model import Table, Trace
from build.nsys import NsysExport, codes, column, global_id


@pytest.fixture
def read(tmp_path: Path):
    def _read(export: NsysExport) -> Trace:
        return nsys.read(Source(export.write(tmp_path / "report.sqlite")))

    return _read


def test_devices_follow_the_cuda_ordinal(read) -> None:
    export = NsysExport()
    export.gpu(id=0, cuDevice=1, name="second")
    export.gpu(id=1, cuDevice=0, name="first")
    export.kernel("k", 1, 2, device=0)
    (device,) = read(export).devices
    assert (device.index, device.name, device.process) == (0, "first", None)
    assert device.compute_capability == (8, 0)
    assert (device.sm_count, device.memory_bytes, device.memory_bandwidth) == (108, 80_000_000_000, 2e12)
    assert (device.max_clock, device.threads_per_sm, device.registers_per_sm) == (1410.0, 2048, 65_536)


def test_devices_of_several_processes(read) -> None:
    export = NsysExport("2025.5")
    export.gpu(id=0, cuDevice=0, name="A", uuid="a")
    export.gpu(id=1, cuDevice=1, name="B", uuid="b")
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=100)
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=200)
    export.kernel("k", 1, 2, device=0, process=100)
    export.kernel("k", 1, 2, device=0, process=200)
    assert [(d.process, d.index, d.name, d.uuid) for d in read(export).devices] == [(100, 0, "A", "a"), (200, 0, "B", "b")]


def test_gpus_that_the_export_does_not_tell_apart_share_what_they_have_in_common(read) -> None:
    export = NsysExport()
    export.gpu(id=0, uuid="a")
    export.gpu(id=1, uuid="b")  # each task of a cluster job sees its own GPU as device 0
    export.kernel("k", 1, 2)
    (device,) = read(export).devices
    assert (device.name, device.uuid) == ("NVIDIA Test GPU", None)


@pytest.mark.parametrize(
    ("memory", "bandwidth", "clock", "bytes_", "rate"),
    [(32_510, 0, 1_380_000, 32_510 << 20, None), (10_495_524_864, 760_080_000, 1_740_000, 10_495_524_864, 760.08e9)],
)
def test_units_of_the_oldest_device_table(read, memory: int, bandwidth: int, clock: int, bytes_: int, rate: float | None) -> None:
    export = NsysExport("2020")
    export.add("TARGET_INFO_CUDA_GPU", name="Old", globalMemorySize=memory, globalMemoryBandwidth=bandwidth, coreClockRate=clock,
               numMultiprocessors=80, computeCapabilityMajor=7, computeCapabilityMinor=0, deviceId=0, pid=100)  # fmt: skip
    export.kernel("k", 1, 2)
    (device,) = read(export).devices
    assert (device.name, device.memory_bytes, device.memory_bandwidth, device.max_clock) == ("Old", bytes_, rate, clock / 1000)


def test_clock_rank_and_environment(read) -> None:
    export = NsysExport()
    export.kernel("k", 1, 2)
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_123, utcTime="", localTime="")
    for entry in ("RANK=3", "WORLD_SIZE=8", "NCCL_ALGO=Ring", "AWS_SECRET=xyzzy", "HOME=/home/somebody", "OMP_NUM_THREADS=1=2"):
        export.metadata("PROCESS_0:ENVIRONMENT_VARIABLE", entry)
    export.metadata("PROCESS_0:COMMAND", "/home/somebody/train.py")
    export.metadata("CAPTURE_EVENT_TYPE", "Cuda")
    trace = read(export)
    assert trace.epoch_ns == 1_700_000_000_000_000_123
    assert (trace.rank, trace.world_size) == (3, 8)
    assert trace.environment == {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1=2"}
    assert (trace.capture.cuda, trace.capture.nvtx) == (True, False)
    assert "somebody" not in repr(trace) + repr(trace.strings.values)
    assert "xyzzy" not in repr(trace) + repr(trace.strings.values)


def test_a_launchers_rank_is_not_that_of_its_processes(read) -> None:
    export = NsysExport()
    export.metadata("PROCESS_0:ENVIRONMENT_VARIABLE", "RANK=0")
    export.kernel("k", 1, 2, process=100)
    export.kernel("k", 1, 2, process=200)
    assert read(export).rank is None


def test_mpi_ranks_go_into_the_rows(read) -> None:
    export = NsysExport()
    export.kernel("k", 1, 2, process=100)
    export.kernel("k", 3, 4, process=200)
    export.kernel("k", 5, 6, process=300)
    export.add("MPI_RANKS", globalTid=global_id(100, 5), rank=1)
    export.add("MPI_RANKS", globalTid=global_id(200, 6), rank=0)
    trace = read(export)
    assert trace.rank is None
    assert column(trace, "kernels", "rank") == [1, 0, -1]


def a_linked_kernel(export: NsysExport, start: int) -> None:
    export.kernel("k", start + 5, start + 9, correlation=export.call("cudaLaunchKernel_v7000", start, start + 2))


def test_warnings_count_where_something_is_missing(read) -> None:
    export = NsysExport()
    for start in range(0, 1000, 10):
        a_linked_kernel(export, start)
    private = "Installed CUDA driver version (13.0) is not supported by this build. See /home/somebody/x"
    for severity, text in (
        (2, "Not all CUDA events might have been collected."),
        (2, private),
        (2, private),
        (2, "cuDNN symbols"),
    ):
        export.add("DIAGNOSTIC_EVENT", timestamp=0, timestampType=1, source=1, severity=severity, text=text)
    trace = read(export)
    assert codes(trace) == []  # every healthy capture has these warnings
    assert trace.facts == {"cuda_driver_version": "13.0"}
    for start in range(1000, 1100, 10):
        export.call("cuLaunchKernelEx", start, start + 2, event_class=1)
    trace = read(export)
    assert codes(trace) == ["cuda-events-may-be-missing", "driver-newer-than-profiler", "launches-without-kernels"]
    assert "somebody" not in repr(trace.notices)
    assert trace.notices[2].message.startswith("10 of 110 kernel launches have no kernel")


def test_diagnostics_below_a_warning_are_not_repeated(read) -> None:
    export = NsysExport()
    export.kernel("k", 1, 2)
    export.add("DIAGNOSTIC_EVENT", timestamp=0, timestampType=1, source=1, severity=1, text="12 events were lost")
    assert codes(read(export)) == ["no-api-calls"]
    export.add("DIAGNOSTIC_EVENT", timestamp=0, timestampType=1, source=1, severity=3, text="12 events were lost")
    export.add("DIAGNOSTIC_EVENT", timestamp=0, timestampType=1, source=3, severity=3, text="3 were lost (including Perf: 3)")
    assert codes(read(export)) == ["events-lost", "no-api-calls"]


def test_kernels_of_a_window_without_their_launches(read) -> None:
    export = NsysExport()
    for start in range(0, 1000, 10):
        a_linked_kernel(export, start)
    for start in range(2000, 2100, 10):
        export.kernel("k", start, start + 1)
    trace = read(export)
    assert codes(trace) == ["kernels-without-launch"]
    assert trace.notices[0].message.startswith("10 of 110 kernels have no launch call")


def test_launches_without_any_gpu_row(read) -> None:
    export = NsysExport()
    export.call("cudaLaunchKernel_v7000", 1, 2)
    trace = read(export)
    assert codes(trace) == ["no-gpu-work"]
    assert trace.notices[0].message.startswith("1 kernel launches but no GPU work")


def test_graph_launches_without_any_gpu_row(read) -> None:
    export = NsysExport()
    export.kernel("k", 10, 20, correlation=export.call("cudaLaunchKernel_v7000", 1, 2))
    export.call("cudaGraphLaunch_v10000", 30, 40)
    assert codes(read(export)) == ["graph-work-not-recorded"]


def test_launches_into_a_graph_are_no_lost_kernels(read) -> None:
    export = NsysExport()
    export.kernel("k", 10, 20, correlation=export.call("cudaLaunchKernel_v7000", 1, 2))
    export.call("cudaStreamBeginCapture_v10000", 30, 31)
    for start in range(32, 60, 2):
        export.call("cudaLaunchKernel_v7000", start, start + 1)
    export.call("cudaStreamEndCapture_v10000", 60, 61)
    assert codes(read(export)) == []
    for start in range(70, 90, 2):
        export.call("cudaLaunchKernel_v7000", start, start + 1)
    trace = read(export)
    assert codes(trace) == ["launches-without-kernels"]
    assert trace.notices[0].message.startswith("10 of 11 kernel launches")


def test_host_rows_without_gpu_work_make_a_report(read) -> None:
    export = NsysExport()
    export.range("step 0", 1, 2)
    assert codes(read(export)) == ["no-gpu-work"]
    export.metadata("CAPTURE_EVENT_TYPE", "Cuda")
    trace = read(export)
    assert codes(trace) == ["no-cuda-rows"]
    assert isinstance(trace.table("kernels"), Table)
