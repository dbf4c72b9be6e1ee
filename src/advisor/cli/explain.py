"""`advisor explain`: one rule in full."""

from __future__ import annotations

import re
import sys

import click

from advisor.cli import console
from advisor.cli.rules import rules_option


@click.command("explain")
@click.argument("rule")
@rules_option()
def command(rule: str, rule_dirs: tuple[str, ...]) -> None:
    """Explain one RULE: what it looks for, why it matters, its thresholds and its fixes.

    Printed as Markdown; on a terminal it is laid out and coloured.
    """
    from advisor.rules.catalogue import catalogue, find
    from advisor.rules.describe import markdown

    text = markdown(find(catalogue(rule_dirs)[0], rule).rule)
    if not sys.stdout.isatty():
        console.write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.text import Text
    from rich.theme import Theme

    # Rich centres a first heading and paints code on black, which suits dark terminals only.
    title, _, rest = text.partition("\n")
    screen = Console(no_color=not console.color(), highlight=False, theme=Theme({"markdown.code": "bold cyan"}))
    screen.print(Text(title.removeprefix("# "), style="bold"))
    # A bare link would be printed twice, as text and as address.
    screen.print(Markdown(re.sub(r"<(https?://[^>\s]+)>", r"`\1`", rest), hyperlinks=False))
