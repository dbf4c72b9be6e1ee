"""The folder that a recorded run leaves: `advisor-run-*/rank-N/` with a manifest, windows, samples and step times."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from advisor.hook.guard import log, quietly

PREFIX = "advisor-run-"
MANIFEST = "manifest.json"
SCHEMA = "advisor.bundle/1"
_DAY = 86_400.0  # seconds


class Bundle:
    """One rank's part of the folder. Every file appears whole or not at all; ranks never write to one another's part.

    most_bytes: once the part is larger, `room()` says no and nothing big is added.
    """

    def __init__(self, root: Path, rank: int, most_bytes: int) -> None:
        self.root = root
        self.folder = _own_folder(root, f"rank-{rank}")
        self._most = most_bytes
        self._packing: list[threading.Thread] = []

    def room(self) -> bool:
        return self.size() < self._most

    def size(self) -> int:
        """Bytes on disk."""
        return sum(self._sizes().values())

    def _sizes(self) -> dict[str, int]:
        """Bytes of each file by name, in order. A file may be replaced by its compressed form meanwhile."""
        found = {}
        for entry in os.scandir(self.folder):
            with suppress(FileNotFoundError):
                if entry.is_file():
                    found[entry.name] = entry.stat().st_size
        return dict(sorted(found.items()))

    def write(self, name: str, content: bytes) -> Path:
        """The file, whole: written beside its place and moved there."""
        place = self.folder / name
        part = partial_of(place)
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place)
        return place

    def manifest(self, document: dict[str, Any], hashes: bool) -> None:
        """The manifest, with the size of every other file as it is now; hashes: and its SHA-256, which takes a while."""
        files: dict[str, dict[str, Any]] = {}
        for name, size in self._sizes().items():
            if name != MANIFEST and not name.startswith("."):
                files[name] = {"bytes": size, **({"sha256": _sha256(self.folder / name)} if hashes else {})}
        text = json.dumps({"schema": SCHEMA, **document, "files": files}, indent=1, allow_nan=False)
        self.write(MANIFEST, text.encode())

    def pack(self, file: Path) -> None:
        """Compress the file in the background: name.json becomes name.json.gz, the plain one goes when that is whole."""
        thread = threading.Thread(target=_pack, args=(file,), name="advisor-pack", daemon=True)
        thread.start()
        self._packing.append(thread)

    def packed(self, seconds: float) -> None:
        """Wait for what is being compressed, so long at most; what is not ready stays as it was."""
        for thread in self._packing:
            thread.join(seconds)
        self._packing = [thread for thread in self._packing if thread.is_alive()]
        if not self._packing:
            for left in self.folder.glob(".*.part*"):  # of a window that was interrupted while it was written
                left.unlink(missing_ok=True)


def partial_of(place: Path) -> Path:
    """Where a file is written before it is whole. Nobody reads a hidden file, also not where the program was killed meanwhile."""
    return place.with_name(f".{place.name}.part")


def _own_folder(root: Path, name: str) -> Path:
    """A new folder of that name; a launcher that restarts its processes gives the same rank once more."""
    root.mkdir(parents=True, exist_ok=True)
    for attempt in range(100):
        folder = root / (f"{name}-restart-{attempt}" if attempt else name)
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            if root.joinpath(name).is_dir():
                continue
            raise
    raise FileExistsError(f"{root / name} was written a hundred times")


def _pack(file: Path) -> None:
    place = file.with_name(file.name + ".gz")
    part = partial_of(place)

    def work() -> bool:
        with open(file, "rb") as plain, gzip.open(part, "wb", compresslevel=1) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
        os.replace(part, place)
        file.unlink()
        return True

    if not quietly(work, "compressing a window"):
        quietly(lambda: part.unlink(missing_ok=True), "removing what was not compressed")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prune(parent: Path, keep: int, besides: Path) -> None:
    """Delete the oldest bundles in the folder until `keep` are left. Nothing but a bundle that is closed is ever deleted."""
    if keep <= 0:
        return
    bundles = [entry for entry in parent.glob(PREFIX + "*") if entry != besides and is_bundle(entry)]
    bundles.sort(key=lambda entry: entry.stat().st_mtime_ns)
    for old in bundles[: max(0, len(bundles) - (keep - 1))]:
        if _in_use(old):
            continue
        log.info("advisor: removing the old recording %s", old.name)
        shutil.rmtree(old, ignore_errors=True)


def _in_use(bundle: Path) -> bool:
    """May a rank still write to it? Where it never said that it is done, its process lives or its files are not a day old."""
    for manifest in bundle.glob(f"rank-*/{MANIFEST}"):
        document = json.loads(manifest.read_bytes())
        if document.get("finished"):
            continue
        newest = max(entry.stat().st_mtime for entry in manifest.parent.iterdir())
        if time.time() - newest < _DAY or _lives(document.get("process")):
            return True
    return False


def _lives(process: object) -> bool:
    if not isinstance(process, int) or not 0 < process < 1 << 22:
        return False
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def is_bundle(folder: Path) -> bool:
    """Did this hook write the folder, and nobody add to it?"""
    if folder.is_symlink() or not folder.is_dir():
        return False
    ranks = list(folder.iterdir())
    named = [entry for entry in ranks if entry.is_dir() and not entry.is_symlink() and entry.name.startswith("rank-")]
    manifests = [entry / MANIFEST for entry in named]
    known = {"report.json", "report.html", "report.txt"}
    others = [entry for entry in ranks if entry not in named and entry.name not in known]
    return bool(named) and not others and all(quietly(partial(_schema, m), "reading a manifest") == SCHEMA for m in manifests)


def _schema(manifest: Path) -> str | None:
    with open(manifest, "rb") as file:
        found = json.loads(file.read(64 << 20)).get("schema")
    return found if isinstance(found, str) else None
