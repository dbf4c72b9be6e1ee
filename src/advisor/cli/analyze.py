"""`advisor analyze`: recordings in, ranked findings out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from advisor.cli import console
from advisor.cli.missing import absent, tell_missing
from advisor.cli.output import Outputs, output_options
from advisor.cli.reading import positive, reading_options, rule_options
from advisor.cli.settings import config_options, configured, gate_options

WHAT_IF_FORMATS = ("text", "json", "markdown")


def _options(function: Any) -> Any:
    """The options, in the order of the help text."""
    for option in reversed(
        (
            click.argument("paths", nargs=-1, required=True, metavar="PATH..."),
            output_options,
            rule_options,
            reading_options,
            click.option("-v", "--verbose", is_flag=True, help="Print all details."),
            click.option("-q", "--quiet", is_flag=True, help="Print the verdict and one line a finding."),
            click.option(
                "--what-if",
                "what_if",
                metavar="RULE",
                multiple=True,
                help="Print instead how long a step takes once the findings of these rules or families are mended, each alone "
                "and all together; comma lists are fine.",
            ),
            click.option(
                "--fail-on",
                metavar="WHAT",
                multiple=True,
                help="Exit with status 1 if there is a finding of severity high, medium or low (or above) with confidence "
                "medium at least, of this rule or family, or one that the baseline does not hold (new, new:high); or if a figure "
                "is beyond a limit ('step-time>120ms', 'mfu<40%'; quote it). never: tell, but end with status 0. May be given "
                "several times. Conditions, budgets and their names: docs/configuration.md.",
            ),
            gate_options,
            config_options,
            click.option("--framework", metavar="NAME", help="Show fixes for this framework first (ddp, fsdp2, lightning, ...)."),
            click.option(
                "--items-per-step",
                type=float,
                callback=positive,
                metavar="N",
                help="Samples or tokens a step, to print the throughput.",
            ),
            click.option(
                "--gpu-hour-cost",
                type=float,
                callback=positive,
                metavar="X",
                help="Price of a GPU hour, to print what each finding costs a day on the job's GPUs.",
            ),
            click.option("--redact", is_flag=True, help="Leave source locations out of the report."),
            click.option(
                "--allow-missing",
                is_flag=True,
                help="Where there is no recording at all, say so and end with status 0; a broken one is an error still.",
            ),
            click.option("--processes", type=click.IntRange(1), metavar="N", help="Read so many files at a time."),
        )
    ):
        function = option(function)
    return function


@click.command("analyze")
@_options
def command(
    paths: tuple[str, ...],
    form: str,
    output: str | None,
    also: tuple[tuple[str, str], ...],
    source_root: Path | None,
    note: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    rule_dirs: tuple[str, ...],
    rank: int | None,
    steps: tuple[int | None, int | None] | None,
    step_pattern: str | None,
    verbose: bool,
    quiet: bool,
    what_if: tuple[str, ...],
    fail_on: tuple[str, ...],
    baseline: str | None,
    strict_budgets: bool,
    config: str | None,
    no_config: bool,
    trust_rule_dirs: bool,
    gpu: str | None,
    torch_version: str | None,
    framework: str | None,
    items_per_step: float | None,
    gpu_hour_cost: float | None,
    redact: bool,
    allow_missing: bool,
    processes: int | None,
) -> int:
    """Find what holds a training run back and print ranked fixes.

    All PATHs together are one run: traces of several ranks, an nsys export beside a torch trace, an nvidia-smi log.

    \b
    Examples:
      advisor analyze trace.json.gz
      advisor analyze traces/ smi.csv --format html -o report.html
      advisor analyze trace.json.gz --what-if host-sync-in-step,pageable-copy
      advisor analyze trace.json.gz --fail-on high --also sarif=advisor.sarif
    """
    from advisor.gates.baseline import against
    from advisor.gates.baseline import read as read_baseline
    from advisor.gates.judge import judge
    from advisor.model import Options
    from advisor.report import render
    from advisor.rules.catalogue import chosen
    from advisor.rules.describe import pages
    from advisor.rules.engine import analyze
    from advisor.rules.told import check_options

    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude one another")
    asked = [name.strip() for text in what_if for name in text.split(",") if name.strip()]
    if what_if and (not asked or select or ignore or fail_on or gpu_hour_cost):
        raise click.UsageError(
            "--what-if needs names of rules, and goes without --select, --ignore, --fail-on and --gpu-hour-cost"
        )
    if what_if and (form not in WHAT_IF_FORMATS or also):
        raise click.UsageError(f"--what-if prints {' or '.join(WHAT_IF_FORMATS)}, and goes without --also")
    _check_framework(framework)
    # Wrong names and places are told before minutes are spent on reading.
    own = configured(config, no_config, trust_rule_dirs, rule_dirs, verbose)
    kept, left_out = own.select(select), own.ignore(ignore, select)
    selected = chosen(own.entries, asked or kept, () if asked else left_out)
    wanted = own.asked(fail_on, strict_budgets, selected)
    _spare_regressions(wanted, fail_on)
    accepted = own.baseline_file(baseline)
    known = read_baseline(accepted) if accepted is not None and not asked else None
    outputs = Outputs.of(
        paths, form, output, also, verbosity=1 if verbose else -1 if quiet else 0, source_root=source_root, note=note
    )
    outputs.spare(own.files(accepted))
    options = Options(
        gpu=own.take("gpu", gpu),
        torch_version=own.take("torch-version", torch_version),
        framework=own.take("framework", framework),
        items_per_step=own.take("items-per-step", items_per_step),
        gpu_hour_cost=own.take("gpu-hour-cost", gpu_hour_cost) if not asked else None,
        rank=rank,
        steps=steps,
        step_pattern=own.take("step-pattern", step_pattern),
    )
    check_options(options)
    if allow_missing and absent(paths):
        tell_missing(outputs, paths)
        return 0
    run = console.load(paths, options, processes)
    outputs.spare(trace.path for each in (run, run.fuller) if each is not None for trace in each.traces)
    if asked:
        from advisor.report import what_if as answer
        from advisor.report.style import Style
        from advisor.rules.what_if import what_if as mended

        result = mended(run, asked, rule_dirs=own.rule_dirs, thresholds=own.thresholds, redact=redact)
        outputs.write(lambda form, **style: answer.render(result, form, Style(**style)))
        return 0
    report = analyze(
        run,
        select=kept,
        ignore=left_out,
        rule_dirs=own.rule_dirs,
        thresholds=own.thresholds,
        redact=redact,
        pictures="html" in outputs.forms(),
    )
    held = against(known, report, str(accepted), own.take("baseline-margin", None)) if known else None
    report.gates = judge(report, wanted, held)
    rule_pages = pages(entry.rule for entry in own.entries) if "sarif" in outputs.forms() else None
    outputs.write(lambda form, **style: render(report, form, rule_pages=rule_pages, **style))
    return 1 if report.gates.failed else 0


def _check_framework(name: str | None) -> None:
    from advisor.rules.rule import FRAMEWORKS, nearest

    if name is not None and name not in FRAMEWORKS:
        raise click.UsageError(f"no framework {name!r}{nearest(name, FRAMEWORKS)}; known are {', '.join(FRAMEWORKS)}")


def _spare_regressions(wanted: Any, fail_on: tuple[str, ...]) -> None:
    """A condition of the configuration may be for `advisor compare`, one that was typed here may not."""
    from advisor.gates.expression import Regression

    typed = [text for text, term, _ in wanted.terms if isinstance(term, Regression)]
    if typed and fail_on:
        raise click.UsageError(f"--fail-on {typed[0]!r}: regressions are judged by `advisor compare BASE HEAD`")
