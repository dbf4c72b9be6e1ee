"""`advisor info`: what each recording holds, without a judgement."""

from __future__ import annotations

import click

from advisor.cli import console


@click.command("info")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@click.option("--output", metavar="FILE", type=click.Path(), help="Write here, not to standard output.")
def command(paths: tuple[str, ...], form: str, output: str | None) -> None:
    """Say what each recording holds: its kind, rank, devices, steps, tables and GPU time. Nothing is judged.

    PATHs are files, folders, archives of ranks or quoted patterns; an archive gives one entry a member.
    """
    from advisor import api

    with console.reading() as (advance, problem):
        document = api.info(paths, advance, problem)
    if form == "json":
        from advisor.report.info_text import to_json

        console.write(to_json(document), output)
    else:
        from advisor.report.info_text import to_text

        console.write(to_text(document), output)
