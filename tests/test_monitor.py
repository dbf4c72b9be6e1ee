"""`advisor monitor`: what it shows, writes and says, on a driver that tests/build/driver/ stands in for."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import advisor
from advisor.hook.nvml import Reading
from advisor.model import THROTTLE_WORDS, ThrottleReason
from advisor.monitor import view
from advisor.monitor.gpus import GpusOfProcess, these
from advisor.monitor.readings import Beat, Histories, Rows, beats
from advisor.monitor.sparkline import ASCII, BLOCKS, sparkline

DRIVER = Path(__file__).parent / "build" / "driver"
HOT = {"reasons": 0x20, "clock": 1200, "temperature": 88}
FAST = ["--interval", "0.05"]
AT = datetime(2026, 3, 2, 9, 30)


def environment(gpus: list[dict[str, Any]] | None) -> dict[str, str]:
    path = os.pathsep.join([str(DRIVER), str(Path(advisor.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    more = {"FAKE_NVML": json.dumps(gpus)} if gpus is not None else {}
    return {**{k: v for k, v in os.environ.items() if k not in ("FAKE_NVML", "NO_COLOR")}, "PYTHONPATH": path, **more}


def monitor(*words: str | Path, gpus: list[dict[str, Any]] | None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "advisor", "monitor", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(gpus), cwd=cwd)


# Sparklines


@given(
    st.lists(st.none() | st.floats(allow_infinity=True, allow_nan=True), max_size=40),
    st.integers(-2, 30),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.sampled_from([BLOCKS, ASCII]),
)
def test_a_sparkline_is_as_wide_as_asked_and_keeps_order(
    values: list[float | None], width: int, low: float, span: float, levels: str
) -> None:
    line = sparkline(values, width, low, low + span, levels)
    shown = values[-width:] if width > 0 else []
    assert len(line) == max(width, 0)
    drawn = line[len(line) - len(shown) :]
    assert line[: len(line) - len(shown)].strip() == ""
    known = [(value, levels.index(c)) for value, c in zip(shown, drawn, strict=True) if value is not None and value == value]
    assert all(c == " " for value, c in zip(shown, drawn, strict=True) if value is None or value != value)
    for value, level in known:
        assert value > low or level == 0
        assert value < low + span or level == len(levels) - 1
        assert all(level <= other for more, other in known if more >= value)


def test_levels_of_a_sparkline_are_even() -> None:
    assert sparkline([0, 12.4, 12.6, 50, 87.6, 100, None], 8, 0, 100) == " ▁▁▂▅██ "
    assert sparkline([1, 2], 1, 0, 2, ASCII) == "#"
    assert sparkline([5], 1, 5, 5) == "█"  # a scale without length


# What is read when


class Library:
    """Counts what is asked of it."""

    def __init__(self, pids: dict[int, set[int]] | None = None, gpus: int = 2) -> None:
        self.pids, self.gpus = pids or {}, gpus

    def count(self) -> int:
        return self.gpus

    def read(self, index: int) -> Reading:
        return Reading(index, utilization=50)

    def processes(self, index: int) -> dict[int, int | None]:
        return dict.fromkeys(self.pids.get(index, ()))


def test_beats_end_by_count_and_by_duration() -> None:
    library: Any = Library()
    found = list(beats(library, these([1]), 0.001, count=3))
    assert [[r.index for r in beat.readings] for beat in found] == [[1]] * 3
    assert len(list(beats(library, these([0, 1]), 10, duration=0.001))) == 1


def test_the_gpus_of_a_process_and_of_what_it_started(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        library: Any = Library({0: {7}, 1: {child.pid}}, gpus=3)
        mine = GpusOfProcess(library, os.getpid())
        assert mine() == [1] and mine.found()
        library.pids[2] = {os.getpid()}
        assert mine() == [1, 2]
        library.pids.clear()
        assert mine() == [1, 2]  # between two kernels it is still the process's
        its = GpusOfProcess(library, child.pid)
        assert its() == [] and not its.found()
    finally:
        child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert its() is None  # a zombie that nobody has waited for
    child.wait()
    assert its() is None and not its.alive()


def test_a_process_that_only_the_driver_sees_ends_when_the_driver_says_so() -> None:
    far = 2**22 + 17  # above the largest number that Linux gives
    library: Any = Library({0: {far}})
    choice = GpusOfProcess(library, far)
    assert choice() == [0]
    library.pids.clear()
    assert [choice(), choice(), choice()] == [[0], [0], None]


@given(st.integers(1, 400), st.integers(2, 12))
def test_rows_stay_few_and_span_the_whole_watch(count: int, most: int) -> None:
    rows = Rows(most)
    for i in range(count):
        rows.add(Beat(AT + timedelta(seconds=i), [Reading(0)]))
    assert 1 <= len(rows) <= most
    written: list[str] = []
    rows.write(SimpleNamespace(write=written.append))  # type: ignore[arg-type]
    stamps = re.findall(r"^\d{4}/\d\d/\d\d [\d:.]+", "".join(written), re.M)
    assert len(stamps) == len(rows) and stamps == sorted(stamps) and stamps[0].endswith("09:30:00.000")
    last = datetime.strptime(stamps[-1], "%Y/%m/%d %H:%M:%S.%f")
    assert (AT + timedelta(seconds=count) - last).total_seconds() * most <= 4 * count + most


# How it looks


def test_reasons_in_words() -> None:
    assert view.reasons(0) == "nothing" and view.reasons(None) == "not told"
    assert view.reasons(0x24) == "power limit, heat (driver)"
    assert view.reasons(0x1000 | ThrottleReason.IDLE) == "nothing to do, 0x1000"
    assert set(THROTTLE_WORDS) == set(ThrottleReason)


def drawn(readings: list[list[Reading]], height: int = 60, width: int = 80, unicode: bool = True) -> str:
    histories = Histories()
    for each in readings:
        histories.add(Beat(AT, each))
    console = Console(width=width, height=height, color_system=None, force_terminal=True, legacy_windows=False)
    with console.capture() as capture:
        console.print(view.Picture(histories, "1", unicode))
    return capture.get()


def test_the_picture() -> None:
    name = "\x1b[31mNVIDIA [red]X"  # no name may paint
    power = [Reading(0, name, 10 * i, power=100.0 * i, power_limit=700.0, throttle_reasons=4) for i in range(11)]
    text = drawn([[reading] for reading in power])
    lines = text.splitlines()
    assert lines[0] == "11 readings, every 1 s; Ctrl-C ends it" and lines[1] == "GPU 0   [31mNVIDIA [red]X"
    assert lines[2].startswith("  utilisation  100 % ") and lines[2].endswith(" ▁▁▂▃▄▅▅▆▇██")
    assert lines[3].split() == ["memory", "not", "told"]
    assert lines[4].startswith("  power        1,000 of 700 W ") and lines[4].endswith("▁▂▃▄▅▆▇████")
    assert lines[7] == "  held back by power limit" and "\x1b" not in text


@pytest.mark.parametrize("width", [20, 60, 200])
@pytest.mark.parametrize("gpus", [1, 8])
def test_the_picture_fits(width: int, gpus: int) -> None:
    beat = [Reading(i, "NVIDIA H200", 50, throttle_reasons=0x1FF, memory_used=1 << 36, memory_total=1 << 37) for i in range(gpus)]
    lines = drawn([beat] * 300, height=24, width=width, unicode=False).splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= width
    assert all(line.isascii() or "…" in line for line in lines)


# The command


def test_lines_a_file_and_the_verdict(tmp_path: Path) -> None:
    log = tmp_path / "smi.csv"
    done = monitor(*FAST, "--count", 12, "-o", log, gpus=[{"utilization": [10, 99]}, HOT])
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    first, second = done.stdout.splitlines()[:2]
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  GPU 0  10 %  9\.8 of 140\.4 GiB  600 of 700 W  1,980 of 1,980 MHz  60 C  held back by: nothing", first
    )
    assert "GPU 1" in second and second.endswith("1,200 of 1,980 MHz  88 C  held back by: heat (driver)")
    assert "Warning: GPU 1 was held down by heat (software)" in done.stdout and done.stdout.count("\n") > 24
    assert done.stderr == f"written: {log}\n"
    samples = advisor.load([log]).table("device_samples")
    assert len(samples) == 24 and sorted(set(samples["device"].tolist())) == [0, 1]
    of_0 = samples.take(samples["device"] == 0)
    assert of_0["utilization"].tolist() == [10] + [99] * 11 and set(of_0["power"].tolist()) == {600.0}
    assert set(samples.take(samples["device"] == 1)["throttle_reasons"].tolist()) == {0x20}


def test_csv_on_standard_output_and_no_verdict() -> None:
    done = monitor(*FAST, "--count", 2, "-o", "-", "--gpus", "1", "--no-verdict", gpus=[{}, {}])
    header, *rows = done.stdout.splitlines()
    assert done.returncode == 0 and done.stderr == "" and header.startswith("timestamp, index, name") and len(rows) == 2
    assert all(row.split(", ")[1:3] == ["1", "NVIDIA H200"] for row in rows)


def test_no_file_is_written_over(tmp_path: Path) -> None:
    log = tmp_path / "smi.csv"
    log.write_text("mine")
    done = monitor(*FAST, "--count", 1, "-o", log, gpus=[{}])
    assert done.returncode == 2 and log.read_text() == "mine" and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "the file exists" in done.stderr
    assert monitor(*FAST, "--count", 1, "-o", log, "--force", "--no-verdict", gpus=[{}]).returncode == 0
    assert log.read_text().count("\n") == 2


def test_a_full_disk_is_one_line() -> None:
    done = monitor(*FAST, "--count", 3, "-o", "/dev/full", gpus=[{}])
    assert (done.returncode, done.stderr) == (2, "error: /dev/full: No space left on device\n")


@pytest.mark.parametrize(
    ("words", "gpus", "said"),
    [
        ([], None, "no NVIDIA driver answers on this machine"),
        ([], [], "the NVIDIA driver knows no GPU"),
        (["--gpus", "0,2"], [{}, {}], "--gpus 2: this machine has GPUs 0 to 1"),
        (["--gpus", "x"], [{}], "write indices"),
        (["--gpus", "0", "--pid", "1"], [{}], "exclude one another"),
        (["--pid", str(2**22 + 17)], [{}], "no such process"),
        (["--interval", "nan"], [{}], "--interval"),
        (["--duration", "0"], [{}], "--duration"),
        (["-o", "nowhere/smi.csv"], [{}], "there is no folder"),
    ],
)
def test_what_cannot_be_watched_is_one_line(words: list[str], gpus: list[dict[str, Any]] | None, said: str) -> None:
    done = monitor(*words, "--count", "1", gpus=gpus)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1 and said in done.stderr


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('none')")
    path = os.pathsep.join([str(tmp_path), str(Path(advisor.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "monitor"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 2 and "pip install nvidia-ml-py" in done.stderr and done.stderr.count("\n") == 1


def test_a_lost_gpu_does_not_end_the_watch() -> None:
    done = monitor(*FAST, "--count", 3, gpus=[{"missing": ["handle"]}, {"power": [500, None, 500]}])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].count("not told") == 6 and "GPU 1  90 %  9.8 of 140.4 GiB  not told" in done.stdout


# A process that computes once the monitor has begun to write, as far as asked, and ends when that was seen three times.
WORK = """
import json, os, sys, time
log, pids = sys.argv[1:]
def wait(lines):
    end = time.monotonic() + 90
    while time.monotonic() < end and not (os.path.exists(log) and len(open(log).readlines()) >= lines):
        time.sleep(0.01)
wait(1)
if pids != "never":
    json.dump([os.getpid()], open(pids, "w"))
    wait(4)
"""


def test_it_ends_with_the_process(tmp_path: Path) -> None:
    log, pids = tmp_path / "smi.csv", tmp_path / "pids.json"
    work = subprocess.Popen([sys.executable, "-c", WORK, str(log), str(pids)])
    done = monitor(*FAST, "--pid", work.pid, "-o", log, gpus=[{}, {"pids": str(pids)}])
    assert work.wait(90) == 0 and done.returncode == 0, done.stderr
    assert f"waiting for process {work.pid}" in done.stderr
    seen = [line.split("  ")[1] for line in done.stdout.splitlines() if re.match(r"\d\d:", line)]
    assert set(seen) == {"GPU 1"} and len(seen) >= 3


def test_a_process_that_never_computes(tmp_path: Path) -> None:
    log = tmp_path / "smi.csv"
    work = subprocess.Popen([sys.executable, "-c", WORK, str(log), "never"])
    done = monitor(*FAST, "--pid", work.pid, "-o", log, gpus=[{}])
    work.wait(90)
    assert done.returncode == 2 and done.stderr.endswith(f"process {work.pid} did not compute on a GPU before it ended\n")


def on_a_terminal(words: list[str], gpus: list[dict[str, Any]], until: bytes, send: int = signal.SIGINT) -> tuple[int, str]:
    """(status, what the terminal got) of a monitor that gets the signal once `until` was seen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(environment(gpus), TERM="xterm", COLUMNS="100", LINES="30", LANG="C.UTF-8", PYTHONUTF8="1")
        os.execv(sys.executable, [sys.executable, "-m", "advisor", "monitor", *words])
    got, sent, end = b"", False, time.monotonic() + 90
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux: the other side is closed
            part = b""
        if not part:
            break
        got += part
        if not sent and until in got:
            os.kill(pid, send)
            sent = True
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), got.decode("utf-8", "replace")


def test_the_live_view_ends_by_ctrl_c_with_the_verdict() -> None:
    status, got = on_a_terminal(FAST, [HOT, {"utilization": [0, 100]}], until=b"15 readings")
    assert status == 0
    assert "▁" in got and "█" in got and "heat (driver)" in got and "\x1b[?25h" in got  # the cursor is back
    assert "\x1b[2K" in got and "Traceback" not in got
    assert "Warning: GPU 0 was held down by heat" in re.sub(r"\x1b\[[0-9;]*m|\r?\n", lambda m: " " * ("\n" in m[0]), got)


def test_the_live_view_without_colour_and_a_signal_to_terminate(tmp_path: Path) -> None:
    log = tmp_path / "smi.csv"
    words = [*FAST, "--no-color", "-o", str(log)]
    status, got = on_a_terminal(words, [HOT], until=b"5 readings", send=signal.SIGTERM)
    assert status == 143 and not re.search(r"\x1b\[[0-9;]*3[0-7]m", got) and "Traceback" not in got
    assert len(advisor.load([log]).table("device_samples")) >= 5
