"""Hostile surroundings of the program: streams that are closed or full, signals, targets that are inputs."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from build.recordings import kineto, write_kineto

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
FULL = Path("/dev/full")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    write_kineto(folder / "rank0.json", rank=0)
    return folder / "rank0.json"


def shell(command: str, *arguments: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`command` in a shell, where `$advisor` is the program and $1, $2 ... are the arguments."""
    program = f'advisor() {{ "{sys.executable}" -m advisor "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", program + command, "shell", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "command", ["analyze $1", "analyze --format json $1", "info $1", "rules", "explain fp32-matmul", "--help"]
)
def test_a_reader_that_left_is_no_failed_condition(command: str, trace: Path) -> None:
    ran = shell(f'advisor {command} | true; echo "${{PIPESTATUS[0]}}"', trace)
    assert ran.stdout.strip() in ("141", "0") and ran.stderr == ""


@pytest.mark.parametrize("command", ["analyze $1", "info $1", "rules", "explain fp32-matmul", "--version"])
def test_closed_or_full_output_is_one_line(command: str, trace: Path) -> None:
    for redirected in (">&-", *([">/dev/full"] if FULL.exists() else [])):
        ran = shell(f"advisor {command} {redirected}", trace)
        assert ran.returncode == 2 and ran.stderr.startswith("error: output: ") and ran.stderr.count("\n") == 1


def test_nobody_listens_to_messages(trace: Path) -> None:
    closed = shell("advisor analyze /absent 2>&-")
    assert closed.returncode == 2 and closed.stdout == ""
    assert shell("advisor info $1 /absent 2>&- <&-", trace).returncode == 0
    if FULL.exists():
        assert shell("advisor analyze /absent 2>/dev/full").returncode == 2
        assert shell("advisor analyze 2>/dev/full").returncode == 2


def test_a_pipe_as_target(trace: Path) -> None:
    ran = shell("advisor info --format json $1 --output /dev/stdout | cat", trace)
    assert ran.stderr == "" and json.loads(ran.stdout)["schema"] == "advisor.info/1"


def test_terminated_by_way_of_the_clean_up(tmp_path: Path) -> None:
    """A rule that waits until the test ends the program, after a temporary folder was made."""
    folder, temporary = tmp_path / "rules", tmp_path / "tmp"
    folder.mkdir()
    temporary.mkdir()
    (folder / "slow-rule.toml").write_text('id = "slow-rule"\nfamily = "custom"\ntitle = "t"\nsummary = "s"\n')
    (folder / "slow_rule.py").write_text("import time\n\n\ndef detect(ctx):\n    time.sleep(60)\n")
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        data = json.dumps(kineto()).encode()
        member = tarfile.TarInfo("rank0.json")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    command = [sys.executable, "-m", "advisor", "analyze", str(tmp_path / "all.tar.gz"), "--rules", str(folder)]
    running = subprocess.Popen([*command, "--select", "slow-rule"], env={**os.environ, "TMPDIR": str(temporary)})
    try:
        end = time.monotonic() + 30
        while not list(temporary.glob("*/*")) and time.monotonic() < end:
            time.sleep(0.02)
        assert list(temporary.glob("*/*"))
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 128 + signal.SIGTERM
    finally:
        running.kill()
        running.wait()
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("command", ["analyze", "info"])
def test_no_input_is_overwritten_however_it_was_named(command: str, trace: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(trace, "rank0.json")
    for given, target in (
        (trace, trace),
        (trace.parent, trace),
        (trace.parent / "rank*.json", trace),
        (tmp_path / "all.tar", tmp_path / "all.tar"),
    ):
        before = target.read_bytes()
        ran = shell(f'advisor {command} "$1" --output "$2"', given, target)
        assert ran.returncode == 2 and "is one of the inputs" in ran.stderr and target.read_bytes() == before


@pytest.mark.parametrize("command", ["analyze", "info"])
def test_a_report_beside_its_inputs_is_replaced(command: str, trace: Path) -> None:
    report = trace.parent / ("r" * 240 + ".json")
    for _ in range(2):
        ran = shell(f"advisor {command} --format json $1 --output $2", trace.parent, report)
        assert ran.returncode == 0 and json.loads(report.read_text())
    assert sorted(path.name for path in trace.parent.iterdir()) == sorted([trace.name, report.name])


@pytest.mark.parametrize("target", ["", ".", "absent/report.txt", "/proc/report.txt"])
@pytest.mark.parametrize("command", ["analyze", "info"])
def test_impossible_targets_are_told(command: str, target: str, trace: Path) -> None:
    ran = shell(f'advisor {command} "$1" --output "$2"', trace, target)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr and ".advisor-" not in ran.stderr


def test_info_is_ascii(tmp_path: Path) -> None:
    name = os.fsdecode("turned\u202e\u2066".encode() + b"\xff.json")
    document = kineto()
    document["deviceProperties"] = [{"id": 0, "name": "GPU \x1b[31m\u202e\ud800"}]
    (tmp_path / name).write_text(json.dumps(document))
    ran = shell("advisor info --format json $1", tmp_path)
    assert ran.returncode == 0 and ran.stdout.isascii() and "\x1b" not in ran.stdout
    assert json.loads(ran.stdout)["files"][0]["path"].endswith("turned\u202e\u2066\ufffd.json")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_without_colour(trace: Path) -> None:
    outer, inner = os.openpty()
    command = [sys.executable, "-m", "advisor", "analyze", str(trace)]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    running = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env={**environment, "TERM": "dumb"})
    os.close(inner)
    shown = b""
    try:
        while part := os.read(outer, 65536):
            shown += part
    except OSError:  # how Linux says that the other side was closed
        pass
    assert running.wait(30) == 0 and b"advisor" in shown and b"\x1b" not in shown
