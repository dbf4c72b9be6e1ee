"""Logs in any encoding, damaged anywhere: a Trace or an InputError of one line, never anything else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.ingest import nvidia_smi
from advisor.ingest.nvidia_smi.text import LineReader
from advisor.ingest.nvidia_smi.values import command
from advisor.ingest.source import Source
from advisor.model import InputError, Trace
from build import smi

SHARED = Path(__file__).resolve().parents[1] / "../shared"


def read(folder: Path, data: bytes) -> Trace | None:
    """The trace, None for a refusal; what both must hold is checked."""
    file = folder / "x.log"
    file.write_bytes(data)
    nvidia_smi.claims(data[: 1 << 16])
    try:
        trace = nvidia_smi.read(Source(file))
    except InputError as error:
        assert "\n" not in str(error) and str(error)
        return None
    for table in trace.tables.values():
        for column in table.spec.columns:
            if column.unit == "text" and len(table):
                assert table[column.name].min() >= -1 and table[column.name].max() < len(trace.strings)
        if "time" in table.column_names and len(table):
            assert table["time"].min() >= 0
    return trace


@cache
def logs() -> dict[str, bytes]:
    log = smi.samples(6, 2, values={"clocks_event_reasons.active": 4})
    processes = [(0, 77, "C", "/usr/bin/python", 500)]
    texts = {
        "csv": smi.query_csv(log, [*smi.FIELDS, "uuid", "pstate", "clocks_event_reasons.active"]),
        "folded": 'timestamp,utilization.gpu,memory.used\n2026/03/02 09:30:00.000,"45\n50","1000\n1200"\n' * 3,
        "dmon": smi.dmon(log),
        "pmon": smi.pmon([(0, 4711, "C", 97, 41, 8123, "python")] * 4),
        "table": smi.table(log[:4], processes),
        "query": smi.query_text(log[:4]),
        "xml": smi.query_xml(log[:4], processes=[(9, "C", "/bin/python", 300)]),
        "topology": smi.topology({"GPU0": ["X", "NV18"], "GPU1": ["NV18", "X"]}),
        "mixed": smi.table(log[:2]) + smi.query_csv(log) + smi.dmon(log) + smi.query_xml(log[:1]),
    }
    return {name: text.encode() for name, text in texts.items()}


KINDS = sorted(["csv", "folded", "dmon", "pmon", "table", "query", "xml", "topology", "mixed"])


@pytest.mark.parametrize("kind", KINDS)
def test_cut_at_every_line(tmp_path: Path, kind: str) -> None:
    data = logs()[kind]
    rows = 0
    for end in [i + 1 for i, byte in enumerate(data) if byte == 10]:
        trace = read(tmp_path, data[:end])
        now = 0 if trace is None else len(trace.table("device_samples")) + len(trace.table("device_processes"))
        assert now >= rows  # what was read before is still read
        rows = now


PIECES = [
    b'"',
    b",",
    b"\n",
    b"\0" * 9,
    b"\x1b[4m",
    b"9" * 25,
    b"-1",
    b"1e309",
    b"0x" + b"f" * 20,
    b"\r",
    b"<gpu>",
    b"\xff\xfe",
    b"|",
    b"#",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_anywhere(tmp_path: Path, data: st.DataObject) -> None:
    text = bytearray(logs()[data.draw(st.sampled_from(KINDS))])
    for _ in range(data.draw(st.integers(1, 12))):
        at, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 30))
        change = data.draw(st.sampled_from(["cut", "drop", "copy", "insert", "flip"]))
        if change == "cut":
            del text[at:]
        elif change == "drop":
            del text[at : at + length]
        elif change == "copy":
            text[at:at] = text[: 3 * length]
        elif change == "insert":
            text[at:at] = data.draw(st.sampled_from(PIECES) | st.binary(max_size=8))
        else:
            text[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
    started = time.process_time()
    read(tmp_path, bytes(text))
    assert time.process_time() - started < 5


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_anything_else_is_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    read(tmp_path, data)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings(tmp_path: Path, encoding: str, end: str) -> None:
    log = smi.samples(30, values={"name": "GPU ünïted"})
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    trace = read(tmp_path, (mark + smi.query_csv(log).replace("\n", end)).encode(encoding))
    assert trace is not None
    assert len(trace.table("device_samples")) == 30
    assert trace.devices[0].name == "GPU ünïted"
    assert trace.notices == []


def test_runs_of_nul_from_several_writers(tmp_path: Path) -> None:
    lines = smi.query_csv(smi.samples(30)).encode().splitlines(keepends=True)
    trace = read(tmp_path, b"".join(lines[:12]) + b"\0" * 3000 + b"".join(lines[12:]))
    assert trace is not None and len(trace.table("device_samples")) == 30
    at_start = read(tmp_path, b"\0" * 3000 + b"".join(lines))
    assert at_start is not None and len(at_start.table("device_samples")) == 30


class _Drips:
    """A stream that gives few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._parts: Iterator[bytes] = iter([data[i : i + size] for i in range(0, len(data), size)])

    def read(self, size: int) -> bytes:
        return next(self._parts, b"")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_lines_do_not_depend_on_where_blocks_end(size: int, encoding: str) -> None:
    text = "a, ü\r\nb\x1b[4mc\x1b[0m\r\n\r\nlast"
    reader = LineReader(_Drips(text.encode(encoding), max(size, 4 if encoding == "utf-16" else 1)))  # type: ignore[arg-type]
    lines = [line for block in reader for line in block]
    assert lines == ["a, ü", "bc", "", "last"]
    assert not reader.terminated


def test_one_endless_line_is_no_trap(tmp_path: Path) -> None:
    started = time.process_time()
    assert read(tmp_path, b"timestamp, index, utilization.gpu [%]" + b", 1" * 3_000_000) is None
    assert read(tmp_path, b"<nvidia_smi_log>" + b"<a>" * 100_000) is None
    assert read(tmp_path, b'"' + b"a\n" * 500_000) is None
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/home/ada/env/bin/python", "python"),
        ("/usr/bin/python3 /home/ada/train.py --token abc", "python3"),
        ("python train.py", "python"),
        ("python -m torch.distributed.run", "python"),
        (r"C:\Users\ada\App Data\chrome.exe --type=gpu", "chrome.exe"),
        (r"...\ada\python.exe", "python.exe"),
        ("GNOME Shell", "GNOME Shell"),
        ("ray::train", "ray::train"),
        ("/home/ada", None),
        (r"C:\Users\ada", None),
        ("/", None),
        ("[Not Found]", None),
        ("-", None),
        ("", None),
    ],
)
def test_commands_keep_the_program_alone(text: str, name: str | None) -> None:
    assert command(text) == name


@pytest.mark.parametrize("kind", ["csv", "dmon"])
def test_a_long_log_is_read_by_columns(tmp_path: Path, kind: str) -> None:
    log = smi.samples(2500, 8)
    text = smi.query_csv(log) if kind == "csv" else smi.dmon(log)
    lines = text.splitlines(keepends=True)
    data = "".join([*lines, *lines[1:] * 4]).encode()  # 100,000 rows
    started = time.process_time()
    trace = read(tmp_path, data)
    assert trace is not None and len(trace.table("device_samples")) == 100_000
    assert time.process_time() - started < 10  # takes 0.5 s


@pytest.mark.shared
def test_public_logs_give_the_known_facts() -> None:
    import json

    folder = SHARED / "traces"
    if not folder.is_dir():
        pytest.skip("no recordings here")
    facts = {k: v for k, v in json.loads((folder / "facts.json").read_text()).items() if k.startswith("nvidia-smi/")}
    assert facts
    for key, fact in facts.items():
        try:
            trace = nvidia_smi.read(Source(folder / key))
        except InputError:
            assert fact["refused"] is not False, key
            continue
        assert fact["refused"] is not True, key
        assert fact["format"] in (None, trace.format), key
        count, found = fact["tables"]["device_samples"], len(trace.table("device_samples"))
        assert count is None or found in (count if isinstance(count, list) else [count]), key
        assert fact["device_count"] in (None, len(trace.devices)), key
