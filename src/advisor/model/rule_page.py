"""What a rule says about itself, for formats that explain rules beside findings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RulePage:
    """title: one line. summary: what it measures, as prose. markdown: the whole page, as `advisor explain` prints it."""

    id: str
    family: str
    title: str
    summary: str
    markdown: str
