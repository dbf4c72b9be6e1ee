"""What all commands share: messages and progress on standard error, results on standard output, exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from advisor.model import Options, Run

NOTHING_READ = 2
INTERNAL_ERROR = 70  # sysexits.h: EX_SOFTWARE

_PROGRESS_AFTER = 1.0  # seconds: what is done by then needs no bar


def one_line(text: str) -> str:
    """`text` on one line and without control characters, which a file name may hold."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


def message(text: str) -> None:
    """One line on standard error."""
    with contextlib.suppress(OSError):  # nobody listens
        click.echo(one_line(text), err=True)


def problem(path: str, reason: str) -> None:
    """The one line about an input that cannot be used."""
    message(f"error: {path}: {reason}")


def wrong_usage(error: click.ClickException) -> int:
    """Say in one line what is wrong with the arguments and where to read on; returns the exit status."""
    ctx = getattr(error, "ctx", None)
    more = f" ({ctx.command_path} --help)" if ctx is not None else ""
    message(f"error: {error.format_message().rstrip('.')}{more}")
    return NOTHING_READ


def fail(error: BaseException) -> int:
    """Say in one line why the command ended; returns the exit status."""
    from advisor.model import InputError

    if isinstance(error, InputError):
        message(f"error: {error}")
        return NOTHING_READ
    if isinstance(error, MemoryError):
        message("error: not enough memory; give fewer or shorter recordings")
        return NOTHING_READ
    if isinstance(error, OSError):
        message(f"error: {error.filename or 'output'}: {error.strerror or error}")
        return NOTHING_READ
    message(f"error: internal error ({type(error).__name__}: {error}); ADVISOR_DEBUG=1 shows where")
    return INTERNAL_ERROR


def color() -> bool:
    """True if standard output may carry colour: a terminal that knows it, and neither --no-color nor NO_COLOR."""
    ctx = click.get_current_context(silent=True)
    plain = ctx is not None and ctx.color is False
    return sys.stdout.isatty() and not plain and os.environ.get("TERM") != "dumb"


def write(text: str, document: bool = False) -> None:
    """`text` to standard output, ended by exactly one newline.

    What the encoding cannot hold (a file name that is no UTF-8, half a surrogate pair in a trace) becomes a question mark.
    document: what programs read is UTF-8 whatever the terminal's encoding, as in a file.
    """
    encoding = sys.stdout.encoding or "utf-8"
    text = text.rstrip("\n") + "\n"
    if document and not sys.stdout.isatty() and hasattr(sys.stdout, "buffer"):  # text in memory has no encoding
        click.echo(text.encode("utf-8", "replace"), nl=False)
        return
    click.echo(text.encode(encoding, "replace").decode(encoding), nl=False, color=color() or None)


@contextlib.contextmanager
def reading() -> Iterator[tuple[Callable[[int, int], None], Callable[[str, str], None]]]:
    """Yields (progress, problem) for the functions that read inputs.

    Progress is a bar; problems become one line each on standard error, once the bar is gone. Where nothing could be read
    the command ends with status 2.
    """
    from advisor.ingest import NothingRead

    problems: list[tuple[str, str]] = []
    try:
        with progress() as advance:
            yield advance, lambda path, reason: problems.append((path, reason))
    except NothingRead as nothing:
        raise click.exceptions.Exit(NOTHING_READ) from nothing
    finally:
        for path, reason in problems:
            problem(path, reason)


def load(paths: Sequence[str], options: Options | None = None, processes: int | None = None) -> Run:
    """`advisor.load` with a progress bar, and one line on standard error for each input that cannot be used.

    Leaves the command with status 2 if no input could be read.
    """
    from advisor import ingest

    with reading() as (advance, tell):
        return ingest.load(paths, options, advance, tell, processes)


@contextlib.contextmanager
def progress(what: str = "Reading") -> Iterator[Callable[[int, int], None]]:
    """Yields advance(done, total), in bytes. A bar appears on a terminal's standard error once a second has passed."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    begin, bar, task = time.monotonic(), None, None

    def advance(done: int, total: int) -> None:
        nonlocal bar, task
        if bar is None:
            if time.monotonic() - begin < _PROGRESS_AFTER:
                return
            bar, task = _bar(what, total)
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def _bar(what: str, total: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    ctx = click.get_current_context(silent=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, no_color=ctx is not None and ctx.color is False),
        transient=True,
    )
    return bar, bar.add_task(what, total=total)
