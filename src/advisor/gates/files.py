"""Small text files that a user keeps: read whole, or refused in one line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from advisor.model import InputError

LARGEST = 16 << 20  # bytes: settings and baselines have a few thousand


class FileError(InputError):
    """A file that cannot be used. One line that names the file and the reason."""


def read_text(path: Path) -> str:
    """The text of a regular file of a sensible size. FileError for everything else."""
    try:
        # Not blocking: a pipe would never end.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileError(f"{path}: is no regular file")
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:  # a name with a NUL
        raise FileError(f"{str(path)!r}: cannot be read: {error}") from error
    if len(data) > LARGEST:
        raise FileError(f"{path}: is larger than {LARGEST >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: is no UTF-8 text (byte {error.start})") from error
