"""`advisor baseline`: accept today's findings, so that from now on only new and worse ones count."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import console
from advisor.cli.reading import reading_options, rule_options
from advisor.cli.settings import config_options, configured
from advisor.cli.target import target, write_whole

if TYPE_CHECKING:
    from advisor.model import Report

DEFAULT = "advisor-baseline.json"


def _date(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        raise click.BadParameter("write YYYY-MM-DD", ctx, option)
    return value


def _options(function: Any) -> Any:
    for option in reversed(
        (
            click.argument("paths", nargs=-1, required=True, metavar="PATH..."),
            click.option(
                "-o",
                "--output",
                metavar="FILE",
                type=click.Path(),
                help=f"The baseline. Default: what the configuration names, else {DEFAULT}.",
            ),
            click.option("--update", is_flag=True, help="Replace the file by today's findings; what was not judged today stays."),
            click.option("--prune", is_flag=True, help="Only take out what is fixed: nothing new is accepted."),
            click.option("--date", metavar="YYYY-MM-DD", callback=_date, help="Note this date in the file."),
            rule_options,
            config_options,
            reading_options,
        )
    ):
        function = option(function)
    return function


@click.command("baseline")
@_options
def command(
    paths: tuple[str, ...],
    output: str | None,
    update: bool,
    prune: bool,
    date: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    rule_dirs: tuple[str, ...],
    config: str | None,
    no_config: bool,
    trust_rule_dirs: bool,
    rank: int | None,
    steps: tuple[int | None, int | None] | None,
    step_pattern: str | None,
    gpu: str | None,
    torch_version: str | None,
) -> int:
    """Accept today's findings: `advisor analyze --baseline FILE` then lists them apart, and fails only for new or worse ones.

    All PATHs together are one run, as for analyze; or PATH is a report that `advisor analyze --format json` saved. The file holds
    no times of day and no paths: the same findings give the same bytes, so it belongs into version control.

    \b
    Examples:
      advisor baseline trace.json.gz                     accept all of today's findings
      advisor analyze trace.json.gz --baseline advisor-baseline.json --fail-on new
      advisor baseline trace.json.gz --prune             take out what is fixed since
    """
    from advisor import __version__
    from advisor.gates import baseline as b
    from advisor.model import Options
    from advisor.rules.engine import analyze
    from advisor.rules.told import check_options

    if update and prune:
        raise click.UsageError("--update and --prune exclude one another")
    own = configured(config, no_config, trust_rule_dirs, rule_dirs)
    named = str(own.baseline_file(output) or DEFAULT)
    place = target(named, paths)
    old = _existing(place, named, update, prune)
    options = Options(
        gpu=own.take("gpu", gpu),
        torch_version=own.take("torch-version", torch_version),
        rank=rank,
        steps=steps,
        step_pattern=own.take("step-pattern", step_pattern),
    )
    check_options(options)
    report = _saved(paths)
    if report is None:
        report = analyze(
            console.load(paths, options),
            select=own.select(select),
            ignore=own.ignore(ignore, select),
            rule_dirs=own.rule_dirs,
            thresholds=own.thresholds,
        )
    if prune:
        new = b.pruned(old, b.against(old, report, named))
    else:
        new = b.updated(old, report, __version__, date)
    text = b.written(new)
    if place is None:
        console.write(text)
    else:
        write_whole(place, text)
    console.message(f"{named}: {_told(old.entries, new.entries)}")
    return 0


def _saved(paths: tuple[str, ...]) -> Report | None:
    """The report, where the one path is one that `analyze --format json` wrote: nothing is judged anew."""
    from advisor.ingest.saved_report import is_saved_report, read
    from advisor.ingest.source import Source
    from advisor.model import InputError

    if len(paths) > 1 or not is_saved_report(Path(paths[0])):
        return None
    try:
        return read(Source(Path(paths[0])))
    except InputError as error:
        console.problem(paths[0], str(error))
        raise click.exceptions.Exit(console.NOTHING_READ) from error


def _existing(place: Path | None, named: str, update: bool, prune: bool) -> Any:
    """The baseline that is there; an empty one where there is none. UsageError where the two do not go together."""
    from advisor.gates import baseline as b

    if place is None or not place.exists():
        if prune or update:
            raise click.UsageError(f"there is no baseline {named} to {'prune' if prune else 'update'}")
        return b.Baseline("", ())
    if not (update or prune):
        raise click.UsageError(f"{named} is there already; --update replaces it, --prune only takes out what is fixed")
    return b.read(place)


def _told(old: Any, new: Any) -> str:
    """'5 findings accepted (2 new, 1 taken out)'."""
    before, now = ({entry.fingerprint for entry in entries} for entries in (old, new))
    changes = [f"{len(now - before)} new"] if now - before and before else []
    changes += [f"{len(before - now)} taken out"] if before - now else []
    counted = f"{len(now)} finding{'' if len(now) == 1 else 's'} accepted"
    return f"{counted} ({', '.join(changes)})" if changes else counted
