"""Places in the user's code: from a path that some machine recorded to a file below the source root."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from advisor.model import Location
from advisor.report import text as t

_LARGEST_FILE = 4 << 20
_MOST_FILES = 50_000  # of a source tree that are looked through
_NOT_SOURCE = {"node_modules", "__pycache__", "site-packages", "dist-packages", "venv", "env", "build", "dist"}
_LIBRARY = re.compile(r"site-packages|dist-packages|python3(\.\d+)?(\.zip)?")


def repository_root(start: Path) -> Path:
    """The nearest folder from `start` upward that holds `.git`; `start` itself where there is none."""
    start = start.resolve()
    return next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), start)


class SourceTree:
    """The files below one folder, asked by recorded paths. Nothing outside the folder is ever named or opened.

    A recorded path is one of another machine: `/workspace/app/train.py` here is `train.py`, or `services/app/train.py`. The
    longest tail of it that exists below the root is taken; failing that, the one file whose path ends most alike.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._known: dict[str, str | None] = {}
        self._names: dict[str, list[tuple[str, ...]]] | None = None

    def find(self, recorded: str) -> str | None:
        """The file's path relative to the root, with slashes; None if no file, or no single one, fits."""
        if recorded not in self._known:
            try:
                self._known[recorded] = self._find(recorded)
            except (OSError, ValueError):  # a name that no file system takes
                self._known[recorded] = None
        return self._known[recorded]

    def _find(self, recorded: str) -> str | None:
        parts = tuple(part for part in recorded.replace("\\", "/").split("/") if part not in ("", "."))
        if not parts or ".." in parts or any("\0" in part for part in parts):
            return None
        tails = range(min(_own_part(parts) + 1, len(parts)))
        for i in tails:
            if self._holds(parts[i:]):
                return "/".join(parts[i:])
        return self._most_alike(parts, least=len(parts) - tails[-1])

    def _holds(self, parts: tuple[str, ...]) -> bool:
        file = self.root.joinpath(*parts).resolve()
        return file.is_relative_to(self.root) and file.is_file()

    def _most_alike(self, parts: tuple[str, ...], least: int) -> str | None:
        """Of files with this name the only one that shares the longest tail: `least` components, or two of a longer path."""
        least = max(least, min(2, len(parts)))
        shared = [(_tail(parts, own), own) for own in self._files().get(parts[-1], ())]
        best = max((length for length, _ in shared), default=0)
        found = [own for length, own in shared if length == best]
        return "/".join(found[0]) if best >= least and len(found) == 1 and self._holds(found[0]) else None

    def _files(self) -> dict[str, list[tuple[str, ...]]]:
        """Name -> paths, as components, of the files of the tree; hidden folders and installed packages are left out."""
        if self._names is None:
            self._names, left = {}, _MOST_FILES
            for folder, folders, files in os.walk(self.root):
                folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _NOT_SOURCE)
                at = PurePosixPath(Path(folder).relative_to(self.root).as_posix()).parts
                for name in files:
                    self._names.setdefault(name, []).append((*at, name))
                left -= len(files)
                if left < 0:  # nobody knows then whether a name is the only one
                    self._names.clear()
                    break
        return self._names

    def line(self, location: Location) -> str | None:
        """The text of the line, stripped; None if there is no such file below the root or no such line."""
        file = self.find(location.file) if location.line and location.line >= 1 else None
        if file is None or location.line is None:
            return None
        try:
            path = self.root / file
            if path.stat().st_size > _LARGEST_FILE:
                return None
            lines = path.read_text("utf-8", "replace").splitlines()
        except OSError:
            return None
        return t.clean(lines[location.line - 1].strip()) or None if location.line <= len(lines) else None


def _own_part(parts: tuple[str, ...]) -> int:
    """Where the part begins that a tail must hold whole: below an installed library, its package. Else the file's name."""
    marks = [i for i, part in enumerate(parts[:-1]) if _LIBRARY.fullmatch(part)]
    return marks[-1] + 1 if marks else len(parts) - 1


def _tail(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many components at the end are the same."""
    length = 0
    while length < min(len(one), len(other)) and one[-1 - length] == other[-1 - length]:
        length += 1
    return length
