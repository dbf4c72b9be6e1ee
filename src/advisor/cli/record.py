"""`advisor record`: a training command as it is, recorded and analysed."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGQUIT")


def _steps_at(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...]:
    try:
        steps = tuple(int(part) for part in (value or "").split(",") if part.strip())
        if any(step < 0 for step in steps):
            raise ValueError
    except ValueError:
        raise click.BadParameter("write numbers of steps, for example 100,5000", ctx, option) from None
    return steps


@click.command("record", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("-o", "--output", metavar="DIR", default=".", type=click.Path(file_okay=False), help="Make the run's folder here.")
@click.option(
    "--wait", metavar="N", type=click.IntRange(0), default=20, show_default=True, help="Steps before the first recording."
)
@click.option(
    "--warmup", metavar="N", type=click.IntRange(1), default=2, show_default=True, help="Steps at a window's start, not kept."
)
@click.option(
    "--active",
    metavar="N",
    type=click.IntRange(0),
    default=8,
    show_default=True,
    help="Steps of the window that gives the times.",
)
@click.option(
    "--evidence", metavar="N", type=click.IntRange(0), default=3, show_default=True, help="Steps with shapes and stacks."
)
@click.option("--repeat", metavar="N", type=click.IntRange(0), default=1, show_default=True, help="Recordings.")
@click.option("--at", metavar="N[,N]", callback=_steps_at, help="Record at these steps instead of after --wait.")
@click.option("--light", is_flag=True, help="Record operators in the timing window too; it slows the host more.")
@click.option("--memory-history", is_flag=True, help="Keep the allocator's history, for a snapshot when memory runs out.")
@click.option(
    "--samples",
    metavar="SECONDS",
    type=click.FloatRange(0.01),
    default=0.5,
    show_default=True,
    help="Seconds between GPU readings.",
)
@click.option("--nsys", is_flag=True, help="Record with `nsys profile` instead; steps become NVTX ranges.")
@click.option("--no-analyze", is_flag=True, help="Only record.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
def command(
    command: tuple[str, ...],
    output: str,
    wait: int,
    warmup: int,
    active: int,
    evidence: int,
    repeat: int,
    at: tuple[int, ...],
    light: bool,
    memory_history: bool,
    samples: float,
    nsys: bool,
    no_analyze: bool,
    dry_run: bool,
) -> int:
    """Run a training COMMAND without changing it, record a few steps and print what holds it back.

    \b
      advisor record -- python train.py --epochs 1
      advisor record --wait 100 -- torchrun --nproc-per-node 2 train.py
      advisor record --nsys -- python train.py

    Steps are those of the first torch optimizer that steps in each process. Signals go on to the command, and its exit status
    is ours. The run's folder advisor-run-... stays for `advisor analyze`.
    """
    from advisor.hook.plan import Schedule
    from advisor.hook.recorded import VARIABLE, to_environment

    schedule = Schedule(wait=wait, warmup=warmup, active=active, evidence=evidence, repeat=repeat, at=at, light=light)
    folder = Path(output).absolute() / f"advisor-run-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    added = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_startup()), os.environ.get("PYTHONPATH")])),
        "ADVISOR_RUN_FOLDER": str(folder),
        VARIABLE: to_environment(schedule, samples=samples, memory_history=memory_history, analyze=False),
    }
    words = list(command)
    if nsys:
        words = _under_nsys(words, folder)
    if shutil.which(words[0]) is None:
        raise click.UsageError(f"no command {words[0]!r}")
    if dry_run:
        for name, value in added.items():
            click.echo(f"{name}={shlex.quote(value)}")
        click.echo(shlex.join(words))
        if not no_analyze:
            click.echo(shlex.join(["advisor", "analyze", str(folder)]))
        return 0
    status = _run(words, {**os.environ, **added})
    if not _recorded(folder):
        click.echo("advisor: nothing was recorded: " + _why(folder, schedule, nsys), err=True)
    elif not no_analyze and not (folder / "report.json").is_file():  # a program that attaches itself has printed it
        _analyze(folder)
    return status


def _startup() -> Path:
    """The folder whose sitecustomize arms the hook."""
    import advisor.hook

    return Path(advisor.hook.__file__).parent / "startup"


def _under_nsys(words: list[str], folder: Path) -> list[str]:
    if shutil.which("nsys") is None:
        raise click.UsageError("--nsys: there is no nsys on the PATH; it comes with Nsight Systems")
    trace = ["--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--export=sqlite"]
    return ["nsys", "profile", *trace, f"--output={folder / 'nsys'}", *words]


def _run(words: list[str], environment: dict[str, str]) -> int:
    """The exit status of the command, 128 and the signal's number if one ended it."""
    folder = Path(environment["ADVISOR_RUN_FOLDER"])
    if words[0] == "nsys":
        folder.mkdir(parents=True, exist_ok=True)
    try:
        process = subprocess.Popen(words, env=environment)
    except OSError as error:
        raise click.UsageError(f"{words[0]} cannot be run: {error.strerror or error}") from error
    with _forwarding(process):
        status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def _forwarding(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Signals that reach us go on to the process; what a terminal sends, it has already got itself."""

    def forward(number: int, _: object) -> None:
        if number in (signal.SIGINT, signal.SIGQUIT) and _in_foreground():
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False


def _recorded(folder: Path) -> bool:
    return any(folder.glob("rank-*/window-*")) or any(folder.glob("*.sqlite"))


def _why(folder: Path, schedule: Any, nsys: bool) -> str:
    if nsys:
        return "nsys left no export"
    if not folder.is_dir():
        return "no torch optimizer stepped in a Python that has advisor installed"
    first = min(schedule.at) if schedule.at else schedule.wait
    return f"training ended before a window was complete; the first begins after step {first} (--wait, --active)"


def _analyze(folder: Path) -> None:
    """The report into the folder, the short one on standard error: standard output is the command's."""
    from advisor.hook import after
    from advisor.hook.settings import Settings

    ranks = len(list(folder.glob("rank-*")))
    after.analyse(folder, max(ranks, 1), Settings())
