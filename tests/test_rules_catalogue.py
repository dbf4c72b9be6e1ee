"""Built-in rules are complete; rules of users and packages are found, and told apart from them."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

from advisor.model import InputError
from advisor.rules import catalogue as module
from advisor.rules.catalogue import builtin_folder, catalogue, chosen, find
from advisor.rules.describe import markdown
from advisor.rules.fixes import filled
from advisor.rules.rule import Rule, load_rule

BUILTIN = sorted(builtin_folder().glob("**/*.toml"))
RULES = {path.stem: load_rule(path) for path in BUILTIN}

MINE = """
id = "{id}"
family = "custom"
title = "Mine"
summary = "Mine."
"""


def test_there_are_rules_and_all_are_found() -> None:
    entries, notices = catalogue()
    assert sorted(entry.rule.id for entry in entries) == sorted(RULES) and RULES and not notices


@pytest.mark.parametrize("path", BUILTIN, ids=lambda path: path.stem)
def test_a_builtin_rule_lies_where_it_belongs(path: Path) -> None:
    rule = RULES[path.stem]
    assert path.name == f"{rule.id}.toml" and path.parent.name == rule.family
    assert set(rule.subsumes) <= RULES.keys() - {rule.id}
    assert rule.needs == () or rule.capture, "a rule that needs data says how to record them"


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_builtin_rule_has_a_detector(rule: Rule) -> None:
    assert callable(find(catalogue()[0], rule.id).detector())


@pytest.mark.parametrize(
    "rule, fix", [(rule, fix.id) for rule in RULES.values() for fix in rule.fixes], ids=lambda value: getattr(value, "id", value)
)
def test_snippets_are_valid(rule: Rule, fix: str) -> None:
    template = rule.fix(fix)
    snippet = filled(template, {})
    assert "<<" not in snippet
    for name, value in template.example.items():
        assert str(value) in snippet, f"the example of {name} must be fit for a snippet"
    if template.language == "python":
        compile(snippet, f"{rule.id}.{fix}", "exec")
    assert all(re.match(r"https://\S+$", link) for link in template.references)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_explains_itself(rule: Rule) -> None:
    text = markdown(rule)
    assert rule.title in text and rule.summary in text
    for name, threshold in rule.thresholds.items():
        assert f"`{name}`" in text and threshold.reason in text
    for fix in rule.fixes:
        assert fix.title in text and filled(fix, {}) in text


def folder(tmp_path: Path, rule_id: str = "my-rule", code: str | None = "def detect(ctx): return None") -> Path:
    (tmp_path / f"{rule_id}.toml").write_text(MINE.format(id=rule_id))
    if code is not None:
        (tmp_path / f"{rule_id.replace('-', '_')}.py").write_text(code)
    return tmp_path


def test_rules_of_a_folder(tmp_path: Path) -> None:
    entry = find(catalogue([folder(tmp_path)])[0], "my-rule")
    assert entry.detector()(None) is None  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my-rule.toml", "my_rule.py"]  # nothing is left beside


def test_a_detector_may_carry_the_id_as_it_is(tmp_path: Path) -> None:
    folder(tmp_path, code=None)
    (tmp_path / "my-rule.py").write_text("from dataclasses import dataclass\n@dataclass\nclass A:\n  x: int\ndetect = A")
    assert find(catalogue([tmp_path])[0], "my-rule").detector()(3).x == 3  # type: ignore[arg-type, union-attr]


def test_a_family_folder_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "custom").mkdir()
    folder(tmp_path / "custom")
    assert find(catalogue([tmp_path])[0], "my-rule")


def test_a_rule_without_detector(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"my-rule.toml: no detector beside it; write my_rule.py"):
        catalogue([folder(tmp_path, code=None)])


def test_tuning_a_builtin_rule_keeps_its_detector(tmp_path: Path) -> None:
    text = (builtin_folder() / "environment" / "launch-blocking.toml").read_text()
    (tmp_path / "launch-blocking.toml").write_text(text.replace("value = 0.9", "value = 0.8"))
    mine, builtin = (find(catalogue(dirs)[0], "launch-blocking") for dirs in ([tmp_path], []))
    assert (mine.rule.thresholds["blocked_share"].value, builtin.rule.thresholds["blocked_share"].value) == (0.8, 0.9)
    assert mine.detector() is builtin.detector()


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no rule"):
        catalogue([tmp_path])
    with pytest.raises(InputError, match="no such folder"):
        catalogue([tmp_path / "absent"])
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="'my-rule' is also in"):
        catalogue([folder(tmp_path), folder(tmp_path / "other")])


def test_choosing(tmp_path: Path) -> None:
    entries = catalogue([folder(tmp_path, "rule-a"), folder(tmp_path, "rule-b")][:1])[0]

    def ids(select: list[str], ignore: list[str]) -> list[str]:
        return [entry.rule.id for entry in chosen(entries, select, ignore)]

    assert ids([], []) == sorted([*RULES, "rule-a", "rule-b"])
    assert ids(["custom"], []) == ["rule-a", "rule-b"]
    assert ids(["custom, launch-blocking"], ["rule-a"]) == ["launch-blocking", "rule-b"]
    assert ids(["rule-b", "rule-a"], [""]) == ["rule-a", "rule-b"]
    assert ids([], ["rule-a,custom"]) == sorted(RULES)
    with pytest.raises(InputError, match="'launch-bloking'; did you mean 'launch-blocking'"):
        chosen(entries, ["launch-bloking"])
    with pytest.raises(InputError, match="'enviroment'; did you mean 'environment'"):
        chosen(entries, [], ["enviroment"])
    with pytest.raises(InputError, match="no rule is left"):
        chosen(entries, ["launch-blocking"], ["environment"])


def plug_in(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    points = [importlib.metadata.EntryPoint(f"p{i}", value, module.PLUGINS) for i, value in enumerate(values)]
    monkeypatch.setattr(module, "entry_points", lambda group: points)


def test_rules_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_rules").mkdir()
    (tmp_path / "some_rules" / "__init__.py").touch()
    folder(tmp_path / "some_rules")
    monkeypatch.syspath_prepend(tmp_path)
    plug_in(monkeypatch, "some_rules", "absent_rules")
    entries, notices = catalogue()
    assert find(entries, "my-rule").detector()(None) is None  # type: ignore[arg-type]
    assert [notice.code for notice in notices] == ["rule-plugin-failed"]
    assert "absent_rules" in notices[0].message and "no package" in notices[0].message
    sys.modules.pop("some_rules"), sys.modules.pop("some_rules.my_rule")


def test_a_package_cannot_take_a_builtin_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "more_rules").mkdir()
    (tmp_path / "more_rules" / "__init__.py").touch()
    folder(tmp_path / "more_rules", "launch-blocking")
    monkeypatch.syspath_prepend(tmp_path)
    plug_in(monkeypatch, "more_rules")
    entries, notices = catalogue()
    assert find(entries, "launch-blocking").rule.title != "Mine"
    assert "'launch-blocking' exists already" in notices[0].message
