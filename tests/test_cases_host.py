"""Diagnosed cases, part 2: waits, launches, checkpoints and memory management of the host. Part 1 says how to read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from build.cases import GEMM, pointwise, told
from build.workload import A100, Workload

TOOLS = pytest.mark.parametrize("tool", ["torch", "nsys"])


@TOOLS
def test_the_loss_read_every_step(tmp_path: Path, tool: str) -> None:
    """A9: 45 ms in one cudaStreamSynchronize a step. Nobody measured the gain: it is no more than refilling the queue, 5 ms."""
    w = Workload(tool=tool)
    for _ in w.steps(6):
        w.host(4000)
        for _ in range(40):
            with w.op("aten::mm", us=996):
                w.launch(GEMM, 2125)
        with w.frame("train.py(88): log"):
            w.item()
    case = told(w, tmp_path)
    assert case.rules == ["host-sync-in-step"]
    assert case.first.evidence[0].rows[0][3] == pytest.approx(45e6, rel=0.05)
    assert 4 / 90 < case.part() <= case.part(which="high") < 7 / 90
    assert case.first.fixes[0].id == "keep-on-device" and "one wait in 50 steps" in case.first.fixes[0].snippet
    if tool == "torch":
        assert [(place.file, place.line) for place in case.first.locations] == [("train.py", 88)]


@TOOLS
def test_a_synchronisation_after_each_step(tmp_path: Path, tool: str) -> None:
    """A12: an explicit wait for the device ends each step; without it training took 25 % less. Held within 2 points.

    10 ms of host work before the first of 30 ms of kernels is what such a wait lays bare.
    """
    w = Workload(tool=tool)
    for _ in w.steps(8):
        w.host(10_000)
        for _ in range(30):
            with w.op("aten::mm", us=26):
                w.launch(GEMM, 1000)
        w.sync("device")
    case = told(w, tmp_path)
    assert case.first.rule == "device-synchronize-in-step" and case.first.fixes[0].id == "remove"
    assert case.part() == pytest.approx(0.25, abs=0.02)
    assert case.combined == pytest.approx(0.25, abs=0.02)  # whatever else is said of these 10 ms is not added


def frame_of(kernels: int, read_back: bool, tool: str) -> Workload:
    """Small kernels that the host issues in 53.7 ms a step and the GPU runs in 7.3 ms; one in three is a product."""
    names = [GEMM, pointwise("CUDAFunctor_add<c10::BFloat16>"), pointwise("GeluCUDAKernelImpl(at::TensorIteratorBase&)")]
    ops = ["aten::addmm", "aten::add", "aten::gelu"]
    w = Workload(tool=tool)
    for _ in w.steps(4):
        for i in range(kernels):
            with w.op(ops[i % 3], us=53_700 / kernels - 4):
                w.launch(names[i % 3], 7300 / kernels)
        if read_back:
            w.item()
    return w


@pytest.mark.parametrize(("tool", "read_back"), [("torch", False), ("torch", True), ("nsys", True)])
def test_a_launch_bound_frame(tmp_path: Path, tool: str, read_back: bool) -> None:
    """A15: 1,185 launches in 53.7 ms; graphs made it 12.0 ms, 78 %. How much issuing a graph leaves is unknown: within 8 points.

    With or without a read-back: it is not the waits.
    """
    case = told(frame_of(1185, read_back, tool), tmp_path)
    assert case.first.rule == "launch-bound" and "host-sync-in-step" not in case.rules
    assert case.part() == pytest.approx(1 - 12.0 / 53.7, abs=0.08)
    assert case.part(which="low") < 1 - 12.0 / 53.7 < case.part(which="high")
    assert case.part(which="high") < 1 - 7.3 / 53.7 + 0.01  # the GPU's work stays
    assert [fix.id for fix in case.first.fixes[:2]] == ["compile", "cuda-graphs"]


@TOOLS
def test_a_checkpoint_that_blocks(tmp_path: Path, tool: str) -> None:
    """A31: training stops for 27.3 s at each checkpoint, 0.54 s when saved asynchronously. One in four steps of 1 s here.

    The saving of a whole stall is what 27.3 s are of five such steps; 0.54 s and the bound's limits allow 3 points.
    """
    w = Workload(tool=tool)
    for number in w.steps(12):
        for _ in range(40):
            with w.op("aten::mm", us=500):
                w.launch(GEMM, 25_000)
        if number in (3, 7):
            for _ in range(40):
                with w.op("aten::copy_"):
                    w.copy("DtoH", 50_000_000, 4000, target="pageable")
            w.host(27_140_000)
    case = told(w, tmp_path)
    assert case.rules == ["checkpoint-stall"]
    assert case.first.title == "A checkpoint stops training for 27 s every 4 steps"
    saved = 27.3 - 0.54
    assert case.part() == pytest.approx(2 * saved / (11 * 1.0 + 2 * 27.3), abs=0.03)
    assert case.first.fixes[0].id == "async-save"


def test_a_cache_emptied_after_a_collection(tmp_path: Path) -> None:
    """A33: steps of 432 ms; 260 without the collection, 180 without emptying the cache as well.

    Both are named, the larger first; each saving and their sum within 3 points. The 180 ms are the host's, as the collection
    would hide behind a busy GPU.
    """
    w = Workload(device=A100)
    for _ in w.steps(6):
        for _ in range(300):
            with w.op("aten::linear", us=596):
                w.launch("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", 400)
        with w.frame("train.py(90): train"), w.frame("<built-in function collect>"):
            w.host(172_000)
        with w.frame("train.py(91): train"), w.frame("torch/cuda/memory.py(210): empty_cache"):
            for _ in range(40):
                w.call("cudaFree", 1000)
        with w.frame("train.py(60): forward"):
            for _ in range(40):
                w.call("cudaMalloc", 1000)
    case = told(w, tmp_path)
    assert case.report.step_ns == pytest.approx(432e6, rel=0.01)
    assert case.rules[:2] == ["garbage-collection-pause", "cuda-malloc-in-step"]
    collection, cache = case.report.findings[:2]
    assert case.part(collection) == pytest.approx((108 - 65) / 108, abs=0.03)
    assert case.part(cache) == pytest.approx((65 - 45) / 108, abs=0.03)
    assert case.combined == pytest.approx((108 - 45) / 108, abs=0.03)
    assert collection.fixes[0].id == "collect-seldom" and cache.fixes[0].id == "no-empty-cache"


@TOOLS
def test_a_read_back_beside_a_slow_host(tmp_path: Path, tool: str) -> None:
    """N1: 17 ms of host work and 0.1 ms on the GPU. Removing the read won 1.04 x, not the 85 % that the idle GPU suggests."""
    w = Workload(tool=tool)
    for _ in w.steps(8):
        for _ in range(100):
            with w.op("aten::mul", us=166):
                w.launch(pointwise("MulFunctor<float>"), 1)
        w.item()
    case = told(w, tmp_path)
    waiting = [f for f in case.report.findings if "sync" in f.rule]
    assert all(case.part(finding, "high") <= 0.04 for finding in waiting)
    assert ".item()" not in case.first.fixes[0].snippet and case.first.rule == "launch-bound"


@TOOLS
def test_the_closing_synchronisation(tmp_path: Path, tool: str) -> None:
    """N5: 26 us of GPU work, then 1.78 ms in cudaDeviceSynchronize: the profiler's. What the GPU waits for are launches."""
    w = Workload(tool=tool, closing_sync=False)
    for number in range(13):
        with w.op("aten::add", us=50):
            w.launch(f"add_{number}", 2)
    w.sync("device", us=1780)
    case = told(w, tmp_path)
    assert case.rules == [] and "synchroni" not in case.words()
    (part,) = case.report.breakdown
    assert part.step_ns < 1_000_000  # the wait is no part of what is judged
    assert part.idle_by_cause["host-sync"] < 0.01 * part.idle_ns
    if tool == "torch":
        assert part.idle_by_cause["launch"] > 0.99 * part.idle_ns


@TOOLS
@pytest.mark.parametrize("waits", [True, False])
def test_graphs_whose_kernels_were_not_recorded(tmp_path: Path, tool: str, waits: bool) -> None:
    """N15: 63 ms of kernels in a span of 7,242 ms, the rest in graphs that left no rows. Nothing says that the GPU was idle."""
    w = Workload(tool=tool)
    for _ in w.steps(7):
        for _ in range(20):
            with w.op("graph"):
                w.call("cudaGraphLaunch", 20)
            if waits:
                w.call("cudaStreamSynchronize", 51_000)
            else:
                for _ in range(50):
                    w.leaf("aten::view", 1020)
        for _ in range(60):
            with w.op("aten::add", us=30):
                w.launch("sample_kernel", 150)
    case = told(w, tmp_path)
    assert case.rules == [] and case.combined == 0
    quality = case.of("capture-quality")
    assert quality.title.startswith("the GPU work of CUDA graphs was not recorded, lost launches: 140")
    for rule in ("idle-gpu", "launch-bound", "host-sync-in-step"):
        assert case.outcome(rule) == "not-applicable"
