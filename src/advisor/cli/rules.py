"""`advisor rules`: the rules that there are."""

from __future__ import annotations

import json
from typing import Any

import click

from advisor.cli import console


def rules_option() -> Any:
    return click.option(
        "--rules",
        "rule_dirs",
        metavar="DIR",
        multiple=True,
        type=click.Path(),
        help="Also use the rules in this folder: <id>.toml with <id>.py beside it. May be given several times.",
    )


@click.command("rules")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@rules_option()
def command(form: str, rule_dirs: tuple[str, ...]) -> None:
    """List the rules and what each needs in the input."""
    from advisor.rules.catalogue import catalogue
    from advisor.rules.needs import in_words

    entries, notices = catalogue(rule_dirs)
    for notice in notices:
        console.message(f"warning: {notice.message}")
    rules = sorted((entry.rule for entry in entries), key=lambda rule: (rule.family, rule.id))
    if form == "json":
        document = {
            "schema": "advisor.rules/1",
            "rules": [
                {
                    "id": rule.id,
                    "family": rule.family,
                    "title": rule.title,
                    "informs": rule.informs,
                    "needs": [list(group) for group in rule.needs],
                    "valid": rule.valid.conditions,
                    "thresholds": {name: {"value": one.value, "unit": one.unit} for name, one in rule.thresholds.items()},
                    "fixes": [fix.id for fix in rule.fixes],
                }
                for rule in rules
            ],
        }
        console.write(json.dumps(document, indent=2, ensure_ascii=False))
        return
    ids = max(len(rule.id) for rule in rules)
    families = max(len(rule.family) for rule in rules)
    lines = []
    for rule in rules:
        lines.append(f"{rule.id:<{ids}}  {rule.family:<{families}}  {rule.title}")
        needs = "; ".join(" or ".join(map(in_words, group)) for group in rule.needs)
        lines.append(f"{'':<{ids}}  needs {needs or 'nothing in particular'}")
    console.write("\n".join(lines))
