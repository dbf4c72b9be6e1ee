"""The functions that a program or notebook calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from advisor import ingest

if TYPE_CHECKING:
    from advisor.model import Options, Report, Run


def load(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    options: Options | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Read recordings of one training run: files, folders, patterns, archives.

    progress(done, total) is called while reading, in bytes. An input that cannot be used is a notice of the run
    (code "input-unused"); raises advisor.model.InputError if none can be used.
    """
    return ingest.load([paths] if isinstance(paths, str | os.PathLike) else paths, options, progress)


def analyze(run: Run, **arguments: Any) -> Report:
    """Judge a run by all rules; see advisor.rules.engine.analyze for the arguments."""
    from advisor.rules import engine

    return engine.analyze(run, **arguments)


__all__ = ["analyze", "load"]
