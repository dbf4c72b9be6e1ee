"""`advisor analyze`, `rules` and `explain`: what they print where, and how they exit."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.reading import step_range
from advisor.cli.target import write_whole
from build.program import Run


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of nvidia-smi and nothing else."""
    path = tmp_path_factory.mktemp("smi") / "smi.csv"
    rows = [f"2026/01/02 03:04:{second:02d}.000, 0, NVIDIA H200, 97 %, 300.00 W, 1980 MHz" for second in range(30)]
    header = "timestamp, index, name, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz]"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def report(out: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(out)
    return document


def test_json_on_standard_output(advisor: Run, blocking: Path) -> None:
    code, out, err = advisor("analyze", blocking, "--format", "json", "--select", "launch-blocking")
    document = report(out)
    assert (code, err) == (0, "")
    assert document["schema"] == "advisor.report/1"
    assert [finding["rule"] for finding in document["findings"]] == ["launch-blocking"]
    assert [rule["id"] for rule in document["rules"]] == ["launch-blocking"]
    assert document["run"]["steps"]["count"] == 6 and document["run"]["steps"]["source"] == "profiler-step"


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_for_people(advisor: Run, blocking: Path, form: str) -> None:
    code, out, err = advisor("analyze", blocking, "--format", form, "--select", "launch-blocking")
    assert (code, err) == (0, "")
    assert "launch blocking" in out and "unset CUDA_LAUNCH_BLOCKING" in out
    assert "\x1b[" not in out  # no colour where no terminal is


def test_same_input_same_bytes(advisor: Run, blocking: Path) -> None:
    assert advisor("analyze", blocking, "--format", "json") == advisor("analyze", blocking, "--format", "json")


def test_quiet_is_shorter_than_verbose(advisor: Run, blocking: Path) -> None:
    select = ("--select", "launch-blocking")
    quiet, plain, verbose = (len(advisor("analyze", blocking, *select, *more)[1]) for more in (["-q"], [], ["-v"]))
    assert quiet < plain <= verbose


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (["high"], 1),
        (["medium"], 1),
        (["low"], 1),
        (["launch-blocking"], 1),
        (["low,launch-blocking"], 1),
        ([], 0),
    ],
)
def test_fail_on_a_finding(advisor: Run, blocking: Path, limits: list[str], status: int) -> None:
    options = [part for limit in limits for part in ("--fail-on", limit)]
    code, out, _ = advisor("analyze", blocking, "--format", "json", "--select", "launch-blocking", *options)
    assert code == status
    assert report(out)["findings"]  # the report is written all the same


def test_fail_on_needs_medium_confidence(advisor: Run, blocking: Path, tmp_path: Path) -> None:
    (tmp_path / "guess.toml").write_text('id = "guess"\nfamily = "custom"\ntitle = "t"\nsummary = "s"\n')
    (tmp_path / "guess.py").write_text(
        "from advisor.rules.contract import Change, Draft\n"
        "def detect(ctx): return Draft('t', confidence='low', change=Change(wait_ns=10**9))\n"
    )
    guess = ("analyze", blocking, "--rules", tmp_path, "--select", "guess", "--format", "json")
    code, out, _ = advisor(*guess, "--fail-on", "low")
    assert report(out)["findings"][0]["severity"] == "high" and code == 0
    assert advisor(*guess, "--fail-on", "guess")[0] == 1


def test_a_danger_without_saving_fails(advisor: Run, samples: Path, tmp_path: Path) -> None:
    (tmp_path / "danger.toml").write_text('id = "danger"\nfamily = "custom"\ntitle = "t"\nsummary = "s"\n')
    (tmp_path / "danger.py").write_text(
        "from advisor.rules.contract import Draft\ndef detect(ctx): return Draft('t', severity='high')\n"
    )
    common = ("analyze", samples, "--rules", tmp_path, "--select", "danger")
    assert advisor(*common, "--fail-on", "high")[0] == 1


def test_device_samples_alone(advisor: Run, samples: Path) -> None:
    code, out, _ = advisor("analyze", samples, "--format", "json")
    document = report(out)
    assert code == 0
    assert document["run"]["steps"] is None and document["breakdown"] == []
    assert set(document["combined_saving"].values()) == {None}
    assert {rule["outcome"] for rule in document["rules"]} <= {"found", "clean", "not-applicable"}
    assert next(rule for rule in document["rules"] if rule["id"] == "launch-blocking")["outcome"] == "not-applicable"


def test_steps_and_pattern(advisor: Run, blocking: Path) -> None:
    def steps(*options: str) -> dict[str, Any]:
        found: dict[str, Any] = report(advisor("analyze", blocking, "--format", "json", *options)[1])["run"]["steps"]
        return found

    assert steps("--steps", "1:4")["count"] == 3
    assert steps("--steps", ":-2")["count"] == 4
    assert steps("--step-pattern", "ProfilerStep#[0-3]")["source"] == "user-pattern"


def test_step_ranges() -> None:
    assert step_range("2:10") == (2, 10) and step_range(":") == (None, None) and step_range("-3:") == (-3, None)
    for text in ("2", "a:b", "1:2:3", "", "-:2"):
        with pytest.raises(ValueError, match="A:B"):
            step_range(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--select", "launch-bloking"], ["launch-blocking"]),
        (["--ignore", "enviroment"], ["environment"]),
        (["--select", "launch-blocking", "--ignore", "launch-blocking"], ["no rule is left"]),
        (["--step-pattern", "step ("], ["--step-pattern", "regular expression"]),
        (["--steps", "5"], ["--steps", "A:B"]),
        (["--fail-on", "hihg"], ["hihg", "high"]),
        (["--fail-on", "info"], ["info"]),
        (["--framework", "lightening"], ["lightning"]),
        (["--items-per-step", "nan"], ["--items-per-step"]),
        (["--items-per-step", "0"], ["--items-per-step"]),
        (["--rank", "-1"], ["--rank"]),
        (["--processes", "0"], ["--processes"]),
        (["--rules", "absent"], ["absent", "no such folder"]),
        (["--output", "absent/report.json"], ["--output", "absent"]),
        (["--output", "."], ["--output", "folder"]),
        (["--verbose", "--quiet"], ["exclude"]),
        (["--format", "yaml"], ["--format"]),
        (["--unheard-of"], ["--unheard-of"]),
    ],
)
def test_wrong_usage(
    advisor: Run, blocking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = advisor("analyze", blocking, *options)
    assert (code, out) == (2, "")
    for word in words:
        assert word in err
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_cannot_be_read(advisor: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no trace")
    (tmp_path / "empty.json").touch()
    for path in ("notes.txt", "empty.json", "absent.json"):
        code, out, err = advisor("analyze", tmp_path / path)
        assert (code, out) == (2, "") and path in err and len(err.splitlines()) == 1


def test_a_broken_rule_file_is_one_line(advisor: Run, blocking: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("id = 3")
    code, out, err = advisor("analyze", blocking, "--rules", tmp_path)
    assert (code, out) == (2, "") and "bad.toml: id: must be text" in err and len(err.splitlines()) == 1


def test_a_broken_detector_does_not_stop_the_others(advisor: Run, blocking: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('id = "bad"\nfamily = "custom"\ntitle = "t"\nsummary = "s"\n')
    (tmp_path / "bad.py").write_text("def detect(ctx:\n")
    code, out, err = advisor("analyze", blocking, "--rules", tmp_path, "--select", "bad,launch-blocking", "--format", "json")
    outcomes = {rule["id"]: rule["outcome"] for rule in report(out)["rules"]}
    assert (code, err) == (0, "") and outcomes == {"bad": "error", "launch-blocking": "found"}


def test_output_file(advisor: Run, blocking: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    code, out, err = advisor("analyze", blocking, "--format", "json", "--output", target)
    assert (code, out, err) == (0, "", "") and report(target.read_text())["findings"]
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert advisor("analyze", blocking, "--format", "json", "--output", "-")[1] == target.read_text()


def test_the_input_is_never_overwritten(advisor: Run, blocking: Path) -> None:
    before = blocking.read_bytes()
    code, _, err = advisor("analyze", blocking, "--output", blocking)
    assert code == 2 and "is one of the inputs" in err and blocking.read_bytes() == before


def test_whole_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, link = tmp_path / "real.txt", tmp_path / "link.txt"
    write_whole(target, "one\n")
    assert stat.S_IMODE(target.stat().st_mode) & 0o444 == 0o444 & ~_umask()
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, "two\n")
    assert link.is_symlink() and target.read_text() == "two\n" and stat.S_IMODE(target.stat().st_mode) == 0o640

    def full(*paths: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(target, "three\n")
    assert target.read_text() == "two\n" and len(list(tmp_path.iterdir())) == 2


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_redact(advisor: Run, blocking: Path) -> None:
    document = report(advisor("analyze", blocking, "--format", "json", "--redact")[1])
    assert all(finding["locations"] == [] for finding in document["findings"])


def test_rules_lists_all(advisor: Run) -> None:
    code, out, err = advisor("rules")
    assert (code, err) == (0, "") and "launch-blocking" in out and "Launch blocking left on" in out
    document = report(advisor("rules", "--format", "json")[1])
    assert document["schema"] == "advisor.rules/1" and len(document["rules"]) == len(re.findall(r"^\S", out, re.MULTILINE))
    assert {"id", "family", "title"} <= document["rules"][0].keys()


def test_explain(advisor: Run) -> None:
    code, out, err = advisor("explain", "launch-blocking")
    assert (code, err) == (0, "")
    for words in ("# launch-blocking", "`blocked_share` = 0.9", "unset CUDA_LAUNCH_BLOCKING", "```bash"):
        assert words in out
    code, out, err = advisor("explain", "launch-blockin")
    assert (code, out) == (2, "") and "did you mean 'launch-blocking'" in err
    code, out, err = advisor("explain", "input")
    assert (code, out) == (2, "") and "'input' is a family" in err and "single-process-dataloader" in err


def test_explain_a_rule_of_a_folder(advisor: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('id = "mine"\nfamily = "custom"\ntitle = "My own"\nsummary = "s"\n')
    (tmp_path / "mine.py").write_text("def detect(ctx): return None\n")
    assert "# mine: My own" in advisor("explain", "mine", "--rules", tmp_path)[1]
    assert "My own" in advisor("rules", "--rules", tmp_path)[1]
