"""Clocks: traces, ranks and device logs on one time line."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.ingest import join
from advisor.model import Run
from build.recordings import MS, S, program_trace, sample_trace

NOON = 1_800_000_000 * S
HOUR = 3600 * S


def codes(run: Run) -> list[str]:
    return [notice.code for notice in run.notices]


def starts(run: Run, rank: int, table: str = "kernels") -> list[int]:
    rows = run.table(table)["rank"] == rank
    return run.table(table)["start"][rows].tolist()


def test_the_run_starts_at_its_first_event() -> None:
    run = join([program_trace(start=7 * MS, epoch_ns=NOON)])
    assert run.table("kernels")["start"].tolist() == [0, 2 * MS, 4 * MS, 6 * MS]
    assert run.table("kernels")["end"].tolist() == [MS, 3 * MS, 5 * MS, 7 * MS]
    assert run.epoch_ns == NOON + 7 * MS and run.notices == []


def test_ranks_of_one_host_share_the_clock() -> None:
    run = join([program_trace("a", rank=0, epoch_ns=NOON + 3 * MS), program_trace("b", rank=1, epoch_ns=NOON)])
    assert starts(run, 1)[0] == 0 and starts(run, 0)[0] == 3 * MS
    assert run.epoch_ns == NOON and codes(run) == []


def test_ranks_apart_in_time_are_said() -> None:
    run = join([program_trace("a", rank=0, epoch_ns=NOON), program_trace("b", rank=1, epoch_ns=NOON + HOUR)])
    assert starts(run, 1)[0] == HOUR and codes(run) == ["ranks-not-concurrent"]


def test_a_trace_without_a_clock_begins_with_the_run() -> None:
    run = join([program_trace("a", rank=0, epoch_ns=NOON, start=5), program_trace("b", rank=1, start=99)])
    assert starts(run, 0)[0] == 0 and starts(run, 1)[0] == 0 and codes(run) == ["clock-unknown"]
    many = join([program_trace(f"r{i}", rank=i) for i in range(3)])
    assert [n.message for n in many.notices] == ["r0 and 2 more: no time of day is stated; the times begin with the run"]
    alone = join([program_trace("a", start=99)])
    assert alone.table("kernels")["start"][0] == 0 and alone.epoch_ns is None and alone.notices == []


@pytest.mark.parametrize(
    ("quarters", "zone"),
    [(0, "UTC+0:00"), (4, "UTC+1:00"), (-20, "UTC-5:00"), (23, "UTC+5:45"), (56, "UTC+14:00"), (-48, "UTC-12:00")],
)
def test_a_local_clock_is_moved_by_the_zone_that_makes_it_meet_the_trace(quarters: int, zone: str) -> None:
    trace = program_trace("t.json", epoch_ns=NOON, kernels=2000)  # 4 s
    log = sample_trace("smi.csv", NOON + quarters * 15 * 60 * S - 3 * S, 10)
    run = join([trace, log])
    assert run.table("device_samples")["time"].tolist() == [i * S - 3 * S for i in range(11)]
    (notice,) = run.notices
    assert notice.code == "clock-zone-guessed" and zone in notice.message and "do, too" not in notice.message


def test_a_log_of_hours_is_taken_as_utc_and_the_doubt_is_said() -> None:
    run = join([program_trace("t.json", epoch_ns=NOON), sample_trace("smi.csv", NOON - HOUR, 2 * 3600)])
    assert run.table("device_samples")["time"][0] == -HOUR
    assert "7 other zones do, too" in run.notices[0].message


def test_a_log_that_never_meets_the_trace_keeps_its_own_line() -> None:
    run = join([program_trace("t.json", epoch_ns=NOON), sample_trace("smi.csv", NOON - 5 * 60 * S, 20)])
    assert run.table("device_samples")["time"].tolist() == [i * S for i in range(21)]
    assert codes(run) == ["samples-not-aligned"]
    assert run.table("kernels")["start"][0] == 0


def test_a_log_with_a_zone_is_placed_where_it_says() -> None:
    outside = join([program_trace("t.json", epoch_ns=NOON), sample_trace("smi.csv", NOON - 60 * S, 20, local_clock=False)])
    assert outside.table("device_samples")["time"][0] == -60 * S and codes(outside) == ["samples-outside-trace"]
    inside = join([program_trace("t.json", epoch_ns=NOON), sample_trace("smi.csv", NOON - 2 * S, 20, local_clock=False)])
    assert inside.table("device_samples")["time"][0] == -2 * S and inside.notices == []


def test_a_log_without_a_clock_keeps_its_own_line() -> None:
    run = join([program_trace("t.json", epoch_ns=NOON), sample_trace("smi.csv", None, 3)])
    assert run.table("device_samples")["time"].tolist() == [0, S, 2 * S, 3 * S] and codes(run) == ["clock-unknown"]


def test_logs_alone_share_their_clock() -> None:
    run = join([sample_trace("a.csv", NOON + 5 * S, 1), sample_trace("b.csv", NOON, 1)])
    assert run.table("device_samples")["time"].tolist() == [0, S, 5 * S, 6 * S]
    assert run.epoch_ns is None and run.notices == []  # the zone is unknown, so the wall clock is
    mixed = join([sample_trace("a.csv", NOON, 60, local_clock=False), sample_trace("b.csv", NOON + HOUR, 60)])
    assert mixed.table("device_samples")["time"].max() == 60 * S and codes(mixed) == ["clock-zone-guessed"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "epoch_ns": st.one_of(st.none(), st.integers(NOON - HOUR, NOON + HOUR)),
                "start": st.integers(0, 10 * S),
                "kernels": st.integers(1, 5),
            }
        ),
        min_size=1,
        max_size=4,
    )
)
def test_joining_never_bends_time(specs: list[dict[str, Any]]) -> None:
    """Inside a trace all distances stay; the first event of the run is at zero; known clocks keep their distance."""
    run = join([program_trace(f"rank{i}.json", rank=i, **spec) for i, spec in enumerate(specs)])
    first = {}
    for i, spec in enumerate(specs):
        mine = starts(run, i)
        assert [b - a for a, b in pairwise(mine)] == [2 * MS] * (spec["kernels"] - 1)
        first[i] = mine[0]
    assert min(first.values()) == 0
    clocked = [i for i, spec in enumerate(specs) if spec["epoch_ns"] is not None]
    for i in clocked:
        wall = specs[i]["epoch_ns"] + specs[i]["start"]
        assert run.epoch_ns is not None and first[i] == wall - run.epoch_ns
