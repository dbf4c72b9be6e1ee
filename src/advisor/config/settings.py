"""What a configuration file says, checked against the table of keys and the rules. Unknown keys name the nearest valid one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.config.files import Document
from advisor.config.keys import BUDGETS, BY_NAME, LEVELS, REGRESSIONS, Key
from advisor.gates.amounts import parse
from advisor.gates.measures import limit
from advisor.model import InputError
from advisor.rules.rule import Rule, Threshold, nearest

_RULE_KEYS = ("level", "thresholds")
_MOST_NAMES = 1000


class ConfigError(InputError):
    """Something in a configuration file that cannot be. One line: file, line, key, and what would be valid."""


@dataclass(frozen=True)
class Setting:
    """A value and where it was set: a file and line, an option, or None for the value that holds when nobody says."""

    value: Any
    origin: str | None = None


@dataclass(frozen=True)
class Settings:
    """A configuration file. Only what it sets is there.

    values: key -> setting, in base units; levels: rule -> level; thresholds: rule -> threshold -> value; budgets, regressions:
    name -> limit in the base unit. A rule's own entry stands before that of its family.
    """

    path: Path | None = None
    values: Mapping[str, Setting] = field(default_factory=dict)
    levels: Mapping[str, Setting] = field(default_factory=dict)
    thresholds: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    budgets: Mapping[str, Setting] = field(default_factory=dict)
    regressions: Mapping[str, Setting] = field(default_factory=dict)

    def get(self, name: str) -> Setting:
        """The setting of a key, or its default. KeyError for a key that does not exist."""
        return self.values.get(name, Setting(BY_NAME[name].default))

    def rules_at(self, level: str) -> dict[str, str | None]:
        """Rules of this level -> where that was set."""
        return {name: setting.origin for name, setting in self.levels.items() if setting.value == level}


NOTHING = Settings()


class _Place:
    """A table of the file, for errors that say where."""

    def __init__(self, document: Document, keys: tuple[str, ...] = ()) -> None:
        self.document, self.keys = document, keys

    def below(self, key: str) -> _Place:
        return _Place(self.document, (*self.keys, key))

    @property
    def origin(self) -> str:
        return self.document.origin(*self.keys)

    def error(self, text: str) -> ConfigError:
        name = ".".join((*self.document.prefix, *self.keys)) or "the file"
        shown = "".join(c if c.isprintable() else " " for c in name)[:120]
        line = self.document.origin(*self.keys).removeprefix(self.document.path.name)
        return ConfigError(f"{self.document.path}{line}: {shown}: {text}")

    def setting(self, value: Any) -> Setting:
        return Setting(value, self.origin)

    def table(self, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(f"must be a table, not {value!r:.40}")
        return value

    def unknown(self, known: Iterable[str], what: str = "unknown key", more: str = "") -> ConfigError:
        known = list(known)
        few = f"; known are {', '.join(known)}" if len(known) <= 24 else ""
        return self.error(what + (nearest(self.keys[-1], known) or few) + more)


def settings(document: Document | None) -> Settings:
    """All of the file but the table `rules`, which `with_rules` adds: it can be judged only when the rules are known.

    ConfigError for anything that the format does not know.
    """
    if document is None:
        return NOTHING
    top, values = _Place(document), {}
    budgets: dict[str, Setting] = {}
    regressions: dict[str, Setting] = {}
    for name, value in document.table.items():
        place = top.below(name)
        key = BY_NAME.get(name)
        if key is None:
            raise place.unknown(BY_NAME)
        if name == "budgets":
            budgets = _amounts(place, value, BUDGETS, limit)
        elif name == "regressions":
            regressions = _amounts(place, value, REGRESSIONS, lambda _, found: parse("share", found))
        elif name == "rules":
            place.table(value)
        else:
            values[name] = place.setting(_value(place, key, value))
    return Settings(document.path, values, budgets=budgets, regressions=regressions)


def _amounts(place: _Place, value: object, known: Iterable[str], read: Callable[[str, Any], float]) -> dict[str, Setting]:
    found = {}
    for name, one in place.table(value).items():
        here = place.below(name)
        if name not in known:
            raise here.unknown(known)
        try:
            found[name] = here.setting(read(name, one))
        except ValueError as error:
            raise here.error(str(error)) from error
    return found


def _value(place: _Place, key: Key, value: Any) -> Any:
    """The value as the program takes it. ConfigError for one of another kind."""
    match key.kind:
        case "names" | "paths":
            listed = [value] if isinstance(value, str) else value
            if not isinstance(listed, list) or not all(isinstance(one, str) and one.strip() for one in listed):
                raise place.error(f"must be a list of texts such as {key.example}")
            if len(listed) > _MOST_NAMES:
                raise place.error(f"lists more than {_MOST_NAMES} names")
            if key.kind == "names":
                return tuple(name.strip() for one in listed for name in one.split(",") if name.strip())
            return tuple(str(_beside(place, one)) for one in listed)
        case "flag":
            if not isinstance(value, bool):
                raise place.error(f"must be true or false, not {value!r:.40}")
            return value
        case "number":
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise place.error(f"must be a finite number above 0, not {value!r:.40}")
            return float(value)
        case "share":
            try:
                return parse("share", value)
            except ValueError as error:
                raise place.error(str(error)) from error
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise place.error(f"must be one line of text such as {key.example}, not {value!r:.40}")
    if key.kind == "choice" and value not in key.choices:
        raise place.error(f"{value!r:.40} is none of {', '.join(key.choices)}{nearest(value, key.choices)}")
    if key.kind == "pattern":
        try:
            re.compile(value)
        except (re.error, RecursionError, OverflowError) as error:
            raise place.error(f"not a regular expression: {error}") from error
    return str(_beside(place, value)) if key.kind == "path" else value


def _beside(place: _Place, name: str) -> Path:
    """A path of the file is relative to the folder of the file."""
    if "\0" in name:
        raise place.error("holds a NUL character, which no path can")
    return place.document.path.parent / name


def with_rules(found: Settings, document: Document | None, rules: Sequence[Rule], hint: str = "") -> Settings:
    """The settings with the levels and thresholds of the table `rules`. `hint` follows where a rule is unknown.

    ConfigError for rules, families, levels and thresholds that do not exist, and for values that a threshold cannot take.
    """
    table = document.table.get("rules") if document else None
    if not document or table is None:
        return found
    by_id = {rule.id: rule for rule in rules}
    families: dict[str, list[Rule]] = {}
    for rule in rules:
        families.setdefault(rule.family, []).append(rule)
    levels: dict[str, Setting] = {}
    thresholds: dict[str, dict[str, Setting]] = {}
    place = _Place(document, ("rules",))
    # Families first: the entry of a rule of its own stands before.
    for name in sorted(table, key=lambda one: one not in families):
        here = place.below(name)
        if name not in by_id and name not in families:
            raise here.unknown([*by_id, *families], "no rule or family of this name", hint)
        members = families.get(name) or [by_id[name]]
        level, changed = _of_rule(here, table[name], members)
        for rule in members:
            if level is not None:
                levels[rule.id] = level
            for threshold, setting in changed.items():
                if threshold in rule.thresholds:
                    thresholds.setdefault(rule.id, {})[threshold] = setting
    return replace(found, levels=levels, thresholds=thresholds)


def _of_rule(here: _Place, value: object, members: Sequence[Rule]) -> tuple[Setting | None, dict[str, Setting]]:
    """The level, None if none is set, and the thresholds of an entry: a level alone, or a table."""
    if not isinstance(value, dict):
        return here.setting(_level(here, value)), {}
    for key in value:
        if key not in _RULE_KEYS:
            known = {name for rule in members for name in rule.thresholds}
            more = f"; thresholds stand below: thresholds.{key}" if key in known else ""
            raise here.below(key).unknown(_RULE_KEYS, more=more)
    level = here.below("level").setting(_level(here.below("level"), value["level"])) if "level" in value else None
    place = here.below("thresholds")
    changed = {}
    for name, one in place.table(value.get("thresholds", {})).items():
        owners = [rule.thresholds[name] for rule in members if name in rule.thresholds]
        if not owners:
            raise place.below(name).unknown(dict.fromkeys(n for rule in members for n in rule.thresholds), "no such threshold")
        changed[name] = place.below(name).setting(threshold_value(place.below(name).error, owners, one))
    return level, changed


def _level(here: _Place, value: object) -> str:
    if not isinstance(value, str) or value not in LEVELS:
        raise here.error(f"{value!r:.40} is none of {', '.join(LEVELS)}{nearest(str(value)[:40], LEVELS)}")
    return value


def threshold_value(error: Callable[[str], ConfigError], owners: Sequence[Threshold], value: object) -> float:
    """A number, or text with a unit where the threshold is a time, a size or a share."""
    owner = owners[0]
    number = value
    if isinstance(value, str):
        quantity = owner.quantity
        if quantity is None:
            raise error(f"must be a number ({owner.unit}), not {value!r:.40}")
        try:
            number = parse(quantity, value)
        except ValueError as wrong:
            raise error(str(wrong)) from wrong
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        raise error(f"must be a finite number ({owner.unit}), not {value!r:.40}")
    for one in owners:
        if not 0 <= number <= one.most:
            span = f"from 0 to {one.most:g}" if math.isfinite(one.most) else "from 0 on"
            raise error(f"must be a number {span} ({one.unit}), not {value!r:.40}")
    return float(number)
