"""How a report is to look, apart from its content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from advisor.model import RulePage
from advisor.report.source import SourceTree

NARROWEST, WIDEST = 60, 160


@dataclass(frozen=True)
class Style:
    """Options of `render`, see there. `columns` is the width that is used."""

    color: bool = False
    width: int = 80
    verbosity: int = 0
    source_root: Path | None = None
    unicode: bool = True
    rule_pages: Mapping[str, RulePage] = field(default_factory=dict)
    note: str | None = None

    @property
    def columns(self) -> int:
        return min(max(self.width, NARROWEST), WIDEST)

    @cached_property
    def source(self) -> SourceTree | None:
        """The files below `source_root`."""
        return None if self.source_root is None else SourceTree(self.source_root)

    @property
    def quiet(self) -> bool:
        return self.verbosity < 0

    @property
    def full(self) -> bool:
        return self.verbosity > 0
