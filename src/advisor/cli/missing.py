"""No recording at all, as a step that waits for a recorder meets it: nothing is judged, and that is said, not counted."""

from __future__ import annotations

import os
from collections.abc import Sequence

from advisor.cli import console
from advisor.cli.output import Outputs


def absent(paths: Sequence[str]) -> bool:
    """True if no path leads to any file: they do not exist, are folders without files, or patterns that match nothing."""
    from advisor.ingest.discover import find

    found = find(paths)
    return not found.sources and all(not os.path.lexists(path) or _empty(path) for path, _ in found.problems)


def _empty(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK)


def tell_missing(outputs: Outputs, paths: Sequence[str]) -> None:
    """Say it in every format for people; machine formats are not written, for they would say that nothing was found."""
    from advisor.report import missing

    console.message(f"no recording: {', '.join(paths[:3])}{', ...' if len(paths) > 3 else ''}")
    outputs.write(lambda form, **style: missing.render(list(paths), form, style.get("note")))
