"""`advisor export`: what was read, as files that other tools open."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from advisor.cli import console
from advisor.cli.reading import regular_expression, steps_option
from advisor.cli.target import spare_inputs, target


@click.command("export")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--perfetto",
    metavar="OUT",
    type=click.Path(),
    help="Write Trace Event JSON for ui.perfetto.dev and chrome://tracing, compressed if OUT ends in .gz; - is standard output.",
)
@click.option(
    "--parquet",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Write the event tables here, one Parquet file each; needs pyarrow (pip install 'gpu-advisor[parquet]').",
)
@click.option(
    "--steps",
    metavar="A:B",
    callback=steps_option,
    help="Steps that --perfetto writes, the first is 0. Default: a representative steady step and its neighbours.",
)
@click.option("--all", "everything", is_flag=True, help="Let --perfetto write everything that was recorded.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="This rank only.")
@click.option("--step-pattern", metavar="REGEX", callback=regular_expression, help="Ranges whose names match are the steps.")
@click.option("--gpu", metavar="NAME", help="Model of the GPU, where the recording does not tell.")
@click.option("--redact", is_flag=True, help="Leave source locations out.")
@click.option("--processes", type=click.IntRange(1), metavar="N", help="Read so many files at a time.")
def command(
    paths: tuple[str, ...],
    perfetto: str | None,
    parquet: str | None,
    steps: tuple[int | None, int | None] | None,
    everything: bool,
    force: bool,
    rank: int | None,
    step_pattern: str | None,
    gpu: str | None,
    redact: bool,
    processes: int | None,
) -> int:
    """Write recordings in formats that other tools open, from whatever format they were read.

    --perfetto adds tracks to the recorded ones: steps, idle time of the GPU by cause, communication that nothing hides, and the
    findings with their saving and fix. --parquet always writes all rows. Existing files are kept unless --force is given.
    """
    from advisor.model import Options
    from advisor.rules.plain import plain_text
    from advisor.rules.told import check_options

    if perfetto is None and parquet is None:
        raise click.UsageError("say what to write: --perfetto OUT, --parquet DIR, or both")
    if everything and steps:
        raise click.UsageError("--all and --steps exclude one another")
    place = target(perfetto, paths, "--perfetto")
    _spare(place, force)
    folder = _folder(parquet)
    options = Options(gpu=gpu, rank=rank, step_pattern=step_pattern)
    check_options(options)
    run = console.load(paths, options, processes)
    files = [trace.path for each in (run, run.fuller) if each is not None for trace in each.traces]
    clean = functools.partial(plain_text, redact=redact, longest=None)
    if folder is not None:
        _tables(run, folder, files, force, clean)
    if perfetto is not None:
        spare_inputs(place, files, "--perfetto")
        _trace(run, place, perfetto.endswith(".gz"), steps, everything, redact, clean)
    return 0


def _spare(place: Path | None, force: bool) -> None:
    if place is not None and place.is_file() and not force:
        raise click.UsageError(f"{place} exists; --force overwrites it")


def _folder(parquet: str | None) -> Path | None:
    if parquet is None:
        return None
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise click.UsageError("--parquet needs pyarrow: pip install 'gpu-advisor[parquet]'") from error
    return Path(parquet)


def _tables(run: Any, folder: Path, inputs: list[str], force: bool, clean: Any) -> None:
    from advisor import __version__
    from advisor.export import parquet

    for name in parquet.files(run):
        spare_inputs(folder / name, inputs, "--parquet")
        _spare(folder / name, force)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        written = parquet.write(run, lambda name: stack.enter_context(_whole(folder / name)), __version__, clean)
    console.message(
        f"{folder}: {', '.join(f'{name} ({rows:,} rows)' for name, rows in written.items()) or 'no table holds rows'}"
    )


def _trace(run: Any, place: Path | None, packed: bool, steps: Any, everything: bool, redact: bool, clean: Any) -> None:
    from advisor.export import perfetto
    from advisor.export.selection import select
    from advisor.model import InputError
    from advisor.rules.engine import analyze_with_changes

    if not any(len(run.table(name)) for name in perfetto.TABLES):
        raise InputError("there is no trace in this input, so nothing to draw; --parquet writes its tables")
    selection = select(run, steps, everything)
    report, changes = analyze_with_changes(run, redact=redact)
    with contextlib.ExitStack() as stack:
        partial = stack.enter_context(_whole(place)) if place is not None else None
        raw: IO[bytes] = stack.enter_context(open(partial, "wb")) if partial is not None else sys.stdout.buffer
        out = stack.enter_context(_packed(raw)) if packed else raw
        written = perfetto.write(run, report, changes, selection, out, clean)
    if place is not None:
        cut = f"; {written.cut:,} events were cut to the one around them" if written.cut else ""
        console.message(f"{place}: {written.events:,} events, {selection.said}{cut}; open it at https://ui.perfetto.dev")


def _packed(raw: IO[bytes]) -> Any:
    from isal import igzip

    return igzip.IGzipFile(filename="", mode="wb", fileobj=raw, mtime=0)


@contextlib.contextmanager
def _whole(place: Path) -> Iterator[Path]:
    """A file to write to, which takes the name `place` when all is done: nobody meets half a file."""
    if place.exists() and not place.is_file():  # a pipe or /dev/stdout
        yield place
        return
    place = Path(os.path.realpath(place))
    partial = place.with_name(f".advisor-{secrets.token_hex(8)}")
    try:
        yield partial
        os.replace(partial, place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
