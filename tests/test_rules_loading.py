"""The TOML of a rule: what is read, and one clear line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model import Device
from advisor.rules.fixes import filled, fixes_for
from advisor.rules.rule import RuleError, load_rule
from advisor.rules.validity import Validity, parse_version

WHOLE = """
id = "slow-thing"
family = "custom"
title = "A slow thing"
summary = "Why it matters."
needs = ["kernels", ["host_ops.shapes", "environment"]]
subsumes = ["other-thing"]

[thresholds.share]
value = 0.5
unit = "share"
reason = "Half is a lot."

[valid]
min_compute_capability = "8.0"
vendor = "nvidia"

[capture]
hint = "record more"

[[fixes]]
id = "mend"
title = "Mend it"
framework = "pytorch"
language = "python"
snippet = "x = {'workers': <<workers>>, 'name': '<<name>>'}"
safety = "same-numerics"
effort = "minutes"
min_torch = "2.1"

[fixes.example]
workers = 8
name = "a"
"""


def written(tmp_path: Path, text: str, name: str = "slow-thing.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_reads_everything(tmp_path: Path) -> None:
    rule = load_rule(written(tmp_path, WHOLE))
    assert (rule.id, rule.family, rule.title, rule.summary) == ("slow-thing", "custom", "A slow thing", "Why it matters.")
    assert rule.needs == (("kernels",), ("host_ops.shapes", "environment"))
    assert rule.subsumes == ("other-thing",) and not rule.informs and rule.capture == "record more"
    assert rule.thresholds["share"].value == 0.5
    assert rule.valid.min_compute_capability == (8, 0) and rule.valid.vendor == "nvidia"
    assert rule.fix("mend").placeholders == ["workers", "name"] and rule.fix("mend").valid.min_torch == (2, 1)
    with pytest.raises(KeyError, match="no fix 'mended'"):
        rule.fix("mended")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "A slow thing"', 'titel = "A slow thing"', ["title", "is missing", "'titel'"]),
        ("subsumes", "subsume", ["subsume", "unknown key", "'subsumes'"]),
        ('family = "custom"', 'family = "comunication"', ["family", "'comunication'", "'communication'"]),
        ('"kernels",', '"kernel",', ["needs", "no table 'kernel'", "'kernels'"]),
        ("host_ops.shapes", "host_ops.shape", ["needs", "no column 'shape'", "'shapes'"]),
        ("value = 0.5", 'value = "0.5"', ["thresholds.share.value", "must be a number"]),
        ("value = 0.5", "value = nan", ["thresholds.share.value", "finite"]),
        ("value = 0.5", "value = true", ["thresholds.share.value", "finite number"]),
        ('reason = "Half is a lot."', "", ["thresholds.share.reason", "is missing"]),
        ('unit = "share"', 'units = "share"', ["thresholds.share.unit", "is missing", "'units'"]),
        ('min_compute_capability = "8.0"', "min_compute_capability = 8.0", ["valid.min_compute_capability", "must be text"]),
        ('"8.0"', '"sm_80"', ["valid.min_compute_capability", "must be a version"]),
        ('vendor = "nvidia"', 'vendor = "nvida"', ["valid.vendor", "'nvidia'"]),
        ('hint = "record more"', 'command = "record more"', ["capture.command", "unknown key", "hint"]),
        ("<<name>>", "<<nmae>>", ["fixes[mend].snippet", "<<nmae>>", "'name'"]),
        ("<<name>>", "b", ["fixes[mend].example.name", "is no placeholder"]),
        ('framework = "pytorch"', 'framework = "pytroch"', ["fixes[mend].framework", "'pytorch'"]),
        ('effort = "minutes"', 'effort = "minute"', ["fixes[mend].effort", "'minutes'"]),
        ('id = "mend"', "", ["fixes[1].id", "is missing"]),
        ('id = "slow-thing"', 'id = "slow-things"', ["slow-thing.toml", "must agree"]),
        ('id = "slow-thing"', 'id = "Slow thing"', ["id", "lower-case"]),
        ('summary = "Why it matters."', 'summary = " "', ["summary", "is empty"]),
        ('summary = "Why it matters."', "summary = 3", ["summary", "must be text"]),
        ("[[fixes]]", "[fixes]", ["fixes", "must be a list"]),
        ("[thresholds.share]", "[thresholds.Share]", ["thresholds.Share", "lower-case"]),
        ('family = "custom"', 'family = "custom', ["not valid TOML"]),
    ],
)
def test_one_clear_line(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in WHOLE
    path = written(tmp_path, WHOLE.replace(old, new))
    with pytest.raises(RuleError) as caught:
        load_rule(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    for word in words:
        assert word in text, text


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "slow-thing.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RuleError, match="not valid TOML"):
        load_rule(path)
    with pytest.raises(RuleError, match="cannot be read"):
        load_rule(tmp_path / "absent.toml")


def test_two_fixes_of_one_name(tmp_path: Path) -> None:
    again = WHOLE[WHOLE.index("[[fixes]]") :]
    with pytest.raises(RuleError, match="two fixes are called 'mend'"):
        load_rule(written(tmp_path, WHOLE + again))


def test_snippets_are_filled_from_facts_or_examples(tmp_path: Path) -> None:
    fix = load_rule(written(tmp_path, WHOLE)).fix("mend")
    assert filled(fix, {"workers": 12, "name": "b"}) == "x = {'workers': 12, 'name': 'b'}"
    assert filled(fix, {"workers": 1 / 3}) == "x = {'workers': 0.333333, 'name': 'a'}"
    assert filled(fix, {"workers": None, "name": [1]}) == "x = {'workers': 8, 'name': 'a'}"


@pytest.mark.parametrize("hostile", ["'); import os; os.system('x", "a\nb", "$(x)", "`x`", "a\\b", '"', "a;b", "a'b"])
def test_hostile_facts_stay_out_of_snippets(tmp_path: Path, hostile: str) -> None:
    fix = load_rule(written(tmp_path, WHOLE)).fix("mend")
    assert filled(fix, {"name": hostile}) == "x = {'workers': 8, 'name': 'a'}"


def test_fixes_that_do_not_hold_are_left_out(tmp_path: Path) -> None:
    rule = load_rule(written(tmp_path, WHOLE))
    assert fixes_for(rule, None, {}, None, (2, 0, 1)) == []
    assert fixes_for(rule, None, {}, None, (2, 1))[0].caveats == []
    assert fixes_for(rule, None, {}, None, None)[0].caveats == ["Valid for torch 2.1 and newer, which the input does not tell."]


def test_validity_by_capability_vendor_and_version() -> None:
    tensor_cores = Validity(min_compute_capability=(7, 0), max_compute_capability=(7, 5))
    v100, a100 = Device(0, "Tesla V100", compute_capability=(7, 0)), Device(0, "NVIDIA A100", compute_capability=(8, 0))
    mi300 = Device(0, "AMD Instinct MI300X", compute_capability=(9, 4))
    assert tensor_cores.judge(v100, None) == ([], [])
    failing, unknown = tensor_cores.judge(a100, None)
    assert failing == ["valid for compute capability 7.0 to 7.5; this run has 8.0 (NVIDIA A100)"] and not unknown
    assert len(tensor_cores.judge(None, None)[1]) == 1
    # An AMD GPU's number is no compute capability.
    assert len(tensor_cores.judge(mi300, None)[1]) == 1
    assert Validity(vendor="nvidia").judge(mi300, None)[0] and not Validity(vendor="amd").judge(mi300, None)[0]
    assert Validity(max_torch=(2, 8)).judge(None, (2, 8, 1)) == ([], [])
    assert Validity(max_torch=(2, 8)).judge(None, (2, 9))[0]
    assert Validity(min_torch=(2, 8)).judge(None, (2, 10)) == ([], [])
    assert Validity().judge(None, None) == ([], [])


def test_versions() -> None:
    assert parse_version("2.11.0+cu130") == (2, 11, 0)
    assert parse_version("v2.1") == (2, 1) and parse_version("nightly") is None
