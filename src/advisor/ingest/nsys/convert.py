"""Reports of Nsight Systems (.nsys-rep, .qdrep): their format is not public, so the user's own `nsys` exports them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from advisor.ingest.source import Source, temporary_folder
from advisor.model import InputError

# First bytes of what nsys 2022.4 writes.
_REPORT = b"NVIDIA Tegra Profiler Report"
_STREAM = b"NVIDIA Nsight Systems Stream"  # not at the very begin: .qdstrm, what is left where no importer was installed
_VERSION = re.compile(rb"Report (\d{4})@(\d+)@(\d+)@")  # since 2023 or so
_LIMIT_S = 1800.0


def claims_report(head: bytes) -> bool:
    """True if the first bytes are those of a report or of a raw recording (.qdstrm)."""
    return head.startswith(_REPORT) or _STREAM in head[:64]


def exported(source: Source, limit_s: float = _LIMIT_S) -> Path:
    """An SQLite export of the report, in the temporary folder; the caller deletes it when it is read.

    Raises InputError, which names the command to run, where `nsys` is lacking, fails, or takes longer than `limit_s`.
    """
    name, head = shlex.quote(source.name), source.head(64)
    if _STREAM in head:
        raise InputError(
            f"a raw recording of Nsight Systems; import it first: QdstrmImporter -i {name} -o {_with_suffix(source, '.nsys-rep')}"
        )
    by_hand = f"nsys export --type sqlite --output {_with_suffix(source, '.sqlite')} {name}"
    version = _VERSION.search(head)
    recorder = "nsys " + b".".join(version.groups()).decode() if version else "Nsight Systems"
    program = shutil.which("nsys")
    if program is None:
        raise InputError(f"a report of {recorder}, and `nsys` is not on the PATH to export it; run: {by_hand}")
    report = source.local_file().absolute()
    target = temporary_folder() / f"{len(os.listdir(temporary_folder()))}-export.sqlite"
    if sys.stderr.isatty():
        print(f"exporting {source.name} with {program} ...", file=sys.stderr)
    options = ["--type", "sqlite", "--force-overwrite", "true", "--output", str(target)]
    code = _run([program, "export", *options, str(report)], limit_s)
    if code is None:
        _remove(target)
        raise InputError(f"`nsys export` took longer than {limit_s:.0f} s; run: {by_hand}")
    if code != 0 or not target.is_file():
        _remove(target)
        raise InputError(f"`nsys export` failed on a report of {recorder} (an older nsys cannot read it); run: {by_hand}")
    return target


def _run(command: list[str], limit_s: float) -> int | None:
    """Exit status, None if it had to be ended. It may start helpers, so that its whole process group is ended."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise InputError(f"`nsys` cannot be started: {error.strerror or error}") from error
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            with contextlib.suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            process.wait()


def _with_suffix(source: Source, suffix: str) -> str:
    return shlex.quote(Path(source.name.removesuffix(".gz")).stem + suffix)


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
