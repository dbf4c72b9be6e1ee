"""Reads profiles of neural-network training on GPUs and says what holds the run back.

import advisor

run = advisor.load(["trace.json.gz", "smi.csv"])
report = advisor.analyze(run)
print(advisor.render(report, "text"))
frame = run.frame("kernels")        # a pandas DataFrame
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Attachment",
    "InputError",
    "Options",
    "Schedule",
    "__version__",
    "analyze",
    "attach",
    "compare",
    "info",
    "load",
    "load_report",
    "on_idle_gpu",
    "on_signal",
    "on_slow_step",
    "on_touch",
    "on_trace_ready",
    "render",
]
_MODULES = ("annotate", "plot")  # for people who write `advisor.plot` after `import advisor`

if TYPE_CHECKING:
    from advisor.api import InputError, Options, analyze, compare, info, load, load_report, render
    from advisor.hook import Attachment, Schedule, attach, on_idle_gpu, on_signal, on_slow_step, on_touch, on_trace_ready


def __getattr__(name: str) -> Any:
    # Import on first use: `advisor --help` must not pay for NumPy.
    if name in __all__:
        from advisor import api, hook

        return getattr(hook if name in hook.__all__ else api, name)
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"advisor.{name}")
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
