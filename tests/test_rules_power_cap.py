"""power-cap: a fact about the machine, a saving only where matrix kernels lose a tenth of their clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor import load
from advisor.model import Run
from build import smi
from build.judge import Verdict, judge
from build.workload import Workload

RULE = "power-cap"
CAP, HOT = 0x4, 0x20
FIELDS = (
    "timestamp", "index", "name", "uuid", "utilization.gpu", "utilization.memory", "power.draw", "enforced.power.limit",
    "temperature.gpu", "clocks.current.sm", "clocks.max.sm", "clocks.current.memory", "clocks.max.memory",
    "clocks_event_reasons.active",
)  # fmt: skip


def log(folder: Path, devices: int = 1, fields: tuple[str, ...] = FIELDS, **values: Any) -> Run:
    """A minute of samples; names of fields with "__" for "."."""
    named = {"clocks_event_reasons.active": CAP, **{key.replace("__", "."): value for key, value in values.items()}}
    path = folder / "smi.csv"
    path.write_text(smi.query_csv(smi.samples(60, devices, values=named), fields))
    return load(path)


def traced(kernel: str, clock: float, gpu_us: float = 1000, reasons: int = CAP) -> Verdict:
    """A loop of one kind of kernel beside others, sampled while it runs."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(6):
            w.launch(kernel, gpu_us)
            w.launch("vectorized_elementwise_kernel<add>", gpu_us / 3)
        w.sample(utilization=100, sm_clock=clock, sm_clock_max=2000, throttle_reasons=reasons, power=700, power_limit=700)
    return judge(w.to_run(), RULE)


def test_a_memory_bound_phase_is_told_and_promised_nothing(tmp_path: Path) -> None:
    """N8: the power cap holds in every sample, the SM clock is 11 % below its maximum, the memory clock is full."""
    found = judge(log(tmp_path, clocks__current__sm=1762, utilization__memory=95), RULE).finding
    assert found.title == "the power limit of 700 W holds GPU 0 11% below its highest clock"
    assert (found.severity, found.saving) == ("info", None)
    assert any("memory bandwidth" in text for text in found.caveats)
    decode = traced("void gemv2T_kernel_val<int, __nv_bfloat16, 128>", 1780).finding
    assert (decode.severity, decode.saving) == ("info", None)
    copies = traced("vectorized_elementwise_kernel<copy>", 1780).finding
    assert (copies.severity, copies.saving) == ("info", None)


def test_matrix_kernels_gain_at_most_what_the_clock_lost() -> None:
    found = traced("sm90_xmma_gemm_bf16", 1600)
    # A fifth of the clock, on three quarters of the GPU's time.
    assert found.part("high") == pytest.approx(0.2 * 0.75, abs=0.01)
    assert found.finding.saving is not None and found.finding.confidence == "medium"
    assert found.finding.facts["clock_loss_frac"] == pytest.approx(0.2)


@pytest.mark.parametrize(("clock", "saves"), [(1810, False), (1790, True)])
def test_below_a_tenth_nothing_is_promised(clock: float, saves: bool) -> None:
    assert (traced("sm90_xmma_gemm_bf16", clock).finding.saving is not None) is saves


@pytest.mark.parametrize(("clock", "outcome"), [(1905, "clean"), (1895, "found")])
def test_a_few_percent_are_normal(clock: float, outcome: str) -> None:
    assert traced("sm90_xmma_gemm_bf16", clock).outcome == outcome


@pytest.mark.parametrize(("of_ten", "outcome"), [(1, "clean"), (3, "found")])
def test_touches_of_the_limit_are_normal(tmp_path: Path, of_ten: int, outcome: str) -> None:
    run = log(
        tmp_path, clocks__current__sm=1700, clocks_event_reasons__active=lambda s, gpu: CAP if s % 10 < of_ten else 0
    )  # fmt: skip
    assert judge(run, RULE).outcome == outcome


def test_low_clocks_for_another_reason_are_not_this_rules(tmp_path: Path) -> None:
    run = log(tmp_path, clocks__current__sm=1200, clocks_event_reasons__active=HOT)
    assert judge(run, RULE).outcome == "clean"


def test_idle_clocks_do_not_count(tmp_path: Path) -> None:
    run = log(
        tmp_path, utilization__gpu=lambda s, gpu: 100 if s < 30 else 0, clocks__current__sm=lambda s, gpu: 1970 if s < 30 else 210
    )  # fmt: skip
    assert judge(run, RULE).outcome == "clean"


def test_the_worst_gpu_is_named(tmp_path: Path) -> None:
    found = judge(log(tmp_path, 3, clocks__current__sm=lambda s, gpu: (1980, 1800, 1500)[gpu]), RULE).finding
    assert "GPU 2 24% below" in found.title and found.scope["devices"] == [1, 2]
    assert "-i 2" in found.fixes[0].snippet and "sudo nvidia-smi -pl" in found.fixes[0].snippet


def test_cannot_judge_without_clocks_or_reasons(tmp_path: Path) -> None:
    for lacking in ("clocks.max.sm", "clocks.current.sm", "clocks_event_reasons.active"):
        found = judge(log(tmp_path, fields=tuple(f for f in FIELDS if f != lacking)), RULE)
        assert found.outcome == "not-applicable" and "SM clocks" in found.reason, lacking
    assert judge(Workload().to_run(), RULE).outcome == "not-applicable"
