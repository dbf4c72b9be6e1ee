"""Feeds damaged recordings to the readers and to the whole of `advisor analyze`; anything but a report or a one-line refusal
is a failure: a traceback, a crash, a hang, too much memory, a changed input, a file left beside it, an invalid report.

    python tests/fuzz/fuzz_readers.py --seconds 300                        built-in samples
    python tests/fuzz/fuzz_readers.py trace.json export.sqlite --iterations 500 --seed 7
    python tests/fuzz/fuzz_readers.py trace.json --seed 7 --case 123 --keep out/      one case again, its input kept

A failure prints the command that repeats it. Exit status 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "benchmarks")]

from mutate import mutate  # noqa: E402

REPORT, REFUSED, FAILED = 0, 2, 70
GUARD = "please report this"  # what is said where a reader's own exception was caught: for users a refusal, here a failure
SAMPLES = Path(__file__).parents[2] / "sample_traces"
TEXTS = {
    "pmon.txt": """\
# gpu        pid  type    sm   mem   command
# Idx          #   C/G     %     %   name
    0       4711     C    97    41   python
    1          -     -     -     -   -
""",
    "topo.txt": """\
\tGPU0\tGPU1\tCPU Affinity
GPU0\t X \tNV18\t0-63
GPU1\tNV18\t X \t64-127

Legend:
  X = Self
""",
    "query.txt": """\
==============NVSMI LOG==============

Timestamp                                 : Thu Jan 15 08:00:00 2026
Driver Version                            : 580.65
Attached GPUs                             : 1
GPU 00000000:07:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Fan Speed                             : N/A
    Utilization
        GPU                               : 97 %
        Memory                            : 40 %
""",
    "oom.txt": """\
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which
[rank1]: 512.00 MiB is free. Process 4000 has 34.00 GiB memory in use. Including non-PyTorch memory, this process has 43.00 GiB
[rank1]: memory in use. Of the allocated memory 40.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but
[rank1]: unallocated.
""",
    "query.xml": """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>580.65</driver_version>
  <gpu id="00000000:07:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <utilization><gpu_util>97 %</gpu_util></utilization>
    <clocks><sm_clock>1980 MHz</sm_clock></clocks>
  </gpu>
</nvidia_smi_log>
""",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one damaged input. `what`: how it failed, alike for alike failures."""

    status: int
    what: str = ""
    detail: str = ""


def built_in(folder: Path) -> list[Path]:
    """Small recordings of each kind: the samples of the repository, and generated ones."""
    import generate

    generate.write_trace(folder / "trace.json", 0, layers=1)
    generate.write_trace(folder / "stacks.json.gz", 0, layers=2, stacks=True, shapes=True)
    generate.write_export(folder / "export.sqlite", 0, layers=1)
    generate.write_smi(folder / "smi.csv", 0.02, gpus=2)
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    samples = [path for path in SAMPLES.rglob("*") if path.is_file() and path.name != "README.md"]
    return sorted(folder.iterdir()) + sorted(samples)


def attempt(path: Path, analyze: bool, timeout: float, memory: int) -> Outcome:
    """The outcome of reading `path` in a forked child that may use so many seconds and so many more bytes."""
    before = (path.read_bytes(), sorted(os.listdir(path.parent)))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _child(path, analyze, memory, write_end)
    os.close(write_end)
    deadline = time.monotonic() + timeout
    said = b""
    os.set_blocking(read_end, False)
    while True:
        with contextlib.suppress(BlockingIOError):
            said += os.read(read_end, 1 << 20)
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read_end)
            return Outcome(FAILED, f"still running after {timeout:g} s")
        time.sleep(0.002)
    with contextlib.suppress(BlockingIOError):
        while part := os.read(read_end, 1 << 20):
            said += part
    os.close(read_end)
    code = os.waitstatus_to_exitcode(status)
    text = said.decode("utf-8", "replace").strip()
    if code not in (REPORT, REFUSED):
        return Outcome(FAILED, text.splitlines()[0] if text else f"ended with status {code}", text)
    if path.read_bytes() != before[0]:
        return Outcome(FAILED, "changed its input")
    left = set(os.listdir(path.parent)) - set(before[1])
    if left:
        return Outcome(FAILED, f"left {sorted(left)} beside its input")
    return Outcome(code)


def _child(path: Path, analyze: bool, memory: int, write_end: int) -> None:
    """Never returns. What it writes: one line that names the failure, then the details."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["ADVISOR_DEBUG"] = "1"  # internal errors as tracebacks
    status, said = FAILED, ""
    try:
        status, said = (_analyze if analyze else _read)(path)
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if f"{os.sep}advisor{os.sep}" in frame.filename] or frames
        place = f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}" if own else "?"
        message = re.sub(r"\d+", "#", str(error).splitlines()[0])[:100] if str(error) else ""
        said = f"{type(error).__name__} at {place}: {message}\n{''.join(traceback.format_exception(error))}"
    with contextlib.suppress(OSError):
        os.write(write_end, said.encode("utf-8", "replace")[:60_000])
    os._exit(status)


def _read(path: Path) -> tuple[int, str]:
    from advisor.ingest import load
    from advisor.model import InputError

    try:
        run = load([path], processes=1)
    except InputError as error:
        lines = str(error).splitlines()
        if GUARD in str(error):
            return FAILED, _cause(str(error))
        return (REFUSED, "") if len(lines) == 1 and lines[0].strip() else (FAILED, f"refusal of {len(lines)} lines\n{error}")
    for name, table in run.tables.items():
        columns = table.column_names
        if "start" in columns and "end" in columns and len(table) and bool((table["end"] < table["start"]).any()):
            return FAILED, f"{name}: a row ends before it starts"
        order = table[table.spec.order] if len(table) else ()
        if len(order) > 1 and bool((order[1:] < order[:-1]).any()):
            return FAILED, f"{name}: not in order of {table.spec.order}"
    return REPORT, ""


def _cause(message: str) -> str:
    said = re.search(r"the (\w+) reader failed on it \((.*?)\)", message)
    return re.sub(r"\d+", "#", said[0])[:160] + "\n" + message if said else message


def _analyze(path: Path) -> tuple[int, str]:
    from advisor.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["analyze", str(path), "--format", "json"])
            code: object = 0
        except SystemExit as stop:
            code = stop.code
    if code == REFUSED:
        lines = err.getvalue().strip().splitlines()
        if GUARD in err.getvalue():
            return FAILED, _cause(err.getvalue())
        return (REFUSED, "") if lines and "Traceback" not in err.getvalue() else (FAILED, f"no reason given\n{err.getvalue()}")
    if code not in (0, None):
        return FAILED, f"exit status {code}\n{err.getvalue()}"
    try:
        document = json.loads(out.getvalue(), parse_constant=_no_constant)
    except ValueError as error:
        return FAILED, f"invalid report: {error}"
    failed = [rule for rule in document["rules"] if rule["outcome"] == "error"]
    if failed:
        reason = re.sub(r"\d+", "#", str(failed[0].get("reason")))[:100]
        return FAILED, f"rule {failed[0]['id']} failed: {reason}\n{err.getvalue()}"
    return REPORT, ""


def _no_constant(name: str) -> object:
    raise ValueError(f"the report holds {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="recordings to damage (default: built-in samples)")
    parser.add_argument("--iterations", type=int, default=10**9)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="stop after that long (default: 60; with --iterations: no limit)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="only this case")
    parser.add_argument("--analyze", action="store_true", help="run the whole of `advisor analyze`, not only the readers")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one case")
    parser.add_argument("--memory", type=int, default=1500, help="MB a case may use")
    parser.add_argument("--keep", type=Path, help="folder for inputs that failed")
    options = parser.parse_args()
    import advisor.cli.analyze  # noqa: F401 (loaded once, before the forks, like all readers)
    from advisor.ingest.sniff import readers

    list(readers())

    failures: dict[str, tuple[int, str, Outcome]] = {}
    counts: Counter[str] = Counter()
    began, limit = time.monotonic(), options.seconds if options.iterations == 10**9 else float("inf")
    with tempfile.TemporaryDirectory(prefix="advisor-fuzz-") as temporary:
        folder, work = Path(temporary) / "samples", Path(temporary) / "work"
        folder.mkdir()
        work.mkdir()
        files = options.files or built_in(folder)
        numbers = [options.case] if options.case is not None else range(options.iterations)
        for number in numbers:
            if time.monotonic() - began > limit:
                break
            # The file is chosen apart from the damage, so that a case can be repeated with its file alone.
            source = files[0] if len(files) == 1 else Random(f"{options.seed}/{number}/file").choice(files)
            path = work / source.name
            path.write_bytes(mutate(source.read_bytes(), Random(f"{options.seed}/{number}")))
            outcome = attempt(path, options.analyze, options.timeout, options.memory << 20)
            counts[{REPORT: "reports", REFUSED: "refusals"}.get(outcome.status, "failures")] += 1
            if outcome.status == FAILED:
                counts[f"  {outcome.what}"] += 1
                if outcome.what not in failures:
                    failures[outcome.what] = (number, str(source), outcome)
                    print(f"\ncase {number}, {source.name}: {outcome.detail or outcome.what}", flush=True)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, options.keep / f"{options.seed}-{number}-{source.name}")
            for leftover in work.iterdir():
                leftover.unlink()
    kinds = ("reports", "refusals", "failures")
    said = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
    print(f"\n{sum(counts[kind] for kind in kinds)} cases in {time.monotonic() - began:.0f} s: {said}")
    for what, (number, file, _) in failures.items():
        again = f"--seed {options.seed} --case {number}{' --analyze' if options.analyze else ''}"
        print(
            f"{counts['  ' + what]} x {what}\n    python tests/fuzz/fuzz_readers.py{f' {file}' if options.files else ''} {again}"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
