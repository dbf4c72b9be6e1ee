"""What commands that write reports share: which format goes where, beside standard output also into files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from advisor.cli import console
from advisor.cli.target import spare_inputs, target, write_whole
from advisor.report import FORMATS, HOSTED

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"  # the file to which a step of GitHub Actions appends what its summary shows
_LARGEST_SUMMARY = 1 << 20  # bytes a step; GitHub drops all of a larger one
_FILE_COLUMNS = 100


class FormatFile(click.ParamType):
    """FORMAT=FILE."""

    name = "format=file"

    def __init__(self, formats: Iterable[str] = FORMATS) -> None:
        self.formats = list(formats)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        form, equals, file = str(value).partition("=")
        if form not in self.formats or not equals:
            self.fail(f"write FORMAT=FILE, FORMAT one of {', '.join(self.formats)}", param, ctx)
        if not file or file == "-":
            self.fail(f"{form}= needs the name of a file", param, ctx)
        return form, file


def output_options(function: Any) -> Any:
    """--format, --output, --also, --source-root and --note; the command gets form, output, also, source_root and note."""
    for option in reversed(
        (
            click.option(
                "--format",
                "form",
                type=click.Choice(list(FORMATS)),
                default="text",
                help="Default: text. html: one page for a browser, with -o; comment: Markdown for a pull request; github: "
                "annotations of GitHub Actions, and the job summary; gitlab: Code Quality.",
            ),
            click.option(
                "-o", "--output", metavar="FILE", type=click.Path(), help="Write the report here, not to standard output."
            ),
            click.option(
                "--also",
                metavar="FORMAT=FILE",
                type=FormatFile(),
                multiple=True,
                help="Write it in this format too. May be given several times: the recordings are read once.",
            ),
            click.option(
                "--source-root",
                metavar="DIR",
                type=click.Path(exists=True, file_okay=False, path_type=Path),
                help="Folder of the program's source, to which github, gitlab, junit and sarif relate recorded places; "
                "with it, text quotes their lines. Default: the repository around the working directory.",
            ),
            click.option("--note", metavar="TEXT", help="A line below the verdict in html, markdown, comment and github."),
        )
    ):
        function = option(function)
    return function


@dataclass(frozen=True)
class Outputs:
    """Where a report goes: `form` to `place` (None: standard output), and each of `also` to its file."""

    form: str
    place: Path | None
    also: list[tuple[str, Path]]
    style: dict[str, Any]

    @classmethod
    def of(
        cls,
        paths: Iterable[str],
        form: str,
        output: str | None,
        also: Iterable[tuple[str, str]],
        **style: Any,
    ) -> Outputs:
        """style: arguments for `render` in every format. UsageError if a file cannot be written or would be written twice."""
        inputs = list(paths)
        place = target(output, inputs)
        if form == "html" and output is None and sys.stdout.isatty():
            raise click.UsageError("--format html is a page for a browser: name its file with -o report.html")
        files = [(one, target(file, inputs, "--also")) for one, file in also]
        known = [(one, file) for one, file in files if file is not None]
        names = [os.path.realpath(file) for file in (place, *(file for _, file in known)) if file is not None]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise click.UsageError(f"two formats would be written to {twice}")
        return cls(form, place, known, style)

    def forms(self) -> set[str]:
        return {self.form, *(form for form, _ in self.also)}

    def spare(self, files: Iterable[str]) -> None:
        """UsageError if a file that was read is one of the targets."""
        read = list(files)
        spare_inputs(self.place, read)
        for _, file in self.also:
            spare_inputs(file, read, "--also")

    def write(self, rendered: Callable[..., str | None]) -> None:
        """rendered(format, **style): the report in that format, or None where there is nothing to say in it."""
        for form, file in self.also:
            self._to_file(file, rendered, form)
        if "github" in self.forms() and os.environ.get(STEP_SUMMARY):
            append_summary(rendered("markdown", **self._style("markdown", color=False, width=_FILE_COLUMNS)) or "")
        if self.place is not None:
            self._to_file(self.place, rendered, self.form)
            return
        size = shutil.get_terminal_size((100, 24)).columns
        unicode = "utf" in (sys.stdout.encoding or "").lower()
        text = rendered(self.form, **self._style(self.form, color=console.color(), width=size, unicode=unicode))
        if text is not None:
            console.write(text, document=self.form != "text")

    def _to_file(self, file: Path, rendered: Callable[..., str | None], form: str) -> None:
        text = rendered(form, **self._style(form, color=False, width=_FILE_COLUMNS))
        if text is not None:
            write_whole(file, text)

    def _style(self, form: str, **style: Any) -> dict[str, Any]:
        """Formats for code hosts look for places in the repository around us; text quotes lines only if told where."""
        style = {**self.style, **style}
        if style.get("source_root") is None and form in HOSTED:
            from advisor.report.source import repository_root

            style["source_root"] = repository_root(Path.cwd())
        return style


def append_summary(text: str) -> None:
    """Add to the job summary, which holds 1 MiB; a summary that cannot be written fails nothing."""
    place = Path(os.environ[STEP_SUMMARY])
    data = ("\n" + text.rstrip("\n") + "\n").encode("utf-8", "replace")
    try:
        if (place.stat().st_size if place.exists() else 0) + len(data) > _LARGEST_SUMMARY:
            console.message("the job summary is full: the report was left out of it")
            return
        with open(place, "ab") as summary:
            summary.write(data)
    except OSError as error:
        console.message(f"the job summary was not written: {error.strerror or error}")
