"""dataparallel-module: one process that drives several GPUs."""

from __future__ import annotations

import pytest

from build.judge import Verdict, judge
from build.workload import Workload

RULE = "dataparallel-module"


def loop(*, gpus: int = 2, layers: int = 50, layer_us: float = 40, gemm_us: float = 20, wrapped: bool = True) -> Workload:
    """Per step and GPU: a copy of each parameter, a layer of host work each, and a sum of its gradients on the first GPU."""
    w = Workload()
    for _ in w.steps(6):
        with w.op("DataParallel.forward" if wrapped else "forward"):
            for device in range(gpus):
                with w.op("Broadcast"):
                    for _ in range(layers):
                        w.host(10)
                        w.launch("ncclDevKernel_Broadcast_RING_LL(x)", 5, stream=20, device=device)
            for device in range(gpus):
                for _ in range(layers):
                    with w.op("aten::linear", us=layer_us):
                        w.launch("gemm", gemm_us, stream=7 + 100 * device, device=device)
        with w.op("ReduceAddCoalesced"):
            for device in range(gpus):
                for _ in range(layers):
                    w.host(10)
                    w.launch("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", 5, stream=20, device=device)
        with w.optimizer():
            for _ in range(10):
                w.host(20)
                w.launch("fused_adam_kernel", 20)
    return w


def verdict(w: Workload) -> Verdict:
    return judge(w.to_run(), RULE)


@pytest.mark.parametrize("gpus", [2, 4])
def test_each_gpu_gets_its_own_process(gpus: int) -> None:
    """Of the host work the distribution goes whole, of the layers one share stays, and the optimizer."""
    found = verdict(loop(gpus=gpus))
    finding, step = found.finding, found.report.step_ns or 1
    own, host = finding.facts["distribution_host_ns"], finding.facts["host_ns"]
    assert finding.facts["gpus"] == gpus and finding.scope["devices"] == list(range(gpus))
    assert finding.facts["busiest_compute_ns"] == pytest.approx(50 * 20_000 + 10 * 20_000, rel=0.05)
    layers = (host - own) * (1 - 1 / gpus)
    assert own + layers * 0.85 < found.part() * step < own + layers
    assert found.part("high") == pytest.approx(1 - finding.facts["busiest_compute_ns"] / step, abs=0.02)
    assert finding.title.startswith(f"nn.DataParallel drives {gpus} GPUs from one process: ")
    assert f"--nproc_per_node {gpus}" in finding.fixes[0].snippet
    parts = {row[0]: row[1:] for row in finding.evidence[0].rows}
    assert parts["copies of the parameters"][0] == gpus * 50
    assert parts["sum of the gradients"][2] == pytest.approx(gpus * 50 * 5000, rel=0.05)
    assert [row[0] for row in finding.evidence[1].rows] == list(range(gpus))


def test_busy_gpus_have_nothing_to_gain() -> None:
    """50 kernels of 400 us on each GPU at the same time hide all that the host does."""
    found = verdict(loop(gemm_us=400))
    assert found.outcome == "clean" and "worth at most" in found.reason


def test_one_gpu_is_only_wrapped() -> None:
    assert verdict(loop(gpus=1)).outcome == "clean"


def test_two_gpus_without_the_module_are_something_else() -> None:
    assert verdict(loop(wrapped=False)).outcome == "clean"


def test_cannot_judge_without_operators_and_ranges() -> None:
    w = Workload(tool="nsys")
    w.launch("gemm", 1000)
    assert verdict(w).outcome == "not-applicable"
