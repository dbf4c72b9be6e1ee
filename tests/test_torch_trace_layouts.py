"""The same events give the same tables, whatever the text looks like and however many processes read it."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.ingest import torch_trace
from advisor.ingest.source import Source
from advisor.ingest.torch_trace import parallel, scan, share
from advisor.model import TABLES, Trace
from build.kineto import BASE_NS, LAYOUTS, ZERO_NS, Kineto, training

linux = pytest.mark.skipif(not parallel.POSSIBLE, reason="one process only on this system")
NAMES = st.sampled_from(["aten::mm", '}, {"ph": "X"', "]}", 'a "quote"', "back\\slash\\", "naïve ☃", "\n\t", "", "x" * 300])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layouts") / "trace.json"


@contextmanager
def small_blocks(size: int, unit: int = 1) -> Iterator[None]:
    """Blocks of `size` bytes, so that a small text has many."""
    before = scan.BLOCK, scan._READ, share.UNIT
    scan.BLOCK, scan._READ, share.UNIT = size, max(size // 2, 16), unit
    try:
        yield
    finally:
        scan.BLOCK, scan._READ, share.UNIT = before


def read(file: Path, data: bytes, processes: int = 1) -> Trace:
    file.write_bytes(data)
    return torch_trace.read(Source(file), processes=processes)


def same(one: Trace, other: Trace) -> None:
    assert one.tables.keys() == other.tables.keys()
    for name in one.tables:
        for column in TABLES[name].columns:
            a, b = one.tables[name][column.name], other.tables[name][column.name]
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), (name, column.name)
    assert one.strings.values == other.strings.values
    assert (one.notices, one.epoch_ns, one.devices) == (other.notices, other.epoch_ns, other.devices)


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "list"])
def test_layouts(file: Path, layout: str) -> None:
    k = training(3)
    same(read(file, k.text("kineto")), read(file, k.text(layout)))


@pytest.mark.parametrize("times", ["epoch", "string"])
def test_a_bare_list(file: Path, times: str) -> None:
    trace, bare = (read(file, training(2).text(layout, times)) for layout in ("kineto", "list"))
    assert bare.format_version == "chrome trace" and bare.epoch_ns == trace.epoch_ns
    for name, table in trace.tables.items():
        assert np.array_equal(table[table.spec.order], bare.table(name)[table.spec.order])


@settings(deadline=None)
@given(names=st.lists(NAMES, min_size=1, max_size=12), layout=st.sampled_from(LAYOUTS), block=st.integers(16, 700))
def test_names_and_blocks_of_any_kind(file: Path, names: list[str], layout: str, block: int) -> None:
    k = Kineto()
    for i, name in enumerate(names):
        k.op(name, 100 * i, 50, external=i + 1, **{"Concrete Inputs": [name, "]"], "Input Dims": [[i], [[]]]})
    with small_blocks(block):
        trace = read(file, k.text(layout, "epoch"))
    table = trace.table("host_ops")
    assert [trace.strings[code] for code in table["name"]] == names
    assert table["start"].tolist() == [100 * i for i in range(len(names))]
    assert trace.notices == []


def nested(i: int) -> list[Any]:
    """Objects in a list: between them the text looks as it does between two events."""
    return [{"k": j, "v": [{"a": {}}, {"b": "}, {"}]} for j in range(i % 5)]


@settings(deadline=None)
@given(count=st.integers(1, 15), block=st.integers(16, 400), layout=st.sampled_from(LAYOUTS))
def test_objects_inside_of_events(file: Path, count: int, block: int, layout: str) -> None:
    k = Kineto()
    for i in range(count):
        k.op("aten::mm", 10 * i, 5, external=i + 1, extra=nested(i), **{"Concrete Inputs": nested(i + 1)})
    with small_blocks(block):
        trace = read(file, k.text(layout, "epoch"))
    assert trace.table("host_ops")["op"].tolist() == [i + 1 for i in range(count)]
    assert trace.notices == []


@linux
@settings(max_examples=25, deadline=None)
@given(
    steps=st.integers(1, 5),
    block=st.integers(64, 3000),
    unit=st.integers(1, 4),
    layout=st.sampled_from(LAYOUTS),
    n=st.integers(2, 4),
)
def test_several_processes(file: Path, steps: int, block: int, unit: int, layout: str, n: int) -> None:
    k = training(steps)
    for event in k.events[::7]:
        event["ts"] = k.events[0]["ts"]  # rows of one time keep the order of the text
    alone = read(file, k.text(layout))
    with small_blocks(block, unit):
        together = read(file, k.text(layout), processes=n)
    same(alone, together)


@linux
@pytest.mark.parametrize("spoil", ["nested", "halves", "cut", "damaged"])
def test_what_cannot_be_shared_out_is_read_alone(file: Path, spoil: str) -> None:
    k = training(4)
    if spoil == "nested":
        for i, event in enumerate(k.events):
            event.setdefault("args", {})["list"] = nested(i + 3)
    if spoil == "halves":
        for phase, at in (("B", 5), ("E", 2_000_000)):
            k.events.insert(3, {"ph": phase, "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": f"@ns{at}"})
    data = k.text("one line")
    if spoil == "cut":
        data = data[: len(data) * 2 // 3]
    if spoil == "damaged":
        data = data.replace(b'"Buffer Flush"', b'"Buffer "Flush"')
    alone = read(file, data)
    with small_blocks(300):
        together = read(file, data, processes=3)
    same(alone, together)


@linux
def test_a_process_that_dies_costs_nothing_but_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    k = training(4)
    alone = read(file, k.text())
    monkeypatch.setattr(parallel, "leave", lambda share, file: os.kill(os.getpid(), signal.SIGKILL))
    with small_blocks(300):
        same(alone, read(file, k.text(), processes=2))


def children() -> set[str]:
    """Processes that this one started and has not waited for; other tests may keep one, such as a browser's driver."""
    return {child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()}


@linux
def test_no_process_and_no_descriptor_stays_behind(file: Path) -> None:
    data = training(2).text()
    before, others = len(os.listdir("/proc/self/fd")), children()
    with small_blocks(200):
        for cut in (len(data), len(data) // 2):
            read(file, data[:cut], processes=3)
    assert len(os.listdir("/proc/self/fd")) == before
    assert children() == others


def test_gzip(file: Path) -> None:
    data = training(3).text()
    plain = read(file, data)
    same(plain, read(file, gzip.compress(data)))
    half = len(gzip.compress(data)) // 2
    cut = read(file, gzip.compress(data)[:half])
    assert cut.notices[0].code == "input-cut-short" and "gzip" in cut.notices[0].message
    assert 0 < len(cut.table("kernels")) <= len(plain.table("kernels"))


def test_how_many_processes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(training(1).text())
    assert parallel.suitable(Source(file)) == 1
    monkeypatch.setattr(parallel, "_WORTH", 1000)
    processors = len(os.sched_getaffinity(0)) if parallel.POSSIBLE else 1
    assert parallel.suitable(Source(file)) == min(processors, 4)
    assert parallel.suitable(Source(file.with_name("absent"))) == 1


def in_one_process(folder: Path, kineto: Kineto) -> Trace:
    path = folder / "trace.json"
    path.write_bytes(kineto.text("kineto", "decimal"))
    return torch_trace.read(Source(path), processes=1)


def test_events_in_any_order_come_out_ordered(tmp_path: Path) -> None:
    k = training(3)
    straight = in_one_process(tmp_path, k)
    k.events.reverse()
    turned = in_one_process(tmp_path, k)
    for name, table in straight.tables.items():
        key = table.spec.order
        assert list(turned.table(name)[key]) == sorted(table[key])
    assert turned.epoch_ns == straight.epoch_ns == BASE_NS + (ZERO_NS - BASE_NS) + 1_000_000
