"""Runs a command and measures it as a whole: wall time, processor time, and the most memory its process tree held."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.02
_PAGE = resource.getpagesize()


@dataclass(frozen=True)
class Measurement:
    """Of one run: seconds of wall time and of processor time, and peak resident bytes summed over the process tree."""

    wall: float
    processor: float
    peak: int
    status: int
    error: str


def run(command: Sequence[str], timeout: float = 3600) -> Measurement:
    """Runs `command`; its standard output is thrown away. Linux only: memory is read from /proc every 20 ms.

    Pages that processes share count once for each of them, as `ps` would show them.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0
    pid, status, usage = 0, 0, before
    while not pid:
        peak = max(peak, sum(_resident(member) for member in _tree(process.pid)))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if not pid:
            time.sleep(SAMPLE_S)
            if time.perf_counter() - begin > timeout:
                process.kill()
    wall = time.perf_counter() - begin
    assert process.stderr is not None
    error = process.stderr.read().decode("utf-8", "replace").strip()
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    # Between two samples a short run can grow and end; the kernel keeps the peak of the parent process at least.
    peak = max(peak, usage.ru_maxrss * 1024)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measurement(wall, processor, peak, process.returncode, error)


def _tree(root: int) -> list[int]:
    members = [root]
    for parent in members:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                members += [int(child) for child in Path(f"/proc/{parent}/task/{task}/children").read_text().split()]
        except OSError:  # it has just ended
            continue
    return members


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


if __name__ == "__main__":
    done = run(sys.argv[1:])
    print(f"{done.wall:.3f} s wall, {done.processor:.3f} s processor, {done.peak / 1e6:.0f} MB, status {done.status}")
    if done.error:
        print(done.error, file=sys.stderr)
