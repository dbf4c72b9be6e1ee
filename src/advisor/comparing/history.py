"""The record of promises and outcomes: one JSON line a comparison in a file of a folder. The only part of this folder with files.

A line holds names of rules, shares and words, and neither paths nor names of hosts, people or programs.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.model import InputError
from advisor.model.comparison import Comparison
from advisor.model.history import HistoryEntry

try:
    import fcntl
except ImportError:  # not on Windows: lines may interleave there where two processes append at once
    fcntl = None  # type: ignore[assignment]

FILE = "promises.jsonl"
MOST_LINES = 5000  # the oldest go first
MOST_BYTES = 4 << 20
_LONGEST_LINE = 4000
_MOST_RULES = 20


class History:
    """The record in a folder, which is made when the first line is added."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / FILE

    def check(self) -> None:
        """InputError if the record cannot be kept there."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"--history {self.folder}: is no folder")
        if self.file.exists() and not self.file.is_file():
            raise InputError(f"--history {self.folder}: {FILE} in it is no file")

    def add(self, comparison: Comparison, now: datetime | None = None) -> bool:
        """Append a line; False where nothing was promised for what is gone. Whole lines only, also of several processes."""
        entry = entry_of(comparison, now or datetime.now(UTC))
        if entry is None:
            return False
        line = json.dumps(entry.to_dict(), ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"
        if len(line) > _LONGEST_LINE:
            return False
        self.check()
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            begins = self._ends_whole()
            handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(handle, (line if begins else "\n" + line).encode())
            finally:
                os.close(handle)
            self._bound()
        return True

    def read(self) -> tuple[list[HistoryEntry], int]:
        """The entries, oldest first, and how many lines are damaged. InputError if there is no record."""
        self.check()
        if not self.file.exists():
            raise InputError(f"--history {self.folder}: no record there yet ({FILE})")
        entries, damaged = [], 0
        for line in self._lines():
            if not line.strip():
                continue
            entry = parsed(line)
            if entry is None:
                damaged += 1
            else:
                entries.append(entry)
        return entries, damaged

    def _lines(self) -> list[bytes]:
        """The last lines, as many as the record may hold."""
        with open(self.file, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 2 * MOST_BYTES, 0))
            data = file.read(2 * MOST_BYTES)
        lines = data.split(b"\n")
        return lines[1 if size > 2 * MOST_BYTES else 0 :][-MOST_LINES - 1 :]

    def _ends_whole(self) -> bool:
        """False after a line that a crash has cut."""
        if not self.file.exists() or not self.file.stat().st_size:
            return True
        with open(self.file, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _bound(self) -> None:
        """Drop the oldest lines of a record that is too long; a reader meets the old file or the new one."""
        if self.file.stat().st_size <= MOST_BYTES:
            return
        kept: list[bytes] = []
        size = 0
        for line in reversed([line for line in self._lines() if line.strip()]):
            size += len(line) + 1
            if size > MOST_BYTES // 2 or len(kept) >= MOST_LINES:
                break
            kept.append(line)
        partial = self.folder / f".{FILE}-{secrets.token_hex(8)}"
        try:
            partial.write_bytes(b"".join(line + b"\n" for line in reversed(kept)))
            os.replace(partial, self.file)
        finally:
            partial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.folder / f".{FILE}.lock", "a") as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def entry_of(comparison: Comparison, now: datetime) -> HistoryEntry | None:
    """None without promises."""
    told = comparison.promises
    if told is None or not told.step_ns:
        return None

    def share(ns: int | None) -> float | None:
        return None if ns is None else round(ns / told.step_ns, 4)

    gpus = {str(device.get("name")) for device in comparison.base.run.get("devices") or [] if device.get("name")}
    return HistoryEntry(
        when=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        advisor_version=comparison.version[:40],
        gpu=", ".join(sorted(gpus))[:100] or None,
        rules=sorted({one.rule[:80] for one in told.findings})[:_MOST_RULES],
        step_ns=told.step_ns,
        promised=(share(told.together.low_ns), share(told.together.expected_ns), share(told.together.high_ns)),
        promised_by=told.together_by,
        basis=told.together.basis,
        obtained=(share(told.obtained_low_ns), share(told.obtained_ns), share(told.obtained_high_ns)),
        kept=told.kept,
        verdict=comparison.step.verdict,
        method=comparison.step.method,
    )


def parsed(line: bytes) -> HistoryEntry | None:
    """The entry in a line; None for a damaged one."""
    if len(line) > _LONGEST_LINE:
        return None
    try:
        plain: Any = json.loads(line)
        entry = HistoryEntry.from_dict(plain)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    numbers = [*entry.promised, *entry.obtained]
    return entry if all(n is None or math.isfinite(n) for n in numbers) else None
