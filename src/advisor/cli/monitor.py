"""`advisor monitor`: GPUs watched live, and in the end what the hardware rules say of what was seen."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from advisor.cli import console
from advisor.cli.reading import positive
from advisor.cli.target import target

if TYPE_CHECKING:
    from advisor.hook.nvml import Nvml
    from advisor.monitor.gpus import Choice
    from advisor.monitor.readings import Beat

Take = Callable[["Beat"], object]


def _indices(ctx: click.Context, option: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 5 for part in parts):
        raise click.BadParameter("write indices as nvidia-smi lists them, for example 0,2", ctx, option)
    return sorted({int(part) for part in parts})


@click.command("monitor")
@click.option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    callback=positive,
    default=1.0,
    show_default=True,
    help="Seconds between readings.",
)
@click.option("--duration", type=float, callback=positive, metavar="S", help="End after so many seconds.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many readings.")
@click.option("--gpus", callback=_indices, metavar="N[,N]", help="Watch these GPUs only, by nvidia-smi's index.")
@click.option(
    "--pid",
    type=click.IntRange(1),
    metavar="N",
    help="Watch the GPUs on which this process, or one that it started, computes: waits for it to begin, ends when it ends.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Also write the readings as nvidia-smi's CSV, line by line; - for standard output in place of the view.",
)
@click.option("--force", is_flag=True, help="Write over an --output that exists.")
@click.option("--no-verdict", is_flag=True, help="Do not judge in the end.")
def command(
    interval: float,
    duration: float | None,
    count: int | None,
    gpus: list[int] | None,
    pid: int | None,
    output: str | None,
    force: bool,
    no_verdict: bool,
) -> int:
    """Watch GPUs live: utilisation, memory, power, clocks, temperature and what holds the clocks back.

    \b
      advisor monitor
      advisor monitor --pid 4711 --output smi.csv
      advisor monitor --gpus 0,2 --duration 600 --output smi.csv

    A terminal gets a picture with the latest readings as curves, a pipe one line a GPU. Ctrl-C ends it. In the end the hardware
    rules judge what was seen: heat, power caps, clocks, links, uneven GPUs. The file goes beside a trace of the same run:
    `advisor analyze trace.json.gz smi.csv`.
    """
    from advisor.hook.nvml import NoDriver, nvml
    from advisor.monitor.readings import Rows, beats

    if gpus is not None and pid is not None:
        raise click.UsageError("--gpus and --pid exclude one another")
    place = _place(output, force)
    kept = Rows()
    try:
        with nvml() as library, contextlib.ExitStack() as open_until_the_end:
            choice = _choice(library, gpus, pid)
            takes = [open_until_the_end.enter_context(_written(place, force))] if place else []
            if not no_verdict:
                takes.append(kept.add)
            takes.append(open_until_the_end.enter_context(_shown(interval, output == "-")))
            with _until_interrupted():
                for beat in beats(library, choice, interval, count, duration):
                    for take in takes:
                        take(beat)
            ended_early = _never_seen(choice)
    except NoDriver as error:
        console.message(f"error: {error}")
        return console.NOTHING_READ
    if ended_early:
        console.message(f"error: {ended_early}")
        return console.NOTHING_READ
    if place is not None:
        console.message(f"written: {place}")
    if kept:
        _judge(kept, err=output == "-")
    return 0


def _place(output: str | None, force: bool) -> Path | None:
    place = target(output, ())
    if place is not None and place.is_file() and not force:
        raise click.UsageError(f"--output {output}: the file exists; give another name, or --force to write over it")
    return place


def _choice(library: Nvml, gpus: list[int] | None, pid: int | None) -> Choice:
    from advisor.monitor.gpus import GpusOfProcess, these

    count = library.count()
    if pid is not None:
        choice = GpusOfProcess(library, pid)
        if not choice() or not choice.found():
            if not choice.alive():
                raise click.UsageError(f"--pid {pid}: no such process runs here, and none computes on a GPU")
            console.message(f"waiting for process {pid} to compute on a GPU")
        return choice
    if not count:
        raise click.UsageError("the NVIDIA driver knows no GPU")
    wrong = [index for index in gpus or () if index >= count]
    if wrong:
        known = f"GPUs 0 to {count - 1}" if count > 1 else "GPU 0 alone"
        raise click.UsageError(f"--gpus {wrong[0]}: this machine has {known}")
    return these(gpus if gpus is not None else list(range(count)))


def _never_seen(choice: Choice) -> str | None:
    """What to say where a process ended, or we were stopped, before it came to any GPU."""
    from advisor.monitor.gpus import GpusOfProcess

    if isinstance(choice, GpusOfProcess) and not choice.found():
        return f"process {choice.pid} did not compute on a GPU" + ("" if choice.alive() else " before it ended")
    return None


@contextlib.contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ctrl-C is how a watch usually ends. A signal to terminate ends the program, after what is open is closed."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if type(stop) is not KeyboardInterrupt:
            raise


@contextlib.contextmanager
def _written(place: Path, force: bool) -> Iterator[Take]:
    """Rows in the file as they come, each line whole at once: whoever reads it meanwhile finds what is there by then."""
    from advisor.hook.nvml import csv_header
    from advisor.monitor.readings import rows

    new = force or (place.exists() and not place.is_file())  # a pipe or a device is there already
    try:
        with open(place, "w" if new else "x", encoding="utf-8", errors="replace") as file:

            def take(beat: Beat) -> None:
                _append(file, rows(beat))

            _append(file, [csv_header()])
            yield take
    except OSError as error:
        if error.filename is None and not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, str(place)) from error
        raise


def _append(file: TextIO, lines: list[str]) -> None:
    file.write("".join(line + "\n" for line in lines))
    file.flush()


@contextlib.contextmanager
def _shown(interval: float, csv: bool) -> Iterator[Take]:
    """What standard output gets of each beat."""
    if csv:
        from advisor.hook.nvml import csv_header
        from advisor.monitor.readings import rows

        _append(sys.stdout, [csv_header()])
        yield lambda beat: _append(sys.stdout, rows(beat))
        return
    from advisor.monitor import view

    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda beat: _append(sys.stdout, view.lines(beat))
        return
    from rich.console import Console
    from rich.live import Live

    from advisor.monitor.readings import Histories

    histories = Histories()
    picture = view.Picture(histories, f"{interval:g}", "utf" in (sys.stdout.encoding or "").lower())
    screen = Console(no_color=not console.color(), highlight=False)
    with Live(picture, console=screen, auto_refresh=False, redirect_stdout=False) as live:

        def take(beat: Beat) -> None:
            histories.add(beat)
            live.refresh()

        yield take


def _judge(kept: object, err: bool) -> None:
    """The verdict of the hardware rules on what was read, by way of the reader of nvidia-smi's logs."""
    import shutil

    from advisor import ingest
    from advisor.monitor.readings import Rows
    from advisor.report import render
    from advisor.rules.engine import analyze

    assert isinstance(kept, Rows)
    with tempfile.TemporaryDirectory(prefix="advisor-") as folder:
        log = Path(folder, "smi.csv")
        with open(log, "w", encoding="utf-8", errors="replace") as file:
            kept.write(file)
        run = ingest.load([str(log)], processes=1)
    report = analyze(run, select=["hardware"])
    size = shutil.get_terminal_size((100, 24)).columns
    unicode = "utf" in ((sys.stderr if err else sys.stdout).encoding or "").lower()
    text = render(report, "text", verbosity=-1, width=size, unicode=unicode, color=console.color() and not err)
    if err:
        click.echo(text.rstrip("\n"), err=True)
    else:
        console.write(text)
