"""How a report is to look, apart from its content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NARROWEST, WIDEST = 60, 160


@dataclass(frozen=True)
class Style:
    """Options of `render`, see there. `columns` is the width that is used."""

    color: bool = False
    width: int = 80
    verbosity: int = 0
    source_root: Path | None = None
    unicode: bool = True

    @property
    def columns(self) -> int:
        return min(max(self.width, NARROWEST), WIDEST)

    @property
    def quiet(self) -> bool:
        return self.verbosity < 0

    @property
    def full(self) -> bool:
        return self.verbosity > 0
