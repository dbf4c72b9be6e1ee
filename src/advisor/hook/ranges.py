"""Steps and phases as named ranges, so that an nsys around the run (and our own evidence window) shows them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

from advisor.hook.guard import Hook

Push = Callable[[str], Any]
Pop = Callable[[], Any]


def nvtx() -> tuple[Push, Pop] | None:
    """(push, pop) of the nvtx package, else of torch; None where neither can."""
    if importlib.util.find_spec("nvtx") is not None:
        import nvtx as package

        return package.push_range, package.pop_range
    import torch

    if torch.cuda.is_available():
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    return None


class Ranges:
    """`step N` around each step, and inside it data, forward, backward and optimizer, as hooks of the models tell them apart.

    `backward` lasts from the end of a forward to whatever comes next: what lies between is the program's own.
    """

    name = "ranges"

    def __init__(self, models: list[Any], optimizers: list[Any]) -> None:
        self._models, self._optimizers = models, optimizers
        self._hooks: list[Any] = []
        self._open: list[Any] = []
        self._record = False

    def begin(self) -> None:
        self._nvtx = nvtx()
        for model in self._models:
            self._hooks.append(model.register_forward_pre_hook(Hook(partial(self._phase, "forward"))))
            self._hooks.append(model.register_forward_hook(Hook(partial(self._phase, "backward"))))
        for optimizer in self._optimizers:
            self._hooks.append(optimizer.register_step_pre_hook(Hook(partial(self._phase, "optimizer"))))
        self._models, self._optimizers = [], []  # they live as long as the program wants them to
        self.begin_step(1, None)

    def end_step(self, count: int, window: str | None) -> None:
        while self._open:
            self._leave()

    def begin_step(self, count: int, window: str | None) -> None:
        self._record = window not in (None, "timing")
        self._enter(f"step {count}")
        self._enter("data")

    def _phase(self, name: str) -> None:
        if len(self._open) == 2:  # the step and its phase; inside anything else the model is a part of another one
            self._leave()
            self._enter(name)

    def _enter(self, name: str) -> None:
        recorded = None
        if self._nvtx is not None:
            self._nvtx[0](name)
        if self._record and not name.startswith("step "):  # the profiler marks its steps itself
            from torch.profiler import record_function

            recorded = record_function(name)
            recorded.__enter__()
        self._open.append(recorded)

    def _leave(self) -> None:
        recorded = self._open.pop()
        if recorded is not None:
            recorded.__exit__(None, None, None)
        if self._nvtx is not None:
            self._nvtx[1]()

    def failed(self, error: BaseException) -> None:
        pass

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self.end_step(0, None)

    def about(self) -> Any:
        return None
