"""`advisor info`: what each recording holds, without a judgement."""

from __future__ import annotations

import click

from advisor.cli import console
from advisor.cli.target import spare_inputs, target, write_whole


@click.command("info")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write here, not to standard output.")
def command(paths: tuple[str, ...], form: str, output: str | None) -> None:
    """Say what each recording holds: its kind, rank, devices, steps, tables and GPU time. Nothing is judged.

    PATHs are files, folders, archives of ranks or quoted patterns; an archive gives one entry a member.
    """
    from advisor import api

    place = target(output, paths)
    with console.reading() as (advance, problem):
        document = api.info(paths, advance, problem)
    spare_inputs(place, (file["path"] for file in document["files"]))
    if form == "json":
        from advisor.report.info_text import to_json as told
    else:
        from advisor.report.info_text import to_text as told
    if place is not None:
        write_whole(place, told(document).rstrip("\n") + "\n")
    else:
        console.write(told(document))
