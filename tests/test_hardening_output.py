"""What stands in no sane report: lines of megabytes, hundred thousands of places, fields that somebody edited by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from advisor.cli import cli
from advisor.comparing import Recording, compare
from advisor.ingest.saved_report import parse
from advisor.model import Evidence, InputError, Location
from advisor.report import FORMATS, render
from advisor.report.text import LONGEST, clean
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
