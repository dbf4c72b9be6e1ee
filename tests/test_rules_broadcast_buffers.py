"""broadcast-buffers: what DDP does with the module's buffers before every forward pass."""

from __future__ import annotations

import pytest

from build.judge import Verdict, judge
from build.parallel import all_steps, together
from build.workload import Workload

RULE = "broadcast-buffers"


def loop(
    *, buffers: int = 100, send: bool = True, copy_us: float = 8, gemm_us: float = 20, reduce_us: float = 10,
    inside: bool = True, before_us: float = 1000,
) -> Workload:  # fmt: skip
    """A pause, then in DDP's forward pass: flattening, a broadcast, a copy for each buffer, 50 layers."""
    w = Workload(ranks=2)

    def sending() -> None:
        for rank in w.ranks:
            with rank.op("aten::flatten_dense_tensors", us=100):
                rank.launch("CatArrayBatchedCopy", 3)
        w.collective("broadcast", 1 << 12, reduce_us, stream=7, kernel="ncclDevKernel_Broadcast_RING_LL(x)")
        for rank in w.ranks:
            for _ in range(buffers):
                with rank.op("aten::copy_", us=3):
                    rank.copy("DtoD", 256, 1.5, us=copy_us - 3)

    for _ in range(6):
        with all_steps(w):
            for rank in w.ranks:
                rank.host(before_us)
            if send and not inside:
                sending()
            with together(rank.range("DistributedDataParallel.forward") for rank in w.ranks):
                if send and inside:
                    sending()
                for rank in w.ranks:
                    for _ in range(50):
                        with rank.op("aten::linear", us=20):
                            rank.launch("gemm", gemm_us)
    return w


def verdict(w: Workload) -> Verdict:
    return judge(w.to_run(), RULE)


def test_flattening_broadcast_and_copies_go() -> None:
    found = verdict(loop())
    finding, step = found.finding, found.report.step_ns or 1
    assert finding.facts["broadcasts_per_step"] == 1 and finding.facts["copies_per_step"] == 100
    assert finding.facts["moved_bytes"] == 4 << 12
    # Not the pause before the flattening: 100 + 100 x 8 us and the broadcast, less what the profiler added.
    assert 0.25e6 < finding.facts["host_ns"] < 0.95e6
    assert found.part() * step == pytest.approx(finding.facts["host_ns"], rel=0.1)
    assert finding.title.startswith(
        "DDP sends the module's buffers before every forward pass: 1 broadcast of 16 kB and 100 copies"
    )
    assert finding.fixes[0].id == "switch-off" and "broadcast_buffers=False" in finding.fixes[0].snippet
    calls = {row[0]: row[1] for row in finding.evidence[0].rows}
    assert calls == {"cudaMemcpyAsync": 100.0, "cudaLaunchKernel": 2.0}


def test_where_compute_waits_for_the_broadcast() -> None:
    """100 layers of 200 us and a broadcast of 2 ms before them on the compute stream."""
    found = verdict(loop(gemm_us=200, reduce_us=2000, buffers=2))
    assert found.part() == pytest.approx(2.0 / 12.0, abs=0.02)


def test_behind_long_kernels_copies_cost_nothing() -> None:
    assert verdict(loop(gemm_us=400)).outcome == "clean"


@pytest.mark.parametrize("given", [{"send": False}, {"inside": False}])
def test_nothing_sent_or_not_by_ddp(given: dict[str, bool]) -> None:
    assert verdict(loop(**given)).outcome == "clean"  # type: ignore[arg-type]


def test_the_threshold() -> None:
    """Two buffers in a step of 4 ms: about 60 us on the host and 13 on the GPU."""
    assert verdict(loop(buffers=1, before_us=20_000)).outcome == "clean"


def test_cannot_judge_without_ddps_forward_pass() -> None:
    w = Workload(ranks=2)
    for _ in range(4):
        with all_steps(w):
            w.collective("broadcast", 1 << 12, 10)
    found = verdict(w)
    assert found.outcome == "not-applicable" and "DistributedDataParallel" in found.reason
