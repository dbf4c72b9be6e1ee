"""A file, or a member of an archive, as readers see it: decompressed, read-only, with its damage noted instead of raised."""

from __future__ import annotations

import atexit
import io
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib

from advisor.model import InputError

GZIP_MAGIC = b"\x1f\x8b"
_READ = 1 << 18  # compressed bytes a step
_WRITE = 1 << 20  # most decompressed bytes a step: a bomb costs time, never memory
_SPARE = 1 << 29  # bytes of disk left free when a file is unpacked
_RATIO = 200  # a file that unpacks to more times its size, and to more than _HARMLESS bytes, is no recording
_HARMLESS = 1 << 30


class UnknownKind(InputError):
    """The file is of no kind that a reader takes. Inside a folder it is skipped, named directly it is an error."""


class GunzipStream(io.RawIOBase):
    """Decompresses gzip of one or several members. A cut or damaged stream ends early and sets `damage`."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw = raw
        self._inflate = isal_zlib.decompressobj(wbits=31)
        self._out = memoryview(b"")
        self._pending = b""
        self._members = 0
        self._done = False
        self.damage: str | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._out and not self._done:
            self._step()
        n = min(len(buffer), len(self._out))
        buffer[:n] = self._out[:n]
        self._out = self._out[n:]
        return n

    def _step(self) -> None:
        if not self._pending:
            self._pending = self._raw.read(_READ)
            if not self._pending:
                self._done = True
                if not self._inflate.eof:
                    self.damage = "the gzip stream is cut short"
                return
        if self._inflate.eof:  # another member, or padding after the last one
            self._pending = self._pending.lstrip(b"\0")
            if not self._pending:
                return
            if not GZIP_MAGIC.startswith(self._pending[:2]):
                self._done = True
                return
            self._inflate = isal_zlib.decompressobj(wbits=31)
        try:
            self._out = memoryview(self._inflate.decompress(self._pending, _WRITE))
        except (isal_zlib.error, EOFError, ValueError):  # type: ignore[misc]
            self._done, self.damage = True, "the gzip stream is damaged"
            return
        self._pending = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Counted(io.RawIOBase):
    """Passes reads on and tells `advance` how many bytes went by."""

    def __init__(self, raw: io.RawIOBase, advance: Callable[[int], None]) -> None:
        self._raw, self._advance = raw, advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        n = self._raw.readinto(buffer) or 0
        self._advance(n)
        return n

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Span(io.RawIOBase):
    """`size` bytes of a file from `offset` on."""

    def __init__(self, file: Path, offset: int, size: int) -> None:
        self._raw, self._left = open(file, "rb", buffering=0), size  # noqa: SIM115 (closed by close)
        self._raw.seek(offset)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        n = self._raw.readinto(memoryview(buffer)[: self._left]) or 0
        self._left -= n
        return n

    def close(self) -> None:
        self._raw.close()
        super().close()


@dataclass(frozen=True)
class Member:
    """A regular file inside a tar archive: its name there, and where its bytes lie in the plain tar file `tar` on disk."""

    name: str
    tar: Path
    offset: int
    size: int


class Source:
    """One thing to read: a file, or a member of the archive `file`. `path` is how it is called in messages and reports."""

    def __init__(self, file: Path, member: Member | None = None, advance: Callable[[int], None] | None = None) -> None:
        self.file = file
        self.member = member
        self.path = f"{file}::{member.name}" if member else str(file)
        self.advance: Callable[[int], None] = advance or (lambda n: None)
        self.damage: str | None = None
        self._unpacked: Path | None = None

    def __repr__(self) -> str:
        return f"<Source {self.path}>"

    @property
    def name(self) -> str:
        """Last component of the path."""
        return Path(self.member.name).name if self.member else self.file.name

    @property
    def size(self) -> int:
        """Bytes on disk, compressed if the file is. Raises OSError."""
        return self.member.size if self.member else self.file.stat().st_size

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """The decompressed bytes, as a buffered stream. `damage` is set when the stream ended before its end.

        Raises InputError if the file cannot be opened.
        """
        try:
            raw = self._open_raw()
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be opened: {reason_of(error)}") from error
        stream = None
        try:
            if raw.peek(2)[:2] == GZIP_MAGIC:
                stream = GunzipStream(raw)
                yield io.BufferedReader(stream, 1 << 18)
            else:
                yield raw
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"cannot be read: {reason_of(error)}") from error
        finally:
            if stream is not None and stream.damage:
                self.damage = stream.damage
            raw.close()

    def _open_raw(self) -> io.BufferedReader:
        if self.member is not None:
            raw: io.RawIOBase = _Span(self.member.tar, self.member.offset, self.member.size)
        elif self.file.is_file():
            raw = open(self.file, "rb", buffering=0)  # noqa: SIM115 (lives as long as the stream)
        else:  # a pipe or device would never end
            raise OSError("not a regular file" if self.file.exists() else "no such file")
        return io.BufferedReader(_Counted(raw, self.advance), 1 << 18)

    def head(self, size: int = 1 << 16) -> bytes:
        """The first decompressed bytes."""
        advance, self.advance = self.advance, lambda n: None
        try:
            with self.open() as stream:
                parts, left = [], size
                while left and (part := stream.read(left)):
                    parts.append(part)
                    left -= len(part)
                return b"".join(parts)
        finally:
            self.advance = advance

    def local_file(self) -> Path:
        """A file on disk with the decompressed content: the user's own when it is plain, else a temporary copy.

        The copy is removed when the process ends. Raises InputError when there is no room for it.
        """
        if self._unpacked is not None:
            return self._unpacked
        if self.member is None:
            try:
                raw = self._open_raw()
                compressed = raw.peek(2)[:2] == GZIP_MAGIC
                raw.close()
            except OSError as error:
                raise InputError(f"cannot be opened: {reason_of(error)}") from error
            if not compressed:
                self._unpacked = self.file
                return self.file
        folder = temporary_folder()
        suffix = "-" + re.sub(r"[^\w.-]", "_", self.name.removesuffix(".gz"), flags=re.ASCII)[-80:]
        handle, target = tempfile.mkstemp(suffix, "", folder)
        limit, written, refusal = max(_HARMLESS, _RATIO * self.size), 0, ""
        with os.fdopen(handle, "wb") as out, self.open() as stream:
            while part := stream.read(1 << 20):
                if written > limit:
                    refusal = f"unpacks to more than {_RATIO} times its size, as no recording does"
                elif written % (1 << 26) == 0 and shutil.disk_usage(folder).free < _SPARE:
                    refusal = f"no room to unpack it below {folder.parent}; set TMPDIR to a larger disk"
                if refusal:
                    break
                out.write(part)
                written += len(part)
        if refusal:
            os.unlink(target)
            raise InputError(refusal)
        self._unpacked = Path(target)
        return self._unpacked


_temporary: tempfile.TemporaryDirectory[str] | None = None


def temporary_folder() -> Path:
    """A folder of this process, removed when it ends."""
    global _temporary
    if _temporary is None:
        _temporary = tempfile.TemporaryDirectory(prefix="advisor-", ignore_cleanup_errors=True)
        atexit.register(_temporary.cleanup)
    return Path(_temporary.name)


def reason_of(error: BaseException) -> str:
    """What went wrong, as one line without the path."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if not text.strip():
        return type(error).__name__
    line = text.strip().splitlines()[0]
    return line if line[1:2].isupper() else line[:1].lower() + line[1:]


__all__ = ["GZIP_MAGIC", "GunzipStream", "Member", "Source", "UnknownKind", "reason_of", "temporary_folder"]
