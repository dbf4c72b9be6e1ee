"""One recording window: torch.profiler over a few steps, written as a file when they are over."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.hook.bundle import partial_of
from advisor.hook.plan import Kind
from advisor.hook.presence import claim, release

_LETTING_GO_S = 1.0  # detaching runs in a thread of the profiler's own


@dataclass
class Window:
    """Records `active` steps after `warmup` more. `step()` at each step boundary; True when the file is written.

    The timing window asks for CUDA activity alone: over three loops on an H200 that slowed the host 1.09 to 1.14 times,
    with operators 1.26 to 1.49, with shapes and stacks 1.6 to 1.9 (docs/hook.md).
    """

    kind: Kind
    warmup: int
    active: int
    file: Path
    first_step: int
    ends_ns: list[int] = field(default_factory=list)
    costs_ns: dict[str, int] = field(default_factory=dict)
    after_s: float = 0.0  # for so long after its end the profiler still slows the program
    _epoch_ns: int = 0  # wall clock where perf_counter_ns is 0
    _profile: Any = None
    _done: bool = False

    def open(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        gpu = torch.cuda.is_available()
        activities = [ProfilerActivity.CUDA] if gpu else []
        if self.kind != "timing" or not gpu:
            activities.insert(0, ProfilerActivity.CPU)
        if gpu:
            self.after_s = _LETTING_GO_S if _lets_go(torch.version.cuda) else float("inf")
        full = self.kind == "evidence"
        began = time.perf_counter_ns()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._profile = profile(
                activities=activities,
                schedule=schedule(wait=0, warmup=self.warmup, active=self.active, repeat=1),
                on_trace_ready=self._write,
                record_shapes=full,
                with_stack=full,
                profile_memory=full,
            )
            claim(self._profile, self.abandon)
            self._profile.start()
        self.costs_ns["start"] = time.perf_counter_ns() - began
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()
        self._edge()

    def _edge(self) -> None:
        """A step ended now, by the wall clock as it was at the beginning: it may be set meanwhile."""
        self.ends_ns.append(self._epoch_ns + time.perf_counter_ns())

    @property
    def abandoned(self) -> bool:
        """The program started a profiler of its own, which goes first."""
        return self._profile is None and not self._done

    def step(self) -> bool:
        began = time.perf_counter_ns()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._edge()
            self._profile.step()
            if self._done:
                self._profile.stop()
                release(self._profile)
                self._profile = None
                self.costs_ns["end"] = time.perf_counter_ns() - began
        return self._done

    def abandon(self) -> None:
        """Stop without a file: training ended, or failed, inside the window."""
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.on_trace_ready = None
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    profile.stop()
            finally:
                release(profile)

    def _write(self, profile: Any) -> None:
        if self._done:
            return
        began = time.perf_counter_ns()
        part = partial_of(self.file)
        profile.export_chrome_trace(str(part))
        os.replace(part, self.file)
        self.costs_ns["export"] = time.perf_counter_ns() - began
        self._done = True

    def document(self) -> dict[str, Any]:
        """What the manifest says of the window. `step_edges_ns`: begin of the first kept step and end of each, wall clock."""
        return {
            "file": self.file.name,
            "kind": self.kind,
            "first_step": self.first_step + self.warmup,
            "step_edges_ns": self.ends_ns[self.warmup : self.warmup + self.active + 1],
            "costs_ns": self.costs_ns,
        }


def _lets_go(cuda: str | None) -> bool:
    """Have the profiler detach CUPTI when a window ends: left attached it goes on slowing the host, 1.10 to 1.29 times.

    torch itself turns this off where CUDA graphs could not stand it (before CUDA 12); whoever set the variable is left alone.
    """
    if cuda is not None and int(cuda.partition(".")[0]) >= 12:
        os.environ.setdefault("TEARDOWN_CUPTI", "1")
    return os.environ.get("TEARDOWN_CUPTI") == "1"
