"""A rule as its TOML file states it: prose, thresholds, fixes and where they hold. docs/add-a-rule.md describes the format."""

from __future__ import annotations

import math
import re
import sys
import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from advisor.model import TABLES, InputError
from advisor.rules.validity import NO_CONDITION, VENDORS, Validity, parse_version

FAMILIES = (
    "input",
    "transfer",
    "host",
    "kernel",
    "precision",
    "communication",
    "memory",
    "hardware",
    "environment",
    "capture",
    "custom",
)
FRAMEWORKS = (
    "pytorch",
    "ddp",
    "fsdp2",
    "lightning",
    "transformers",
    "accelerate",
    "deepspeed",
    "megatron",
    "torchtitan",
    "jax",
    "tensorflow",
    "system",
)
LANGUAGES = ("python", "bash", "yaml", "json", "text")
SAFETIES = ("same-numerics", "changes-numerics", "changes-memory", "operational")
EFFORTS = ("minutes", "hours", "days")

# What `needs` may name beside tables ("kernels") and columns that hold a value somewhere ("host_ops.shapes").
ENVIRONMENT = "environment"

# The one command that samples all that rules ask of nvidia-smi; `<<nvidia-smi>>` in the hint of a rule stands for it.
SAMPLING = "nvidia-smi -q -x -l 1 -f smi.xml"
PLACEHOLDER = re.compile(r"<<([^<>\n]*)>>")
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class RuleError(InputError):
    """A rule's file that cannot be used. One line that names the file, the key and what would be valid."""


@dataclass(frozen=True)
class Threshold:
    """A number that a detector compares with: its unit and why it is this number."""

    value: float
    unit: str
    reason: str

    @property
    def most(self) -> float:
        """The largest value that makes sense, as the unit tells; the smallest is 0."""
        if self.unit.endswith("0..1"):
            return 1.0
        return 100.0 if self.unit.startswith(("%", "percentage")) else math.inf

    @property
    def quantity(self) -> Literal["duration", "bytes", "share"] | None:
        """The quantity whose units people may write in place of a bare number."""
        if self.unit.split(",")[0].split()[0] == "ns":
            return "duration"
        if self.unit.split()[0] == "bytes":
            return "bytes"
        return "share" if self.unit.endswith("0..1") else None


@dataclass(frozen=True)
class FixTemplate:
    """A way out. `snippet` holds placeholders `<<name>>`; `example` has a value for each, used where the facts lack it."""

    id: str
    title: str
    framework: str
    language: str
    snippet: str
    safety: str
    effort: str
    caveats: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    valid: Validity = NO_CONDITION
    example: dict[str, Any] = field(default_factory=dict)

    @property
    def placeholders(self) -> list[str]:
        """Names in the snippet, each once, in order."""
        return list(dict.fromkeys(PLACEHOLDER.findall(self.snippet)))


@dataclass(frozen=True)
class Rule:
    """One rule. `needs`: of each inner tuple at least one must have been recorded."""

    id: str
    family: str
    title: str
    summary: str
    needs: tuple[tuple[str, ...], ...] = ()
    informs: bool = False
    subsumes: tuple[str, ...] = ()
    thresholds: dict[str, Threshold] = field(default_factory=dict)
    valid: Validity = NO_CONDITION
    fixes: tuple[FixTemplate, ...] = ()
    capture: str | None = None

    def fix(self, fix_id: str) -> FixTemplate:
        """KeyError, naming the rule, for an id the rule does not declare."""
        for fix in self.fixes:
            if fix.id == fix_id:
                return fix
        raise KeyError(f"rule {self.id} has no fix {fix_id!r}")


def nearest(word: str, known: Any) -> str:
    """'; did you mean ...?' or nothing."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def load_rule(path: Path) -> Rule:
    """The rule in a TOML file. RuleError if the file cannot be read or says something the format does not know."""
    if path.exists() and not path.is_file():  # a pipe would never end
        raise RuleError(f"{path}: cannot be read: not a regular file")
    try:
        document = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise RuleError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RuleError(f"{path}: not valid TOML: {reason}") from error
    return _rule(_Table(path, "", document))


def _rule(top: _Table) -> Rule:
    rule = Rule(
        id=top.match("id", _ID, "lower-case words joined by '-'"),
        family=top.choice("family", FAMILIES),
        title=top.line("title"),
        summary=top.text("summary").strip(),
        needs=_needs(top),
        informs=top.flag("informs"),
        subsumes=top.texts("subsumes"),
        thresholds=_thresholds(top.table("thresholds")),
        valid=_validity(top.table("valid"), ("vendor",)),
        fixes=tuple(_fix(table) for table in top.tables("fixes")),
        capture=_capture(top.table("capture")),
    )
    top.close()
    if top.path.stem.replace("_", "-") != rule.id:
        raise top.error("id", f"is {rule.id!r}, but the file is called {top.path.name!r}; they must agree")
    ids = [fix.id for fix in rule.fixes]
    for twice in {name for name in ids if ids.count(name) > 1}:
        raise top.error("fixes", f"two fixes are called {twice!r}")
    return rule


def _needs(top: _Table) -> tuple[tuple[str, ...], ...]:
    groups = []
    for entry in top.take("needs", list, []):
        group = entry if isinstance(entry, list) else [entry]
        for name in group:
            if not isinstance(name, str):
                raise top.error("needs", "holds something that is neither a name nor a list of names")
            table, _, column = name.partition(".")
            if table not in TABLES and name != ENVIRONMENT:
                raise top.error("needs", f"no table {table!r}{nearest(table, [*TABLES, ENVIRONMENT])}")
            columns = [spec.name for spec in TABLES[table].columns] if table in TABLES else []
            if "." in name and column not in columns:
                raise top.error("needs", f"table {table!r} has no column {column!r}{nearest(column, columns)}")
        if group:
            groups.append(tuple(group))
    return tuple(groups)


def _thresholds(table: _Table) -> dict[str, Threshold]:
    thresholds = {}
    for name in list(table.left):
        if not _NAME.fullmatch(name):
            raise table.error(name, "a threshold's name is lower-case words joined by '_'")
        entry = table.table(name)
        value = entry.take("value", (int, float))
        if isinstance(value, bool) or not abs(value) <= sys.float_info.max:
            raise entry.error("value", "must be a finite number")
        thresholds[name] = made = Threshold(float(value), entry.line("unit"), entry.text("reason").strip())
        if not 0 <= made.value <= made.most:
            raise entry.error("value", f"must be from 0 {f'to {made.most:g}' if made.most < math.inf else 'on'} ({made.unit})")
        entry.close()
    return thresholds


def _validity(table: _Table, extra: tuple[str, ...] = (), close: bool = True) -> Validity:
    validity = Validity(
        min_compute_capability=table.version("min_compute_capability"),
        max_compute_capability=table.version("max_compute_capability"),
        vendor=table.choice("vendor", VENDORS, None) if "vendor" in extra else None,
        min_torch=table.version("min_torch"),
        max_torch=table.version("max_torch"),
    )
    if close:
        table.close()
    return validity


def _capture(table: _Table) -> str | None:
    hint = table.take("hint", str, None)
    table.close()
    return hint.strip().replace("<<nvidia-smi>>", SAMPLING) if hint else None


def _fix(table: _Table) -> FixTemplate:
    example = table.table("example")
    fix = FixTemplate(
        id=table.match("id", _ID, "lower-case words joined by '-'"),
        title=table.line("title"),
        framework=table.choice("framework", FRAMEWORKS),
        language=table.choice("language", LANGUAGES),
        snippet=table.text("snippet").strip("\n"),
        safety=table.choice("safety", SAFETIES),
        effort=table.choice("effort", EFFORTS),
        caveats=table.texts("caveats"),
        references=table.texts("references"),
        valid=_validity(table, close=False),
        example=dict(example.left),
    )
    table.close()
    for name in fix.placeholders:
        if not _NAME.fullmatch(name):
            raise table.error("snippet", f"placeholder <<{name}>> is not a lower-case name")
        if name not in fix.example:
            raise table.error("snippet", f"placeholder <<{name}>> has no value in [fixes.example]{nearest(name, fix.example)}")
    for name, value in fix.example.items():
        if name not in fix.placeholders:
            raise example.error(name, f"is no placeholder of the snippet{nearest(name, fix.placeholders)}")
        if not isinstance(value, (str, int, float)):
            raise example.error(name, "must be text or a number")
    return fix


_REQUIRED: Any = object()
_KINDS = {str: "text", list: "a list", dict: "a table", bool: "true or false", (int, float): "a number"}


class _Table:
    """A table of the file whose keys are taken one by one; what nobody took is unknown."""

    def __init__(self, path: Path, where: str, values: dict[str, Any]) -> None:
        self.path, self.where, self.left = path, where, dict(values)
        self.known: list[str] = []

    def error(self, key: str, text: str) -> RuleError:
        place = f"{self.where}.{key}" if self.where else key
        return RuleError(f"{self.path}: {place}: {text}")

    def take(self, key: str, kind: Any, default: Any = _REQUIRED) -> Any:
        self.known.append(key)
        if key not in self.left:
            if default is _REQUIRED:
                close = nearest(key, self.left)
                raise self.error(key, f"is missing{close.replace('did you mean', 'is it written as')}")
            return default
        value = self.left.pop(key)
        if not isinstance(value, kind):
            raise self.error(key, f"must be {_KINDS[kind]}, not {value!r:.40}")
        return value

    def text(self, key: str) -> str:
        value: str = self.take(key, str)
        if not value.strip():
            raise self.error(key, "is empty")
        return value

    def line(self, key: str) -> str:
        value = self.text(key).strip()
        if not value.isprintable():
            raise self.error(key, "must be one line" if "\n" in value else "holds characters that cannot be printed")
        return value

    def match(self, key: str, pattern: re.Pattern[str], words: str) -> str:
        value = self.line(key)
        if not pattern.fullmatch(value):
            raise self.error(key, f"{value!r} is not {words}")
        return value

    def choice(self, key: str, allowed: tuple[str, ...], default: Any = _REQUIRED) -> Any:
        value = self.take(key, str, default)
        if value is not default and value not in allowed:
            raise self.error(key, f"{value!r} is none of {', '.join(allowed)}{nearest(value, allowed)}")
        return value

    def flag(self, key: str) -> bool:
        return bool(self.take(key, bool, False))

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list, [])
        if not all(isinstance(value, str) and value.strip() for value in values):
            raise self.error(key, "must be a list of texts")
        return tuple(values)

    def version(self, key: str) -> tuple[int, ...] | None:
        value = self.take(key, str, None)
        if value is None:
            return None
        version = parse_version(value)
        if version is None or not re.fullmatch(r"[\d.]+", value):
            raise self.error(key, f'must be a version such as "8.0", not {value!r}')
        return version

    def table(self, key: str) -> _Table:
        return _Table(self.path, f"{self.where}.{key}" if self.where else key, self.take(key, dict, {}))

    def tables(self, key: str) -> list[_Table]:
        values = self.take(key, list, [])
        if not all(isinstance(value, dict) for value in values):
            raise self.error(key, f"must be written as [[{key}]]")
        return [_Table(self.path, f"{key}[{value.get('id', position)}]", value) for position, value in enumerate(values, 1)]

    def close(self) -> None:
        """RuleError if a key is left that the format does not know."""
        for key in self.left:
            hint = nearest(key, self.known) or "; known are " + ", ".join(self.known)
            raise self.error(key, f"unknown key{hint}")
