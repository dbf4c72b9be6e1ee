"""low-bus-bandwidth: large collectives far below the links, told from waiting, latency and other links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.model import Device
from build.judge import Verdict, judge
from build.parallel import data_parallel
from build.workload import A100, H200, Workload

RULE = "low-bus-bandwidth"
LINK = 450e9  # NVLink of an H200, per direction
ELEMENTS = 1 << 24  # of four bytes
PCIE = replace(A100, name="NVIDIA A100-PCIE-40GB")


def reduce_us(rate: float, elements: int = ELEMENTS) -> float:
    """Time of an all-reduce over two ranks at this bus bandwidth, which for two ranks is bytes over time."""
    return 4 * elements / rate * 1e6


def loop(rate: float = 26e9, *, device: Device = H200, links: str | None = None, **given: object) -> Workload:
    w = data_parallel(reduce_us=reduce_us(rate), device=device, **given)  # type: ignore[arg-type]
    if links:
        w.row("links", a="GPU0", b="GPU1", link=links)
    return w


def verdict(*args: object, **given: object) -> Verdict:
    return judge(loop(*args, **given).to_run(), RULE)  # type: ignore[arg-type]


def test_traffic_through_host_memory() -> None:
    """26 GB/s: 2.6 ms for each of four collectives, of which 7.3 ms stand in the way; at 270 GB/s compute hides three."""
    found = verdict(26e9)
    finding = found.finding
    step, left = found.report.step_ns, 0.6 * LINK
    assert step == pytest.approx((2.0 + 1.0 + 4 * reduce_us(26e9) / 1000 + 0.2) * 1e6, rel=0.02)
    mended = (2.0 + 4.0 + reduce_us(left) / 1000 + 0.2) * 1e6
    assert found.part() == pytest.approx(1 - mended / step, abs=0.02)
    assert finding.title == "large collectives move 26 GB/s, 6% of the 450 GB/s that NVLink carries"
    assert finding.facts["share_of_link_frac"] == pytest.approx(26 / 450, rel=0.01)
    row = dict(zip(finding.evidence[0].columns, finding.evidence[0].rows[0], strict=True))
    assert row == {
        "collective": "all-reduce", "message_bytes": 4 * ELEMENTS, "calls": 4.0, "bus_gb_per_s": 26.0,
        "median_transfer_ns": pytest.approx(reduce_us(26e9) * 1000, rel=0.01), "of_link_frac": pytest.approx(26 / 450, rel=0.01),
    }  # fmt: skip
    assert finding.confidence == "medium"
    assert "data sheet" in finding.caveats[-1]


@pytest.mark.parametrize(("share", "outcome"), [(0.38, "found"), (0.42, "clean")])
def test_the_threshold(share: float, outcome: str) -> None:
    assert verdict(share * LINK, serial=True, forward_us=10, backward_us=10).outcome == outcome


def test_small_messages_are_bound_by_latency() -> None:
    run = data_parallel(reduce_us=1000, elements=1_900_000, serial=True).to_run()
    assert judge(run, RULE).outcome == "clean"


def test_hidden_transfers_are_worth_nothing() -> None:
    """Slow, but beside backward kernels of 10 ms: only the last one shows."""
    w = data_parallel(reduce_us=reduce_us(26e9, 1 << 21), elements=1 << 21, backward_us=10_000)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "clean" and "worth at most" in found.reason


def test_waiting_for_a_late_rank_is_no_low_bandwidth() -> None:
    assert verdict(300e9, late_us=20_000).outcome == "clean"


def test_the_environment_names_the_switch() -> None:
    found = verdict(env={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "0"})
    assert found.finding.title.endswith("; NCCL_P2P_DISABLE is set")
    assert found.finding.fixes[0].snippet.splitlines()[-1] == "unset NCCL_P2P_DISABLE"


def test_the_best_rate_of_the_same_collective_is_the_aim() -> None:
    """One of the collectives of that kind and size, in the first step, reached 0.75 of the links: then all can."""
    w = loop(26e9)
    plain = judge(w.to_run(), RULE)
    for rank in w.ranks:
        first = next(row for row in rank.rows["kernels"] if row["name"].startswith("nccl"))
        first["end"] = first["start"] + round(reduce_us(0.75 * LINK) * 1000)
    better = judge(w.to_run(), RULE)
    assert better.report.step_ns == plain.report.step_ns
    assert better.finding.saving.expected_ns - plain.finding.saving.expected_ns == pytest.approx(
        1000 * (reduce_us(0.6 * LINK) - reduce_us(0.75 * LINK)), rel=0.1
    )


def test_it_explains_the_exposed_communication() -> None:
    run = loop(26e9, backward_us=1500).to_run()
    alone = judge(run, "exposed-communication")
    both = judge(run, RULE, "exposed-communication")
    assert alone.outcome == "found"
    assert [finding.rule for finding in both.report.findings] == [RULE]


# Other links


@pytest.mark.parametrize(
    ("links", "rate", "outcome"),
    [("NV12", 100e9, "found"), ("NV4", 60e9, "clean"), ("PIX", 20e9, "clean"), ("SYS", 8e9, "found")],
)
def test_the_topology_decides_what_is_slow(links: str, rate: float, outcome: str) -> None:
    """A100 PCIe: 12 NVLinks of 25 GB/s over a bridge, or PCIe 4.0 x16 with 31.5 GB/s."""
    assert verdict(rate, device=PCIE, links=links).outcome == outcome


def test_the_link_is_named() -> None:
    assert "31.5 GB/s that PCIe" in verdict(8e9, device=PCIE, links="PHB").finding.title.replace("32 GB", "31.5 GB")
    assert not any("data sheet" in text for text in verdict(26e9, links="NV18").finding.caveats)


def test_cards_that_may_have_a_bridge_need_the_topology() -> None:
    found = verdict(26e9, device=PCIE)
    assert found.outcome == "not-applicable" and "may be linked" in found.reason
    assert next(rule for rule in found.report.rules).capture.startswith("nvidia-smi topo -m")


def test_cannot_judge_other_cases() -> None:
    unknown = verdict(26e9, device=replace(H200, name="NVIDIA Unheard-Of"))
    assert unknown.outcome == "not-applicable" and "device table" in unknown.reason
    wide = judge(loop(26e9, world_size=16).to_run(), RULE)
    assert wide.outcome == "not-applicable" and "16 ranks" in wide.reason
    none = Workload(ranks=2)
    for _ in none.steps(4):
        none.launch("gemm", 1000)
    assert judge(none.to_run(), RULE).outcome == "not-applicable"


# One rank's recording


def one_rank(rates: dict[int, float], waits_us: dict[int, float]) -> Verdict:
    w = Workload(world_size=2)
    for _ in w.steps(6):
        w.launch("gemm", 2000)
        for elements, rate in rates.items():
            w.stream_wait(17, on=7)
            w.collective("allreduce", elements, reduce_us(rate, elements) + waits_us[elements])
        w.stream_wait(7, on=17)
        w.launch("gemm", 1000)
    return judge(w.to_run(), RULE)


def test_one_rank_counts_where_sizes_agree() -> None:
    found = one_rank({1 << 23: 26e9, 1 << 25: 27e9}, {1 << 23: 0, 1 << 25: 0})
    assert found.finding.confidence == "low" and found.part() > 0.3


def test_one_rank_that_waits_cannot_tell() -> None:
    """The links are fine; the rank waits 3 ms for its peer in each collective."""
    found = one_rank({1 << 23: 290e9, 1 << 25: 290e9}, {1 << 23: 3000, 1 << 25: 3000})
    assert found.outcome == "not-applicable" and "may have waited" in found.reason
    same = one_rank({1 << 23: 26e9}, {1 << 23: 0})
    assert same.outcome == "not-applicable"


def test_one_rank_that_is_fast_is_clean() -> None:
    assert one_rank({1 << 23: 290e9, 1 << 25: 290e9}, {1 << 23: 0, 1 << 25: 0}).outcome == "clean"
