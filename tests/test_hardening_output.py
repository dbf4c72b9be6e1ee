"""What stands in no sane report: lines of megabytes, hundred thousands of places, fields that somebody edited by hand."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from advisor.cli import cli, console
from advisor.comparing import Recording, compare
from advisor.ingest.saved_report import parse
from advisor.model import Evidence, InputError, Location
from advisor.report import FORMATS, render
from advisor.report.text import LONGEST, clean
from build.comparisons import finding
from build.comparisons import report as paired
from build.recordings import write_kineto
from build.reports import healthy, samples_only, starved_loader, two_ranks
from test_report_any import hostile_report


@pytest.mark.parametrize("format", sorted(set(FORMATS) - {"json"}))
def test_names_of_megabytes_are_cut(format: str) -> None:
    report = hostile_report("x" * 1_000_000)
    report.findings[0].rule, report.rules, report.version = "launch-bound", healthy().rules, "1"  # no recording names these
    assert len(render(report, format, verbosity=1)) < (2_000_000 if format == "html" else 300_000)


def test_a_notebook_cuts_them_too() -> None:
    assert len(hostile_report("x" * 1_000_000)._repr_html_() or "") < 100_000


def test_both_ends_of_a_long_line_stay() -> None:
    line = clean("begin" + "\n" * 1_000_000 + "end")
    assert len(line) == LONGEST and line.startswith("begin ") and line.endswith(" end") and "…" in line


def test_hundred_thousand_places_and_rows_are_cut_and_said() -> None:
    report = starved_loader()
    places = [Location(f"file{i}.py", i, "step", 0.5) for i in range(100_000)]
    report.findings[0].locations = places
    report.findings[0].evidence = [Evidence("Many", ["n"], [[i] for i in range(100_000)])]
    text = render(report, "text", verbosity=1)
    assert text.count("file4") < 1000 and "file499.py" in text and "file500.py" not in text
    assert "and 99,500 more places (--format json)" in text and "and 99,500 more rows (--format json)" in text
    assert len(json.loads(render(report, "json"))["findings"][0]["locations"]) == 100_000


def test_paths_of_megabytes_are_no_places() -> None:
    report = starved_loader()
    report.findings[0].locations = [Location("a/" * 500_000 + "train.py", 3, "step", 0.5)]
    for format in ("github", "sarif", "gitlab"):
        assert len(render(report, format)) < 100_000


def edited(name: str, value: object, *place: str | int) -> bytes:
    """A report in which somebody has set the value at this place; without a value it is taken out."""
    report = starved_loader()
    kernel = {"kind": "gemm", "ns": 5, "calls": 1.0, "name": "k"}
    report.extra["kernels"] = {"distinct": 1, "total_ns": 5, "rest_ns": 0, "least_ns": 0, "kinds": [kernel], "listed": [kernel]}
    document = json.loads(render(report, "json"))
    inner = document
    for key in place:
        inner = inner[key]
    if value is None:
        del inner[name]
    else:
        inner[name] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (edited("name", None, "kernels", "listed", 0), "name"),
        (edited("fingerprint", "x" * 2000, "findings", 0), "fingerprint"),
        (edited("rule", "x" * 2000, "findings", 0), "rule"),
        (edited("id", "x" * 2000, "rules", 0), "rules"),
        (edited("gpu_samples", [{"device": 0, "power_w": "much"}]), "gpu_samples"),
        (edited("cost", {"gpu_hour": 2.0}), "cost"),
        (edited("limits", [{"text": 5}]), "limits"),
        (edited("measured", {"kernels_per_step": "many"}, "run"), "measured"),
        (edited("stalls", {"every": "now and then"}, "run", "steps"), "stalls"),
    ],
)
def test_edited_reports_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=f"not a valid report.*{words}"):
        parse(data)


def test_gpus_with_other_causes_share_a_frame() -> None:
    report = two_ranks()
    first = report.breakdown[0]
    report.breakdown[0] = replace(first, idle_by_cause={"launch": first.idle_ns})
    frame = report.frame("breakdown")
    assert frame["idle_launch_ns"].tolist() == [first.idle_ns, 5_800_000]
    assert frame["idle_host_sync_ns"].tolist() == [0, 2_400_000]


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        ((samples_only(), samples_only()), "neither side has a step time"),
        ((samples_only(), healthy()), "the base has no step time"),
        ((healthy(), samples_only()), "the head has no step time"),
    ],
)
def test_sides_without_steps(sides: tuple, words: str) -> None:
    step = compare([Recording("base", sides[0])], [Recording("head", sides[1])]).step
    assert step.verdict == "cannot-tell" and step.reason == words and step.ratio is None


def test_a_folder_of_reports_and_other_files_says_what_is_compared(tmp_path: Path) -> None:
    folder, saved = tmp_path / "both", render(healthy(), "json")
    write_kineto(folder / "trace.json")
    (folder / "report.json").write_text(saved)
    (tmp_path / "head.json").write_text(saved)
    done = CliRunner().invoke(cli, ["compare", str(folder), str(tmp_path / "head.json"), "--format", "json"])
    assert done.exit_code == 0 and "1 of its 2 files are compared, those that are saved reports" in done.stderr
    (folder / "report.json").write_text(done.stdout)  # a comparison is nothing that can be compared
    done = CliRunner().invoke(cli, ["compare", str(folder), str(tmp_path / "head.json"), "--format", "json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["base"]["names"] == [str(folder)]


def advisor(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(one) for one in arguments])


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("", "names no condition"),
        (" , ", "names no condition"),
        ("idle-share>150%", "150 % is more than all"),
        ("mfu<101 %", "101 % is more than all"),
    ],
)
def test_conditions_that_could_never_speak_are_wrong_usage(tmp_path: Path, condition: str, words: str) -> None:
    trace = write_kineto(tmp_path / "trace.json")
    done = advisor("analyze", trace, "--no-config", "--fail-on", condition)
    assert done.exit_code == 2 and not done.stdout and words in (done.stderr + str(done.exception))


def test_a_budget_beyond_all_is_wrong_usage(tmp_path: Path) -> None:
    trace, settings = write_kineto(tmp_path / "trace.json"), tmp_path / "advisor.toml"
    settings.write_text('[budgets]\nidle-share = "100 %"\n')
    assert advisor("analyze", trace, "--config", settings).exit_code == 0
    settings.write_text('[budgets]\nidle-share = "100.1 %"\n')
    done = advisor("analyze", trace, "--config", settings)
    assert "idle-share: 100.1 % is more than all" in str(done.exception)
    settings.write_text('[regressions]\nstep-time = "150 %"\n')  # a step may well take more than twice the time
    assert advisor("analyze", trace, "--config", settings).exit_code == 0


def test_what_nobody_could_judge_is_told_in_few_words_too(tmp_path: Path) -> None:
    trace = write_kineto(tmp_path / "trace.json")
    done = advisor("compare", trace, trace, "--no-config", "-q", "--fail-on", "step-time>1ms")
    assert done.exit_code == 0 and "the condition could not be judged" in done.stdout and "'step-time>1ms'" in done.stdout


def test_settings_baselines_and_records_are_no_place_for_a_report(tmp_path: Path) -> None:
    trace, settings, accepted = write_kineto(tmp_path / "trace.json"), tmp_path / "advisor.toml", tmp_path / "accepted.json"
    settings.write_text('fail-on = ["never"]\n')
    assert advisor("baseline", trace, "--config", settings, "-o", accepted).exit_code == 0
    record = tmp_path / "promises.jsonl"
    record.write_text("")
    kept = {file: file.read_bytes() for file in (settings, accepted, record)}
    for command in (
        ["analyze", trace, "--config", settings, "-o", settings],
        ["analyze", trace, "--config", settings, "--baseline", accepted, "--also", f"json={accepted}"],
        ["compare", trace, trace, "--config", settings, "--also", f"sarif={settings}"],
        ["compare", trace, trace, "--no-config", "--history", tmp_path, "-o", record],
    ):
        done = advisor(*command)
        assert done.exit_code == 2 and "is one of the inputs" in done.stderr + str(done.exception), command
    assert {file: file.read_bytes() for file in kept} == kept


def test_a_record_that_cannot_be_kept_costs_no_comparison(tmp_path: Path) -> None:
    for name, report in (("base", paired(20, [finding("host-sync-in-step", 6)])), ("head", paired(14, seed=2))):
        (tmp_path / f"{name}.json").write_text(render(report, "json"))
    (tmp_path / "kept" / ".promises.jsonl.lock").mkdir(parents=True)
    done = advisor("compare", tmp_path / "base.json", tmp_path / "head.json", "--history", tmp_path / "kept")
    assert isinstance(done.exception, OSError) and "Promised and obtained" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_an_output_that_is_full_is_named(tmp_path: Path) -> None:
    done = advisor("analyze", write_kineto(tmp_path / "trace.json"), "-o", "/dev/full")
    assert isinstance(done.exception, OSError) and done.exception.filename == "/dev/full"


@pytest.mark.parametrize("form", ["github", "markdown", "html"])
def test_documents_are_utf_8_wherever_they_go(tmp_path: Path, form: str) -> None:
    """A page says that it is UTF-8, and the runner that reads annotations takes them as such."""
    trace = write_kineto(tmp_path / "trace.json")
    command = [sys.executable, "-m", "advisor", "analyze", str(trace), "--no-config", "--format", form, "--note", "µ → \u5b57"]
    legacy = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(command, env=legacy, capture_output=True, timeout=120, check=True)
    assert "µ → \u5b57" in done.stdout.decode("utf-8")


def test_a_document_goes_into_a_text_in_memory_too() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as caught:
        console.write("µ → \u5b57", document=True)
    assert caught.getvalue() == "µ → \u5b57\n"
