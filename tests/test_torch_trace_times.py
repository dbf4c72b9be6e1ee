"""Times of torch.profiler traces are exact to the nanosecond, however they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.ingest import torch_trace
from advisor.ingest.source import Source
from advisor.ingest.torch_trace.times import NO_TIME, NeedsText, from_text, nanoseconds, nanoseconds_of_texts
from build.kineto import BASE_NS, TIMES, ZERO_NS, Kineto, microseconds

QUARTER_YEAR = 7_889_238_000_000_000  # ns; how far behind its base a time can lie
spans = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**10)), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("times") / "trace.json"


@settings(deadline=None)
@given(spans=spans, since_base=st.integers(1, QUARTER_YEAR - 10**13), times=st.sampled_from(TIMES))
def test_wall_clock_to_the_nanosecond(file: Path, spans: list[tuple[int, int]], since_base: int, times: str) -> None:
    if times == "integer":
        since_base -= since_base % 1000
        spans = [(start - start % 1000, length - length % 1000) for start, length in spans]
    k = Kineto(zero=BASE_NS + since_base)
    for start, length in spans:
        k.op("aten::mm", start, length)
    file.write_bytes(k.text(times=times))
    trace = torch_trace.read(Source(file), processes=1)
    table = trace.table("host_ops")
    assert trace.epoch_ns is not None and table["start"].dtype == np.int64
    found = zip((table["start"] + trace.epoch_ns).tolist(), (table["end"] + trace.epoch_ns).tolist(), strict=True)
    expected = [(k.zero + start, k.zero + start + length) for start, length in spans]
    assert sorted(found) == sorted(expected)
    assert int(table["start"][0]) == 0


@settings(deadline=None)
@given(st.lists(st.integers(-(10**19) + 1, 10**19 - 1), max_size=30))
def test_any_decimal_text(values: list[int]) -> None:
    texts = [microseconds(v) for v in values]
    for text, value in zip(texts, values, strict=True):
        assert from_text(text) in ([value] if abs(value) < 4 * 10**18 else [value, NO_TIME])
    assert nanoseconds(list(texts)).tolist() == [from_text(t) for t in texts]
    assert nanoseconds_of_texts([t.encode() for t in texts]).tolist() == [from_text(t) for t in texts]
    quoted = [b'"%b"' % t.encode() for t in texts]
    assert nanoseconds_of_texts(quoted).tolist() == [from_text(t) for t in texts]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1", 1000),
        ("1.5", 1500),
        ("1.25", 1250),
        ("0.0005", 0),
        ("0.0015", 2),
        ("-0.5", -500),
        ("1e3", 1_000_000),
        ("1.7041615e15", 1_704_161_500_000_000_000),
    ],
)
def test_other_spellings(text: str, ns: int) -> None:
    assert from_text(text) == ns
    assert nanoseconds_of_texts([text.encode()]).tolist() == [ns]


@pytest.mark.parametrize("text", ["", "x", "NaN", "inf", "1e400", "--1", "1.2.3", "99999999999999999999"])
def test_no_times(text: str) -> None:
    assert from_text(text) == NO_TIME


def test_missing_and_mixed() -> None:
    assert nanoseconds([1, 2.5, "3.001", None, True], missing=7).tolist() == [1000, 2500, 3001, 7, 7]
    assert nanoseconds_of_texts([b"1", b"null", b"", b'"x"'], missing=7).tolist() == [1000, 7, 7, NO_TIME]
    assert nanoseconds([]).tolist() == [] == nanoseconds_of_texts([]).tolist()


def test_integers_beyond_a_double() -> None:
    assert nanoseconds([2**53 // 1000 + 1, 1.0]).tolist() == [(2**53 // 1000 + 1) * 1000, 1000]
    with pytest.raises(NeedsText):
        nanoseconds([1_704_161_511_420_306.491])
    assert nanoseconds([10**16]).tolist() == [NO_TIME]
    assert nanoseconds([1 << 70]).tolist() == [NO_TIME]


def read(file: Path, k: Kineto, times: str = "decimal"):
    file.write_bytes(k.text(times=times))
    return torch_trace.read(Source(file), processes=1)


def test_integer_starts_with_decimal_durations(file: Path) -> None:
    k = Kineto()
    k.op("aten::mm", 3_000, 1_234)
    k.op("aten::mm", 7_000, 0)
    text = k.text(times="epoch").replace(b".307,", b",")
    file.write_bytes(text)
    table = torch_trace.read(Source(file)).table("host_ops")
    assert list(zip(table["start"], table["end"], strict=True)) == [(0, 1234), (4000, 4000)]


def test_rows_at_zero_among_real_times_are_left_out(file: Path) -> None:
    k = Kineto()
    k.kernel("f", 100, 50, correlation=1)
    k.kernel("lost", -ZERO_NS + BASE_NS, 0, correlation=2)
    trace = read(file, k)
    assert len(trace.table("kernels")) == 1
    assert [(n.code, n.message) for n in trace.notices] == [("events-dropped", "1 event left out: 1 at time 0")]


def test_a_recording_that_begins_at_zero_is_whole(file: Path) -> None:
    k = Kineto(zero=0)
    k.op("a", 0, 5_000)
    k.op("b", 10_000, 5_000)
    trace = read(file, k, "integer")
    assert trace.table("host_ops")["start"].tolist() == [0, 10_000]
    assert trace.epoch_ns is None


@pytest.mark.parametrize(
    ("duration", "rows"), [("-5", 0), ("null", 1), ('""', 1), ("true", 1), ("0", 1), ("-0.0", 1), ("NaN", 1)]
)
def test_odd_durations(file: Path, duration: str, rows: int) -> None:
    k = Kineto()
    k.op("aten::mm", 10, 20)
    k.op("aten::add", 0, 777)
    file.write_bytes(k.text().replace(b'"dur": 0.777', b'"dur": ' + duration.encode()))
    trace = torch_trace.read(Source(file), processes=1)
    assert len(trace.table("host_ops")) == 1 + rows
    assert [n.code for n in trace.notices if n.code == "events-dropped"] == ["events-dropped"] * (1 - rows)


@pytest.mark.parametrize("start", ["null", '"x"', "true", "1e300", "[1]", "NaN", "123456789012345678901234567890"])
def test_odd_starts(file: Path, start: str) -> None:
    k = Kineto()
    k.op("aten::mm", 10, 20)
    k.op("aten::add", 0, 777)
    bad = k.text().replace(microseconds(ZERO_NS - BASE_NS).encode(), start.encode())
    file.write_bytes(bad)
    trace = torch_trace.read(Source(file), processes=1)
    assert trace.table("host_ops")["start"].tolist() == [0]
    assert trace.epoch_ns == ZERO_NS + 10
    assert "1 without a usable time" in {n.code: n.message for n in trace.notices}["events-dropped"]


def test_decimal_loss_nowhere_when_a_row_needs_repair(file: Path) -> None:
    k = Kineto(zero=1_704_161_511_420_306_491)
    k.op("aten::mm", 0, 1_001)
    k.op("C:\\data", 1_003, 1_001)
    file.write_bytes(k.text(times="epoch").replace(b"\\\\", b"\\"))
    trace = torch_trace.read(Source(file), processes=1)
    assert trace.table("host_ops")["start"].tolist() == [0, 1_003]
    assert trace.table("host_ops")["end"].tolist() == [1_001, 2_004]
    assert trace.epoch_ns == 1_704_161_511_420_306_491
