"""Which GPUs are watched: all, some, or those on which a process computes. Each choice is asked before every reading."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from advisor.hook.nvml import Nvml

# The indices to read now, none while nothing is to be seen yet; None when there is nothing more to watch.
Choice = Callable[[], list[int] | None]

_GONE_AFTER = 3  # readings without the process, where only the driver can see it


def these(indices: list[int]) -> Choice:
    return lambda: indices


class GpusOfProcess:
    """The GPUs on which a process, or one that it started, has computed so far, until it ends.

    NVML counts processes as the machine does: from inside a container one may be seen by the driver alone.
    """

    def __init__(self, library: Nvml, pid: int, processes: Path = Path("/proc")) -> None:
        self.pid = pid
        self._library, self._processes = library, processes
        self._seen: set[int] = set()
        self._absent = 0
        self._visible = self.alive()

    def __call__(self) -> list[int] | None:
        mine = self._family()
        now = {index for index in range(self._library.count()) if mine & self._library.processes(index).keys()}
        self._seen |= now
        self._absent = 0 if now else self._absent + 1
        gone = not self.alive() if self._visible else self._absent >= _GONE_AFTER
        return None if gone else sorted(self._seen)

    def found(self) -> bool:
        """Did it compute on any GPU?"""
        return bool(self._seen)

    def alive(self) -> bool:
        """Does the process run? One that nobody has waited for yet does not."""
        try:
            os.kill(self.pid, 0)
        except PermissionError:
            pass
        except (ProcessLookupError, OverflowError):
            return False
        status = self._status(self.pid)
        return status is None or status[0] != "Z"

    def _family(self) -> set[int]:
        """The process and all that descend from it, as far as this system tells."""
        children: dict[int, list[int]] = {}
        for entry in self._processes.glob("[0-9]*"):
            status = self._status(int(entry.name))
            if status is not None:
                children.setdefault(status[1], []).append(int(entry.name))
        family, fresh = {self.pid}, [self.pid]
        while fresh:
            fresh = [child for parent in fresh for child in children.get(parent, ()) if child not in family]
            family.update(fresh)
        return family

    def _status(self, pid: int) -> tuple[str, int] | None:
        """(state, parent). The name before them stands in brackets and may hold anything."""
        try:
            state, parent, *_ = (self._processes / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
            return state, int(parent)
        except (OSError, ValueError):
            return None
