"""Where a command writes: never over an input, and never half a file."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

import click


def target(output: str | None, paths: Iterable[str], option: str = "--output") -> Path | None:
    """The file that the option names; None for standard output. UsageError if nothing can be written there."""
    if output is None or output == "-":
        return None
    if not output:
        raise click.UsageError(f"{option} needs the name of a file")
    place = Path(output)
    if place.is_dir():
        raise click.UsageError(f"{option} {output}: is a folder")
    if not place.parent.is_dir():
        raise click.UsageError(f"{option} {output}: there is no folder {place.parent}")
    spare_inputs(place, paths, option)
    return place


def spare_inputs(place: Path | None, files: Iterable[str], option: str = "--output") -> None:
    """UsageError if the target is one of the files; a member of an archive (`archive::member`) stands for its archive."""
    if place is None or not place.exists():
        return
    for name in files:
        for file in {name, name.split("::")[0]}:
            if os.path.exists(file) and place.samefile(file):
                raise click.UsageError(f"{option} {place}: is one of the inputs")


def write_whole(place: Path, text: str) -> None:
    """`text` in the file, all of it or nothing: a reader never meets half a report. Raises OSError, naming the target."""
    named, place = place, Path(os.path.realpath(place))
    partial = place.with_name(f".advisor-{secrets.token_hex(8)}")
    try:
        if named.exists() and not named.is_file():  # a pipe or /dev/stderr
            named.write_text(text, encoding="utf-8", errors="replace")
            return
        with open(partial, "x", encoding="utf-8", errors="replace") as out:
            out.write(text)
        if place.exists():
            shutil.copymode(place, partial)
        os.replace(partial, place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(named)) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
