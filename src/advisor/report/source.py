"""The line of the user's code that a location means."""

from __future__ import annotations

from pathlib import Path

from advisor.model import Location
from advisor.report import text as t

_LARGEST_FILE = 4 << 20


def source_line(root: Path | None, location: Location) -> str | None:
    """The text of the line, stripped; None if there is no such file below `root` or no such line.

    Recorded paths name files of another machine: the longest tail of the path that exists below `root` is taken, and
    nothing outside `root` is ever opened.
    """
    if root is None or not location.line or location.line < 1:
        return None
    parts = [part for part in location.file.replace("\\", "/").split("/") if part not in ("", ".")]
    if not parts or ".." in parts or any("\0" in part for part in parts):
        return None
    try:
        base = root.resolve()
        for i in range(len(parts)):
            file = base.joinpath(*parts[i:]).resolve()
            if file.is_relative_to(base) and file.is_file() and file.stat().st_size <= _LARGEST_FILE:
                lines = file.read_text("utf-8", "replace").splitlines()
                return t.clean(lines[location.line - 1].strip()) or None if location.line <= len(lines) else None
    except (OSError, ValueError):
        return None
    return None
