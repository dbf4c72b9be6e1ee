"""Options of every command that reads recordings, and how their values are checked."""

from __future__ import annotations

import re
from typing import Any

import click

from advisor.cli.rules import rules_option


def step_range(text: str) -> tuple[int | None, int | None]:
    """`A:B`, half open as in Python, either end may be missing. ValueError if it is nothing of the kind."""
    found = re.fullmatch(r"\s*(-?\d{0,9})\s*:\s*(-?\d{0,9})\s*", text)
    if not found or "-" in found.groups():
        raise ValueError("write A:B, for example 2:10, 5: or :-1")
    low, high = (int(part) if part else None for part in found.groups())
    if low is not None and high is not None and low >= high >= 0:
        raise ValueError(f"{text.strip()} selects nothing: A:B are the steps from A on, before B")
    return low, high


def steps_option(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int | None, int | None] | None:
    try:
        return None if value is None else step_range(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, option) from error


def positive(ctx: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 < value < float("inf"):
        raise click.BadParameter("must be a finite number above 0", ctx, option)
    return value


def regular_expression(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except (re.error, RecursionError, OverflowError) as error:
        raise click.BadParameter(f"not a regular expression: {error}", ctx, option) from error
    return value


def rule_options(function: Any) -> Any:
    """--select, --ignore and --rules; the command gets select, ignore and rule_dirs."""
    for option in reversed(
        (
            click.option("--select", metavar="RULE", multiple=True, help="Only these rules or families; comma lists are fine."),
            click.option("--ignore", metavar="RULE", multiple=True, help="Without these rules or families."),
            rules_option(),
        )
    ):
        function = option(function)
    return function


def reading_options(function: Any) -> Any:
    """What of a recording is looked at, and what it does not tell: rank, steps, step_pattern, gpu and torch_version."""
    for option in reversed(
        (
            click.option("--rank", type=click.IntRange(0), metavar="N", help="Look at this rank only."),
            click.option("--steps", metavar="A:B", callback=steps_option, help="Look at these recorded steps, the first is 0."),
            click.option(
                "--step-pattern", metavar="REGEX", callback=regular_expression, help="Ranges whose names match are the steps."
            ),
            click.option("--gpu", metavar="NAME", help="Model of the GPU, where the recording does not tell."),
            click.option("--torch-version", metavar="VERSION", help="Version of PyTorch, where the recording does not tell."),
        )
    ):
        function = option(function)
    return function
