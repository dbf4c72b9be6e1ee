"""`advisor config`: the settings that hold here, and where each comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import console
from advisor.cli.rules import rules_option
from advisor.cli.settings import Configured, config_options, configured

if TYPE_CHECKING:
    from advisor.config.settings import Setting


@click.command("config")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default: text.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the configuration file, for editors.")
@rules_option()
@config_options
def command(
    form: str, schema: bool, rule_dirs: tuple[str, ...], config: str | None, no_config: bool, trust_rule_dirs: bool
) -> None:
    """Show the settings that hold in this folder, and where each comes from.

    They stand in advisor.toml, or in pyproject.toml below [tool.advisor]: of the working directory, else of the nearest folder
    above it in the same repository. Options of a command stand before them.
    """
    if schema:
        from advisor.config.schema import schema as made
        from advisor.rules.catalogue import catalogue

        rules = [entry.rule for entry in catalogue(rule_dirs)[0]]
        console.write(json.dumps(made(rules), indent=2, ensure_ascii=False))
        return
    own = configured(config, no_config, trust_rule_dirs, rule_dirs)
    own.asked((), strict=False, selected=own.entries)  # a slip in a condition is told here, too
    console.write(json.dumps(_document(own), indent=2) if form == "json" else _text(own))


def _groups(own: Configured) -> dict[str, dict[str, Setting]]:
    """Heading -> name -> setting. The first group holds every key, the others what is set."""
    from advisor.config.keys import KEYS

    found = own.settings
    return {
        "settings": {key.name: found.get(key.name) for key in KEYS if key.kind != "table"},
        "rules": dict(found.levels),
        "thresholds": {f"{rule}.{name}": one for rule, values in found.thresholds.items() for name, one in values.items()},
        "budgets": dict(found.budgets),
        "regressions": dict(found.regressions),
    }


def _document(own: Configured) -> dict[str, Any]:
    groups = {
        heading: {name: {"value": one.value, "origin": one.origin} for name, one in group.items()}
        for heading, group in _groups(own).items()
    }
    return {"schema": "advisor.config/1", "file": str(own.settings.path) if own.settings.path else None, **groups}


def _text(own: Configured) -> str:
    from advisor.gates.amounts import told
    from advisor.gates.measures import MEASURES

    lines = [f"file  {own.settings.path or 'none'}"]
    for heading, group in _groups(own).items():
        if not group:
            continue
        lines += ["", heading]
        width = max(map(len, group))
        for name, one in group.items():
            value = one.value
            if heading == "budgets":
                measure = MEASURES[name]
                value = f"at {'least' if measure.least else 'most'} {told(measure.quantity, value)}"
            elif heading == "regressions" or (name == "baseline-margin" and value is not None):
                value = told("share", value)
            lines.append(f"  {name:<{width}}  {_shown(value)}  ({one.origin or 'default'})")
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
