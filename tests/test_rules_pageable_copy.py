"""pageable-copy: judged by exposed time, never by presence."""

from __future__ import annotations

import pytest

from advisor.model import MemoryKind
from build.judge import judge
from build.workload import Workload

RULE = "pageable-copy"
INPUT = 154_000_000


def loop(
    bytes: int = INPUT,
    source: str = "pageable",
    gpu_us: float = 50_000,
    *,
    copy_us: float | None = None,
    stream: int = 7,
    tool: str = "torch",
) -> Workload:
    """Each step: a batch to the GPU and a wait for it, then 50 kernels."""
    w = Workload(tool=tool)
    for _ in w.steps(5):
        with w.op("aten::to"), w.op("aten::copy_"):
            w.copy("HtoD", bytes, copy_us, source=source, stream=stream)
            if source == "pageable":
                w.sync(stream=stream)
        for _ in range(50):
            with w.op("aten::mm", us=100):
                w.launch("gemm", gpu_us=gpu_us / 50)
    return w


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_the_copy_leaves_the_step(tool: str) -> None:
    found = judge(loop(copy_us=20_500, tool=tool).to_run(), RULE)
    # 20.5 ms of copying and 50 ms of kernels take turns; beside each other 50 ms remain.
    assert found.part() == pytest.approx(20.5 / 70.5, abs=0.02)
    assert found.finding.title.startswith("154 MB a step copied from pageable memory to the GPU at 7.5 GB/s, 2")
    assert [fix.id for fix in found.finding.fixes] == ["pin-memory", "prefetch", "transformers"]
    columns = dict(zip(found.finding.evidence[0].columns, found.finding.evidence[0].rows[0], strict=True))
    assert columns["size_bytes"] == INPUT and columns["copies_per_step"] == 1
    assert columns["gpu_time_ns"] == 20_500_000 and columns["call_time_ns"] >= 20_500_000
    # PCIe 5 x16 moves 63 GB/s before headers.
    assert 50 < found.finding.facts["pinned_gb_per_s"] < 60


def test_pageable_input_that_cost_half_a_step_more() -> None:
    """375 ms a step from pinned memory, 565 ms from pageable memory."""
    found = judge(loop(bytes=2_000_000_000, copy_us=190_000, gpu_us=370_000).to_run(), RULE)
    assert found.part() == pytest.approx(1 - 375 / 565, abs=0.02)


def test_both_tools_see_the_same_saving() -> None:
    torch, nsys = (judge(loop(copy_us=20_500, tool=tool).to_run(), RULE).part() for tool in ("torch", "nsys"))
    assert torch == pytest.approx(nsys, abs=0.02)


def test_the_step_never_gets_shorter_than_its_bytes_take() -> None:
    found = judge(loop(bytes=2_000_000_000, gpu_us=10_000).to_run(), RULE)
    least = found.finding.facts["pinned_copy_ns"]
    assert least == pytest.approx(2e9 / (63e9 * 0.85) * 1e9, rel=0.02)
    assert found.report.step_ns - found.finding.saving.high_ns >= least - 20_000
    assert any("send less" in text for text in found.finding.caveats)


def test_presence_alone_is_no_finding() -> None:
    assert judge(loop(bytes=64_000).to_run(), RULE).outcome == "clean"
    assert judge(loop(source="pinned", copy_us=20_500).to_run(), RULE).outcome == "clean"


@pytest.mark.parametrize(("copy_us", "outcome"), [(400, "clean"), (700, "found")])
def test_threshold_of_one_percent(copy_us: float, outcome: str) -> None:
    assert judge(loop(copy_us=copy_us).to_run(), RULE).outcome == outcome


def test_a_copy_beside_kernels_costs_nothing() -> None:
    w = Workload()
    for _ in w.steps(5):
        for _ in range(50):
            w.launch("gemm", gpu_us=1000)
        with w.op("aten::copy_"):
            w.copy("HtoD", INPUT, 20_000, source="pageable", stream=9)
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_reading_back_has_its_own_way_out() -> None:
    w = Workload()
    for _ in w.steps(5):
        for _ in range(10):
            w.launch("gemm", gpu_us=1000)
        with w.op("aten::copy_"):
            w.copy("DtoH", 50_000_000, 8_000, target="pageable")
            w.sync()
    found = judge(w.to_run(), RULE)
    assert found.finding.title.startswith("50 MB a step copied from the GPU to pageable memory")
    assert [fix.id for fix in found.finding.fixes] == ["pinned-target"]
    # It stays in its place, only faster: 8 ms become about 1 ms.
    assert found.part() == pytest.approx(7.1 / 18, abs=0.03)


def test_a_checkpoint_now_and_then_is_not_judged_here() -> None:
    w = Workload()
    for number in w.steps(8):
        for _ in range(50):
            w.launch("gemm", gpu_us=200)
        if number == 5:
            for _ in range(20):
                w.copy("DtoH", 100_000_000, 8_000, target="pageable")
    assert judge(w.to_run(), RULE).outcome == "clean"


def test_cannot_judge_without_memory_kinds() -> None:
    w = loop(copy_us=20_500)
    for row in w.rows["copies"]:
        row["source"] = row["target"] = int(MemoryKind.UNKNOWN)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "pinned" in found.reason
