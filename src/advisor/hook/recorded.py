"""The hook for programs that do not know of it: armed when torch is imported, attached when an optimizer first steps."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from advisor.hook.guard import log, quietly
from advisor.hook.plan import Schedule

VARIABLE = "ADVISOR_RECORD"  # settings for `attach` as JSON
_MODULE = "torch.optim.optimizer"


def to_environment(schedule: Schedule, **settings: Any) -> str:
    """The value of `VARIABLE` for these settings, which are plain data."""
    return json.dumps({"schedule": asdict(schedule), **settings})


def from_environment(text: str) -> dict[str, Any]:
    """Arguments for `attach`. ValueError or TypeError for what `to_environment` did not write."""
    settings = json.loads(text)
    schedule = settings.pop("schedule", {})
    return {"schedule": Schedule(**{**schedule, "at": tuple(schedule.get("at", ()))}), **settings}


def watch_for_torch() -> None:
    """Arm as soon as the program imports torch; a program that never does pays one look per import until then."""
    if _MODULE in sys.modules:
        arm(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Watch())


class _Watch:
    """Finds nothing itself: it has `arm` called once torch's optimizers are loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _after_loading(spec.loader, arm)
        return spec


def _after_loading(loader: Any, action: Callable[[ModuleType], Any]) -> None:
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        quietly(lambda: action(module), "watching optimizers")

    loader.exec_module = exec_module


def arm(optimizers: ModuleType) -> None:
    """Attach when an optimizer of this process first steps. That one counts the steps; others may step beside it."""
    counting: list[weakref.ref[Any]] = []
    recording: list[Any] = []

    def stepped(optimizer: Any, *_: Any) -> None:
        if not counting:
            counting.append(weakref.ref(optimizer))
            recording.append(_attached())
        if counting[0]() is optimizer and recording[0] is not None:
            recording[0].step()
        elif counting[0]() is None:  # it is gone: the program goes on with another one
            counting[0] = weakref.ref(optimizer)

    optimizers.register_optimizer_step_post_hook(stepped)


def _attached() -> Any:
    from advisor.hook.attachment import attach, attached

    if attached():
        return None  # the program does it itself, into the same folder
    try:
        return attach(**from_environment(os.environ.get(VARIABLE, "{}")))
    except (TypeError, ValueError) as error:
        log.warning("advisor: not recorded: %s", error)
        return None
