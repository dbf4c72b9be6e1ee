"""Steps and phases named for Nsight Systems, in programs with torch or without.

from advisor import annotate

for batch in loader:
    with annotate.step():
        with annotate.phase("forward"):
            loss = model(batch)

Names are NVTX ranges of the package nvtx (extra `nvtx`). Where it is absent, or no tool listens, nothing is done.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar, overload

__all__ = ["phase", "step"]

F = TypeVar("F", bound=Callable[..., Any])

# Names by which reports know a phase, where they differ from the short one.
_NAMES = {"data": "data loading"}
_numbers = itertools.count()


class _Range:
    """A range around a block, or around every call of a function; the name is asked for when it begins."""

    __slots__ = ("_name", "_tool")

    def __init__(self, name: Callable[[], str]) -> None:
        self._name, self._tool = name, _tool()

    def __enter__(self) -> None:
        if self._tool is not None:
            self._tool[0](self._name())

    def __exit__(self, *_: object) -> None:
        if self._tool is not None:
            self._tool[1]()

    def __call__(self, function: F) -> F:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"{function.__name__}() runs in parts: put the ranges inside it")
        if self._tool is None:
            return function

        @functools.wraps(function)
        def annotated(*arguments: Any, **named: Any) -> Any:
            with self:
                return function(*arguments, **named)

        return annotated  # type: ignore[return-value]


@overload
def step(number: SupportsIndex | None = None) -> _Range: ...
@overload
def step(number: F) -> F: ...
def step(number: Any = None) -> Any:
    """A step of training: `with annotate.step():`, or a decorator, with or without brackets, that makes each call a step.

    The ranges are called "step 0", "step 1", ...: numbered through the process, unless `number` says which.
    """
    if callable(number):
        return step()(number)
    if number is None:
        return _Range(_next_step)
    name = f"step {operator.index(number)}"
    return _Range(lambda: name)


@overload
def phase(name: str) -> _Range: ...
@overload
def phase(name: F) -> F: ...
def phase(name: Any) -> Any:
    """A part of a step: `with annotate.phase("forward"):`, or a decorator; without brackets the function's name is the phase's.

    "data" is what waits for the next batch; it is written as "data loading", by which reports tell it from other host work.
    "forward", "backward", "optimizer" and any other name are written as they are.
    """
    if callable(name):
        return phase(name.__name__)(name)
    if not isinstance(name, str):
        raise TypeError(f"a phase has a name, not a {type(name).__name__}")
    written = _NAMES.get(name, name)
    return _Range(lambda: written)


def _next_step() -> str:
    return f"step {next(_numbers)}"


@functools.cache
def _tool() -> tuple[Callable[[str], Any], Callable[[], Any]] | None:
    """(push, pop) of nvtx; None without the package, or where no tool listens, which is settled when a process starts."""
    try:
        import nvtx

        listens = type(nvtx.get_domain()).__name__ != "DummyDomain"
        return (nvtx.push_range, nvtx.pop_range) if listens else None
    except Exception:  # annotations must never stop a program
        return None
