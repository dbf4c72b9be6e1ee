"""`on_trace_ready`: for programs that run torch.profiler themselves."""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path
from typing import Any

from advisor.hook import after, job
from advisor.hook.bundle import Bundle, partial_of
from advisor.hook.guard import guarded, log
from advisor.hook.settings import Settings
from advisor.hook.surroundings import surroundings


class TraceHandler:
    """Writes each trace that a torch.profiler hands over into a recorded run, and prints the report in the end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder: Path | None = None
        self.report: Path | None = None
        self._bundle: Bundle | None = None
        self._windows: list[dict[str, Any]] = []
        self._off = not settings.enabled
        self._pid = os.getpid()
        self._start = time.time_ns()

    @guarded
    def __call__(self, profile: Any) -> None:
        if self._off or self._pid != os.getpid():
            return
        if self._bundle is None:
            self._job = job.find_job()
            self._bundle = Bundle(job.run_folder(self.settings.output), self._job.rank, self.settings.most_bytes)
            self.folder = self._bundle.root
            atexit.register(self.close)
        if not self._bundle.room():
            log.warning("advisor: %s is full, this trace is left out", self.folder)
            return
        file = self._bundle.folder / f"window-{len(self._windows)}-given.json"
        part = partial_of(file)
        profile.export_chrome_trace(str(part))
        os.replace(part, file)
        self._windows.append({"file": file.name, "kind": "given", "recording": len(self._windows)})
        self._bundle.pack(file)
        self._manifest(finished=False)

    @guarded
    def close(self) -> None:
        """Print the report. Called when Python ends, at the latest."""
        bundle, self._bundle = self._bundle, None
        if bundle is None or self._pid != os.getpid():
            return
        atexit.unregister(self.close)
        bundle.packed(seconds=30)
        self._bundle = bundle
        self._manifest(finished=True)
        self._bundle = None
        if self.settings.analyze and self._job.rank == 0:
            self.report = after.analyse(bundle.root, self._job.world_size, self.settings)

    def _manifest(self, finished: bool) -> None:
        assert self._bundle is not None
        self._bundle.manifest(
            {
                "finished": finished,
                "rank": self._job.rank,
                "world_size": self._job.world_size,
                "local_rank": self._job.local_rank,
                "process": self._pid,
                "start_epoch_ns": self._start,
                "surroundings": surroundings(),
                "windows": self._windows,
            },
            hashes=finished,
        )

    def disable(self, reason: str) -> None:
        if not self._off:
            log.warning("advisor keeps no further traces of this run: %s", reason)
        self._off = True


def on_trace_ready(**settings: Any) -> TraceHandler:
    """For `torch.profiler.profile(on_trace_ready=advisor.on_trace_ready())`. Settings by name: see `Settings`."""
    return TraceHandler(Settings(**settings))
