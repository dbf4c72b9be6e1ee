"""memory-fragmentation: memory that is reserved and not used, as a warning."""

from __future__ import annotations

import pytest

from advisor.model import Device, MemorySource
from build.judge import Verdict, judge
from build.workload import H200, Workload

RULE = "memory-fragmentation"
GIB = 1 << 30


def peak(allocated: float, reserved: float, capacity: float | None) -> Verdict:
    """A loop whose allocator holds that much at its peak, GiB."""
    device = Device(0, name="A GPU", memory_bytes=None if capacity is None else round(capacity * GIB))
    w = Workload(device=device)
    for _ in w.steps(4):
        w.launch("gemm", 100)
        for part in (0.5, 1.0, 0.7):
            w.row(
                "memory_events", time=w.now, device=0, bytes=1, source=int(MemorySource.FRAMEWORK),
                allocated=round(allocated * part * GIB), reserved=round(reserved * min(1.0, part + 0.3) * GIB),
            )  # fmt: skip
            w.host(100)
    # At the last event of a step the reserved total is at its peak too, but less of it is in use: that is cache.
    return judge(w.to_run(), RULE)


def test_an_out_of_memory_error_waiting_to_happen() -> None:
    """A34: 12.0 GiB allocated, 19.7 GiB reserved of 23.8."""
    found = peak(12.0, 19.7, 23.8).finding
    assert found.title == "8.3 GB of 21 GB reserved memory was unused at the peak"
    assert (found.severity, found.confidence, found.saving) == ("medium", "low", None)
    assert found.facts["unused_bytes"] == pytest.approx(7.7 * GIB, abs=2)
    assert found.facts["unused_frac"] == pytest.approx(0.3909, abs=0.0001)
    row = dict(zip(found.evidence[0].columns, found.evidence[0].rows[0], strict=True))
    assert row["capacity_bytes"] == round(23.8 * GIB) and row["rank"] is None
    assert any("snapshot" in text for text in found.caveats)
    assert [fix.id for fix in found.fixes] == ["expandable-segments", "snapshot"]


def test_a_full_gpu_is_no_fragmented_one() -> None:
    """N6: 13.7 GiB allocated, 0.74 GiB reserved and unused, of 15.8: that is capacity."""
    assert peak(13.7, 14.44, 15.8).outcome == "clean"


@pytest.mark.parametrize(("allocated", "outcome"), [(16.1, "clean"), (15.9, "found")])
def test_a_fifth_of_what_is_reserved(allocated: float, outcome: str) -> None:
    assert peak(allocated, 20, 24).outcome == outcome


@pytest.mark.parametrize(
    ("allocated", "reserved", "outcome"),
    [
        (5.0, 18.9, "found"),  # more than a fifth of the GPU lies unused
        (10.0, 14.0, "clean"),  # a cache on a GPU with room to spare
        (14.5, 19.1, "clean"),  # just below four fifths of the GPU
        (14.5, 19.3, "found"),
    ],
)
def test_a_cache_beside_free_memory_does_no_harm(allocated: float, reserved: float, outcome: str) -> None:
    found = peak(allocated, reserved, 24)
    assert found.outcome == outcome
    if outcome == "found":
        assert (found.finding.severity == "medium") is (reserved > 0.8 * 24)


@pytest.mark.parametrize(("unused", "outcome"), [(1.99, "clean"), (2.01, "found")])
def test_of_a_gpu_of_unknown_size(unused: float, outcome: str) -> None:
    assert peak(6 - unused, 6, None).outcome == outcome


def test_all_gpus_are_named_the_worst_first_in_the_title() -> None:
    w = Workload(ranks=2, device=H200)
    for rank, allocated in zip(w.ranks, (40, 20), strict=True):
        rank.launch("gemm", 10)
        rank.row(
            "memory_events", time=rank.now, device=rank.number, bytes=1, source=int(MemorySource.FRAMEWORK),
            allocated=allocated * GIB, reserved=80 * GIB,
        )  # fmt: skip
    found = judge(w.to_run(), RULE).finding
    assert found.title.startswith("64 GB of 86 GB")
    assert found.scope["devices"] == [0, 1] and [row[:2] for row in found.evidence[0].rows] == [[0, 0], [1, 1]]


def test_cannot_judge_without_totals() -> None:
    w = Workload()
    w.launch("gemm", 10)
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "memory events" in found.reason
    w = Workload()
    w.row("memory_events", time=w.now, device=0, bytes=5, source=int(MemorySource.DRIVER))
    found = judge(w.to_run(), RULE)
    assert found.outcome == "not-applicable" and "totals" in found.reason
