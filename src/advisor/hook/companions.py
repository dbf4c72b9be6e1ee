"""What is kept beside the windows: each a small thing that begins, sees every step, and ends."""

from __future__ import annotations

from typing import Any, Protocol

from advisor.hook.allocator import Allocator
from advisor.hook.bundle import Bundle
from advisor.hook.job import Job
from advisor.hook.presence import under_nsys
from advisor.hook.ranges import Ranges
from advisor.hook.sampler import Sampler
from advisor.hook.settings import Settings


class Companion(Protocol):
    """The two about a step run on the training thread, outside windows too: microseconds, and nothing that waits for the GPU."""

    name: str

    def begin(self) -> None: ...

    def end_step(self, count: int, window: str | None) -> None:
        """`count` steps are over; `window` is the kind of the window that the last one lay in, None outside windows."""

    def begin_step(self, count: int, window: str | None) -> None:
        """The step after `count` steps begins, in that kind of window."""

    def failed(self, error: BaseException) -> None:
        """Training ends with this error."""

    def end(self) -> None: ...

    def about(self) -> Any:
        """What the manifest says, plain data; None for nothing."""


def companions(settings: Settings, bundle: Bundle, job: Job, models: list[Any], optimizers: list[Any]) -> list[Companion]:
    """Those that the settings ask for and this process can have."""
    import torch

    found: list[Companion] = []
    if settings.ranges if settings.ranges is not None else under_nsys():
        found.append(Ranges(models, optimizers))
    if torch.cuda.is_available():
        found.append(Allocator(bundle, settings.memory_history, settings.snapshot_on_oom))
        if settings.samples:
            listeners = [trigger.readings for trigger in settings.triggers if trigger.readings is not None]
            found.append(Sampler(bundle, settings.samples, listeners, topology=job.local_rank == 0 and job.world_size > 1))
    return found
