"""Where rules come from: the built-in folder, folders of the user, installed packages."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import advisor
from advisor.model import InputError, Notice
from advisor.rules.contract import Context, Draft
from advisor.rules.rule import FAMILIES, Rule, RuleError, load_rule, nearest

PLUGINS = "advisor.rules"  # entry point group; each entry names a package that holds <id>.toml and <id>.py files

Detector = Callable[[Context], "Draft | list[Draft] | None"]


@dataclass(frozen=True)
class Entry:
    """A rule and the way to its detector, which is imported only when the rule is run."""

    rule: Rule
    load: Callable[[], ModuleType]

    def detector(self) -> Detector:
        """The rule's `detect`. Raises whatever the import of the module raises, AttributeError without such a function."""
        detect: Detector = self.load().detect
        return detect


def builtin_folder() -> Path:
    """`advisor/_rules` of an installed wheel, else the folder `rules` at the top of the source tree."""
    package = Path(advisor.__file__).resolve().parent
    packed = package / "_rules"
    return packed if packed.is_dir() else package.parents[1] / "rules"


def catalogue(rule_dirs: Sequence[str | Path] = ()) -> tuple[list[Entry], list[Notice]]:
    """All rules by id, and what went wrong with rules of installed packages.

    A rule in `rule_dirs` may carry the id of a built-in one: its TOML then takes the place of the built-in TOML, and the
    built-in detector stays unless one lies beside it. RuleError for a folder or a file that cannot be used.
    """
    entries = {rule.id: Entry(rule, _builtin_module(rule)) for rule in _builtin_rules()}
    notices = _add_plugins(entries)
    mine: dict[str, Path] = {}
    for folder in map(Path, rule_dirs):
        files = _files(folder) if folder.is_dir() else []
        if not files:
            raise RuleError(f"{folder}: {'holds no rule (*.toml)' if folder.is_dir() else 'no such folder of rules'}")
        for file in files:
            rule = load_rule(file)
            if rule.id in mine:
                raise RuleError(f"{file}: rule {rule.id!r} is also in {mine[rule.id]}")
            mine[rule.id] = file
            entries[rule.id] = Entry(rule, _module_beside(file, rule, entries.get(rule.id)))
    return [entries[name] for name in sorted(entries)], notices


def chosen(entries: list[Entry], select: Iterable[str] = (), ignore: Iterable[str] = ()) -> list[Entry]:
    """The entries named by `select` (all if empty) without those named by `ignore`; names are rule ids or families.

    InputError for an unknown name, or if no rule is left.
    """
    wanted, unwanted = _ids(entries, select), _ids(entries, ignore)
    kept = [entry for entry in entries if (not wanted or entry.rule.id in wanted) and entry.rule.id not in unwanted]
    if not kept:
        raise InputError("no rule is left to run: --ignore takes away all that --select names")
    return kept


def adjusted(entries: list[Entry], thresholds: Mapping[str, Mapping[str, float]]) -> list[Entry]:
    """The entries with other values of thresholds, by rule id and name. InputError for a rule or threshold there is not."""
    changed = {entry.rule.id: entry for entry in entries}
    for rule_id, values in thresholds.items():
        entry = find(entries, rule_id)
        known = entry.rule.thresholds
        for name in values:
            if name not in known:
                raise InputError(f"rule {rule_id!r} has no threshold {name!r}{nearest(name, known)}")
        own = {name: replace(one, value=float(values.get(name, one.value))) for name, one in known.items()}
        changed[rule_id] = replace(entry, rule=replace(entry.rule, thresholds=own))
    return list(changed.values())


def find(entries: list[Entry], rule_id: str) -> Entry:
    """The entry of that id. InputError, naming the nearest id, if there is none."""
    for entry in entries:
        if entry.rule.id == rule_id:
            return entry
    family = sorted(entry.rule.id for entry in entries if entry.rule.family == rule_id)
    if family:
        raise InputError(f"{rule_id!r} is a family, not a rule; its rules are {', '.join(family)}")
    raise InputError(f"no rule {rule_id!r}{nearest(rule_id, (entry.rule.id for entry in entries))}")


def _ids(entries: list[Entry], names: Iterable[str]) -> set[str]:
    families: dict[str, set[str]] = {}
    for entry in entries:
        families.setdefault(entry.rule.family, set()).add(entry.rule.id)
    ids = {entry.rule.id for entry in entries}
    found: set[str] = set()
    for name in (part.strip() for text in names for part in text.split(",")):
        if name in families:
            found |= families[name]
        elif name in ids:
            found.add(name)
        elif name:
            raise InputError(f"no rule or family {name!r}{nearest(name, [*sorted(ids), *sorted(families)])}")
    return found


@cache
def _builtin_rules() -> tuple[Rule, ...]:
    return tuple(load_rule(file) for file in _files(builtin_folder()))


def _files(folder: Path) -> list[Path]:
    """TOML files of the folder and of folders in it that are called like a family."""
    files = list(folder.glob("*.toml"))
    for family in FAMILIES:
        files += (folder / family).glob("*.toml")
    return sorted(files)


def _builtin_module(rule: Rule) -> Callable[[], ModuleType]:
    return lambda: importlib.import_module(f"advisor.detectors.{rule.family}.{rule.id.replace('-', '_')}")


def _module_beside(file: Path, rule: Rule, builtin: Entry | None) -> Callable[[], ModuleType]:
    names = dict.fromkeys((rule.id.replace("-", "_"), rule.id))
    for path in (file.with_name(f"{name}.py") for name in names):
        if path.is_file():
            return lambda: _run_file(path)
    if builtin is not None:
        return builtin.load
    raise RuleError(f"{file}: no detector beside it; write {rule.id.replace('-', '_')}.py with a function detect(ctx)")


def _run_file(path: Path) -> ModuleType:
    """The module in a file, without leaving a compiled copy beside it."""
    name = f"advisor_user_rule_{path.stem.replace('-', '_')}"
    module = ModuleType(name)
    module.__file__ = str(path)
    code = compile(path.read_bytes(), str(path), "exec")
    sys.modules[name] = module  # dataclasses look their module up there
    exec(code, module.__dict__)
    return module


def _add_plugins(entries: dict[str, Entry]) -> list[Notice]:
    notices = []
    for plugin in sorted(entry_points(group=PLUGINS), key=lambda point: (point.name, point.value)):
        try:
            found = {entry.rule.id: entry for entry in _plugin_entries(plugin)}
            if taken := sorted(found.keys() & entries.keys()):
                raise RuleError(f"rule {taken[0]!r} exists already")
            entries.update(found)
        except Exception as error:
            notices.append(Notice("rule-plugin-failed", f"the rules of {plugin.value!r} are left out: {_first_line(error)}"))
    return notices


def _plugin_entries(plugin: EntryPoint) -> list[Entry]:
    spec = importlib.util.find_spec(plugin.value)
    if spec is None or not spec.submodule_search_locations:
        raise RuleError("there is no package of that name")

    def loader(rule: Rule) -> Callable[[], ModuleType]:
        return lambda: importlib.import_module(f"{plugin.value}.{rule.id.replace('-', '_')}")

    rules = [load_rule(file) for folder in spec.submodule_search_locations for file in _files(Path(folder))]
    return [Entry(rule, loader(rule)) for rule in rules]


def _first_line(error: Exception) -> Any:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
