"""Other profilers in this process: they are left alone, since two of them disturb one another."""

from __future__ import annotations

import os
import sys


def profiled_already() -> str | None:
    """The name of a profiler that records this process now, None if there is none."""
    if under_nsys():
        return "Nsight Systems"
    torch = sys.modules.get("torch")
    if torch is not None and torch.autograd._profiler_enabled():
        return "torch.profiler"
    return None


def under_nsys() -> bool:
    """Was this process started by `nsys profile`? It sets these for what it injects into."""
    if "NSYS_PROFILING_SESSION_ID" in os.environ:
        return True
    return any("nsys" in os.environ.get(name, "").lower() for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"))
