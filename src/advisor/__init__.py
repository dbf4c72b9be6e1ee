"""Reads profiles of neural-network training on GPUs and says what holds the run back.

import advisor

run = advisor.load(["trace.json.gz", "smi.csv"])
report = advisor.analyze(run)
frame = run.frame("kernels")        # a pandas DataFrame
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "analyze", "load"]

if TYPE_CHECKING:
    from advisor.api import analyze, load


def __getattr__(name: str) -> Any:
    # Import on first use: `advisor --help` must not pay for NumPy.
    if name in ("analyze", "load"):
        from advisor import api

        return getattr(api, name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
