"""`advisor compare`: two sides of recordings or saved reports in, what changed between them out."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import console
from advisor.cli.output import FormatFile, Outputs
from advisor.cli.reading import positive, reading_options, rule_options
from advisor.cli.settings import config_options, configured
from advisor.report.comparison import FORMATS

if TYPE_CHECKING:
    from advisor.comparing import Recording
    from advisor.model import Options, Report, Run, Saving
    from advisor.model.comparison import Comparison

MOST_REPEATS = 100  # of one side


def _options(function: Any) -> Any:
    """The options, in the order of the help text."""
    for option in reversed(
        (
            click.argument("paths", nargs=-1, metavar="[BASE HEAD]"),
            click.option("--base", "bases", metavar="PATH", multiple=True, help="A repeat of the base; give it once for each."),
            click.option("--head", "heads", metavar="PATH", multiple=True, help="A repeat of the head; give it once for each."),
            click.option(
                "--format",
                "form",
                type=click.Choice(list(FORMATS)),
                default="text",
                help="Default: text; docs/ci.md has those for code hosts.",
            ),
            click.option(
                "-o", "--output", metavar="FILE", type=click.Path(), help="Write the comparison here, not to standard output."
            ),
            click.option(
                "--also",
                metavar="FORMAT=FILE",
                type=FormatFile(FORMATS),
                multiple=True,
                help="Write it in this format too. May be given several times: the recordings are read once.",
            ),
            click.option(
                "--source-root",
                metavar="DIR",
                type=click.Path(exists=True, file_okay=False, path_type=Path),
                help="Folder of the program's source, for formats of code hosts.",
            ),
            click.option("--note", metavar="TEXT", help="A line below the verdict in html, markdown, comment and github."),
            click.option(
                "--all-findings",
                is_flag=True,
                help="Formats for programs list all findings; without it new and worse ones only.",
            ),
            click.option(
                "--history",
                metavar="DIR",
                type=click.Path(),
                help="Keep what was promised and what was obtained in this folder, one line a comparison.",
            ),
            click.option("--show", is_flag=True, help="With --history and no inputs: print the record kept there."),
            click.option(
                "--fail-on",
                metavar="WHAT",
                multiple=True,
                help="Exit with status 1 if the head is measurably worse than the base ('regression', 'regression>3%', "
                "'regression:memory-peak>5%'; quote it), or has a new or worse finding of severity high, medium or low (or "
                "above), or of this rule or family. never: tell, but end with status 0. May be given several times. Conditions "
                "and allowed regressions: docs/configuration.md.",
            ),
            click.option(
                "--strict-budgets",
                is_flag=True,
                help="A condition that the comparison cannot answer fails too. Default: it is told as not judged.",
            ),
            config_options,
            rule_options,
            reading_options,
            click.option(
                "--items-per-step",
                type=float,
                callback=positive,
                metavar="N",
                help="Samples or tokens a step. Where the sides differ, the verdict is on the time per item.",
            ),
            click.option(
                "--base-items-per-step",
                type=float,
                callback=positive,
                metavar="N",
                help="The same of the base, where it differs from the head's.",
            ),
            click.option("-v", "--verbose", is_flag=True, help="Print all details."),
            click.option("-q", "--quiet", is_flag=True, help="Print the verdict, and new and worse findings."),
            click.option("--redact", is_flag=True, help="Leave source locations out."),
            click.option("--processes", type=click.IntRange(1), metavar="N", help="Read so many files at a time."),
        )
    ):
        function = option(function)
    return function


@click.command("compare")
@_options
def command(
    paths: tuple[str, ...],
    bases: tuple[str, ...],
    heads: tuple[str, ...],
    form: str,
    output: str | None,
    also: tuple[tuple[str, str], ...],
    source_root: Path | None,
    note: str | None,
    all_findings: bool,
    history: str | None,
    show: bool,
    fail_on: tuple[str, ...],
    strict_budgets: bool,
    config: str | None,
    no_config: bool,
    trust_rule_dirs: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    rule_dirs: tuple[str, ...],
    rank: int | None,
    steps: tuple[int | None, int | None] | None,
    step_pattern: str | None,
    gpu: str | None,
    torch_version: str | None,
    items_per_step: float | None,
    base_items_per_step: float | None,
    verbose: bool,
    quiet: bool,
    redact: bool,
    processes: int | None,
) -> int:
    """Say what became of a training run: faster or slower beyond noise, what changed, and whether promises came true.

    BASE and HEAD are recordings (a file, a folder or archive of ranks, a quoted pattern) or reports saved by
    `advisor analyze --format json`; a folder of saved reports is one repeat each. One recording a side shows large changes
    only; several repeats each (--base A --base B --head C --head D) tell noise from change.

    \b
    Examples:
      advisor compare before.json.gz after.json.gz
      advisor compare main.json pr.json.gz --fail-on regression --fail-on high
      advisor compare --base main1.json --base main2.json --head pr1.json --head pr2.json
    """
    from dataclasses import replace

    from advisor.comparing.history import FILE
    from advisor.gates.regressions import judge
    from advisor.model import Options
    from advisor.report.comparison import render
    from advisor.rules.catalogue import chosen
    from advisor.rules.describe import pages
    from advisor.rules.told import check_options

    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude one another")
    if show:
        return _show(history, [*paths, *bases, *heads], form, output, verbose)
    bases, heads = _sides(paths, bases, heads)
    own = configured(config, no_config, trust_rule_dirs, rule_dirs, verbose)
    kept, left_out = own.select(select), own.ignore(ignore, select)
    wanted = own.asked(fail_on, strict_budgets, chosen(own.entries, kept, left_out))
    allowed = {part: (setting.value, setting.origin) for part, setting in own.settings.regressions.items()}
    options = Options(
        gpu=own.take("gpu", gpu),
        torch_version=own.take("torch-version", torch_version),
        items_per_step=own.take("items-per-step", items_per_step),
        rank=rank,
        steps=steps,
        step_pattern=own.take("step-pattern", step_pattern),
    )
    check_options(options)
    verbosity = 1 if verbose else -1 if quiet else 0
    outputs = Outputs.of([*bases, *heads], form, output, also, verbosity=verbosity, source_root=source_root, note=note)
    outputs.spare([*own.files(), *([str(Path(history, FILE))] if history else [])])
    record = _record(history)
    arguments = {"select": kept, "ignore": left_out, "rule_dirs": own.rule_dirs, "thresholds": own.thresholds, "redact": redact}
    reader = Reader(outputs.spare, processes, arguments)
    comparison = reader.compare(bases, heads, options, base_items_per_step)
    comparison = replace(comparison, gates=judge(comparison, wanted, allowed))
    rule_pages = pages(entry.rule for entry in own.entries) if "sarif" in outputs.forms() else {}
    outputs.write(lambda form, **style: render(comparison, form, all_findings=all_findings, rule_pages=rule_pages, **style))
    if record is not None:  # last: a folder that cannot be written costs no result
        record(comparison)
    return 1 if comparison.gates and comparison.gates.failed else 0


def _sides(paths: tuple[str, ...], bases: tuple[str, ...], heads: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The inputs of both sides, as BASE HEAD or by --base and --head."""
    if paths and (bases or heads):
        raise click.UsageError("give BASE HEAD, or --base and --head, not both")
    if len(paths) == 2:
        bases, heads = paths[:1], paths[1:]
    elif paths:
        raise click.UsageError(f"BASE and HEAD are two paths, {len(paths)} given; several repeats go by --base and --head")
    for name, given in (("--base", bases), ("--head", heads)):
        if not given:
            raise click.UsageError("two sides are needed: BASE HEAD" if not (bases or heads) else f"{name} is missing")
        if len(given) > MOST_REPEATS:
            raise click.UsageError(f"more than {MOST_REPEATS} repeats by {name}")
    return bases, heads


class Reader:
    """From inputs to recordings: saved reports are read back, everything else is loaded and judged."""

    def __init__(self, spare: Callable[[Iterable[str]], None], processes: int | None, arguments: dict[str, Any]) -> None:
        """spare(files): refuses to overwrite inputs. arguments: of the engine's `analyze`."""
        self._spare, self._processes, self._arguments = spare, processes, arguments

    def compare(self, bases: Sequence[str], heads: Sequence[str], options: Options, base_items: float | None) -> Comparison:
        """The head is read first: which findings are gone says what the base must replay while it is in memory."""
        from dataclasses import replace

        from advisor.comparing import compare

        after = [one for path in heads for one in self._recordings(path, options, None)]
        before_options = replace(options, items_per_step=base_items or options.items_per_step)
        before = [one for path in bases for one in self._recordings(path, before_options, after)]
        return compare(before, after)

    def _recordings(self, path: str, options: Options, heads: list[Recording] | None) -> list[Recording]:
        from advisor.comparing import Recording

        saved = saved_reports(path)
        if saved:
            return [Recording(file, self._saved(file, options)) for file in saved]
        run = console.load([path], options, self._processes)
        self._spare(trace.path for each in (run, run.fuller) if each is not None for trace in each.traces)
        return [self._judged(path, run, heads)]

    def _saved(self, path: str, options: Options) -> Report:
        from advisor.ingest.saved_report import read
        from advisor.ingest.source import Source
        from advisor.model import InputError

        try:
            report = read(Source(Path(path)))
        except InputError as error:
            console.problem(path, str(error))
            raise click.exceptions.Exit(console.NOTHING_READ) from error
        self._spare([path])
        if options.items_per_step:
            report.extra["throughput"] = {"items_per_step": options.items_per_step}
        if options.steps or options.step_pattern or options.rank is not None:
            console.message(f"note: {path} is a saved report: --steps, --step-pattern and --rank do not apply to it")
        return report

    def _judged(self, path: str, run: Run, heads: list[Recording] | None) -> Recording:
        from advisor.comparing import Recording
        from advisor.rules.engine import analyze

        report = analyze(run, **self._arguments)
        alone = Recording(path, report)
        return alone if heads is None else Recording(path, report, self._together(alone, run, heads))

    def _together(self, base: Recording, run: Run, heads: list[Recording]) -> Saving | None:
        """What the findings that are gone in the head promise together, by replay. One alone has its own promise."""
        from advisor.comparing import compare
        from advisor.rules.promise import promised_together

        promises = compare([base], heads).promises
        if promises is None or len(promises.findings) < 2:
            return None
        prints = {one.fingerprint for one in promises.findings}
        return promised_together(run, base.report, prints, self._arguments["rule_dirs"], self._arguments["thresholds"])


def saved_reports(path: str) -> list[str]:
    """The saved reports that a path means: itself, those of a pattern, or those in a folder. Empty where it means recordings."""
    from advisor.ingest.saved_report import is_saved_report

    if os.path.isdir(path):
        there = [file for file in sorted(Path(path).iterdir()) if not file.name.startswith(".") and file.is_file()]
        found = [str(file) for file in there if is_saved_report(file, "advisor.report/")][:MOST_REPEATS]
        if found and len(found) < len(there):
            console.message(f"note: {path}: {len(found)} of its {len(there)} files are compared, those that are saved reports")
        return found
    if glob.has_magic(path) and not os.path.lexists(path):
        files = sorted(glob.glob(path, recursive=True))
        return files if files and all(is_saved_report(Path(file)) for file in files[:MOST_REPEATS]) else []
    return [path] if is_saved_report(Path(path)) else []


def _record(history: str | None) -> Callable[[Comparison], None] | None:
    """Appends a comparison to the record; the folder is looked at before anything is read."""
    if history is None:
        return None
    from advisor.comparing.history import History

    kept = History(Path(history))
    kept.check()

    def add(comparison: Comparison) -> None:
        if not kept.add(comparison):
            console.message("note: no finding with a promise is gone, so nothing was added to the record")

    return add


def _show(history: str | None, inputs: list[str], form: str, output: str | None, verbose: bool) -> int:
    from advisor.comparing.history import History
    from advisor.report.comparison import history as table
    from advisor.report.style import Style

    if history is None or inputs:
        raise click.UsageError("--show goes with --history DIR and without inputs")
    if form not in table.FORMATS:
        raise click.UsageError(f"--show prints {' or '.join(table.FORMATS)}")
    entries, damaged = History(Path(history)).read()
    if damaged:
        console.message(f"note: {damaged} damaged lines of the record were skipped")
    outputs = Outputs.of([], form, output, (), verbosity=1 if verbose else 0)
    outputs.write(lambda form, **style: table.render(entries, form, Style(**style)))
    return 0
