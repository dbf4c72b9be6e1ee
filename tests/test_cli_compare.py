"""`advisor compare`: inputs of every kind, wrong usage, formats, the record of promises."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from advisor.cli import cli, main
from advisor.comparing import Recording, compare
from advisor.comparing import history as kept
from advisor.comparing.history import FILE, History
from advisor.ingest.saved_report import parse
from advisor.model import Report
from advisor.report.comparison import FORMATS, render
from advisor.report.comparison.json_document import schema
from advisor.report.json_document import render as report_json
from build.any_report import HOSTILE, REPORTS
from build.cases import GEMM
from build.comparisons import finding, repeats, report
from build.workload import Workload
from test_report_any import assert_contained

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"
STARVED, HEALTHY = SAMPLES / "loader-starved.torch.json.gz", SAMPLES / "healthy.torch.json.gz"


def advisor(*arguments: Any, status: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "120"}).invoke(cli, ["compare", *map(str, arguments)], standalone_mode=False)
    assert not result.exception and (result.return_value or 0) == status, result.output + repr(result.exception)
    return result


def failing(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The one line of a call that ends with status 2."""
    with pytest.raises(SystemExit) as stop:
        main(["compare", *map(str, arguments)])
    told = capsys.readouterr()
    assert stop.value.code == 2 and told.out == "" and told.err.count("\n") == 1, told
    return told.err


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with saved reports: before.json, after.json and three repeats of each in folders."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "before.json").write_text(report_json(report(20, [finding("host-sync-in-step", 6)])))
    (folder / "after.json").write_text(report_json(report(14, seed=2)))
    for name, step, found in (("main", 20, [finding("host-sync-in-step", 6)]), ("pr", 14, [])):
        (folder / name).mkdir()
        for i, one in enumerate(repeats(step, 3, seed=step, findings=found)):
            (folder / name / f"{i}.json").write_text(report_json(one.report))
    return folder


def loop(faulty: bool) -> Workload:
    """30 ms of kernels behind 10 ms of host work: in turns where a wait ends each step, else side by side."""
    w = Workload()
    for _ in w.steps(8):
        w.host(10_000)
        for _ in range(30):
            with w.op("aten::mm", us=26):
                w.launch(GEMM, 1000)
        if faulty:
            w.sync("device")
    return w


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A loop that waits for the GPU in each step, and the same loop without the wait."""
    sides = []
    for name in ("faulty", "mended"):
        folder = tmp_path_factory.mktemp(name)
        loop(name == "faulty").write_kineto(folder)
        sides.append(folder)
    return sides[0], sides[1]


def test_a_fault_that_is_mended(recorded: tuple[Path, Path]) -> None:
    found = json.loads(advisor(*recorded, "--format", "json", "--all-findings").stdout)
    assert found["step"]["verdict"] == "faster" and found["step"]["ratio"] == pytest.approx(0.75, abs=0.02)
    assert "device-synchronize-in-step" in [one["finding"]["rule"] for one in found["findings"] if one["status"] == "gone"]
    assert found["finding_counts"]["new"] == found["finding_counts"]["worse"] == 0
    promises = found["promises"]
    assert promises["kept"] == "kept" and promises["promised"]["expected_frac"] == pytest.approx(0.25, abs=0.03)
    assert promises["obtained"]["expected_frac"] == pytest.approx(0.25, abs=0.02)
    parts = {one["name"]: one["head_ns"] - one["base_ns"] for one in found["categories"]}
    assert parts["compute"] == pytest.approx(0, abs=1000) and sum(parts.values()) == pytest.approx(-10e6, rel=0.1)
    text = advisor(*recorded).stdout
    assert "Faster: 40" in text and "25 % less time" in text and "as promised" in text


def test_swapped_it_is_slower_and_the_finding_new(recorded: tuple[Path, Path]) -> None:
    found = json.loads(advisor(recorded[1], recorded[0], "--format", "json").stdout)
    assert found["step"]["verdict"] == "slower" and found["step"]["regression_frac"] == pytest.approx(1 / 3, abs=0.03)
    assert "device-synchronize-in-step" in [one["finding"]["rule"] for one in found["findings"] if one["status"] == "new"]
    assert found["promises"] is None


@pytest.fixture(scope="module")
def mended() -> dict[str, Any]:
    """Two samples of different programs."""
    found: dict[str, Any] = json.loads(advisor(STARVED, HEALTHY, "--format", "json", "--all-findings").stdout)
    return found


def test_samples(mended: dict[str, Any]) -> None:
    assert mended["step"]["verdict"] == "faster" and mended["step"]["ratio"] < 0.4
    # The healthy sample shows no data loader at all: whether it is mended cannot be told.
    loader = next(one for one in mended["findings"] if one["finding"]["rule"] == "single-process-dataloader")
    assert loader["status"] == "not-judged" and loader["reason"] and mended["promises"] is None
    loading = next(one for one in mended["categories"] if one["name"] == "dataloader")
    assert loading["changed"] and loading["base_ns"] > 60_000_000 > 100 * loading["head_ns"]
    assert sum(one["base_ns"] for one in mended["categories"]) == pytest.approx(93.5e6, rel=0.01)
    assert [one["what"] for one in mended["unfair"]] == ["compiled"]


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json.gz")), ids=lambda path: path.name)
def test_halves_of_one_recording_show_no_change(path: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    sides = []
    for part in ("1:4", "4:7"):
        side = tmp_path / f"{part[0]}.json"
        done = runner.invoke(cli, ["analyze", str(path), "--steps", part, "--format", "json", "--output", str(side)])
        if done.exit_code:
            assert "selects nothing" in done.output or "steps" in str(done.exception)
            pytest.skip("the sample has too few steps for halves")
        sides.append(side)
    found = json.loads(advisor(*sides, "--format", "json").stdout)
    assert found["step"]["verdict"] in ("no-measurable-change", "cannot-tell") and found["step"]["regression_frac"] in (0.0, None)
    assert not any(one["status"] == "new" and one["finding"]["severity"] == "high" for one in found["findings"])


def test_recordings_and_saved_reports_mix(tmp_path: Path, mended: dict[str, Any]) -> None:
    side = tmp_path / "base.json.gz"
    done = CliRunner().invoke(cli, ["analyze", str(STARVED), "--format", "json"])
    side.write_bytes(gzip.compress(done.stdout_bytes))
    found = json.loads(advisor(side, HEALTHY, "--format", "json", "--all-findings").stdout)
    found["base"]["names"] = mended["base"]["names"]
    assert found == mended


def test_folders_archives_and_patterns(tmp_path: Path) -> None:
    ranks = SAMPLES / "two-ranks-p2p-disabled"
    with tarfile.open(tmp_path / "ranks.tar", "w") as tar:
        for file in sorted(ranks.iterdir()):
            tar.add(file, file.name)
    found = json.loads(advisor(ranks, tmp_path / "ranks.tar", "--format", "json").stdout)
    assert found["step"]["ratio"] == 1.0 and found["base"]["run"]["ranks"] == [0, 1]
    found = json.loads(advisor(f"{ranks}/*", ranks, "--format", "json", "--rank", "0").stdout)
    assert found["step"]["ratio"] == 1.0 and found["base"]["run"]["ranks"] == [0]


def test_repeats(saved: Path) -> None:
    listed = [item for name in ("main", "pr") for i in range(3) for item in (_side(name), saved / name / f"{i}.json")]
    found = json.loads(advisor(*listed, "--format", "json").stdout)
    assert found["step"]["method"] == "repeats" and found["base"]["repeats"] == found["head"]["repeats"] == 3
    assert found["step"]["noise_frac"] < 0.05 and found["promises"]["kept"] == "kept"
    for sides in ([saved / "main", saved / "pr"], [f"{saved}/main/*.json", f"{saved}/pr/?.json"]):
        again = json.loads(advisor(*sides, "--format", "json").stdout)
        assert again["step"] == found["step"] and again["promises"] == found["promises"]


def _side(name: str) -> str:
    return "--base" if name == "main" else "--head"


def test_items_of_both_sides(saved: Path) -> None:
    sides = [saved / "before.json", saved / "after.json", "--format", "json"]
    found = json.loads(advisor(*sides, "--items-per-step", 8, "--base-items-per-step", 16).stdout)
    assert found["step"]["per"] == "item" and found["step"]["ratio"] == pytest.approx(1.4, rel=0.01)
    assert json.loads(advisor(*sides, "--items-per-step", 8).stdout)["step"]["per"] == "step"


def test_programs_see_new_and_worse_findings_only(saved: Path) -> None:
    sides = [saved / "before.json", saved / "after.json", "--format", "json"]
    some, everything = (json.loads(advisor(*sides, *more).stdout) for more in ([], ["--all-findings"]))
    assert some["findings"] == [] and [one["status"] for one in everything["findings"]] == ["gone"]
    assert some["finding_counts"] == everything["finding_counts"]


def test_text(saved: Path) -> None:
    text = advisor(saved / "before.json", saved / "after.json").stdout
    first = text.split("Where the step changed")[0]
    assert re.search(r"Faster: 20 ms → 14\.?\d* ms a step, 30 % less time \(95 % interval: 2\d to 3\d % less\)\.", first)
    assert "Promised 6 ms, 30 % (27 to 33 %) of 20 ms; obtained" in first and "as promised" in first
    quiet = advisor(saved / "before.json", saved / "after.json", "-q").stdout
    assert len(quiet.splitlines()) == 2 and quiet.startswith("Faster")
    assert "\x1b" not in text


def test_what_makes_it_unfair_stands_first(tmp_path: Path, saved: Path) -> None:
    other = report(14, seed=2, devices=[{**report().run["devices"][0], "name": "NVIDIA A100"}])
    (tmp_path / "other.json").write_text(report_json(other))
    for form in ("text", "markdown"):
        text = advisor(saved / "before.json", tmp_path / "other.json", "--format", form).stdout
        assert text.index("The GPUs differ") < text.index("Cannot tell")


def test_markdown_fits_a_comment() -> None:
    many = [finding(f"rule-{i}", 0.5, title=f"finding {i} " + "x" * 300) for i in range(400)]
    base, head = report(20), report(20, many, seed=2)
    base.rules = head.rules = []
    found = compare([Recording("a", base)], [Recording("b", head)])
    assert len(render(found, "markdown")) < 60_001
    first = render(found, "markdown").split("<details>")[0]
    assert len(first) < 6_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "two sides are needed"),
        (["a.json"], "1 given"),
        (["a.json", "b.json", "c.json"], "3 given"),
        (["--base", "a.json"], "--head is missing"),
        (["--head", "a.json"], "--base is missing"),
        (["a.json", "b.json", "--base", "c.json"], "not both"),
        (["a.json", "b.json", "-q", "-v"], "exclude"),
        (["a.json", "b.json", "--select", "no-such-rule"], "no-such-rule"),
        (["a.json", "b.json", "--gpu", "Quantum 1"], "Quantum 1"),
        (["a.json", "b.json", "--steps", "5:2"], "selects nothing"),
        (["nowhere.json", "nothing.json"], "nothing.json"),
        (["--show"], "--show goes with --history"),
        (["--show", "--history", "nowhere"], "no record there yet"),
        (["a.json", "b.json", "--history", __file__], "is no folder"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert words in failing(capsys, *arguments)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"schema": "advisor.report/1", "run": {}}', "not a valid report"),
        (b'{"schema": "advisor.report/7"}', "advisor.report/7"),
        (b'{"schema": "advisor.compare/1"}', "no report"),
        (b'{"schema": "advisor.report/1", "run": NaN}', "not valid JSON"),
        (b'{"schema": "advisor.report/1", "x": ' + b"[" * 50_000, "nested too deeply"),
    ],
)
def test_saved_reports_that_are_none(
    tmp_path: Path, saved: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_bytes(content)
    assert words in failing(capsys, wrong, saved / "after.json") and words in failing(capsys, saved / "before.json", wrong)


def test_no_input_is_overwritten(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = saved / "before.json", saved / "after.json"
    content = one.read_bytes()
    assert "is one of the inputs" in failing(capsys, one, other, "-o", one)
    assert "is one of the inputs" in failing(capsys, saved / "main", other, "-o", saved / "main" / "1.json")
    assert one.read_bytes() == content


def test_options_that_do_not_apply_to_saved_reports(saved: Path) -> None:
    told = advisor(saved / "before.json", saved / "after.json", "--steps", "1:3")
    assert told.stderr.count("do not apply") == 2


def test_output_file(saved: Path, tmp_path: Path) -> None:
    place = tmp_path / "out.md"
    assert advisor(saved / "before.json", saved / "after.json", "--format", "markdown", "-o", place).stdout == ""
    assert place.read_text().startswith("### Faster")


# Formats, of anything


def test_the_schema(mended: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema())
    Draft202012Validator(schema()).validate(mended)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(REPORTS, REPORTS, st.booleans())
def test_every_format_of_any_two_reports(base: Report, head: Report, all_findings: bool) -> None:
    found = compare([Recording("b", base)], [Recording("h", head)])
    Draft202012Validator(schema()).validate(json.loads(render(found, "json", all_findings=all_findings)))
    for verbosity in (-1, 0, 1):
        text = render(found, "text", width=80, verbosity=verbosity, unicode=False)
        assert text.isascii() and "\x1b" not in text and text.endswith("\n")
    markdown = render(found, "markdown")
    assert len(markdown) <= 60_000
    assert_contained(markdown)


def test_hostile_names_everywhere() -> None:
    text = "".join(HOSTILE)
    found = compare(
        [Recording(text, report(20, [finding("launch-bound", 4, title=text)], kernels={text: 3.0}))],
        [Recording(text, report(14, [finding(text, 4, title=text)], seed=2, kernels={"a": 3.0}, world_size=7))],
    )
    for form in FORMATS:
        out = render(found, form)
        assert "\x1b" not in out and "\u202e" not in out and "\udcff" not in out
        if form == "markdown":
            assert_contained(out)


def test_no_such_format() -> None:
    with pytest.raises(ValueError, match="no format 'x'"):
        render(compare([Recording("a", report())], [Recording("b", report(seed=2))]), "x")


def test_same_bytes(saved: Path) -> None:
    one, other = (advisor(saved / "main", saved / "pr", "--format", "json").stdout for _ in range(2))
    assert one == other


def test_a_huge_report_is_compared(tmp_path: Path, saved: Path) -> None:
    big = parse((saved / "before.json").read_bytes())
    big.findings = [finding("launch-bound", 0.5, str(i), title="t" * 500) for i in range(8000)]
    big.run["steps"]["samples_ns"] = [20_000_000 + i % 1000 for i in range(100_000)]
    (tmp_path / "big.json").write_text(report_json(big))
    found = json.loads(advisor(tmp_path / "big.json", saved / "after.json", "--format", "json").stdout)
    assert found["step"]["verdict"] == "faster" and found["finding_counts"]["gone"] == 8000


# The record


def test_the_record(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "history"
    advisor(saved / "before.json", saved / "after.json", "--history", folder)
    advisor(saved / "main", saved / "pr", "--history", folder)
    lines = (folder / FILE).read_text().splitlines()
    first = json.loads(lines[0])
    assert len(lines) == 2 and first["schema"] == "advisor.promise/1" and first["rules"] == ["host-sync-in-step"]
    assert (
        first["promised"] == [0.27, 0.3, 0.33]
        and first["kept"] == "kept"
        and first["obtained"][1] == pytest.approx(0.3, abs=0.01)
    )
    for private in (str(saved), "before.json", "train.py", os.uname().nodename):
        assert private not in "".join(lines)
    shown = advisor("--history", folder, "--show").stdout
    assert "2 comparisons: 2 as promised." in shown and "host-sync-in-step" in shown
    assert len(json.loads(advisor("--history", folder, "--show", "--format", "json").stdout)["entries"]) == 2
    assert "| 2026" in advisor("--history", folder, "--show", "--format", "markdown").stdout.replace(first["when"][:4], "2026")


def test_nothing_to_record(saved: Path, tmp_path: Path) -> None:
    told = advisor(saved / "after.json", saved / "before.json", "--history", tmp_path / "h")
    assert "nothing was added" in told.stderr and not (tmp_path / "h").exists()


def made(step: float = 14.0) -> Any:
    return compare([Recording("b", report(20, [finding("host-sync-in-step", 6)]))], [Recording("h", report(step, seed=2))])


@pytest.mark.parametrize(
    "damage",
    [
        b"garbage\n",
        b"{}\n",
        b'{"schema":"advisor.promise/1"}\n',
        b"[" * 5000 + b"\n",
        b"\xff\xfe\n",
        b"9" * 3000 + b"\n",
        b'{"a":1',
    ],
)
def test_damaged_lines_are_skipped_and_told(tmp_path: Path, damage: bytes) -> None:
    record = History(tmp_path)
    record.add(made())
    with open(tmp_path / FILE, "ab") as file:
        file.write(damage)
    record.add(made())
    entries, damaged = record.read()
    assert len(entries) == 2 and damaged == 1
    shown = advisor("--history", tmp_path, "--show")
    assert "1 damaged line" in shown.stderr and "2 comparisons" in shown.stdout


@settings(max_examples=100, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda x: st.lists(x, max_size=3)), st.data())
def test_any_value_in_a_line(value: Any, data: Any) -> None:
    entry = kept.entry_of(made(), datetime(2026, 1, 2, tzinfo=UTC))
    assert entry is not None and kept.parsed(json.dumps(entry.to_dict()).encode()) == entry
    plain = entry.to_dict() | {data.draw(st.sampled_from(sorted(entry.to_dict()))): value}
    found = kept.parsed(json.dumps(plain).encode())
    assert found is None or found.to_dict() == plain


def test_the_record_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_BYTES", 6000)
    record, one = History(tmp_path), made()
    for i in range(60):
        record.add(one, datetime(2026, 1, 1, 0, i % 60, tzinfo=UTC))
        assert (tmp_path / FILE).stat().st_size <= 6000 + 1000
    entries, damaged = record.read()
    assert damaged == 0 and 5 < len(entries) < 30 and entries[-1].when == "2026-01-01T00:59:00Z"
    assert sorted(os.listdir(tmp_path)) == [f".{FILE}.lock", FILE]


def test_several_writers_at_once(tmp_path: Path) -> None:
    one = made()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: History(tmp_path).add(one), range(80)))
    entries, damaged = History(tmp_path).read()
    assert len(entries) == 80 and damaged == 0


def test_the_program_prints_no_traceback(saved: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    command = [sys.executable, "-m", "advisor", "compare", str(saved / "before.json"), str(saved / "after.json")]
    done = subprocess.run([*command, "--history", str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == "" and "is no file" in done.stderr and "Traceback" not in done.stderr


# Conditions


@pytest.mark.parametrize(
    ("sides", "condition", "status", "words"),
    [
        (("before", "after"), "regression>3%", 0, "holds"),
        (("after", "before"), "regression>3%", 1, "failed"),
        (("after", "before"), "regression>60%", 0, "holds"),
        (("after", "before"), "high", 1, "failed"),
        (("after", "before"), "host-sync-in-step", 1, "failed"),
        (("before", "after"), "high", 0, "holds"),
        (("after", "before"), "never", 0, "Slower"),
    ],
)
def test_conditions(saved: Path, sides: tuple[str, str], condition: str, status: int, words: str) -> None:
    paths = [saved / f"{side}.json" for side in sides]
    for form in ("text", "markdown"):
        told = advisor(*paths, "--fail-on", condition, "--format", form, status=status).stdout
        assert words in told
    found = json.loads(advisor(*paths, "--fail-on", condition, "--format", "json", status=status).stdout)
    Draft202012Validator(schema()).validate(found)
    assert found.get("gates", {"failed": False})["failed"] is bool(status)


def test_an_unfair_comparison_fails_nothing(saved: Path, tmp_path: Path) -> None:
    other = report(40, seed=2, devices=[{**report().run["devices"][0], "name": "NVIDIA A100"}])
    (tmp_path / "other.json").write_text(report_json(other))
    arguments = [saved / "before.json", tmp_path / "other.json", "--fail-on", "regression>3%"]
    assert "not judged" in advisor(*arguments).stdout
    advisor(*arguments, "--strict-budgets", status=1)


def test_allowed_regressions_of_a_file(saved: Path, tmp_path: Path) -> None:
    config = tmp_path / "advisor.toml"
    config.write_text("[regressions]\nstep-time = '3 %'\n")
    told = advisor(saved / "after.json", saved / "before.json", "--config", config, status=1).stdout
    assert "Conditions" in told and "step time" in told
    config.write_text("[regressions]\nsteptime = '3 %'\n")
    failed = CliRunner().invoke(cli, ["compare", str(saved / "after.json"), str(saved / "before.json"), "--config", str(config)])
    assert "step-time" in str(failed.exception)


def test_also(saved: Path, tmp_path: Path) -> None:
    place = tmp_path / "out.json"
    text = advisor(saved / "before.json", saved / "after.json", "--also", f"json={place}").stdout
    assert text.startswith("advisor") and json.loads(place.read_text())["step"]["verdict"] == "faster"
