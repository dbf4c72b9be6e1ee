"""Attached to training: `advisor.attach(optimizer)` records a few steps and prints the report when training ends.

torch is imported when the first window opens; analysis runs in another process after training.
"""

from __future__ import annotations

from advisor.hook.attachment import Attachment, attach
from advisor.hook.handler import TraceHandler, on_trace_ready
from advisor.hook.idle import on_idle_gpu
from advisor.hook.plan import Schedule, Trigger, on_signal, on_slow_step, on_touch
from advisor.hook.settings import Settings

__all__ = [
    "Attachment",
    "Schedule",
    "Settings",
    "TraceHandler",
    "Trigger",
    "attach",
    "on_idle_gpu",
    "on_signal",
    "on_slow_step",
    "on_touch",
    "on_trace_ready",
]
