"""From the paths a user gives to the files to read: folders, patterns and tar archives are opened up, in a fixed order."""

from __future__ import annotations

import glob
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from advisor.ingest.sniff import is_tar
from advisor.ingest.source import Member, Source, reason_of
from advisor.model import InputError, Notice

MOST_FILES = 20_000  # in one call: beyond that somebody pointed at the wrong folder
_MOST_HEADERS = 2 * MOST_FILES  # of any kind in one archive


@dataclass
class Discovery:
    """`sources`: what to read, each with the path the user named (itself, or the folder or archive that holds it).

    `problems`: (path, reason) of what the user named and nobody can read. `folder_of`: of an archive found in a folder, the
    folder that the user named.
    """

    sources: list[tuple[Source, str]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    folder_of: dict[str, str] = field(default_factory=dict)


def find(paths: Sequence[str | os.PathLike[str]]) -> Discovery:
    """Every file below `paths`, each once, in the order given and sorted inside a folder. Opens nothing that could block."""
    found = Discovery()
    seen: set[tuple[int, int]] = set()
    for path in paths:
        for expanded in _expand(os.fspath(path), found):
            _add(expanded, found, seen)
    if len(found.sources) > MOST_FILES:
        found.notices.append(Notice("too-many-files", f"more than {MOST_FILES:,} files: only the first ones are looked at"))
        del found.sources[MOST_FILES:]
    return found


def _expand(path: str, found: Discovery) -> list[str]:
    """A quoted pattern reaches us unexpanded; a file whose name merely looks like one is taken as it is."""
    if not path:
        found.problems.append(("''", "an empty path"))
        return []
    if not glob.has_magic(path) or os.path.lexists(path):
        return [path]
    matches = sorted(glob.glob(path, recursive=True))
    if not matches:
        found.problems.append((path, "no file matches this pattern"))
    return matches


def _add(path: str, found: Discovery, seen: set[tuple[int, int]]) -> None:
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        found.problems.append((path, reason_of(error)))
        return
    if stat.S_ISDIR(status.st_mode):
        said = len(found.problems)
        files = list(_walk(path, found))
        if not files and len(found.problems) == said:
            found.problems.append((path, "a folder without files"))
        for file in files:
            if len(found.sources) > MOST_FILES:
                break
            _add_file(file, path, found, seen)
    elif stat.S_ISREG(status.st_mode):
        _add_file(path, None, found, seen)
    else:
        found.problems.append((path, "not a regular file"))


def _add_file(path: str, folder: str | None, found: Discovery, seen: set[tuple[int, int]]) -> None:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        source = Source(Path(path))
        if is_tar(source.head(tarfile.BLOCKSIZE)):
            if folder is not None:
                found.folder_of[source.path] = folder
            _add_members(source, found)
        else:
            found.sources.append((source, source.path if folder is None else folder))
    except (InputError, OSError) as error:
        found.problems.append((path, reason_of(error)))


def _walk(top: str, found: Discovery) -> Iterator[str]:
    """Files below a folder, sorted, without hidden ones; links are followed, each folder is entered once."""
    entered: set[tuple[int, int]] = set()

    def unreadable(error: OSError) -> None:
        found.problems.append((str(error.filename), reason_of(error)))

    for folder, subfolders, files in os.walk(top, onerror=unreadable, followlinks=True):
        try:
            status = os.stat(folder)
        except OSError:  # removed since it was listed
            continue
        if (status.st_dev, status.st_ino) in entered:
            subfolders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield from (os.path.join(folder, name) for name in sorted(files) if not name.startswith("."))


def _add_members(archive: Source, found: Discovery) -> None:
    """Regular members by their place in the archive: no name of a member ever becomes a path on disk."""
    tar = archive.local_file()
    members, damage = _members(tar)
    damage = archive.damage or damage
    if damage:
        found.notices.append(Notice("archive-damaged", f"{archive.path}: {damage}; read up to there"))
    if not members:
        found.problems.append((archive.path, damage or "an archive without files"))
    for member in members:
        found.sources.append((Source(archive.file, member), archive.path))


def _members(tar: Path) -> tuple[list[Member], str | None]:
    """The regular members sorted by name, and what is wrong with the archive."""
    members: dict[str, Member] = {}  # a name that comes again replaces the earlier one, as tar does
    size, position, headers, damage = tar.stat().st_size, 0, 0, None
    try:
        with tarfile.open(tar, "r:", errorlevel=0) as archive:
            while (info := archive.next()) is not None:
                headers += 1
                if info.size < 0 or archive.offset <= position or headers > _MOST_HEADERS:
                    damage = "the archive is damaged" if headers <= _MOST_HEADERS else "the archive holds too many files"
                    break
                position = archive.offset
                if info.offset_data + info.size > size:
                    damage = "the archive is cut short"
                if info.isreg() and not info.issparse() and not _hidden(info.name) and info.offset_data <= size:
                    there = min(info.size, size - info.offset_data)
                    members[info.name] = Member(info.name, tar, info.offset_data, there)
        if damage is None and position < size:
            with open(tar, "rb") as rest:
                rest.seek(position)
                damage = "the archive is damaged" if rest.read(tarfile.BLOCKSIZE).strip(b"\0") else None
    except (tarfile.TarError, OSError, ValueError, EOFError, RecursionError, OverflowError):
        damage = "the archive is cut short or damaged"
    return [members[name] for name in sorted(members)], damage


def _hidden(name: str) -> bool:
    """Hidden files, and the `._name` files that macOS adds to archives."""
    return any(part.startswith(".") and part not in (".", "..") for part in PurePosixPath(name).parts)
