"""When training is over: the report, made by another process so that nothing of it can disturb this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from advisor.hook.bundle import MANIFEST
from advisor.hook.guard import log, quietly
from advisor.hook.settings import Settings

_OTHER_RANKS_SECONDS = 20.0
_ANALYSIS_SECONDS = 600.0


def analyse(root: Path, world_size: int, settings: Settings) -> Path | None:
    """Write report.json into the run's folder and print the short report on standard error. None if there is no report.

    The other ranks of this machine are waited for a little: their files may still be being compressed.
    """
    _wait_for_ranks(root, world_size)
    report = root / "report.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ADVISOR_")}
    environment["CUDA_VISIBLE_DEVICES"] = ""  # reading files needs no GPU
    command = [sys.executable, "-m", "advisor", "analyze", str(root)]
    sys.stdout.flush()
    try:
        done = subprocess.run(
            [*command, "--format", "json", "--output", str(report)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_ANALYSIS_SECONDS,
        )
        if done.returncode != 0:
            lines = done.stdout.strip().splitlines()
            log.warning("advisor: no report: %s", lines[-1] if lines else f"exit status {done.returncode}")
            return None
        subprocess.run(
            [*command, "--quiet"], env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=_ANALYSIS_SECONDS
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning("advisor: no report: %s", error)
        return None
    print(f"The whole report: advisor analyze {_short(root)}", file=sys.stderr)
    return report


def _wait_for_ranks(root: Path, world_size: int) -> None:
    end = time.monotonic() + _OTHER_RANKS_SECONDS
    while time.monotonic() < end:
        ended = sum(bool(quietly(partial(_finished, m), "reading a manifest")) for m in root.glob(f"rank-*/{MANIFEST}"))
        started = len(list(root.glob("rank-*")))
        if ended >= min(started, world_size) and (ended == world_size or time.monotonic() > end - _OTHER_RANKS_SECONDS / 2):
            return
        time.sleep(0.1)


def _finished(manifest: Path) -> bool:
    with open(manifest, "rb") as file:
        return bool(json.load(file).get("finished"))


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
