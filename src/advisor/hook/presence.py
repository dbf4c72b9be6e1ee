"""Other profilers in this process: they are left alone, since two at once disturb, and can crash, one another.

torch says whether a profiler records, but not whether one warms up, when starting a second already ends in a crash. So the
two methods of torch.profiler that begin and end a profile are watched while an attachment is alive.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from advisor.hook.guard import quietly

_lock = threading.Lock()
_running: set[int] = set()  # ids of profiles between their begin and end
_ours: list[tuple[Any, Callable[[], None]]] = []  # the open window of this process: its profile, and how to abandon it
_watched = False


def profiled_already() -> str | None:
    """The name of a profiler that records this process now or is about to, None if there is none."""
    if under_nsys():
        return "Nsight Systems"
    torch = sys.modules.get("torch")
    if _running or (torch is not None and torch.autograd._profiler_enabled()):
        return "another window" if _ours else "torch.profiler"
    return None


def under_nsys() -> bool:
    """Was this process started by `nsys profile`? It sets these for what it injects into."""
    if "NSYS_PROFILING_SESSION_ID" in os.environ:
        return True
    return any("nsys" in os.environ.get(name, "").lower() for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"))


def claim(profile: Any, abandon: Callable[[], None]) -> None:
    """`profile` is a window of ours from now on; `abandon` is called when the program starts a profiler of its own."""
    _ours[:] = [(profile, abandon)]


def release(profile: Any) -> None:
    """The window of this profile is over."""
    _ours[:] = [(one, abandon) for one, abandon in _ours if one is not profile]
    _running.discard(id(profile))


def watch_profilers() -> None:
    """See every torch.profiler of this process begin and end. Once is enough."""
    global _watched
    with _lock:
        if _watched:
            return
        from torch.profiler.profiler import _KinetoProfile

        begin, end = _KinetoProfile.prepare_trace, _KinetoProfile.stop_trace

        def prepare_trace(self: Any) -> Any:
            if _ours and _ours[0][0] is not self:
                _, abandon = _ours.pop()
                quietly(abandon, "ending our window")
            _running.add(id(self))
            return begin(self)

        def stop_trace(self: Any) -> Any:
            _running.discard(id(self))
            return end(self)

        _KinetoProfile.prepare_trace, _KinetoProfile.stop_trace = prepare_trace, stop_trace
        _watched = True
