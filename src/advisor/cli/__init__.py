"""The command line: one module a command; argument handling and exit codes only.

A command is loaded when it is called, so that `advisor --help` answers at once: this module imports nothing but click.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
from typing import Any

try:
    import click
except KeyboardInterrupt:  # the longest part of the start-up
    sys.exit(130)

from advisor import __version__

_READER_LEFT = 141  # as a shell says of a program that SIGPIPE ended

# name -> ("module:attribute", one line for `advisor --help`). The only place where a command is registered.
COMMANDS: dict[str, tuple[str, str]] = {
    "analyze": ("advisor.cli.analyze:command", "Find what holds a training run back and print ranked fixes."),
    "comment": ("advisor.cli.comment:command", "Post a report as a comment on a pull request, or update it."),
    "compare": ("advisor.cli.compare:command", "Compare two runs: faster or slower beyond noise, and what changed."),
    "record": ("advisor.cli.record:command", "Run a training command, record a few steps and analyse them."),
    "monitor": ("advisor.cli.monitor:command", "Watch GPUs live, and judge in the end what was seen."),
    "info": ("advisor.cli.info:command", "Say what recordings hold, without judging them."),
    "export": ("advisor.cli.export:command", "Write recordings for other tools: Perfetto with our tracks, Parquet tables."),
    "rules": ("advisor.cli.rules:command", "List the rules and what each needs in the input."),
    "explain": ("advisor.cli.explain:command", "Explain one rule: what it looks for, why it matters, how to mend it."),
    "baseline": ("advisor.cli.baseline:command", "Accept today's findings, so that only new and worse ones count."),
    "config": ("advisor.cli.config:command", "Show the settings that hold here, and where each comes from."),
}

EXAMPLES = """\b
Examples:
  advisor analyze trace.json.gz
  advisor analyze traces/ smi.csv --format json
  advisor analyze "rank*.json.gz" --fail-on high
  advisor compare before.json.gz after.json.gz
  advisor info report.sqlite

\b
Exit status: 0 done; 1 a condition of the user failed (--fail-on, a budget, a rule set to error);
2 wrong usage, or no input could be read; 130 interrupted.
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        if not any(option.name == "no_color" for option in command.params):
            command.params.append(_no_color_option())
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = click.utils.make_str(args[0])
        if name not in COMMANDS and not name.startswith("-"):
            raise click.UsageError(f"no command {name!r}{_meant(name, args)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])


def _meant(name: str, args: list[str]) -> str:
    """'; did you mean ...?': a recording without a command, or a command written otherwise."""
    from difflib import get_close_matches

    if os.path.exists(name) or "*" in name or os.path.splitext(name)[1]:
        return f"; did you mean `advisor analyze {' '.join(args)}`?"
    close = get_close_matches(name, COMMANDS, n=1)
    return f"; did you mean `advisor {close[0]}`?" if close else f"; there are {', '.join(COMMANDS)}"


def _set_no_color(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value or os.environ.get("NO_COLOR"):
        ctx.color = False
        if ctx.parent is not None:
            ctx.parent.color = False


def _no_color_option() -> click.Option:
    return click.Option(
        ["--no-color"],
        is_flag=True,
        expose_value=False,
        callback=_set_no_color,
        help="Print without colour, as the environment variable NO_COLOR does.",
    )


@click.command(
    cls=LazyGroup,
    epilog=EXAMPLES,
    params=[_no_color_option()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="advisor", message="%(prog)s %(version)s")
def cli() -> None:
    """Read profiles of neural-network training on GPUs, find what holds the run back, and print ranked fixes.

    PATHs are torch.profiler traces (.json, .json.gz), Nsight Systems exports (.sqlite), nvidia-smi logs, folders of them,
    archives of ranks (.tar, .tar.gz) or quoted patterns. Files are told apart by content; their names do not matter.
    """


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `advisor` program. Always leaves by SystemExit, never with a traceback."""
    _open_streams()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(arguments))


class _Terminated(KeyboardInterrupt):
    """SIGTERM: the program ends as after Ctrl-C, by way of the clean-up."""


def _terminate(*_: object) -> None:
    raise _Terminated


def run(arguments: list[str] | None) -> int:
    """Run a command; returns its exit status, and says in one line what ended it otherwise."""
    try:
        result: Any = cli.main(args=arguments, prog_name="advisor", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        with contextlib.suppress(OSError):
            error.show()
        return 2  # 1 is kept for --fail-on
    except click.ClickException as error:
        from advisor.cli.console import wrong_usage

        return wrong_usage(error)
    except _Terminated:
        return 143
    except (KeyboardInterrupt, click.Abort) as stop:
        return 143 if isinstance(stop.__context__, _Terminated) else 130  # click turns the one into the other
    except BrokenPipeError:
        _drop_output()
        return _READER_LEFT
    except SystemExit as stop:
        # click leaves by status 1, which is kept for --fail-on, where the reader of our output left
        return _READER_LEFT if stop.code == 1 else int(stop.code or 0)
    except Exception as error:
        if os.environ.get("ADVISOR_DEBUG"):
            raise
        from advisor.cli.console import fail

        status = fail(error)
        if isinstance(error, OSError):
            _drop_output()
        return status
    return result if isinstance(result, int) else 0


def _drop_output() -> None:
    """Python flushes standard output once more at exit: give what could not be written a place to go."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Give streams that were closed before the start a place: no file that is opened later may take their numbers.

    Writing the result fails then, as it would on a full disk; messages go nowhere.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 (open until the process ends)
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
