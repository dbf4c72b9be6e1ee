"""Process and thread numbers of a trace file: viewers tell rows apart by them, and take them for 32 bit."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model import Run

_LARGEST = 1 << 31
_OWN = 900_000_000  # where numbers that we give begin: far from process ids


class Places:
    """Numbers of every process and row that is written. Recorded ones are kept where they are unique and small enough."""

    def __init__(self, run: Run) -> None:
        self._several = len(run.ranks) > 1
        self._pids: dict[tuple[object, ...], int] = {}
        self._taken: set[int] = set()
        self._tids: dict[tuple[int, object], int] = {}
        self._used: dict[int, set[int]] = {}
        self.processes: dict[int, tuple[str, int]] = {}
        self.threads: dict[tuple[int, int], tuple[str, int]] = {}

    def host(self, rank: int, process: int) -> int:
        return self._pid(("host", rank, process), process, f"host process {process}" if process >= 0 else "host", rank, 20)

    def gpu(self, rank: int, process: int, device: int) -> int:
        return self._pid(("gpu", rank, process, device), -1, f"GPU {device}" if device >= 0 else "GPU", rank, 30)

    def own(self, rank: int) -> int:
        return self._pid(("own", rank), -1, "advisor", rank, 10)

    def _pid(self, key: tuple[object, ...], wanted: int, name: str, rank: int, order: int) -> int:
        if key not in self._pids:
            pid = wanted if 0 < wanted < _LARGEST and wanted not in self._taken else _OWN + len(self._pids)
            while pid in self._taken:
                pid += 1
            self._pids[key] = pid
            self._taken.add(pid)
            label = f"rank {rank} {name}" if self._several and rank >= 0 else name
            self.processes[pid] = (label, max(rank, 0) * 100 + order)
        return self._pids[key]

    def row(self, pid: int, key: object, name: str, order: int, wanted: int = -1) -> int:
        """Number of a row of a process, by any key that tells it from the process's others."""
        if (pid, key) not in self._tids:
            used = self._used.setdefault(pid, set())
            tid = wanted if 0 <= wanted < _LARGEST and wanted not in used else _OWN + len(used)
            while tid in used:
                tid += 1
            used.add(tid)
            self._tids[pid, key] = tid
            self.threads[pid, tid] = (name, order)
        return self._tids[pid, key]

    def metadata(self) -> Iterator[dict[str, object]]:
        """Events that name processes and rows and put them in order."""
        for pid, (name, order) in self.processes.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "ts": 0, "args": {"sort_index": order}}
        for (pid, tid), (name, order) in self.threads.items():
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "ts": 0, "args": {"sort_index": order}}
