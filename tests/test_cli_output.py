"""Several formats of one reading, the job summary, places in the repository, and a recording that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli.output import append_summary
from build.program import Run


@pytest.fixture
def advisor(advisor: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """In an empty folder, and without a job summary to write to."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)
    return advisor


FORMATS = ("text", "json", "markdown", "html", "comment", "github", "sarif", "junit", "gitlab")


@pytest.mark.parametrize("form", FORMATS)
def test_also_writes_what_format_prints(advisor: Run, blocking: Path, tmp_path: Path, form: str) -> None:
    code, out, err = advisor("analyze", blocking, "--format", form, "--also", f"{form}=file", "--select", "launch-blocking")
    assert (code, err) == (0, "")
    written = (tmp_path / "file").read_text("utf-8")
    assert written == out and "launch-blocking" in written


def test_several_files_beside_standard_output(advisor: Run, blocking: Path, tmp_path: Path) -> None:
    files = {form: f"{form}.out" for form in FORMATS}
    wanted = [part for form, file in files.items() for part in ("--also", f"{form}={file}")]
    code, out, _ = advisor("analyze", blocking, "-q", *wanted, "--fail-on", "high")
    assert code == 1 and out.count("\n") < 20
    assert {file.name for file in tmp_path.iterdir()} == set(files.values())
    document = json.loads((tmp_path / "json.out").read_text())
    run = json.loads((tmp_path / "sarif.out").read_text())["runs"][0]
    assert [one["ruleId"] for one in run["results"]] == [one["rule"] for one in document["findings"]]
    helped = {rule["id"] for rule in run["tool"]["driver"]["rules"] if rule.get("help")}
    assert helped == {rule["id"] for rule in document["rules"]}  # every rule explains itself


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--also", "sarif"], "FORMAT=FILE"),
        (["--also", "pdf=x"], "FORMAT one of text, json"),
        (["--also", "sarif="], "needs the name of a file"),
        (["--also", "sarif=-"], "needs the name of a file"),
        (["--also", "sarif=no/such/folder"], "--also no/such/folder: there is no folder"),
        (["--also", "sarif=a", "--also", "json=./a"], "two formats would be written to"),
        (["--also", "sarif=a", "--output", "a"], "two formats would be written to"),
        (["--also", "sarif=trace.json"], "is one of the inputs"),
        (["--source-root", "nowhere"], "does not exist"),
        (["--format", "sarif", "--what-if", "launch-blocking"], "--what-if prints text or json or markdown"),
        (["--also", "json=a", "--what-if", "launch-blocking"], "goes without --also"),
    ],
)
def test_wrong_usage(advisor: Run, blocking: Path, tmp_path: Path, arguments: list[str], reason: str) -> None:
    (tmp_path / "trace.json").write_bytes(blocking.read_bytes())
    code, out, err = advisor("analyze", "trace.json", *arguments)
    assert (code, out) == (2, "") and reason in err and err.startswith("error: ") and err.count("\n") == 1
    assert (tmp_path / "trace.json").read_bytes() == blocking.read_bytes()


def test_github_writes_the_job_summary(advisor: Run, blocking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "summary.md"
    place.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
    advisor("analyze", blocking, "--select", "launch-blocking")
    assert place.read_text() == "before\n"  # only where annotations are asked for
    advisor("analyze", blocking, "--select", "launch-blocking", "--format", "github", "--note", "Base: main.")
    text = place.read_text("utf-8")
    assert text.startswith("before\n\n### ") and "Base: main." in text and "unset CUDA_LAUNCH_BLOCKING" in text


def test_a_full_summary_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "summary.md"
    place.write_bytes(b"x" * ((1 << 20) - 10))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
    append_summary("ten bytes!")
    assert place.stat().st_size == (1 << 20) - 10 and "the job summary is full" in capsys.readouterr().err
    append_summary("eight")
    assert place.read_bytes().endswith(b"\neight\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    append_summary("text")
    assert "the job summary was not written" in capsys.readouterr().err


def test_places_are_related_to_the_repository_around(advisor: Run, tmp_path: Path) -> None:
    samples = Path(__file__).parents[1] / "sample_traces"
    trace = samples / "host-sync.torch-stacks.json.gz"
    _, out, _ = advisor("analyze", trace, "--format", "json")
    recorded = next(one["locations"][0] for one in json.loads(out)["findings"] if one["locations"])
    (tmp_path / ".git").mkdir()
    file = tmp_path / "work" / Path(recorded["file"]).name
    file.parent.mkdir()
    file.write_text("\n".join(f"line_{number}()" for number in range(1, recorded["line"] + 5)))
    _, out, _ = advisor("analyze", trace, "--format", "gitlab")
    assert f"work/{file.name}" in {one["location"]["path"] for one in json.loads(out)}
    _, out, _ = advisor("analyze", trace, "--format", "gitlab", "--source-root", "work")
    assert file.name in {one["location"]["path"] for one in json.loads(out)}
    _, out, _ = advisor("analyze", trace)
    assert "line_" not in out
    _, out, _ = advisor("analyze", trace, "-v", "--source-root", ".")
    assert f"line_{recorded['line']}()" in out


@pytest.mark.parametrize("paths", [["nothing.json"], ["empty"], ["none*.json"], ["a", "empty", "b*"]])
def test_no_recording_is_neutral_where_allowed(
    advisor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    also = [part for form in FORMATS for part in ("--also", f"{form}={form}.out")]
    code, out, err = advisor("analyze", *paths, "--allow-missing", "--format", "github", "--fail-on", "high", *also)
    assert code == 0 and err.startswith(f"no recording: {paths[0]}")
    assert out.startswith("::notice title=GPU advisor::No recording was found, so nothing was judged.")
    assert "No recording was found" in (tmp_path / "summary.md").read_text()
    written = {file.name for file in tmp_path.glob("*.out")}
    assert written == {
        "text.out",
        "markdown.out",
        "comment.out",
        "github.out",
        "html.out",
    }  # an empty SARIF would close all alerts
    assert (tmp_path / "comment.out").read_text().startswith("<!-- gpu-advisor: report -->\n### No recording was found")
    assert "No recording was found, so nothing was judged." in (tmp_path / "html.out").read_text()
    assert advisor("analyze", *paths)[0] == 2


def test_a_broken_recording_is_an_error_all_the_same(advisor: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{}")
    code, out, err = advisor("analyze", "broken.json", "missing.json", "--allow-missing")
    assert (code, out) == (2, "") and "broken.json" in err


def test_hostile_names_of_missing_files_stay_text(advisor: Run) -> None:
    code, out, err = advisor("analyze", "::error::x\n::error::y", "--allow-missing", "--format", "github")
    assert code == 0 and out.count("\n") == 1 and out.startswith("::notice ") and err.count("\n") == 1
