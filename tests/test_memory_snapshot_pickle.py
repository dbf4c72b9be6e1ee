"""The machine that reads pickles of plain data: the same values as the standard library, and no power to do more."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.ingest import NothingRead, load_traces
from advisor.ingest.memory_snapshot.machine import Machine
from advisor.ingest.source import Source, UnknownKind
from advisor.model import InputError
from build.snapshot import MIB, Allocator

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def run(data: bytes, most: int = 1 << 24) -> tuple[Any, dict[int, list[Any]], Machine]:
    """(the object, history of each device, the machine)."""
    history: dict[int, list[Any]] = {}
    machine = Machine(io.BytesIO(data), lambda device, events: history.setdefault(device, []).extend(events), most)
    return machine.run(), history, machine


def allocator(events: int = 40) -> Allocator:
    a = Allocator()
    a.segment(64 * MIB)
    for i in range(events // 3):
        a.free(a.alloc(MIB * (1 + i % 3), f"train.py:{10 + i % 4} step; model.py:3 forward; train.py:50 main"))
    a.alloc(MIB, "at::_ops::mm::call(at::Tensor const&); train.py:12 step")
    return a


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5)
    | st.tuples(inner) | st.tuples(inner, inner) | st.tuples(inner, inner, inner) | st.tuples(inner, inner, inner, inner),
    max_leaves=30,
)  # fmt: skip


@given(PLAIN, st.sampled_from(PROTOCOLS))
@settings(max_examples=300, deadline=None)
def test_plain_data_is_what_the_standard_library_reads(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    try:
        assert run(data)[0] == value
    except UnknownKind:  # protocols 0 to 2 have no bytes, and call a function for them
        assert (protocol < 3 and b"bytes" in data) or b"_codecs" in data


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("events", [0, 1, 2, 40, 4000])
def test_the_history_is_handed_on_and_not_kept(protocol: int, events: int) -> None:
    a = allocator(3 * events)
    a.events = a.events[:events]
    snapshot = a.snapshot()
    top, history, machine = run(pickle.dumps(snapshot, protocol))
    assert history.get(0, []) == snapshot["device_traces"][0]
    assert top["segments"] == snapshot["segments"] and top["allocator_settings"] == snapshot["allocator_settings"]
    assert all(len(one) == 0 for one in top["device_traces"]) and not machine.cut


def test_every_device_has_its_history() -> None:
    a, b = allocator(9), Allocator(device=3)
    b.alloc(5)
    snapshot = {**a.snapshot(), "device_traces": [a.events, [], [], b.events, []]}
    for protocol in PROTOCOLS:
        _, history, _ = run(pickle.dumps(snapshot, protocol))
        assert {device: events for device, events in history.items() if events} == {0: a.events, 3: b.events}


def test_texts_and_stacks_across_the_parts_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies across the border of two parts comes out the same."""
    from advisor.ingest.memory_snapshot import machine

    snapshot = allocator(60).snapshot()
    data = pickle.dumps(snapshot, 4)
    monkeypatch.setattr(machine, "_NEEDED", 16)
    for part in (1, 7, 64, 999):
        monkeypatch.setattr(machine, "_PART", part)
        top, history, _ = run(data)
        assert history[0] == snapshot["device_traces"][0] and top["segments"] == snapshot["segments"]


def test_a_reference_that_is_set_anew_means_its_new_value() -> None:
    """Equal bytes are one stack only as long as what they refer to is the same."""
    code = b"\x80\x02](U\x01aq\x000U\x01bq\x010](h\x00h\x00eU\x01cq\x000](h\x00h\x00ee."
    assert run(code)[0] == pickle.loads(code) == [["a", "a"], ["c", "c"]]


class Call:
    """Pickles into a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


class Slots:
    """Pickles by copyreg or NEWOBJ."""

    def __init__(self) -> None:
        self.value = 1


def hostile(protocol: int) -> list[tuple[str, bytes]]:
    """(what it asks for, pickle) of programs hidden at several places of a snapshot."""
    found = []
    for wanted, value in (
        ("system", Call(os.system, "touch exploded")),
        ("eval", Call(eval, "open('exploded', 'w')")),
        ("Slots", Slots()),
    ):
        snapshot = allocator(12).snapshot()
        snapshot["device_traces"][0][5]["frames"] = value
        found.append((wanted, pickle.dumps(snapshot, protocol)))
        found.append((wanted, pickle.dumps({"segments": [value], "device_traces": [[]]}, protocol)))
        found.append((wanted, pickle.dumps({"segments": [], "device_traces": value}, protocol)))
        found.append((wanted, pickle.dumps({"device_traces": [[]], "segments": [{"a": [{"b": (1, value)}]}]}, protocol)))
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_file_asks_for_is_named_and_never_done(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (wanted, data) in enumerate(hostile(protocol)):
        path = tmp_path / f"{number}.pickle"
        path.write_bytes(data)
        _, [(_, reason)], _ = load_traces([path])
        assert "Python pickle" in reason and "never loaded" in reason and "\n" not in reason
        assert wanted in reason or "_reconstructor" in reason or "copyreg" in reason, reason
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (b"\x80\x02cos\nsystem\n.", "os.system"),
        (b"\x80\x02(ios\nsystem\n.", "os.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"\x80\x02}R.", "REDUCE"),
        (b"\x80\x02}}b.", "BUILD"),
        (b"\x80\x02(}o.", "OBJ"),
        (b"\x80\x02}}\x81.", "NEWOBJ"),
        (b"\x80\x04}}}\x92.", "NEWOBJ_EX"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02\x83\x01\x01.", "EXT2"),
        (b"\x80\x02\x84\x01\x01\x01\x01.", "EXT4"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"\x80\x02Pmine\n.", "outside it"),
        (b"\x80\x02K\x01Q.", "outside it"),
        (b"\x80\x02cos\nsys", "something"),
        (b"\x80\x02c\x1b[31mos\nsystem\n.", "?[31mos.system"),
    ],
)
def test_instructions_that_are_not_of_data(code: bytes, words: str) -> None:
    with pytest.raises(UnknownKind) as refused:
        run(code)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "code",
    [
        b"\x80\x04}(\x8c\x01a\x8d" + struct.pack("<Q", 1 << 62),  # a text of exabytes
        b"\x80\x02X" + struct.pack("<I", 0xFFFFFFFF),
        b"\x80\x02\x8b" + struct.pack("<i", 0x7FFFFFFF),  # a number of gigabytes
        b"\x80\x02\x8b" + struct.pack("<i", -1),
        b"\x80\x02\x8b" + struct.pack("<i", 2000) + bytes(2000),
        b"\x80\x02}r" + struct.pack("<I", 0xFFFFFFF0) + b".",  # a memo of gigabytes
        b"\x80\x02}q\x05.",
        b"}p999999999999999999999\n.",
        b"I" + b"9" * 5000 + b"\n.",
        b"L" + b"9" * 5000 + b"L\n.",
        b"(" * 100_000,
        b"\x80\x04h\x00.",  # a reference to nothing
        b"\x80\x04e.", b"\x80\x04u.", b"\x80\x04.", b"\x80\x04s.", b"\x80\x04\x86.", b"\x80\x040000.", b"\x80\x041.",
        b"\x80\x04}]K\x01s.",  # an unhashable key
        b"\x80\x04})K\x01s.",  # a tuple as key: its hash may take for ever
        b"\x80\x04K\x01(K\x02e.", b"\x80\x04](K\x01u.", b"\x80\x04}(K\x01u.", b"\x80\x04}(K\x01e.",
        b"\x80\x04\xff.", b"\x80\x04\x00", b"Iabc\n.", b"Fabc\n.", b"g-1\n.", b"V\\uZZZZ\n.",
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_one_line(code: bytes) -> None:
    with pytest.raises(InputError) as refused:
        run(code)
    assert "\n" not in str(refused.value)


def test_tuples_that_double_cost_nothing() -> None:
    """Each tuple holds the one before twice: two to the power of a thousand leaves, a thousand objects."""
    bomb = b"\x80\x04)\x94" + b"h\x00h\x00\x86\x94" + b"".join(
        b"j" + struct.pack("<I", i) + b"j" + struct.pack("<I", i) + b"\x86\x94" for i in range(1, 1000)
    )  # fmt: skip
    assert isinstance(run(bomb + b".")[0], tuple)
    with pytest.raises(InputError):
        run(b"\x80\x04}" + bomb[2:] + b"K\x01s.")


@pytest.mark.parametrize("fill", [b"N", b"}", b"]", b"}\x94", b"](]e", b"}(h\x00h\x00u"])
def test_many_values_are_refused_before_memory_ends(fill: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.ingest.memory_snapshot import machine

    monkeypatch.setattr(machine, "_PART", 1 << 12)
    monkeypatch.setattr(machine, "_MOST_VALUES", 10_000)
    monkeypatch.setattr(machine, "_MOST_REFERENCES", 10_000)
    with pytest.raises(InputError, match="more values"):
        run(b"\x80\x04\x8c\x01a\x94](" + fill * 40_000)


def test_events_that_are_kept_elsewhere_count() -> None:
    """An event that a hostile file puts into a list of its own is not free again."""
    start = b"\x80\x04}(\x8c\x01a\x94]\x94\x8c\x0ddevice_traces](]("
    one = b"h\x01}(" + b"".join(b"K%cN" % i for i in range(200)) + b"uaN"  # append to the list of the memo
    _, _, machine = run(start + one * 50)
    assert machine._kept + machine._pending >= 50 * 200
    _, _, machine = run(start + (one * 5 + b"e](") * 50)
    assert machine._kept + machine._pending >= 50 * 5 * 400


def test_a_bomb_in_gzip_stops_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.ingest.memory_snapshot._HARMLESS", 1 << 20)
    data = b"\x80\x04}(\x8c\x08segments](" + b"N0" * 6_000_000
    path = tmp_path / "bomb.pickle.gz"
    path.write_bytes(gzip.compress(data, 1))
    _, [(_, reason)], _ = load_traces([path])
    assert "times its size" in reason


@given(st.integers(0, 10**9), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4), st.integers(0, 3))
@settings(max_examples=400, deadline=None)
def test_damage_gives_data_or_one_line(cut: int, changes: list[tuple[int, int]], seed: int) -> None:
    data = bytearray(pickle.dumps(allocator(60).snapshot(), (4, 2, 0, 5)[seed]))
    for at, value in changes:
        data[at % len(data)] = value
    if cut % 2:
        del data[cut % len(data) :]
    try:
        run(bytes(data))
    except InputError as error:
        assert str(error) and "\n" not in str(error)


@given(st.binary(max_size=300))
@settings(max_examples=500, deadline=None)
def test_any_bytes(data: bytes) -> None:
    try:
        run(b"\x80\x04" + data)
    except InputError as error:
        assert str(error) and "\n" not in str(error)


def test_a_snapshot_that_ends_early_gives_what_it_has(tmp_path: Path) -> None:
    a = allocator(6000)
    data = pickle.dumps(a.snapshot(), 4)
    path = tmp_path / "cut.pickle"
    path.write_bytes(data[: len(data) * 2 // 3])
    [trace], _, _ = load_traces([path])
    assert len(trace.table("memory_segments")) == 1
    assert 1000 < len(trace.table("allocator_events")) < len(a.events)
    assert [notice.code for notice in trace.notices] == ["cut-short"]


def test_pickles_of_other_things_are_skipped_in_a_folder(tmp_path: Path) -> None:
    allocator().write(tmp_path / "snapshot.pickle")
    (tmp_path / "other.pickle").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(Call(os.system, "touch exploded")))
    [trace], problems, notices = load_traces([tmp_path])
    assert trace.format == "cuda-memory-snapshot" and not problems
    assert any("2 files of other kinds" in notice.message for notice in notices)
    with pytest.raises(NothingRead, match="holds no memory snapshot"):
        from advisor.ingest import load

        load([tmp_path / "other.pickle"])


def test_a_source_is_claimed_in_every_protocol(tmp_path: Path) -> None:
    for protocol in PROTOCOLS:
        path = allocator().write(tmp_path / f"{protocol}.bin", protocol)
        [trace], _, _ = load_traces([path])
        assert trace.format == "cuda-memory-snapshot" and len(trace.table("allocator_events")) > 30
    bare = tmp_path / "bare.bin"
    for protocol in PROTOCOLS:
        bare.write_bytes(pickle.dumps(allocator().state(), protocol))
        [trace], _, _ = load_traces([Source(bare).path])
        assert trace.format_version == "list of segments" and len(trace.table("memory_blocks")) == 2
