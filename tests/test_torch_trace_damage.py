"""Damaged, cut and foreign text: what is whole is read, what is lost is counted, nothing else happens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.ingest import torch_trace
from advisor.ingest.source import Source
from advisor.ingest.torch_trace import scan
from advisor.ingest.torch_trace.repair import object_end, repaired
from advisor.model import InputError, Trace
from build.kineto import LAYOUTS, Kineto, training


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage") / "trace.json"


def read(file: Path, data: bytes) -> Trace:
    file.write_bytes(data)
    return torch_trace.read(Source(file), processes=1)


def names(trace: Trace, table: str = "host_ops") -> list[str]:
    return [trace.strings[code] for code in trace.table(table)["name"]]


def notices(trace: Trace) -> dict[str, str]:
    return {notice.code: notice.message for notice in trace.notices}


def ops(count: int = 5, name: str = "aten::mm") -> Kineto:
    k = Kineto()
    for i in range(count):
        k.op(f"{name}{i}", 100 * i, 50, external=i + 1)
    return k


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cut_anywhere_the_events_before_are_kept(file: Path, layout: str) -> None:
    data = ops(4).text(layout, "epoch")
    ends = [match.end() for match in re.finditer(rb'"Ev Idx"\s*:\s*0\s*\}\s*\}', data)]
    closed = len(data.rstrip()) - 1  # the last closing bracket
    assert len(ends) == 4
    edges = {near for edge in (*ends, closed, len(data)) for near in range(edge - 3, edge + 4)}
    for cut in sorted(set(range(0, len(data), 11)) | edges & set(range(len(data) + 1))):
        whole = sum(end <= cut for end in ends)
        if not whole:
            with pytest.raises(InputError):
                read(file, data[:cut])
            continue
        trace = read(file, data[:cut])
        assert len(trace.table("host_ops")) == whole, cut
        assert ("input-cut-short" in notices(trace)) == (cut <= closed), cut


def damaged(text: bytes, old: bytes, new: bytes) -> bytes:
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.mark.parametrize("layout", ["kineto", "one line", "indented", "list", "lines"])
@pytest.mark.parametrize("which", [0, 2, 4])
@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("aten::mm%d", 'a "quoted" name', 'a "quoted" name'),
        ("aten::mm%d", r"C:\Users\x", r"C:\Users\x"),
        ("aten::mm%d", "a\tb\x01c", "a b c"),
        ("aten::mm%d", "a\\ud800b", "a?b"),
        ("aten::mm%d", "a\\u12", "a\\u12"),
        ("aten::mm%d", "\udcffx", "\ufffdx"),
    ],
)
def test_repaired(file: Path, layout: str, which: int, old: str, new: str, name: str) -> None:
    text = ops().text(layout, "epoch")
    text = damaged(text, (old % which).encode(), new.encode("utf-8", "surrogateescape"))
    trace = read(file, text)
    assert names(trace) == [name if i == which else f"aten::mm{i}" for i in range(5)]
    assert notices(trace) == {"events-repaired": "1 event read although not quite JSON"}


@pytest.mark.parametrize("layout", ["kineto", "one line", "indented", "list"])
@pytest.mark.parametrize("which", [0, 2, 4])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none(file: Path, layout: str, which: int, value: str) -> None:
    k = Kineto()
    for i in range(5):
        k.kernel(f"f{i}", 100 * i, 50, correlation=i + 1, **{"est. achieved occupancy %": 70 + i})
    text = re.sub(rf'(occupancy %"\s*:\s*){70 + which}\b', rf"\g<1>{value}", k.text(layout, "epoch").decode())
    trace = read(file, text.encode())
    assert names(trace, "kernels") == [f"f{i}" for i in range(5)]
    assert trace.table("kernels").known("occupancy").tolist() == [i != which for i in range(5)]


@pytest.mark.parametrize("layout", ["kineto", "one line", "indented"])
@pytest.mark.parametrize("which", [0, 2, 4])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"cat"', "cat"),  # a missing quote before a key shifts all that follow
        ('"cat"', 'cat"'),
        ('"External id"', "External id"),
        (r"\}", ""),  # the closing brace of args
        (r'"name"', '"name":'),
    ],
)
def test_beyond_repair_costs_that_event(file: Path, layout: str, which: int, old: str, new: str) -> None:
    k = ops()
    text = k.text(layout)
    begin = text.index(b"aten::mm%d" % which) - 60
    text = text[:begin] + re.sub(old.encode(), new.encode(), text[begin:], count=1)
    trace = read(file, text)
    kept = names(trace)
    assert {f"aten::mm{i}" for i in range(5) if abs(i - which) > 1} <= set(kept)
    assert len(kept) >= 4
    if len(kept) < 5:
        assert "events-dropped" in notices(trace)


@pytest.mark.parametrize(
    "thing", ["null", "5", '"text"', "[1, [2]]", "{}", '{"ph": 3}', '{"ph": "Q"}', '{"a": {"b": 1}}', "]", "}", ":", "nonsense"]
)
@pytest.mark.parametrize("layout", ["kineto", "one line", "indented", "list"])
def test_things_between_events(file: Path, thing: str, layout: str) -> None:
    k = ops(4)
    k.events.insert(2, "THING")  # type: ignore[arg-type]
    k.events.insert(3, "THING")  # type: ignore[arg-type]
    text = _with_things(k, layout).replace(b'"THING"', thing.encode())
    trace = read(file, text)
    assert names(trace) == [f"aten::mm{i}" for i in range(4)]
    assert "events-dropped" in notices(trace)


def _with_things(k: Kineto, layout: str) -> bytes:
    """The text; the layouts that write an event over several lines cannot take a thing that is none."""
    return k.text("newer" if layout == "kineto" else layout, "epoch")


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("tid", None), ("tid", True), ("tid", [1]), ("tid", "main"), ("pid", None), ("pid", 1.5), ("pid", 1 << 70),
        ("args", None), ("args", []), ("args", {}), ("args", {"External id": None}), ("args", {"External id": True}),
        ("args", {"External id": "12"}),
        ("args", {"External id": 1 << 80}), ("args", {"External id": {}}), ("args", {"Input Dims": None, "Sequence number": 1.5}),
        ("args", {"Call stack": 5}), ("cat", None), ("cat", "\0instant"), ("cat", ""),
        ("name", None), ("name", 5), ("name", ["x"]), ("args", {"grid": "grid(8,)"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("table", ["host_ops", "kernels", "copies", "python_frames", "runtime_calls", "ranges", "sync_events"])
def test_fields_of_other_types(file: Path, change: str, value: object, table: str) -> None:
    write = {
        "host_ops": lambda k, at: k.op("x", at, 5),
        "kernels": lambda k, at: k.kernel("x", at, 5, correlation=at),
        "copies": lambda k, at: k.gpu("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at, 5, correlation=at),
        "python_frames": lambda k, at: k.frame("x", at, 5, number=at),
        "runtime_calls": lambda k, at: k.call("cudaLaunchKernel", at, 5, correlation=at),
        "ranges": lambda k, at: k.range("x", at, 5),
        "sync_events": lambda k, at: k.gpu("cuda_sync", "Stream Sync", at, 5, correlation=at),
    }[table]
    k = Kineto()
    for at in (10, 20, 30):
        write(k, at)
    k.events[1][change] = value
    trace = read(file, k.text())
    expected = 2 if change == "cat" else 3
    assert trace.table(table)["start"].tolist() == ([0, 20] if expected == 2 else [0, 10, 20])


def test_metadata_of_any_kind_or_damaged(file: Path) -> None:
    odd = {"baseTimeNanoseconds": "x", "deviceProperties": "none", "distributedInfo": 3, "schemaVersion": [], "with_stack": {}}
    trace = read(file, json.dumps({**odd, "traceEvents": json.loads(ops().text("list", "epoch"))}).encode())
    assert len(trace.table("host_ops")) == 5 and trace.format_version == "chrome trace"
    text = ops().text("one line")
    for spoiled, told in (
        (b'{"a": "C:\\Users", ', False),  # what is not asked for may be anything
        (b'{"a": [}, ', False),
        (b"{,,", False),
        (b'{"a": {"b": "traceEvents"}, ', False),
        (b'{"a": "un"escaped", ', True),
        (b'{"a" 5, ', True),
    ):
        trace = read(file, spoiled + text[1:])
        assert names(trace) == [f"aten::mm{i}" for i in range(5)], spoiled
        assert set(notices(trace)) == ({"metadata-damaged"} if told else set()), spoiled
    behind = text.replace(b'"traceName":', b'"traceName"')
    assert set(notices(read(file, behind))) == {"metadata-damaged"}


def test_metadata_behind_a_damaged_last_event(file: Path) -> None:
    k = ops()
    k.metadata["distributedInfo"] = {"rank": 3}
    text = damaged(k.text("late metadata"), b'"aten::mm4"', b'"aten "mm"4"')
    trace = read(file, text)
    assert trace.rank == 3 and len(trace.table("host_ops")) == 5


@pytest.mark.parametrize("more", [b'{"traceEvents": [{"ph": "X"}]}', b"[1]", b"}", b"rest", b"\n\n{"])
def test_text_behind_the_trace(file: Path, more: bytes) -> None:
    for layout in ("kineto", "list"):
        trace = read(file, ops().text(layout, "epoch") + more)
        assert len(trace.table("host_ops")) == 5
        assert "text-after-end" in notices(trace)


def test_padding_behind_the_trace_is_none(file: Path) -> None:
    assert notices(read(file, ops().text() + b"\n\0\0 \r\n")) == {}


def test_a_document_without_events_before_the_trace(file: Path) -> None:
    assert len(read(file, b'{"traceName": "x"}\n{}' + ops().text()).table("host_ops")) == 5


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[",
        b"[[1,2]]",
        b"{}",
        b"[]",
        b"null",
        b'{"traceEvents": {}}',
        b'{"traceEvents": 3}',
        b"\xff" * 100,
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'"' * 9999,
        b"[{" * 50_000,
    ],
)
def test_no_trace(file: Path, text: bytes) -> None:
    with pytest.raises(InputError) as error:
        read(file, text)
    assert "\n" not in str(error.value)


def test_deep_nesting_inside_of_an_event(file: Path) -> None:
    k = ops(3)
    text = damaged(k.text(), b'"External id": 2', b'"External id": 2, "x": ' + b"[" * 50_000 + b"]" * 50_000)
    assert names(read(file, text)) in ([f"aten::mm{i}" for i in (0, 2)], [f"aten::mm{i}" for i in (0, 1, 2)])


def test_a_text_that_is_one_endless_event(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_LOOKAHEAD", 1 << 16)
    text = ops().text()
    begin = text.index(b'"aten::mm2"')
    trace = read(file, text[:begin] + b'"' + b"x" * 1_000_000 + text[begin:])
    assert names(trace)[:2] == ["aten::mm0", "aten::mm1"] and len(names(trace)) >= 4


TOKENS = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\0",
    b"\xff",
    b"\n",
    b"NaN",
    b"null",
    b"-1",
    b"}, {",
    b'"ph": "X"',
    b"1e999",
]


@settings(max_examples=300, deadline=None)
@given(layout=st.sampled_from(LAYOUTS), data=st.data())
def test_any_damage_gives_a_trace_or_an_input_error(file: Path, layout: str, data: st.DataObject) -> None:
    text = bytearray(training(2).text(layout, data.draw(st.sampled_from(["decimal", "epoch", "string"]))))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.sampled_from([0, 0, 1, 1, 5, 60]))
        text[at : at + length] = data.draw(st.sampled_from(TOKENS) | st.binary(max_size=4))
    try:
        trace = read(file, bytes(text))
    except InputError as error:
        assert "\n" not in str(error)
        return
    for table in trace.tables.values():
        table.to_pandas(trace.strings)
        assert bool((table[table.spec.order] >= 0).all())
    json.dumps([notice.message for notice in trace.notices], ensure_ascii=False).encode()


@settings(max_examples=200, deadline=None)
@given(
    layout=st.sampled_from(["kineto", "one line", "indented"]),
    at=st.floats(0, 1, exclude_max=True),
    token=st.sampled_from(TOKENS),
)
def test_one_spoiled_byte_costs_few_events(file: Path, layout: str, at: float, token: bytes) -> None:
    text = ops(30).text(layout)
    begin, end = text.index(b"aten::mm0") - 30, text.rindex(b"}", 0, text.rindex(b"]")) - 20
    place = begin + int(at * (end - begin))
    trace = read(file, text[:place] + token + text[place + 1 :])
    assert len(trace.table("host_ops")) >= 28


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(),
        lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(), v, max_size=4),
        max_leaves=10,
    )
)
def test_repair_leaves_good_json_alone(value: object) -> None:
    text = json.dumps({"x": value}).encode()
    assert repaired(text) == {"x": value}
    assert object_end(text, 0, len(text)) == (len(text), False)
