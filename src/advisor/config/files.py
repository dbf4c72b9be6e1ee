"""Where the configuration lies, and what its text says before anybody has judged it."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.gates.files import FileError, read_text

NAMES = ("advisor.toml", "pyproject.toml")
_DEEPEST = 64  # folders between the working directory and the root of a repository


@dataclass(frozen=True)
class Document:
    """The table of a configuration file. prefix: where it stands in the file; lines: path of a key -> its line."""

    path: Path
    table: dict[str, Any]
    prefix: tuple[str, ...] = ()
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)

    def origin(self, *keys: str) -> str:
        """'advisor.toml, line 3', or without the line where that is not known."""
        line = self.lines.get((*self.prefix, *keys))
        return f"{self.path.name}, line {line}" if line else self.path.name


def find(start: Path) -> Document | None:
    """The configuration of the working directory, or of the nearest folder above it up to the root of its repository.

    `advisor.toml` is asked before `pyproject.toml`, which counts only with a table [tool.advisor]. Outside of a repository
    only the working directory is looked at: what lies above it may be anybody's. FileError for a file that cannot be used.
    """
    for folder in _folders(start):
        for name in NAMES:
            path = folder / name
            if os.path.lexists(path):
                document = read(path, only_if_ours=name == "pyproject.toml")
                if document is not None:
                    return document
    return None


def _folders(start: Path) -> list[Path]:
    upwards = [start, *start.parents][:_DEEPEST]
    for count, folder in enumerate(upwards, 1):
        if os.path.lexists(folder / ".git"):
            return upwards[:count]
    return upwards[:1]


def given(path: Path) -> Document:
    """The document in a file that the user named. FileError for one that cannot be used or does not speak of advisor."""
    document = read(path)
    assert document is not None
    return document


def read(path: Path, only_if_ours: bool = False) -> Document | None:
    """The document in a file: all of it, or [tool.advisor] of a pyproject.toml.

    only_if_ours: None for a file that does not speak of advisor, even if it is broken. FileError for one that cannot be read.
    """
    text = read_text(path)
    pyproject = path.name == "pyproject.toml"
    if only_if_ours and "advisor" not in text:
        return None
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise FileError(f"{path}: not valid TOML: {reason}") from error
    prefix: tuple[str, ...] = ()
    if pyproject or "tool" in table:
        prefix = ("tool", "advisor")
        tool = table.get("tool")
        ours = tool.get("advisor") if isinstance(tool, dict) else None
        if ours is None and only_if_ours:
            return None
        if ours is None:
            raise FileError(f"{path}: holds no table [tool.advisor]")
        if not isinstance(ours, dict):
            raise FileError(f"{path}: tool.advisor: must be a table, not {type(ours).__name__}")
        table = ours
    return Document(path, table, prefix, lines(text))


_HEADER = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_BARE = r"[\w-]+|\"[^\"\n]*\"|'[^'\n]*'"
_KEY = re.compile(rf"\s*((?:{_BARE})(?:\s*\.\s*(?:{_BARE}))*)\s*=\s*(.*)")
_PART = re.compile(_BARE)
_INLINE = re.compile(rf"[{{,]\s*((?:{_BARE})(?:\s*\.\s*(?:{_BARE}))*)\s*=")


def lines(text: str) -> dict[tuple[str, ...], int]:
    """Path of each table and key -> the line where it stands. For messages: what it does not understand it leaves out."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    closing = ""  # of a text of several lines
    for number, line in enumerate(text.splitlines()[:100_000], 1):
        if closing:
            closing = "" if closing in line else closing
            continue
        if len(line) > 2000:
            continue
        if header := _HEADER.fullmatch(line):
            table = _path(header[1])
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            path = (*table, *_path(key[1]))
            for end in range(len(table) + 1, len(path) + 1):
                found.setdefault(path[:end], number)
            for inner in _INLINE.finditer(key[2]):  # good for one level, deeper ones share the line anyway
                found.setdefault((*path, *_path(inner[1])), number)
            closing = next((q for q in ('"""', "'''") if key[2].startswith(q) and q not in key[2][3:]), "")
    return found


def _path(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(text))
