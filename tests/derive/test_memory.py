"""What the caching allocator held, and driver allocations in steady steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.derive.memory import allocator_use, driver_allocations
from advisor.derive.profiler_cost import LAUNCH
from advisor.model import MemorySource, Run
from build.workload import H200, Rank, Workload

MIB = 1 << 20


def event(rank: Rank, allocated: int, reserved: int, device: int = 0, **columns: int) -> None:
    """The allocator's totals, MiB."""
    rank.row(
        "memory_events", time=rank.now, device=device, bytes=1, source=int(MemorySource.FRAMEWORK), **columns,
        allocated=allocated * MIB, reserved=reserved * MIB,
    )  # fmt: skip


def test_peaks_are_the_recorded_totals() -> None:
    w = Workload(closing_sync=False)
    for allocated, reserved in ((10, 20), (300, 400), (380, 400), (90, 400), (50, 60)):
        event(w, allocated, reserved)
    (use,) = allocator_use(w.to_run())
    assert (use.rank, use.device, use.events) == (-1, 0, 5)
    assert (use.peak_allocated, use.peak_reserved) == (380 * MIB, 400 * MIB)
    # Of the moments with most reserved the fullest counts: what was free then was never needed.
    assert use.unused_at_peak == 20 * MIB
    assert use.capacity == H200.memory_bytes
    assert use.growth_per_step is None


def test_the_most_allocated_need_not_be_at_the_most_reserved() -> None:
    w = Workload(closing_sync=False)
    event(w, 390, 395)
    event(w, 100, 400)
    (use,) = allocator_use(w.to_run())
    assert (use.peak_allocated, use.unused_at_peak) == (390 * MIB, 300 * MIB)


def test_host_memory_driver_events_and_events_without_totals_do_not_count() -> None:
    w = Workload(closing_sync=False)
    event(w, 900, 900, device=-1)
    event(w, 900, 900)
    w.rows["memory_events"][-1]["source"] = int(MemorySource.DRIVER)
    w.row("memory_events", time=w.now, device=0, bytes=5, source=int(MemorySource.FRAMEWORK))
    assert allocator_use(w.to_run()) == []
    assert allocator_use(Run()) == []


def test_each_rank_process_and_device_has_its_own() -> None:
    w = Workload(ranks=2, closing_sync=False)
    w.device = replace(H200, memory_bytes=1000)
    for rank in w.ranks:
        event(rank, 10 + rank.number, 20)
    event(w, 5, 7, device=1)
    found = allocator_use(w.to_run())
    assert [(use.rank, use.device, use.peak_allocated // MIB) for use in found] == [(0, 0, 10), (0, 1, 5), (1, 0, 11)]
    assert [use.capacity for use in found] == [1000, None, H200.memory_bytes]
    unknown = Workload(closing_sync=False)
    event(unknown, 10, 20)
    event(unknown, 70, 80, process=2000)
    assert [use.peak_reserved // MIB for use in allocator_use(unknown.to_run())] == [20, 80]


@pytest.mark.parametrize("count", [3, 5])
def test_growth_is_the_slope_over_step_ends(count: int) -> None:
    w = Workload(closing_sync=False)
    for number in w.steps(count):
        w.launch("gemm", 10)
        event(w, 500, 1000)  # a peak inside the step
        event(w, 100 + 8 * number, 1000)
        w.host(100)
    (use,) = allocator_use(w.to_run())
    assert use.growth_per_step == pytest.approx(8 * MIB)


def test_two_steps_show_no_growth() -> None:
    w = Workload(closing_sync=False)
    for number in w.steps(2):
        w.launch("gemm", 10)
        event(w, 100 + 8 * number, 1000)
    (use,) = allocator_use(w.to_run())
    assert use.growth_per_step is None


def test_driver_allocations_per_steady_step() -> None:
    w = Workload()
    for number in w.steps(5):
        w.launch("gemm", 400, us=4)
        w.call("cudaFree", 300)
        for _ in range(3 if number else 50):
            w.call("cudaMalloc", 100)
        w.host(1000)
    run = w.to_run()
    (found,) = driver_allocations(run)
    # A fifty of the first step fill the cache and do not count.
    assert (found.rank, found.process, found.mallocs, found.frees) == (-1, 1000, 3.0, 1.0)
    assert found.wait_ns == 299_000  # the kernel starts 1 us after the release began to wait
    overhead = 4_000 * LAUNCH
    assert found.own_ns == pytest.approx(3 * (100_000 - overhead) + 1_000 * (1 - LAUNCH), abs=4)
    names = {run.strings[int(code)] for code in run.table("runtime_calls")["name"][found.calls]}
    assert names == {"cudaMalloc", "cudaFree"} and len(found.calls) == 4 * 4


def test_a_runtime_call_and_the_drivers_inside_are_one_allocation() -> None:
    w = Workload()
    for _ in w.steps(3):
        w.launch("gemm", 10)
        w.call("cudaMalloc", 100)
        w.row("runtime_calls", name="cuMemAlloc", start=w.now - 90_000, end=w.now - 1_000, correlation=7)
    (found,) = driver_allocations(w.to_run())
    assert found.mallocs == 1.0


def test_allocations_on_other_threads_and_between_steps_do_not_count() -> None:
    w = Workload()
    for _ in w.steps(4):
        w.launch("gemm", 10)
        with w.thread(50, aside=True):
            w.call("cudaHostAlloc", 500)
    w.call("cudaMalloc", 100)
    assert driver_allocations(w.to_run()) == [] and driver_allocations(Run()) == []
