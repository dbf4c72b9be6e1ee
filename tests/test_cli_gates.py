"""Configuration, budgets, baselines and exit status on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from build.program import Run

RULE = "launch-blocking"
EVIL = "from pathlib import Path\nPath({!r}).write_text('ran')\ndef detect(ctx): return None\n"


@pytest.fixture
def trace(blocking: Path) -> Path:
    """Six steps with launch blocking."""
    return blocking


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a repository, and the working directory."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gates(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out)["gates"]
    return found


def states(out: str) -> dict[str, str]:
    return {one["name"]: one["state"] for one in gates(out)["conditions"]}


def test_without_a_file_nothing_changes(advisor: Run, trace: Path, here: Path) -> None:
    plain = advisor("analyze", trace, "--format", "json")
    assert plain == advisor("analyze", trace, "--format", "json", "--no-config")
    assert "gates" not in json.loads(plain[1])


def test_the_file_is_named_with_v(advisor: Run, trace: Path, here: Path) -> None:
    assert "settings: none" in advisor("analyze", trace, "-v")[2]
    (here / "advisor.toml").write_text("framework = 'ddp'\n")
    assert f"settings: {here / 'advisor.toml'}" in advisor("analyze", trace, "-v")[2]
    assert "settings" not in advisor("analyze", trace)[2]


def test_budgets_decide_the_exit_status(advisor: Run, trace: Path, here: Path) -> None:
    step = json.loads(advisor("analyze", trace, "--format", "json")[1])["run"]["steps"]["median_ns"]
    (here / "advisor.toml").write_text(f"[budgets]\nstep-time = '{step} ns'\n")
    code, out, _ = advisor("analyze", trace, "--format", "json")
    assert (code, states(out)) == (0, {"step-time": "passed"})
    (here / "advisor.toml").write_text(f"[budgets]\nstep-time = '{step - 1} ns'\n")
    code, out, _ = advisor("analyze", trace, "--format", "json")
    assert (code, states(out)) == (1, {"step-time": "failed"})
    (condition,) = gates(out)["conditions"]
    assert condition["actual"] == step and condition["origin"] == "advisor.toml, line 2"
    # The configuration is left out, or overruled.
    assert advisor("analyze", trace, "--no-config")[0] == 0
    assert advisor("analyze", trace, "--fail-on", "never")[0] == 0
    assert "just above" in advisor("analyze", trace, "-q")[1]


def test_a_budget_that_nobody_can_judge(advisor: Run, trace: Path, here: Path) -> None:
    (here / "advisor.toml").write_text("[budgets]\nmemory-peak = '1 GiB'\n")
    code, out, _ = advisor("analyze", trace)
    assert code == 0 and "not judged" in out and "profile_memory=True" in out
    assert advisor("analyze", trace, "--strict-budgets")[0] == 1
    (here / "advisor.toml").write_text("strict-budgets = true\n[budgets]\nmemory-peak = '1 GiB'\n")
    assert advisor("analyze", trace)[0] == 1


def test_figures_that_budgets_limit(advisor: Run, trace: Path, here: Path) -> None:
    measured = json.loads(advisor("analyze", trace, "--format", "json")[1])["run"]["measured"]
    assert measured["memory_peak_bytes"] is measured["memory_peak_source"] is None
    assert measured["kernels_per_step"] == 40
    assert advisor("analyze", trace, "--fail-on", "kernels-per-step>40")[0] == 0
    assert advisor("analyze", trace, "--fail-on", "kernels-per-step>39.9")[0] == 1


def test_levels_of_rules(advisor: Run, trace: Path, here: Path) -> None:
    (here / "advisor.toml").write_text(f"[rules]\n{RULE} = 'error'\n")
    code, out, _ = advisor("analyze", trace, "--format", "json")
    assert (code, states(out)) == (1, {"error": "failed"})
    (here / "advisor.toml").write_text(f"[rules]\n{RULE} = 'warn'\n")
    assert advisor("analyze", trace)[0] == 0
    (here / "advisor.toml").write_text(f"[rules]\n{RULE} = 'off'\n")
    document = json.loads(advisor("analyze", trace, "--format", "json")[1])
    assert RULE not in {rule["id"] for rule in document["rules"]}
    # Named on the command line it runs.
    document = json.loads(advisor("analyze", trace, "--format", "json", "--select", RULE)[1])
    assert [rule["id"] for rule in document["rules"]] == [RULE]


def test_options_stand_before_the_file(advisor: Run, trace: Path, here: Path) -> None:
    (here / "advisor.toml").write_text(f"select = ['hardware']\nfail-on = ['{RULE}']\nitems-per-step = 8\n")
    code, out, _ = advisor("analyze", trace, "--format", "json")
    assert code == 0 and states(out) == {RULE: "not-judged"}  # not selected: told, not passed
    assert json.loads(out)["throughput"]["items_per_step"] == 8
    code, out, _ = advisor("analyze", trace, "--format", "json", "--select", RULE, "--items-per-step", "16")
    assert code == 1 and json.loads(out)["throughput"]["items_per_step"] == 16
    assert advisor("analyze", trace, "--select", RULE, "--fail-on", "step-time>1h")[0] == 0


def test_thresholds_are_told(advisor: Run, trace: Path, here: Path) -> None:
    (here / "advisor.toml").write_text("[rules.host-sync-in-step.thresholds]\nleast_per_step = 9\n")
    notices = json.loads(advisor("analyze", trace, "--format", "json")[1])["notices"]
    assert any("host-sync-in-step.least_per_step = 9" in notice["message"] for notice in notices)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("framwork = 'ddp'\n", ["advisor.toml, line 1", "framwork", "'framework'"]),
        ("fail-on = 'hihg'\n", ["advisor.toml, line 1: fail-on", "'high'"]),
        ("baseline = 'none.json'\n", ["none.json", "no such file"]),
        ("[rules]\nmine = 'error'\n", ["rules.mine", "no rule or family"]),
        ("[[[\n", ["not valid TOML"]),
        ("gpu = 'riva tnt'\n", ["advisor.toml, line 1: gpu", "riva tnt"]),
        ("torch-version = 'new'\n", ["advisor.toml, line 1: torch-version", "'new'"]),
        ("\nselect = 'hots'\n", ["advisor.toml, line 2: select", "'hots'", "'host'"]),
        ("ignore = ['pagable-copy']\n", ["advisor.toml, line 1: ignore", "'pageable-copy'"]),
    ],
)
def test_a_wrong_file_is_wrong_usage(advisor: Run, trace: Path, here: Path, text: str, words: list[str]) -> None:
    (here / "advisor.toml").write_text(text)
    code, out, err = advisor("analyze", trace)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and all(word in err for word in words), err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--config", "nothing.toml"], ["nothing.toml", "no such file"]),
        (["--config", "x.toml", "--no-config"], ["exclude"]),
        (["--baseline", "nothing.json"], ["nothing.json", "no such file", "advisor baseline PATH"]),
        (["--baseline", "."], ["is a directory"]),
        (["--fail-on", "regression>3%"], ["advisor compare"]),
        (["--fail-on", "regression"], ["advisor compare"]),
        (["--fail-on", "step-time>3"], ["no unit"]),
    ],
)
def test_wrong_options(advisor: Run, trace: Path, here: Path, options: list[str], words: list[str]) -> None:
    code, out, err = advisor("analyze", trace, *options)
    assert (code, out) == (2, "") and all(word in err for word in words), err


def test_regressions_of_the_file_are_for_compare(advisor: Run, trace: Path, here: Path) -> None:
    (here / "advisor.toml").write_text("fail-on = ['regression>3%']\n[regressions]\nmemory-peak = '3 %'\n")
    code, out, _ = advisor("analyze", trace, "--format", "json")
    assert code == 0 and "gates" not in json.loads(out)


def test_code_beside_a_configuration_runs_only_if_trusted(advisor: Run, trace: Path, here: Path) -> None:
    rules, mark = here / "rules", here / "ran"
    rules.mkdir()
    (rules / "mine.toml").write_text('id = "mine"\nfamily = "custom"\ntitle = "t"\nsummary = "s"\n')
    (rules / "mine.py").write_text(EVIL.format(str(mark)))
    (here / "advisor.toml").write_text("rule-dirs = ['rules']\n")
    code, out, err = advisor("analyze", trace, "--format", "json")
    assert code == 0 and not mark.exists() and "--trust-rule-dirs" in err
    assert "mine" not in {rule["id"] for rule in json.loads(out)["rules"]}
    (here / "advisor.toml").write_text("rule-dirs = ['rules']\n[rules]\nmine = 'error'\n")
    code, _, err = advisor("analyze", trace)
    assert code == 2 and not mark.exists() and "rules.mine" in err and "--trust-rule-dirs" in err
    code, out, err = advisor("analyze", trace, "--format", "json", "--trust-rule-dirs")
    assert code == 0 and mark.exists() and err == ""
    assert "mine" in {rule["id"] for rule in json.loads(out)["rules"]}


def test_a_working_directory_that_is_gone(advisor: Run, trace: Path, here: Path) -> None:
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    assert advisor("analyze", trace)[0] == 0


def test_a_folder_that_may_not_be_looked_into(advisor: Run, trace: Path, here: Path) -> None:
    (here / "advisor.toml").write_text("framework = 'ddp'\n")
    (here / "advisor.toml").chmod(0)
    code, _, err = advisor("analyze", trace)
    if os.access(here / "advisor.toml", os.R_OK):  # root reads everything
        assert code == 0
    else:
        assert code == 2 and "permission denied" in err


# The baseline


def test_life_of_a_baseline(advisor: Run, trace: Path, here: Path) -> None:
    file = here / "advisor-baseline.json"
    code, out, err = advisor("baseline", trace)
    assert (code, out) == (0, "") and "accepted" in err
    first = file.read_bytes()
    entries = json.loads(first)["findings"]
    assert RULE in {entry["rule"] for entry in entries} and "date" not in json.loads(first)
    # Nothing new: nothing fails, and all is listed apart.
    watch = ("analyze", trace, "--baseline", file, "--fail-on", "new,low")
    code, out, _ = advisor(*watch, "--format", "json")
    assert code == 0 and set(states(out).values()) == {"passed"}
    assert {entry["state"] for entry in gates(out)["baseline"]["entries"]} == {"accepted"}
    text = advisor(*watch)[1]
    assert "Baseline" in text and "Findings" not in text.split("Baseline")[0]
    # A second one is refused, an update changes no byte.
    assert advisor("baseline", trace)[0] == 2 and file.read_bytes() == first
    assert advisor("baseline", trace, "--update")[0] == 0 and file.read_bytes() == first
    # A finding is taken out by hand: it is new.
    document = json.loads(first)
    document["findings"] = [entry for entry in entries if entry["rule"] != RULE]
    file.write_text(json.dumps(document))
    code, out, _ = advisor(*watch, "--format", "json")
    assert code == 1 and states(out)["new"] == "failed"
    assert [name.split(":")[0] for name in gates(out)["baseline"]["new"]] == [RULE]
    # It was a smaller one when it was accepted: it is worse.
    document["findings"] = [entry | ({"expected_ns": 1} if entry["rule"] == RULE else {}) for entry in entries]
    file.write_text(json.dumps(document))
    code, out, _ = advisor(*watch)
    assert code == 1 and "worse than accepted" in out


def test_fixed_entries_shrink_the_file(advisor: Run, trace: Path, here: Path) -> None:
    file = here / "b.json"
    advisor("baseline", trace, "-o", file)
    document = json.loads(file.read_text())
    count = len(document["findings"])
    document["findings"] += [
        {"fingerprint": f"{RULE}:gone", "rule": RULE, "title": "Another variable", "severity": "high"},
        {"fingerprint": "straggler-rank:x", "rule": "straggler-rank", "title": "Late", "severity": "high"},
    ]
    file.write_text(json.dumps(document))
    code, out, _ = advisor("analyze", trace, "--baseline", file)
    assert code == 0 and "--prune" in out and "Another variable" in out
    code, _, err = advisor("baseline", trace, "-o", file, "--prune")
    assert code == 0 and "1 taken out" in err
    left = {entry["fingerprint"] for entry in json.loads(file.read_text())["findings"]}
    assert len(left) == count + 1 and "straggler-rank:x" in left  # one rank: nobody can say that it is fixed


def test_a_saved_report_gives_the_same_baseline(advisor: Run, trace: Path, here: Path) -> None:
    advisor("analyze", trace, "--format", "json", "--output", "report.json")
    assert advisor("baseline", trace, "-o", "a.json")[0] == advisor("baseline", "report.json", "-o", "b.json")[0] == 0
    assert (here / "a.json").read_bytes() == (here / "b.json").read_bytes()
    (here / "report.json").write_text('{"schema": "advisor.report/1"}')
    code, out, err = advisor("baseline", "report.json", "-o", "c.json")
    assert (code, out) == (2, "") and err.count("\n") == 1 and not (here / "c.json").exists()


def test_regressions_decide_the_exit_status_of_compare(advisor: Run, here: Path) -> None:
    samples = Path(__file__).resolve().parents[1] / "sample_traces"
    good, bad = samples / "healthy.torch.json.gz", samples / "loader-starved.torch.json.gz"
    assert advisor("compare", good, bad, "--fail-on", "regression>3%")[0] == 1
    assert advisor("compare", bad, good, "--fail-on", "regression>3%,new:high")[0] == 0
    (here / "advisor.toml").write_text("[regressions]\nstep-time = '3 %'\n")
    assert advisor("compare", good, bad)[0] == 1
    # One recording a side cannot tell 3 %: that is told, and fails only if asked.
    code, out, _ = advisor("compare", bad, bad)
    assert code == 0 and "not judged" in out
    assert advisor("compare", bad, bad, "--strict-budgets")[0] == 1


def test_the_configuration_names_the_baseline(advisor: Run, trace: Path, here: Path) -> None:
    (here / "advisor.toml").write_text("baseline = 'ci/known.json'\nfail-on = 'new'\n")
    assert advisor("analyze", trace)[0] == 2  # not written yet: nothing is silently accepted
    (here / "ci").mkdir()
    assert advisor("baseline", trace, "--date", "2026-01-02")[0] == 0
    assert json.loads((here / "ci" / "known.json").read_text())["date"] == "2026-01-02"
    code, out, _ = advisor("analyze", trace, "--format", "json")
    assert code == 0 and gates(out)["baseline"]["path"] == os.path.join("ci", "known.json")


@pytest.mark.parametrize(
    "options", [["--update"], ["--prune"], ["--update", "--prune"], ["--date", "today"], ["-o", "."]], ids=" ".join
)
def test_wrong_use_of_baseline(advisor: Run, trace: Path, here: Path, options: list[str]) -> None:
    code, out, err = advisor("baseline", trace, *options)
    assert (code, out) == (2, "") and err.count("\n") == 1


def test_the_baseline_never_overwrites_an_input(advisor: Run, trace: Path, here: Path) -> None:
    before = trace.read_bytes()
    assert advisor("baseline", trace, "-o", trace, "--update")[0] == 2 and trace.read_bytes() == before


BASE = '{"schema": "advisor.baseline/1", "findings": '
ENTRY = '{"fingerprint": "a", "rule": "b", "title": "c"}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no valid JSON"]),
        ("[" * 100_000, ["nested too deeply"]),
        ("{}", ["is no baseline"]),
        ('{"schema": "advisor.report/1"}', ["is no baseline"]),
        (BASE + "3}", ["no list"]),
        (BASE + "[3]}", ["finding 1"]),
        (BASE + "[{}]}", ["finding 1", "fingerprint"]),
        (BASE + f"[{ENTRY}, {ENTRY}]}}", ["finding 2", "twice"]),
        (BASE + f"[{ENTRY[:-1]}, " + '"expected_ns": 1.5}]}', ["whole numbers"]),
        (BASE + f"[{ENTRY[:-1]}, " + '"expected_ns": NaN}]}', ["NaN"]),
        (BASE + f"[{ENTRY[:-1]}, " + '"step_ns": -1}]}', ["whole numbers"]),
        (BASE + f"[{ENTRY[:-1]}, " + '"severity": "dire"}]}', ["severity"]),
        ("\ud800", ["UTF-8"]),
    ],
)
def test_hostile_baselines(advisor: Run, trace: Path, here: Path, text: str, words: list[str]) -> None:
    (here / "b.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    code, out, err = advisor("analyze", trace, "--baseline", "b.json")
    assert (code, out) == (2, "") and err.count("\n") == 1 and "b.json" in err
    assert all(word in err for word in words), err


# advisor config


def test_config_shows_values_and_origins(advisor: Run, here: Path) -> None:
    (here / "advisor.toml").write_text("framework = 'ddp'\n[budgets]\nmfu = '40 %'\n[rules]\nhost = 'error'\n")
    code, out, _ = advisor("config")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0 and out.startswith(f"file  {here / 'advisor.toml'}")
    assert ["framework", "ddp", "(advisor.toml,", "line", "1)"] in lines
    assert ["mfu", "at", "least", "40", "%", "(advisor.toml,", "line", "3)"] in lines
    assert ["launch-bound", "error", "(advisor.toml,", "line", "5)"] in lines
    assert ["select", "-", "(default)"] in lines
    document = json.loads(advisor("config", "--format", "json")[1])
    assert document["settings"]["framework"] == {"value": "ddp", "origin": "advisor.toml, line 1"}
    assert document["budgets"]["mfu"]["value"] == 0.4
    assert advisor("config", "--no-config")[1].startswith("file  none")


def test_config_prints_the_schema(advisor: Run, here: Path) -> None:
    code, out, _ = advisor("config", "--schema")
    assert code == 0 and json.loads(out)["properties"]["budgets"]["properties"]["step-time"]


@pytest.mark.parametrize("slip", ["fail-on = ['hgh']", "fail-on = ['step-time>3']", "fail-on = ['regresion']"])
def test_config_tells_a_slip_in_a_condition(advisor: Run, here: Path, slip: str) -> None:
    """A hook that checks the settings at every commit runs nothing else."""
    (here / "advisor.toml").write_text(slip)
    code, out, err = advisor("config")
    assert (code, out) == (2, "") and err.startswith("error: advisor.toml, line 1: fail-on: ")
    (here / "advisor.toml").write_text("fail-on = ['high', 'regression>3%', 'input', 'new']")
    assert advisor("config")[0] == 0
