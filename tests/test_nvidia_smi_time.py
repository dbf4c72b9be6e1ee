"""Time stamps of nvidia-smi logs: writings, clocks that jump, stamps that are missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.ingest import nvidia_smi
from advisor.ingest.nvidia_smi.stamps import NO_STAMP, Clock, StampCache, parse, parse_many
from advisor.ingest.source import Source
from advisor.model import Trace
from build import smi

SECOND = 10**9
MOMENT = datetime(2026, 3, 2, 9, 30, 5, 250_000, tzinfo=UTC)
NS = round(MOMENT.timestamp() * 1000) * 10**6


@pytest.mark.parametrize(
    ("text", "ns", "clock"),
    [
        ("2026/03/02 09:30:05.250", NS, Clock.LOCAL),
        (" 2026-03-02 09:30:05.250 ", NS, Clock.LOCAL),
        ("2026-03-02T09:30:05.250000", NS, Clock.LOCAL),
        ("2026-03-02T10:30:05.250+01:00", NS, Clock.UTC),
        ("2026-03-02T09:30:05.25Z", NS, Clock.UTC),
        ("2026-03-02 04:30:05.25-0500", NS, Clock.UTC),
        ("20260302 09:30:05", NS - 250_000_000, Clock.LOCAL),
        ("03-02-2026 09:30:05", NS - 250_000_000, Clock.YEAR_LAST),
        ("03/13/2026 09:30:05 PM", NS - 250_000_000 + (11 * 24 + 12) * 3600 * SECOND, Clock.LOCAL),
        ("13/03/2026 09:30", NS - 5_250_000_000 + 11 * 24 * 3600 * SECOND, Clock.LOCAL),
        ("Mon Mar  2 09:30:05 2026", NS - 250_000_000, Clock.LOCAL),
        ("Mon Mar  2 09:30:05 UTC 2026", NS - 250_000_000, Clock.UTC),
        ("Mon Mar  2 09:30:05 AM CET 2026", NS - 250_000_000, Clock.LOCAL),
        ("Mon 02 Mar 2026 09:30:05 AM CET", NS - 250_000_000, Clock.LOCAL),
        ("09:30:05", (9 * 3600 + 30 * 60 + 5) * SECOND, Clock.TIME_OF_DAY),
        (f"{NS // SECOND}.25", NS, Clock.UTC),
        (str(NS // 1_000_000), NS, Clock.UTC),
        (str(NS // 1000), NS, Clock.UTC),
        (str(NS), NS, Clock.UTC),
        ("12.5", 12_500_000_000, Clock.ELAPSED),
    ],
)
def test_writings(text: str, ns: int, clock: Clock) -> None:
    assert parse(text) == (ns, clock)


@pytest.mark.parametrize(
    "text", ["", "N/A", "2026/02/30 09:30:05", "2026/03/02 24:30:05", "99/99/2026 00:00:00", "1" * 30, "x" * 200]
)
def test_no_stamps(text: str) -> None:
    assert parse(text) == NO_STAMP


@given(
    st.lists(
        st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)) | st.text("0123456789/: .-T", max_size=25),
        min_size=17,
        max_size=40,
    )
)
def test_many_at_once_are_read_as_one_by_one(cells: list[datetime | str]) -> None:
    texts = [c if isinstance(c, str) else f"{c:%Y/%m/%d %H:%M:%S}.{c.microsecond // 1000:03d}" for c in cells]
    for blank in ("", " "):
        ns, clock = parse_many([blank + text for text in texts], StampCache())
        assert list(zip(ns.tolist(), clock.tolist(), strict=True)) == [tuple(parse(text)) for text in texts]


def read(folder: Path, stamps: list[str], devices: int = 1) -> Trace:
    rows = "".join(f"{stamp}, {i % devices}, {i % 100} %\n" for i, stamp in enumerate(stamps))
    (folder / "x.csv").write_text("timestamp, index, utilization.gpu [%]\n" + rows)
    trace: Trace = nvidia_smi.read(Source(folder / "x.csv"))
    return trace


def seconds(trace: Trace) -> list[float]:
    values: list[float] = (trace.table("device_samples")["time"] / SECOND).tolist()
    return values


def codes(trace: Trace) -> list[str]:
    return [notice.code for notice in trace.notices]


def stamps(start: datetime, offsets: list[float], form: str = "%Y/%m/%d %H:%M:%S") -> list[str]:
    return [(start + timedelta(seconds=offset)).strftime(form) for offset in offsets]


def test_utc_and_local_clocks(tmp_path: Path) -> None:
    local = read(tmp_path, ["2026/03/02 09:30:05.250", "2026/03/02 09:30:06.250"])
    assert (local.epoch_ns, local.local_clock) == (NS, True)
    utc = read(tmp_path, ["2026-03-02T10:30:05.250+01:00", "2026-03-02T10:30:06.250+01:00"])
    assert (utc.epoch_ns, utc.local_clock) == (NS, False)
    assert seconds(utc) == seconds(local) == [0, 1]


def test_month_first_or_day_first_by_what_makes_the_log_short(tmp_path: Path) -> None:
    over_midnight = stamps(datetime(2026, 3, 11, 23, 59, 58), [0, 1, 2, 3], "%m-%d-%Y %H:%M:%S")
    assert seconds(read(tmp_path, over_midnight)) == [0, 1, 2, 3]
    day_first = stamps(datetime(2026, 3, 11, 23, 59, 58), [0, 1, 2, 3], "%d-%m-%Y %H:%M:%S")
    trace = read(tmp_path, day_first)
    assert seconds(trace) == [0, 1, 2, 3]
    assert trace.epoch_ns == datetime(2026, 3, 11, 23, 59, 58, tzinfo=UTC).timestamp() * SECOND
    one_day = read(tmp_path, stamps(datetime(2026, 3, 11, 12), [0, 1, 2], "%m-%d-%Y %H:%M:%S"))
    assert codes(one_day) == ["day-month-order"]


def test_the_end_of_summer_time_is_no_step_back(tmp_path: Path) -> None:
    before = stamps(datetime(2026, 10, 25, 2, 59, 50), list(range(10)))
    after = stamps(datetime(2026, 10, 25, 2, 0, 0), list(range(10)))
    trace = read(tmp_path, before + after)
    assert seconds(trace) == list(range(20))
    assert codes(trace) == ["clock-changed"]


def test_a_clock_set_back_is_told(tmp_path: Path) -> None:
    first, second = stamps(datetime(2026, 3, 2, 9), list(range(100, 110))), stamps(datetime(2026, 3, 2, 9), list(range(10)))
    trace = read(tmp_path, first + second)
    assert seconds(trace) == [*range(10), *range(100, 110)]
    assert codes(trace) == ["clock-went-back"]


def test_rows_of_one_sample_keep_their_own_stamps_and_may_cross(tmp_path: Path) -> None:
    texts = [f"2026/03/02 09:30:0{i // 2}.{510 if i % 2 else 512}" for i in range(8)]
    trace = read(tmp_path, texts, devices=2)
    np.testing.assert_allclose(seconds(trace), [0, 0.002, 1, 1.002, 2, 2.002, 3, 3.002])
    assert codes(trace) == []


def test_stamps_missing_in_some_rows(tmp_path: Path) -> None:
    texts = stamps(datetime(2026, 3, 2, 9), [i // 2 for i in range(20)])
    texts[5] = "[N/A]"  # of the second GPU, whose first row of the sample has one
    texts[8] = texts[9] = "garbage"
    trace = read(tmp_path, texts, devices=2)
    assert seconds(trace) == [i // 2 for i in range(20)]
    assert codes(trace) == ["time-stamps-missing"]


def test_rows_before_the_first_stamp_count_back(tmp_path: Path) -> None:
    trace = read(tmp_path, ["", "", *stamps(datetime(2026, 3, 2, 9), [0, 1])])
    assert seconds(trace) == [0, 1, 2, 3]
    assert trace.epoch_ns == (datetime(2026, 3, 2, 8, 59, 58, tzinfo=UTC)).timestamp() * SECOND


def test_repeated_stamps_and_uneven_intervals_are_kept(tmp_path: Path) -> None:
    trace = read(tmp_path, stamps(datetime(2026, 3, 2, 9), [0, 15, 15, 16, 40]))
    assert seconds(trace) == [0, 15, 15, 16, 40]
    assert codes(trace) == []


def test_date_lines_between_rows_give_the_time(tmp_path: Path) -> None:
    head = "index, utilization.gpu [%]\n"
    text = "".join(f"Mon Mar  2 09:3{i}:00 2026\n{head}0, 5 %\n1, 6 %\n" for i in range(4))
    (tmp_path / "x.log").write_text(text)
    trace = nvidia_smi.read(Source(tmp_path / "x.log"))
    assert seconds(trace) == [0, 0, 60, 60, 120, 120, 180, 180]
    assert codes(trace) == []


def test_dates_and_times_in_two_columns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "date,time,gpu,gpu_util,mem_used_mb\n2026-03-02,23:59:59,0,5,100\n2026-03-03,00:00:01,0,6,100\n"
    )
    trace = nvidia_smi.read(Source(tmp_path / "x.csv"))
    assert seconds(trace) == [0, 2]
    assert trace.epoch_ns == datetime(2026, 3, 2, 23, 59, 59, tzinfo=UTC).timestamp() * SECOND


def test_days_of_samples(tmp_path: Path) -> None:
    log = smi.samples(2 * 86_400, 2, interval=600)
    (tmp_path / "x.csv").write_text(smi.query_csv(log))
    trace = nvidia_smi.read(Source(tmp_path / "x.csv"))
    times = trace.table("device_samples")["time"]
    assert times[-1] == (2 * 86_400 - 600) * SECOND + 2_000_000
    assert (np.diff(times[::2]) == 600 * SECOND).all()
