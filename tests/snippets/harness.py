"""Snippets of the rules run for real: as a rule holds them, on this machine's CPU, beside the code that they replace.

`@covers("rule/fix")` above a test says which snippets it runs; `test_snippets_catalogue` reads these lines and wants one for
every fix that claims the same numerics. `snippet` gives the code with its placeholders filled, `ran` the names it leaves.

What this machine lacks is stood in for: "cuda" is "cpu" in the text, `no_gpu` gives streams and events that do their work at
once, and workers are two. Nothing else of a snippet is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any, TypeVar

import pytest

from advisor.rules.catalogue import builtin_folder
from advisor.rules.fixes import filled
from advisor.rules.rule import Rule, load_rule

Test = TypeVar("Test", bound=Callable[..., Any])
STAND_INS = (
    (re.compile(r'"cuda"'), '"cpu"'),
    (re.compile(r"device_ids=\[local_rank\]"), "device_ids=None"),  # as DDP wants it for modules on the CPU
    (re.compile(r"num_workers=\d+"), "num_workers=2"),
)


def covers(*fixes: str) -> Callable[[Test], Test]:
    """Marks a test as the one that runs these snippets, "rule/fix" each."""
    for fix in fixes:
        snippet(fix)
    return lambda test: test


@cache
def rules() -> dict[str, Rule]:
    return {path.stem: load_rule(path) for path in sorted(builtin_folder().glob("**/*.toml"))}


def snippet(fix: str, **facts: Any) -> str:
    """The code of "rule/fix" with these facts in its placeholders, and the stand-ins of this machine. KeyError if unknown."""
    rule, _, name = fix.partition("/")
    text = filled(rules()[rule].fix(name), facts)
    for pattern, stand_in in STAND_INS:
        text = pattern.sub(stand_in, text)
    return text


def ran(code: str, /, **names: Any) -> dict[str, Any]:
    """The names that the code leaves; `names` are what the user's program has defined before."""
    space: dict[str, Any] = {"__name__": "snippet", **names}
    exec(compile(code, "snippet", "exec"), space)
    return space


def part(code: str, after: str = "", before: str = "") -> str:
    """The lines after the one that holds `after` and before the one that holds `before`; for code of two places."""
    lines = code.splitlines()
    first = next(i for i, line in enumerate(lines) if after in line) + 1 if after else 0
    last = next(i for i, line in enumerate(lines) if before in line) if before else len(lines)
    return "\n".join(lines[first:last])


class NoStream:
    """Stands in for a CUDA stream: work is done when it is issued."""

    def __init__(self) -> None:
        self.waited: list[object] = []

    def wait_stream(self, other: object) -> None:
        self.waited.append(other)

    def synchronize(self) -> None:
        pass


class NoEvent:
    """Stands in for a CUDA event; refuses what CUDA refuses too."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.timing, self.recorded, self.reached = enable_timing, False, False

    def record(self) -> None:
        self.recorded = True

    def synchronize(self) -> None:
        assert self.recorded
        self.reached = True

    def elapsed_time(self, end: NoEvent) -> float:
        assert self.timing and end.timing and self.recorded and end.reached
        return 1.0


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    current, empty = NoStream(), torch.empty

    def unpinned(*size: Any, pin_memory: bool = False, **options: Any) -> Any:
        return empty(*size, **options)

    monkeypatch.setattr(torch.cuda, "Stream", NoStream)
    monkeypatch.setattr(torch.cuda, "Event", NoEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    monkeypatch.setattr(torch, "empty", unpinned)
