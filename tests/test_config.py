"""The configuration file: every key, what is refused and how, which file holds, and its JSON Schema."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.config import keys
from advisor.config.files import Document, find, lines
from advisor.config.files import given as given_file
from advisor.config.schema import schema
from advisor.config.settings import ConfigError, Settings, settings, with_rules
from advisor.gates.files import LARGEST, FileError
from advisor.model import InputError
from advisor.rules.catalogue import adjusted, catalogue

RULES = [entry.rule for entry in catalogue()[0]]
SCHEMA = schema(RULES)


def read(text: str, name: str = "advisor.toml", folder: Path = Path("/x")) -> Settings:
    """The settings in a text, as if it stood in a file of that name."""
    table, prefix = tomllib.loads(text), ()
    document = Document(folder / name, table, prefix, lines(text))
    return with_rules(settings(document), document, RULES)


def valid(text: str) -> bool:
    return not list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(tomllib.loads(text)))


FULL = """\
select = ["host", "pageable-copy"]
ignore = "fp8-candidate, launch-bound"
framework = "lightning"
gpu = "NVIDIA H100 SXM"
torch-version = "2.4"
step-pattern = "train_step"
items-per-step = 4096
gpu-hour-cost = 2.5
rule-dirs = ["tools/rules"]
fail-on = ["high", "new"]
strict-budgets = true
baseline = "advisor-baseline.json"
baseline-margin = "3 %"

[budgets]
step-time = "120 ms"
memory-peak = "70 GiB"
mfu = 0.4
host-syncs-per-step = 1

[regressions]
step-time = "3 %"
memory-peak = 0.05
exposed-communication = "2 %"

[rules]
host = "warn"
launch-bound = "error"
pageable-copy = "off"

[rules.host-sync-in-step]
level = "error"
thresholds = { least_per_step = 2, wake_up_ns = "20 us" }
"""


def test_every_key() -> None:
    found = read(FULL)
    assert {name: setting.value for name, setting in found.values.items()} == {
        "select": ("host", "pageable-copy"),
        "ignore": ("fp8-candidate", "launch-bound"),
        "framework": "lightning",
        "gpu": "NVIDIA H100 SXM",
        "torch-version": "2.4",
        "step-pattern": "train_step",
        "items-per-step": 4096.0,
        "gpu-hour-cost": 2.5,
        "rule-dirs": ("/x/tools/rules",),
        "fail-on": ("high", "new"),
        "strict-budgets": True,
        "baseline": "/x/advisor-baseline.json",
        "baseline-margin": 0.03,
    }
    assert {key.name for key in keys.KEYS if key.kind != "table"} == set(found.values)  # none is left out here
    assert found.budgets["step-time"].value == 120_000_000 and found.budgets["memory-peak"].value == 70 << 30
    assert found.regressions["step-time"].value == 0.03
    assert found.levels["launch-bound"].value == "error"
    assert found.levels["host-sync-in-step"].value == "error"
    assert found.levels["python-gap"].value == "warn"
    assert found.rules_at("off") == {"pageable-copy": "advisor.toml, line 29"}
    thresholds = {name: one.value for name, one in found.thresholds["host-sync-in-step"].items()}
    assert thresholds == {"least_per_step": 2, "wake_up_ns": 20_000}
    assert found.budgets["memory-peak"].origin == "advisor.toml, line 17"
    assert valid(FULL)


@pytest.mark.parametrize("key", keys.KEYS, ids=lambda key: key.name)
def test_examples_are_read_and_follow_the_schema(key: keys.Key) -> None:
    text = f"{key.name} = {key.example}"
    read(text)
    assert valid(text)


@pytest.mark.parametrize(
    ("table", "name"), [(t, n) for t in ("budgets", "regressions") for n in getattr(keys, t.upper())], ids="-".join
)
def test_examples_of_tables(table: str, name: str) -> None:
    text = f"[{table}]\n{name} = {getattr(keys, table.upper())[name].example}"
    assert name in getattr(read(text), table)
    assert valid(text)


WRONG = [
    ("framwork = 'ddp'", ["line 1", "framwork", "unknown key", "'framework'"]),
    ("[budget]\nx = 1", ["line 1", "budget", "'budgets'"]),
    ("[budgets]\nsteptime = '1 ms'", ["line 2", "budgets.steptime", "'step-time'"]),
    ("[budgets]\nstep-time = 120", ["line 2", "budgets.step-time", "no unit"]),
    ("[budgets]\nidle-share = 20", ["line 2", "'20 %'"]),
    ("[budgets]\nstep-time = [1]", ["line 2", "must be"]),
    ("budgets = 3", ["must be a table"]),
    ("[regressions]\nstep-tme = '3 %'", ["'step-time'"]),
    ("[regressions]\nstep-time = 3", ["'3 %'"]),
    ("[rules]\nhost-sync = 'off'", ["rules.host-sync", "no rule or family"]),
    ("[rules]\npagable-copy = 'off'", ["line 2", "'pageable-copy'"]),
    ("[rules]\npageable-copy = 'of'", ["'off'"]),
    ("[rules]\npageable-copy = true", ["off, warn, error"]),
    ("[rules.pageable-copy]\nlvl = 'off'", ["rules.pageable-copy.lvl", "'level'"]),
    ("[rules.host-sync-in-step]\nleast_per_step = 3", ["thresholds.least_per_step"]),
    ("[rules.host-sync-in-step.thresholds]\nleast_per_stp = 3", ["line 2", "no such threshold", "'least_per_step'"]),
    ("[rules.host-sync-in-step.thresholds]\nleast_per_step = -1", ["from 0 on", "waits a step"]),
    ("[rules.host-sync-in-step.thresholds]\nleast_per_step = '1 ms'", ["must be a number"]),
    ("[rules.host-sync-in-step.thresholds]\nwake_up_ns = '20'", ["no unit"]),
    ("[rules.host-sync-in-step.thresholds]\nwake_up_ns = inf", ["finite"]),
    ("[rules.host-sync-in-step.thresholds]\nwake_up_ns = true", ["finite"]),
    ("[rules.capture-quality.thresholds]\nmax_unlinked = 2", ["from 0 to 1"]),
    ("rules = 'off'", ["must be a table"]),
    ("select = 3", ["list of texts"]),
    ("select = ['a', 3]", ["list of texts"]),
    ("framework = 'pytoch'", ["'pytorch'"]),
    ("step-pattern = '('", ["regular expression"]),
    ("items-per-step = 0", ["above 0"]),
    ("items-per-step = nan", ["above 0"]),
    ("gpu-hour-cost = true", ["above 0"]),
    ("strict-budgets = 1", ["true or false"]),
    ("gpu = ''", ["one line of text"]),
    ("gpu = 'a\\nb'\nbaseline = 3", ["baseline", "one line of text"]),
    ('gpu = "a\\u001bb"', ["one line of text"]),
    ('baseline = "a\\u0000b"', ["one line"]),
    ('"x\\n\\u001b[31m" = 1', ["unknown key"]),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_is_refused(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        read(text)
    message = str(error.value)
    assert message.startswith("/x/advisor.toml") and message.isprintable() and len(message) < 700
    assert all(word in message for word in words), message


def test_a_family_and_its_rules() -> None:
    found = read("[rules]\nhost-sync-in-step = 'warn'\nhost = { level = 'off', thresholds = { wake_up_ns = 1 } }")
    assert found.levels["host-sync-in-step"].value == "warn"  # the rule stands before the family, whatever the order
    assert found.levels["launch-bound"].value == "off"
    host = {rule.id: rule.thresholds for rule in RULES if rule.family == "host"}
    assert set(found.thresholds) == {name for name, thresholds in host.items() if "wake_up_ns" in thresholds}


def test_thresholds_change_the_rules_and_only_these() -> None:
    entries = {entry.rule.id: entry.rule for entry in adjusted(catalogue()[0], {"host-sync-in-step": {"wake_up_ns": 7}})}
    assert entries["host-sync-in-step"].thresholds["wake_up_ns"].value == 7
    usual = {rule.id: rule for rule in RULES}
    assert entries["host-sync-in-step"].thresholds["least_per_step"] == usual["host-sync-in-step"].thresholds["least_per_step"]
    assert {name for name in usual if entries[name] != usual[name]} == {"host-sync-in-step"}
    assert usual["host-sync-in-step"].thresholds["wake_up_ns"].value != 7
    with pytest.raises(InputError, match="wake_up_ns"):
        adjusted(catalogue()[0], {"host-sync-in-step": {"wake_up": 7}})
    with pytest.raises(InputError, match="host-sync-in-step"):
        adjusted(catalogue()[0], {"host-sync-in-stp": {"wake_up": 7}})


def test_every_threshold_of_every_rule_is_within_its_range() -> None:
    for rule in RULES:
        for name, one in rule.thresholds.items():
            assert 0 <= one.value <= one.most, (rule.id, name)
            text = f"[rules.{rule.id}.thresholds]\n{name} = {one.value!r}"
            assert read(text).thresholds[rule.id][name].value == one.value
            assert valid(text), text


@pytest.mark.parametrize(
    "text",
    [
        "framwork = 'ddp'",
        "[budgets]\nsteptime = '1 ms'",
        "[budgets]\nstep-time = 120",
        "[budgets]\nidle-share = 20",
        "[rules.pageable-copy]\nlvl = 'off'",
        "[rules]\npageable-copy = 'of'",
        "[rules.host-sync-in-step.thresholds]\nleast_per_stp = 3",
        "[rules.capture-quality.thresholds]\nmax_unlinked = 2",
        "strict-budgets = 1",
        "items-per-step = 0",
    ],
)
def test_the_schema_refuses_it_too(text: str) -> None:
    assert not valid(text)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert valid("") and valid("[rules]\nmy-own-rule = { level = 'error', thresholds = { anything = 3 } }")


# Which file


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "outer").mkdir()
    (tmp_path / "advisor.toml").write_text("framework = 'jax'\n")  # above the repository: never looked at
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "a" / "b").mkdir(parents=True)
    return tmp_path / "repo"


def test_the_nearest_file_up_to_the_root(repository: Path) -> None:
    inner = repository / "a" / "b"
    assert find(inner) is None
    (repository / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.advisor]\nframework = 'ddp'\n")
    found = find(inner)
    assert found is not None and found.path == repository / "pyproject.toml" and found.table == {"framework": "ddp"}
    assert settings(found).get("framework").origin == "pyproject.toml, line 4"
    (repository / "advisor.toml").write_text("framework = 'fsdp2'\n")
    assert find(inner).path.name == "advisor.toml"  # type: ignore[union-attr]
    (repository / "a" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")  # no word of ours
    assert find(inner).path == repository / "advisor.toml"  # type: ignore[union-attr]
    (inner / "advisor.toml").write_text("")
    assert find(inner).path == inner / "advisor.toml"  # type: ignore[union-attr]


def test_outside_of_a_repository_only_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "advisor.toml").write_text("framework = 'ddp'\n")
    (tmp_path / "below").mkdir()
    assert find(tmp_path) is not None and find(tmp_path / "below") is None


def test_a_broken_pyproject_counts_only_if_it_speaks_of_us(repository: Path) -> None:
    file = repository / "pyproject.toml"
    file.write_text("[project\n")
    assert find(repository) is None
    file.write_text("[project\n[tool.advisor]\n")
    with pytest.raises(FileError, match="not valid TOML"):
        find(repository)
    file.write_text("[tool]\nadvisor = 3\n")
    with pytest.raises(FileError, match=r"tool\.advisor: must be a table"):
        find(repository)


def test_named_files(tmp_path: Path) -> None:
    file = tmp_path / "ci.toml"
    file.write_text("framework = 'ddp'\n")
    assert given_file(file).table == {"framework": "ddp"}
    file.write_text("[tool.advisor]\nframework = 'ddp'\n[tool.other]\n")
    assert given_file(file).table == {"framework": "ddp"}
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(FileError, match=r"holds no table \[tool\.advisor\]"):
        given_file(tmp_path / "pyproject.toml")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


HOSTILE: dict[str, Any] = {
    "folder": lambda path: path.mkdir(),
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nothing"),
    "pipe": _fifo,
    "no UTF-8": lambda path: path.write_bytes(b"framework = '\xff'"),
    "UTF-16": lambda path: path.write_bytes("framework = 'ddp'".encode("utf-16")),
    "no TOML": lambda path: path.write_text("framework ddp"),
    "twice": lambda path: path.write_text("gpu = 'a'\ngpu = 'b'"),
    "deep lists": lambda path: path.write_text("select = " + "[" * 100_000),
    "deep tables": lambda path: path.write_text("a = " + "{a=" * 50_000),
    "deep keys": lambda path: path.write_text("[" + ".".join(["a"] * 5000) + "]\nx = 1"),
    "huge": lambda path: path.write_bytes(b"#" * (LARGEST + 1)),
    "NUL": lambda path: path.write_bytes(b"gpu = 'a\0b'"),
    "many names": lambda path: path.write_text("select = [" + "'host'," * 5000 + "]"),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_files_give_one_line(tmp_path: Path, name: str) -> None:
    file = tmp_path / "advisor.toml"
    HOSTILE[name](file)
    for way in (lambda: find(tmp_path), lambda: given_file(file)):
        with pytest.raises(InputError) as error:
            settings(way())
        assert "\n" not in str(error.value) and str(file) in str(error.value) and len(str(error.value)) < 1000


@given(st.text(max_size=200))
def test_lines_never_fail(text: str) -> None:
    lines(text)


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True), st.integers(0, 9), min_size=1, max_size=6), st.booleans()
)
def test_lines_of_keys(values: dict[str, int], nested: bool) -> None:
    head = ["# words", "[table]"] if nested else ["# words"]
    text = "\n".join([*head, *(f"{name} = {value}" for name, value in values.items())])
    found = lines(text)
    for place, name in enumerate(values):
        assert found[("table", name) if nested else (name,)] == len(head) + 1 + place


def test_the_example_of_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "configuration.md").read_text("utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    found = read(example)
    assert found.levels["host-sync-in-step"].value == found.levels["pageable-copy"].value == "error"
    assert found.thresholds["host-sync-in-step"]["least_per_step"].value == 2
    assert set(found.budgets) == {"step-time", "idle-share", "memory-peak"} and valid(example)
