"""Nothing in here may break training: the first failure is logged once and turns the hook off."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

log = logging.getLogger("advisor")
R = TypeVar("R")


class Switch(Protocol):
    """What can be turned off."""

    def disable(self, reason: str) -> None: ...


def guarded(method: Callable[..., R]) -> Callable[..., R | None]:
    """The method, but an exception of its own turns its object off and returns None. KeyboardInterrupt and exit pass."""

    @functools.wraps(method)
    def safe(self: Switch, *arguments: Any, **named: Any) -> R | None:
        try:
            return method(self, *arguments, **named)
        except Exception as error:
            if os.environ.get("ADVISOR_DEBUG"):
                raise
            self.disable(f"{type(error).__name__} in {method.__name__}: {error}")
            return None

    safe._torchdynamo_disable = True  # type: ignore[attr-defined]  # as torch.compiler.disable does, without its slow import
    return safe


class Hook:
    """What is hung on objects of the program. A copy, deep or pickled, does nothing, and is read without any of our code."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def __call__(self, *_: object) -> None:
        self._action()

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")  # takes anything, does nothing, returns None


def quietly(action: Callable[[], R], what: str) -> R | None:
    """What the action returns, None if it fails: for what the recording can do without."""
    try:
        return action()
    except Exception as error:
        log.debug("advisor: %s failed: %s: %s", what, type(error).__name__, error)
        return None
