"""Exports of any content, whole and damaged: the reader gives back what was written, or refuses in one line."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.ingest import nsys
from advisor.ingest.source import Source
from advisor.model import InputError, Trace
from build.nsys import GENERATIONS, NsysExport, columns_of

_NAMES = st.one_of(st.sampled_from(["gemm", "relu", "step 1"]), st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
_TIMES = st.integers(-(10**6), 10**15)
_LENGTHS = st.integers(0, 10**10)
_PROCESSES = st.integers(0, 0xFFFFFF)
_EVENTS = st.tuples(
    st.sampled_from(["kernel", "call", "copy", "memset", "range"]), _NAMES, _TIMES, _LENGTHS, _PROCESSES, st.integers(0, 300)
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(generation=st.sampled_from(GENERATIONS), events=st.lists(_EVENTS, min_size=1, max_size=30), lazy=st.booleans())
def test_what_was_written_is_read(tmp_path: Path, generation: str, events: list[tuple[Any, ...]], lazy: bool) -> None:
    export = NsysExport(generation, lazy=lazy)
    expected: dict[str, Counter[tuple[Any, ...]]] = {n: Counter() for n in ("kernels", "runtime_calls", "copies", "ranges")}
    for kind, name, start, length, process, small in events:
        end = start + length
        if kind == "kernel":
            number = export.kernel(name, start, end, process=process, device=small, stream=small * 1000, gridX=small)
            expected["kernels"][start, end, process, number, name, small, small * 1000, small] += 1
        elif kind == "call":
            number = export.call(f"cu{name}_v99", start, end, process=process, thread=small)
            expected["runtime_calls"][start, end, process, number, f"cu{name}", small] += 1
        elif kind == "range":
            export.range(name, start, end, process=process, thread=small, registered=small % 2 == 0)
            expected["ranges"][start, end, process, name, small] += 1
        elif kind == "copy":
            export.copy(8, start, end, size=small)
            expected["copies"][start, end, 100, small, 8] += 1
        else:
            export.memset(start, end, size=small)
            expected["copies"][start, end, 100, small, 100] += 1
    trace = nsys.read(Source(export.write(tmp_path / "report.sqlite")))
    columns = {
        "kernels": ["start", "end", "process", "correlation", "name", "device", "stream", "grid_x"],
        "runtime_calls": ["start", "end", "process", "correlation", "name", "thread"],
        "ranges": ["start", "end", "process", "name", "thread"],
        "copies": ["start", "end", "process", "bytes", "kind"],
    }
    for table, wanted in columns.items():
        assert Counter(_rows(trace, table, wanted)) == expected[table]
        assert (np.diff(trace.table(table)["start"]) >= 0).all()
    assert not [notice for notice in trace.notices if notice.code in ("input-damaged", "rows-skipped")]


def _rows(trace: Trace, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
    values = []
    for column in columns:
        found = trace.table(table)[column].tolist()
        values.append([trace.strings[code] for code in found] if column == "name" else found)
    return list(zip(*values, strict=True))


def an_export(generation: str = "2025.5") -> NsysExport:
    """A little of everything."""
    export = NsysExport(generation)
    export.gpu()
    export.metadata("CAPTURE_EVENT_TYPE", "Cuda")
    export.add("TARGET_INFO_GPU_METRICS", typeId=1, sourceId=1, typeName="", metricId=1, metricName="SM Active")
    for i in range(60):
        start = i * 100
        export.range(f"step {i}, seq = {i}, op_id = {i}", start, start + 90, registered=i % 3 == 0, int32Value=i)
        export.kernel(
            f"kernel {i % 7}", start + 20, start + 40, correlation=export.call("cudaLaunchKernel_v7000", start, start + 5)
        )
        export.copy(1, start + 40, start + 50, correlation=export.call("cudaMemcpyAsync_v3020", start + 6, start + 9))
        recorded = export.call("cudaEventRecord_v3020", start + 60, start + 61)
        export.event(i % 3, correlation=recorded, event_sync=i)
        waited = export.call("cudaEventSynchronize_v3020", start + 62, start + 64)
        export.sync(start + 62, start + 64, correlation=waited, event=i % 3, event_sync=i)
        export.add("GPU_METRICS", timestamp=start, typeId=1, metricId=1, value=i)
    return export


@pytest.mark.filterwarnings("error")
def test_damage_anywhere(tmp_path: Path) -> None:
    """Cuts, flipped bytes, broken page headers and exchanged pages: a trace or one line, whatever happens."""
    whole = an_export().write(tmp_path / "whole.sqlite").read_bytes()
    broken = tmp_path / "broken.sqlite"
    chance = random.Random(11)
    outcomes: Counter[str] = Counter()
    for turn in range(250):
        data = bytearray(whole)
        pages = len(data) // 4096
        if turn % 4 == 0:
            data = data[: chance.randrange(len(data))]
        elif turn % 4 == 1:
            for _ in range(chance.choice([1, 10, 200])):
                data[chance.randrange(len(data))] = chance.randrange(256)
        elif turn % 4 == 2:
            for _ in range(chance.choice([1, 10])):
                data[chance.randrange(pages) * 4096 + chance.randrange(20)] = chance.choice([0, 1, 5, 13, 255])
        else:
            one, other = chance.randrange(pages) * 4096, chance.randrange(pages) * 4096
            data[one : one + 4096] = data[other : other + 4096]
        broken.write_bytes(data)
        try:
            trace = nsys.read(Source(broken))
            outcomes["damage noted" if any(n.code == "input-damaged" for n in trace.notices) else "read"] += 1
        except InputError as refused:
            assert len(str(refused).splitlines()) == 1
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10, outcomes


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_values_of_any_type_in_any_column(tmp_path: Path, data: st.DataObject) -> None:
    """SQLite keeps text and blobs in integer columns, and numbers beyond every range."""
    path = an_export().write(tmp_path / "report.sqlite")
    junk = st.one_of(
        st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=9)
    )
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name != 'StringIds'")]
    with connection:
        for _ in range(data.draw(st.integers(1, 12))):
            table = data.draw(st.sampled_from(tables))
            column = data.draw(st.sampled_from(columns_of(table, "2025.5")))
            row = data.draw(st.integers(1, 60))
            connection.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (data.draw(junk), row))
    connection.close()
    trace = nsys.read(Source(path))
    for table in trace.tables.values():
        if {"start", "end"} <= set(table.column_names):
            assert (table["end"] >= table["start"]).all()
    for name in ("kernels", "runtime_calls", "host_ops"):
        assert trace.table(name).to_pandas(trace.strings)["name"].map(lambda value: isinstance(value, str)).all()


def test_reading_twice_gives_the_same(tmp_path: Path) -> None:
    path = an_export().write(tmp_path / "report.sqlite")
    before = path.read_bytes()
    one, two = nsys.read(Source(path)), nsys.read(Source(path))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.sqlite"]
    assert one.strings.values == two.strings.values
    for name, table in one.tables.items():
        for column in table.column_names:
            np.testing.assert_array_equal(table[column], two.tables[name][column])
