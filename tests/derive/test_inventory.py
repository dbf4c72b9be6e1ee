"""What a run holds over the whole recording."""

from __future__ import annotations

from advisor.derive.inventory import GpuWork, devices, gpu_totals, step_source, table_counts
from advisor.model import Device, Run
from build.workload import H200, Rank, Workload


def test_totals_are_sums_and_unions() -> None:
    w = Workload(closing_sync=False)
    first = w.launch("gemm", 100, start_us=200)
    w.launch("gemm", 100, start_us=250, stream=9)
    w.now = 400_000
    last = w.copy("HtoD", 100, 50)
    w.launch("gemm", 7, start_us=500, device=1)
    run = w.to_run()
    one, two = gpu_totals(run)
    assert one == GpuWork(0, None, first.start, last.end, 200_000, 150_000, 200_000)
    assert (two.device, two.process, two.kernel_sum, two.busy) == (1, None, 7_000, 7_000)
    assert gpu_totals(Run()) == []


def test_the_same_ordinal_in_two_processes() -> None:
    w = Workload(closing_sync=False)
    other = Rank(-1, "nsys", w.device, 40)
    other.process = other.current_thread = 2000
    w.launch("gemm", 10)
    other.launch("gemm", 20)
    w.ranks.append(other)
    assert [(g.device, g.process, g.busy) for g in gpu_totals(w.to_run())] == [(0, 1000, 10_000), (0, 2000, 20_000)]


def test_counts() -> None:
    w = Workload(ranks=2)
    for _ in range(3):
        for rank in w.ranks:
            with rank.step(), rank.op("aten::mm"):
                rank.launch("gemm", 10)
        w.collective(gpu_us=10)
    run = w.to_run()
    counts = table_counts(run)
    assert (counts["kernels"], counts["collectives"], counts["steps"], counts["ranges"]) == (12, 6, 6, 6)
    assert counts["host_ops"] == 12 and counts["python_frames"] == 0
    assert step_source(run) == "profiler-step" and step_source(Run()) == "none"


def test_devices_that_worked_are_listed() -> None:
    w = Workload(closing_sync=False)
    w.launch("gemm", 10, device=3)
    run = w.to_run()
    assert [(d.index, d.name) for d in devices(run)] == [(0, H200.name), (3, None)]
    assert devices(Run(devices=[Device(1), Device(0)])) == [Device(0), Device(1)]
