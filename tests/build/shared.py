"""Recordings that are not part of this repository, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
_KINDS = ("torch", "nsys")


def largest(count: int) -> list[object]:
    """The largest public recordings of each kind of trace, for pytest.mark.parametrize; one that skips where there are none."""
    files = [
        file
        for kind in _KINDS
        for file in sorted((SHARED / "traces" / kind).glob("*"), key=lambda file: -file.stat().st_size)[: count // len(_KINDS)]
    ]
    return files or [pytest.param(Path("none"), marks=pytest.mark.skip(reason="recordings are not here"))]
