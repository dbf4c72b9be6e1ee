"""The configuration file on the command line: which file holds, what options override, and the conditions that come of both."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from advisor.cli import console

if TYPE_CHECKING:
    from advisor.config.files import Document
    from advisor.config.settings import Settings
    from advisor.gates.expression import Term
    from advisor.gates.judge import Asked
    from advisor.rules.catalogue import Entry


def config_options(function: Any) -> Any:
    """--config, --no-config and --trust-rule-dirs; the command gets config, no_config and trust_rule_dirs."""
    for option in reversed(
        (
            click.option(
                "--config",
                metavar="FILE",
                type=click.Path(),
                help="Take settings from this file, not from the advisor.toml or pyproject.toml ([tool.advisor]) of the working "
                "directory or the folders above it in its repository.",
            ),
            click.option("--no-config", is_flag=True, help="Take settings from no file."),
            click.option(
                "--trust-rule-dirs",
                is_flag=True,
                help="Also use the rules in the folders that the configuration names; they hold Python code, which then runs.",
            ),
        )
    ):
        function = option(function)
    return function


def gate_options(function: Any) -> Any:
    """--baseline and --strict-budgets; the command gets baseline and strict_budgets."""
    for option in reversed(
        (
            click.option(
                "--baseline",
                metavar="FILE",
                type=click.Path(),
                help="Accepted findings, as `advisor baseline` writes them: listed apart, and no reason for status 1 until they "
                "get worse.",
            ),
            click.option(
                "--strict-budgets",
                is_flag=True,
                help="A condition that the recording cannot answer fails too. Default: it is told as not judged.",
            ),
        )
    ):
        function = option(function)
    return function


@dataclass(frozen=True)
class Configured:
    """The settings that hold for a call. rule_dirs: folders of rules; entries: all rules of these and the built-in ones."""

    settings: Settings
    rule_dirs: tuple[str, ...]
    entries: list[Entry]

    def take(self, name: str, option: Any) -> Any:
        """The option where it was given, else what the file says, else the default."""
        given = option is not None and option != () and option is not False
        return option if given else self.settings.get(name).value

    def select(self, option: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.take("select", option) or ())

    def ignore(self, option: tuple[str, ...], select: tuple[str, ...] = ()) -> tuple[str, ...]:
        """With the rules that are off, unless `--select` names them one by one."""
        named = {name.strip() for text in select for name in text.split(",")}
        off = [rule for rule in self.settings.rules_at("off") if rule not in named]
        return (*(self.take("ignore", option) or ()), *off)

    @property
    def thresholds(self) -> dict[str, dict[str, float]]:
        return {
            rule: {name: setting.value for name, setting in values.items()} for rule, values in self.settings.thresholds.items()
        }

    @property
    def regressions(self) -> dict[str, tuple[float, str | None]]:
        """Part -> allowed share, and where that was set."""
        return {name: (setting.value, setting.origin) for name, setting in self.settings.regressions.items()}

    def asked(self, fail_on: tuple[str, ...], strict: bool, selected: Iterable[Entry]) -> Asked:
        """What is asked of the run. UsageError or ConfigError for a condition that there is not."""
        from advisor.gates.judge import Asked, Budget

        chosen, families = list(selected), {entry.rule.family for entry in self.entries}
        errors, ids = self.settings.rules_at("error"), {entry.rule.id for entry in chosen}
        return Asked(
            terms=self._terms(
                fail_on, ids | {entry.rule.family for entry in chosen}, families | {e.rule.id for e in self.entries}
            ),
            budgets=[Budget(name, setting.value, setting.origin) for name, setting in self.settings.budgets.items()],
            errors={rule: origin for rule, origin in errors.items() if rule in ids},
            strict=bool(self.take("strict-budgets", strict)),
            families=families,
        )

    def _terms(self, fail_on: tuple[str, ...], selected: set[str], known: set[str]) -> list[tuple[str, Term, str | None]]:
        from advisor.config.settings import ConfigError
        from advisor.gates.expression import ExpressionError, parse_conditions
        from advisor.gates.judge import OPTION
        from advisor.gates.regressions import PARTS

        if fail_on:
            try:
                typed = parse_conditions(fail_on, selected, PARTS)
            except ExpressionError as error:
                raise click.UsageError(f"--fail-on {error}") from error
            if not typed:  # a variable that is empty by mistake would switch the gate off
                raise click.UsageError("--fail-on names no condition; where nothing is to fail leave it out, or write never")
            return [(text, term, OPTION) for text, term in typed]
        setting = self.settings.get("fail-on")
        try:
            return [(text, term, setting.origin) for text, term in parse_conditions(setting.value or (), known, PARTS)]
        except ExpressionError as error:
            raise ConfigError(f"{setting.origin}: fail-on: {error}") from error

    def files(self, *others: Path | None) -> list[str]:
        """The files that the settings come from, with others that are read: no output may replace them."""
        return [str(file) for file in (self.settings.path, *others) if file is not None]

    def baseline_file(self, option: str | None) -> Path | None:
        """As named, or as it lies from here: reports print it, and folders above tell names of users."""
        if option is not None:
            return Path(option)
        named = self.settings.get("baseline").value
        return None if named is None else Path(os.path.relpath(named))


def _check_names(found: Settings, entries: list[Entry], hint: str) -> None:
    """ConfigError where the file names rules, a GPU or a version that there is not: an option would be told by its own name."""
    from advisor.config.settings import ConfigError
    from advisor.model import InputError, Options
    from advisor.rules.catalogue import chosen
    from advisor.rules.told import check_options

    for key, checked, more in (
        ("select", lambda names: chosen(entries, names), hint),
        ("ignore", lambda names: [chosen(entries, [name]) for name in names], hint),
        ("gpu", lambda name: check_options(Options(gpu=name)), ""),
        ("torch-version", lambda name: check_options(Options(torch_version=name)), ""),
    ):
        setting = found.values.get(key)
        try:
            if setting is not None:
                checked(setting.value)
        except InputError as error:
            raise ConfigError(f"{setting.origin}: {key}: {error}{more}") from error  # type: ignore[union-attr]


def _found() -> Document | None:
    """The configuration of the working directory; None where that is gone, so that recordings named in full are still read."""
    from advisor.config.files import find

    try:
        here = Path.cwd()
    except OSError:
        return None
    return find(here)


def configured(config: str | None, no_config: bool, trust: bool, rule_dirs: tuple[str, ...], verbose: bool = False) -> Configured:
    """Read the configuration and the rules. UsageError, ConfigError, FileError or RuleError for what cannot be used."""
    from advisor.config.files import given
    from advisor.config.settings import settings, with_rules
    from advisor.rules.catalogue import catalogue

    if config is not None and no_config:
        raise click.UsageError("--config and --no-config exclude one another")
    document = None if no_config else given(Path(config)) if config is not None else _found()
    found = settings(document)
    if verbose:
        console.message(f"settings: {document.path if document else 'none'}")
    named = found.values.get("rule-dirs")
    hint = ""
    if named is not None and not rule_dirs:
        if trust:
            rule_dirs = named.value
        else:
            hint = "; rule-dirs of this file are used only with --trust-rule-dirs, since they hold Python code"
            console.message(f"warning: {named.origin}: rule-dirs are not used without --trust-rule-dirs: they hold Python code")
    entries, _ = catalogue(rule_dirs)
    found = with_rules(found, document, [entry.rule for entry in entries], hint)
    _check_names(found, entries, hint)
    return Configured(found, rule_dirs, entries)
