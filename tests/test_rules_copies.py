"""unoverlapped-copy and tensor-made-on-host."""

from __future__ import annotations

import pytest

from build.judge import judge
from build.workload import Workload

ALONE, MADE, PAGEABLE = "unoverlapped-copy", "tensor-made-on-host", "pageable-copy"


def batches(
    copy_us: float = 2000, *, stream: int = 7, source: str = "pinned", direction: str = "HtoD", size: int = 1 << 27
) -> Workload:
    """Each step: a copy, then 8 ms of kernels behind 1 ms of launching."""
    w = Workload()
    for _ in w.steps(6):
        with w.op("aten::copy_"):
            w.copy(direction, size, copy_us, stream=stream, source=source if direction == "HtoD" else None)
        for _ in range(8):
            with w.op("aten::mm", us=120):
                w.launch("gemm", gpu_us=1000)
    return w


def test_a_copy_on_the_stream_of_the_kernels() -> None:
    found = judge(batches().to_run(), ALONE)
    assert found.part() == pytest.approx(0.2, abs=0.02)
    assert found.finding.facts["exposed_ns"] == pytest.approx(2e6, rel=0.02)
    assert found.finding.facts["on_compute_stream_frac"] == 1
    assert found.finding.title.startswith("134 MB a step copied to the GPU on the stream of the kernels: 2.0 ms")
    assert [fix.id for fix in found.finding.fixes] == ["prefetch", "lightning"]
    row = dict(zip(found.finding.evidence[0].columns, found.finding.evidence[0].rows[0], strict=True))
    assert row["size_bytes"] == 1 << 27 and row["copies_per_step"] == 1
    assert row["without_kernels_ns"] == pytest.approx(2e6, rel=0.02)


def test_results_to_the_host() -> None:
    found = judge(batches(direction="DtoH").to_run(), ALONE)
    assert [fix.id for fix in found.finding.fixes] == ["offload-aside"]


def test_a_copy_beside_the_kernels() -> None:
    w = batches(stream=9)
    # On a stream of its own the copy of the next batch runs beside the kernels of this one.
    assert judge(w.to_run(), ALONE).outcome == "clean"


def test_pageable_copies_have_their_own_rule() -> None:
    run = batches(source="pageable").to_run()
    assert judge(run, ALONE).outcome == "clean" and judge(run, PAGEABLE).outcome == "found"


@pytest.mark.parametrize(("copy_us", "outcome"), [(60, "clean"), (120, "found")])
def test_copies_below_one_percent_of_the_step(copy_us: float, outcome: str) -> None:
    assert judge(batches(copy_us).to_run(), ALONE).outcome == outcome


def test_small_copies_do_not_count() -> None:
    assert judge(batches(size=99_999).to_run(), ALONE).outcome == "clean"


def test_without_steps_nothing_is_said() -> None:
    w = Workload(tool="nsys")
    w.copy("HtoD", 1 << 27, 2000)
    w.launch("gemm", gpu_us=1000)
    assert judge(w.to_run(), ALONE).outcome == "not-applicable"


def positions(made: str | None = "aten::arange", *, size: int = 4096, count: int = 8, host_us: float = 100) -> Workload:
    """Each layer makes its positions on the CPU and copies them, for which the host waits, then runs a kernel."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(count):
            if made:
                w.leaf(made, 10)
            with w.frame("model.py(12): forward"), w.op("aten::to"), w.op("aten::_to_copy"), w.op("aten::copy_"):
                w.copy("HtoD", size, 2, source="pageable")
                w.sync()
            if made is None:
                w.leaf("aten::lift_fresh", 2)
            with w.op("aten::mm", us=host_us):
                w.launch("gemm", gpu_us=300)
    return w


@pytest.mark.parametrize(("made", "by"), [("aten::arange", "aten::arange"), (None, "torch.tensor")])
def test_tensors_made_on_the_cpu(made: str | None, by: str) -> None:
    found = judge(positions(made).to_run(), MADE)
    assert found.finding.facts["copies_per_step"] == 8 and found.finding.facts["made_by"] == by
    assert found.finding.evidence[0].rows == [[by, 8.0]]
    # Beside 300 us of kernel a layer, the host takes 130 us as recorded and 103 us without the profiler; they overlap then.
    assert found.part() == pytest.approx(103 / 403, abs=0.03)
    assert (found.finding.locations[0].file, found.finding.locations[0].line) == ("model.py", 12)
    assert found.finding.fixes[1].id == "make-once" and "8 copies a step" in found.finding.fixes[1].snippet


def test_batches_are_not_made_in_the_step() -> None:
    assert judge(positions("aten::detach").to_run(), MADE).outcome == "clean"


@pytest.mark.parametrize(("size", "outcome"), [(1_000_000, "found"), (1_000_001, "clean")])
def test_large_tensors_are_batches(size: int, outcome: str) -> None:
    assert judge(positions(size=size).to_run(), MADE).outcome == outcome


def test_tensors_of_a_factory_on_the_gpu() -> None:
    w = Workload()
    for _ in w.steps(6):
        with w.op("aten::arange", us=10):
            w.launch("elementwise_kernel_with_index", gpu_us=2)
        with w.op("aten::mm", us=100):
            w.launch("gemm", gpu_us=300)
        w.item()
    assert judge(w.to_run(), MADE).outcome == "clean"


def test_operators_are_needed() -> None:
    w = Workload(tool="nsys")
    for _ in w.steps(4):
        w.copy("HtoD", 4096, 2, source="pageable")
        w.launch("gemm", gpu_us=300)
    assert judge(w.to_run(), MADE).outcome == "not-applicable"


def test_copies_of_all_ranks() -> None:
    for rule, source, share in ((ALONE, "pinned", 0.2), (PAGEABLE, "pageable", 0.27)):
        w = Workload(ranks=2)
        for rank in w.ranks:
            for _ in rank.steps(6):
                with rank.op("aten::copy_"):
                    rank.copy("HtoD", 1 << 26, 2000, source=source)
                for _ in range(8):
                    with rank.op("aten::mm", us=120):
                        rank.launch("gemm", gpu_us=1000)
        assert judge(w.to_run(), rule).part() == pytest.approx(share, abs=0.08)
