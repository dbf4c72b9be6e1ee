"""What is no usable export, and reports that need the user's own nsys."""

from __future__ import annotations

import gzip
import os
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from advisor.ingest import nsys
from advisor.ingest.nsys import convert
from advisor.ingest.source import Source, temporary_folder
from advisor.model import InputError
from build.nsys import NsysExport

REPORT = b"NVIDIA Tegra Profiler Report 2024@2@3@38-1v0!" + bytes(range(256))
STREAM = b"U3w[END]NVIDIA Nsight Systems Stream 2024.2.3" + bytes(99)


def database(path: Path, *statements: str) -> Source:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return Source(path)


def refusal(source: Source) -> str:
    with pytest.raises(InputError) as refused:
        nsys.read(source)
    message = str(refused.value)
    assert len(message.splitlines()) == 1
    return message


def test_another_programs_database(tmp_path: Path) -> None:
    source = database(tmp_path / "a.sqlite", "CREATE TABLE users (id INTEGER)", "INSERT INTO users VALUES (1)")
    assert refusal(source) == "not a trace: an SQLite database, but not one of Nsight Systems"
    assert "not one of Nsight Systems" in refusal(database(tmp_path / "empty.sqlite", "CREATE TABLE t (a)"))


def test_databases_that_look_alike(tmp_path: Path) -> None:
    nvprof = database(
        tmp_path / "n.nvvp", "CREATE TABLE StringTable (a)", "CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (a)"
    )
    assert "nvprof" in refusal(nvprof)
    dlprof = database(tmp_path / "d.sqlite", "CREATE TABLE expert_systems_feedback (a)", "CREATE TABLE read_only_kernels (a)")
    assert "DLProf" in refusal(dlprof)


def test_an_export_without_any_event(tmp_path: Path) -> None:
    export = NsysExport(lazy=False)
    export.gpu()
    assert refusal(Source(export.write(tmp_path / "a.sqlite"))).startswith("no GPU or host events: the export holds tables about")
    export.metadata("CAPTURE_EVENT_TYPE", "Cuda")
    message = refusal(Source(export.write(tmp_path / "a.sqlite")))
    assert "CUDA was traced but no rows were exported; export with the nsys version that captured" in message


def test_names_and_domains_are_no_events(tmp_path: Path) -> None:
    export = NsysExport()
    export.range("NCCL", 1, None, kind=75, domain=1)
    assert refusal(Source(export.write(tmp_path / "a.sqlite"))).startswith("no GPU or host events")
    export.add("OSRT_API", start=1, end=2, eventClass=27, globalTid=5, nameId=export.string("read"))
    assert [notice.code for notice in nsys.read(Source(export.write(tmp_path / "a.sqlite"))).notices] == ["no-gpu-work"]


def test_an_export_cut_before_its_first_event(tmp_path: Path) -> None:
    export = NsysExport()
    for i in range(5000):
        export.kernel("k", i, i + 1)
    path = export.write(tmp_path / "a.sqlite")
    with open(path, "r+b") as file:
        file.truncate(3 * 4096)
    assert refusal(Source(path)).startswith("cut short before the first event")


def test_a_cut_export_gives_what_is_left(tmp_path: Path) -> None:
    export = NsysExport()
    for i in range(5000):
        export.kernel("k", i, i + 1)
    path = export.write(tmp_path / "a.sqlite")
    os.truncate(path, path.stat().st_size * 2 // 3)
    trace = nsys.read(Source(path))
    assert 1000 < len(trace.table("kernels")) < 5000
    assert trace.notices[-1].code == "input-damaged"


def test_a_cut_gzip_of_an_export(tmp_path: Path) -> None:
    export = NsysExport()
    for i in range(5000):
        export.kernel(f"kernel {i % 10}", i * i, i * i + 1)
    packed = gzip.compress(export.write(tmp_path / "a.sqlite").read_bytes())
    (tmp_path / "a.sqlite.gz").write_bytes(packed)
    assert len(nsys.read(Source(tmp_path / "a.sqlite.gz")).table("kernels")) == 5000
    (tmp_path / "a.sqlite.gz").write_bytes(packed[: len(packed) * 2 // 3])
    trace = nsys.read(Source(tmp_path / "a.sqlite.gz"))
    assert 0 < len(trace.table("kernels")) < 5000
    assert "the gzip stream is cut short" in trace.notices[-1].message


def test_an_export_that_was_cut_off_while_it_was_written(tmp_path: Path) -> None:
    export = NsysExport()
    export.kernel("k", 1, 2)
    path = export.write(tmp_path / "a.sqlite")
    (tmp_path / "a.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(600))
    assert "rollback journal" in nsys.read(Source(path)).notices[-1].message


# -- reports -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path: Path) -> Source:
    (tmp_path / "my run.nsys-rep").write_bytes(REPORT)
    return Source(tmp_path / "my run.nsys-rep")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a stand-in for `nsys` on the PATH; `body` is Python that knows `arguments`, `output` and `export`."""

    def _program(body: str) -> None:
        export = NsysExport()
        export.kernel("k", 1, 2)
        export.write(tmp_path / "ready.sqlite")
        folder = tmp_path / "bin"
        folder.mkdir()
        script = folder / "nsys"
        script.write_text(
            f"#!{sys.executable}\nimport shutil, sys, time, subprocess, os\narguments = sys.argv[1:]\n"
            "output = arguments[arguments.index('--output') + 1]\n"
            f"export = {str(tmp_path / 'ready.sqlite')!r}\n{body}\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return _program


def left_over() -> list[Path]:
    return list(temporary_folder().glob("*-export.sqlite"))


def test_magic_of_reports() -> None:
    assert nsys.claims(REPORT)
    assert nsys.claims(STREAM)
    assert not nsys.claims(b"PK\x03\x04" + REPORT)
    assert not nsys.claims(b"")


def test_a_report_is_exported_by_the_users_nsys(report: Source, program) -> None:
    program(
        "assert arguments[:3] == ['export', '--type', 'sqlite'] and sys.stdin.read() == ''\n"
        "assert open(arguments[-1], 'rb').read(5) == b'NVIDI'\nprint('Processing...')\nshutil.copy(export, output)"
    )
    trace = nsys.read(report)
    assert (trace.format, trace.path) == ("nsys-report", report.path)
    assert trace.format_version.startswith("nsys 2024.2")
    assert len(trace.table("kernels")) == 1
    assert left_over() == []
    assert [file.name for file in report.file.parent.glob("my run*")] == ["my run.nsys-rep"]


def test_a_packed_report(tmp_path: Path, program) -> None:
    (tmp_path / "a.qdrep.gz").write_bytes(gzip.compress(REPORT))
    program("assert open(arguments[-1], 'rb').read(5) == b'NVIDI'\nshutil.copy(export, output)")
    assert len(nsys.read(Source(tmp_path / "a.qdrep.gz")).table("kernels")) == 1


def test_without_nsys_the_command_is_named(report: Source, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    message = refusal(report)
    assert message.startswith("a report of nsys 2024.2.3, and `nsys` is not on the PATH")
    assert message.endswith("run: nsys export --type sqlite --output 'my run.sqlite' 'my run.nsys-rep'")


@pytest.mark.parametrize("body", ["sys.exit(1)", "shutil.copy(export, output); sys.exit(3)", "pass", "os.abort()"])
def test_nsys_that_fails(report: Source, program, body: str) -> None:
    program(body)
    assert "`nsys export` failed on a report of nsys 2024.2.3 (an older nsys cannot read it)" in refusal(report)
    assert left_over() == []


def test_nsys_that_leaves_an_empty_export(report: Source, program) -> None:
    program("import sqlite3; sqlite3.connect(output).execute('CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)')")
    assert refusal(report).startswith("no GPU or host events")
    assert left_over() == []


def test_nsys_that_hangs_is_ended_with_its_helpers(report: Source, program, tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    helper = f"import time; time.sleep(2); open({str(mark)!r}, 'w')"
    program(f"subprocess.Popen([sys.executable, '-c', {helper!r}])\ntime.sleep(60)")
    with pytest.raises(InputError, match="took longer than 1 s"):
        convert.exported(report, limit_s=1)
    time.sleep(2)
    assert not mark.exists()


def test_nsys_that_cannot_be_started(report: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nsys").write_text("#!/no/such/interpreter\n")
    (tmp_path / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "`nsys` cannot be started" in refusal(report)


def test_a_raw_recording(tmp_path: Path) -> None:
    (tmp_path / "a.qdstrm").write_bytes(STREAM)
    assert refusal(Source(tmp_path / "a.qdstrm")).endswith("import it first: QdstrmImporter -i a.qdstrm -o a.nsys-rep")
