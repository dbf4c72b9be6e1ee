"""What the reports of tests/build/reports.py look like, and what must hold on any terminal.

The golden files are to be read by people: ADVISOR_UPDATE_GOLDEN=1 rewrites them, then look at the difference.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from advisor.model import Location, Report, RuleOutcome
from advisor.report import render
from build.reports import ALL, LOADER, part, starved_loader, two_ranks

GOLDEN = Path(__file__).parent / "golden" / "report"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
CASES = {
    "starved_loader-80.txt": ("starved_loader", "text", {"width": 80}),
    "starved_loader-100-verbose.txt": ("starved_loader", "text", {"width": 100, "verbosity": 1}),
    "starved_loader-60-quiet.txt": ("starved_loader", "text", {"width": 60, "verbosity": -1}),
    "two_ranks-120-ascii.txt": ("two_ranks", "text", {"width": 120, "unicode": False}),
    "healthy-80.txt": ("healthy", "text", {"width": 80}),
    "samples_only-80.txt": ("samples_only", "text", {"width": 80}),
    "two_ranks.md": ("two_ranks", "markdown", {}),
    "healthy.json": ("healthy", "json", {}),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_golden(name: str) -> None:
    report, format, options = CASES[name]
    text = render(ALL[report](), format, **options)
    path = GOLDEN / name
    if os.environ.get("ADVISOR_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("verbosity", [-1, 0, 1])
def test_colour_adds_nothing_but_colour(name: str, verbosity: int) -> None:
    plain = render(ALL[name](), "text", width=80, verbosity=verbosity)
    coloured = render(ALL[name](), "text", width=80, verbosity=verbosity, color=True)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert ANSI.sub("", coloured) == plain


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("width", [20, 60, 80, 160, 500])
def test_nothing_but_code_and_links_is_wider_than_the_terminal(name: str, width: int) -> None:
    columns = min(max(width, 60), 160)
    for line in render(ALL[name](), "text", width=width, verbosity=1).splitlines():
        assert cell_len(line) <= columns or line.startswith(" " * 8) or "https://" in line or "to judge: nvidia-smi" in line
        assert line == line.rstrip()


def test_the_first_screen_says_what_matters() -> None:
    screen = "\n".join(render(starved_loader(), "text", width=80).splitlines()[:24])
    for needed in ("68 % of each step could be saved", "data loading 38.2 ms", "HIGH", "Saves 36.4 ms a step"):
        assert needed in screen


def test_code_can_be_copied() -> None:
    lines = render(starved_loader(), "text", width=80).splitlines()
    start = lines.index("        loader = DataLoader(")
    snippet = LOADER.strip("\n").splitlines()
    assert lines[start - 1] == "" and lines[start + len(snippet)] == ""
    assert [line[8:] for line in lines[start : start + len(snippet)]] == snippet


def test_evidence_is_complete_only_if_asked_for() -> None:
    report = starved_loader()
    table = report.findings[0].evidence[0]
    report.findings[0] = replace(report.findings[0], evidence=[replace(table, rows=table.rows * 6)])
    short, full = (render(report, "text", width=80, verbosity=verbosity) for verbosity in (0, 1))
    assert short.count("ProfilerStep, rest") == 2 and "and 7 more rows (-v)" in short
    assert full.count("ProfilerStep, rest") == 6 and "more row" not in full
    assert "…" in short and "…" not in full


def test_bars_of_many_ranks_are_summarised() -> None:
    report = two_ranks()
    report.breakdown = [part(84.1, 50 + rank / 4, communication=20, wait=10 - rank / 8, rank=rank) for rank in range(64)]
    text = render(report, "text", width=80)
    bars = [line for line in text.splitlines() if re.match(r"  (rank \d+|\d+ others) +█", line)]
    assert len(bars) == 8
    assert bars[-1].startswith("  57 others")
    assert any(line.startswith("  rank 0 ") for line in bars) and any(line.startswith("  rank 63 ") for line in bars)


def test_bar_has_the_shares_of_the_step() -> None:
    report = two_ranks()
    report.breakdown = [part(100, 50, communication=20, wait=10, copy=10, dataloader=15, rank=None)]
    line = next(line for line in render(report, "text", width=102).splitlines() if line.startswith("  █"))
    assert line == "  " + "█" * 50 + "▓" * 10 + "▒" * 10 + "░" * 10 + "d" * 15 + "·" * 5


def test_findings_beyond_the_first_get_one_line() -> None:
    report = starved_loader()
    third = report.findings[2]
    report.findings = report.findings[:3] + [replace(third, title=f"Small thing {i}") for i in range(5)]
    text = render(report, "text", width=80)
    assert [line for line in text.splitlines() if "Small thing" in line] == [
        f" {4 + i}  low     1.4 %   800 µs  Small thing {i}" for i in range(5)
    ]
    assert text.count("fused=True") == 1


def test_user_code_is_quoted_only_from_below_the_source_root(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "train.py").write_text("a = 1\n    total += loss.item()\n")
    (tmp_path / "secret.py").write_text("a = 1\npassword = 'x'\n")
    (root / "link.py").symlink_to(tmp_path / "secret.py")

    def shown(file: str, line: int | None = 2) -> str:
        report = starved_loader()
        report.findings[0] = replace(report.findings[0], locations=[Location(file, line, "main")])
        return render(report, "text", width=80, source_root=root)

    assert "total += loss.item()" in shown("/home/someone/elsewhere/src/train.py")
    assert "total += loss.item()" in shown("src\\train.py")
    for file in ("../secret.py", "link.py", str(tmp_path / "secret.py"), "missing.py", "", "src", "a\0b.py"):
        assert "password" not in shown(file)
    for line in (0, 3, 10**9, None, -1):
        assert "loss.item()" not in shown("src/train.py", line)


def test_rendering_is_fast() -> None:
    report = starved_loader()
    report.findings = report.findings * 20
    render(report, "text")  # imports
    start = time.perf_counter()
    render(report, "text", verbosity=1, color=True)
    assert time.perf_counter() - start < 1.0  # about 0.05 s; ample for a busy machine


def test_width_of_wide_characters() -> None:
    report: Report = starved_loader()
    table = report.findings[0].evidence[0]
    rows = [["字幕" * 40, 8, 1, 0.5], ["short", 8, 1, 0.5]]
    report.findings[0] = replace(report.findings[0], evidence=[replace(table, rows=rows)])
    for verbosity in (0, 1):
        lines = render(report, "text", width=80, verbosity=verbosity).splitlines()
        assert max(map(cell_len, (line for line in lines if "字" in line))) <= 80


def test_commands_stay_on_one_line() -> None:
    command = "nvidia-smi --query-gpu=" + ",".join(f"field{i}" for i in range(30)) + " --format=csv -l 1"
    report = starved_loader()
    report.rules = [RuleOutcome("a", "not-applicable", "no samples", command)]
    assert f"    to judge: {command}" in render(report, "text", width=60).splitlines()


def test_one_way_to_judge_is_enough_by_default() -> None:
    report = starved_loader()
    report.rules = [RuleOutcome(f"rule-{i}", "not-applicable", "no kernels", "record kernels" + "!" * i) for i in range(9)]
    short, full = (render(report, "text", width=80, verbosity=verbosity) for verbosity in (0, 1))
    assert "  no kernels: rule-0, rule-1, rule-2, rule-3 and 5 more\n    to judge: record kernels\n\n" in short
    assert full.count("to judge") == 9 and "rule-8" in full


def test_headings_of_a_crowded_table_break() -> None:
    report = starved_loader()
    table = report.findings[0].evidence[0]
    columns = ["device", "busy_samples", "mean_sm_clock_mhz", "max_sm_clock_mhz", "hottest_memory_c", "power_limit_w", "reasons"]
    evidence = [replace(table, columns=columns, rows=[[0, 11, 1906, 1980, 57, 540, "power cap"]])]
    report.findings[0] = replace(report.findings[0], evidence=evidence)
    lines = render(report, "text", width=80).splitlines()
    row = next(i for i, line in enumerate(lines) if line.endswith("power cap"))
    assert lines[row - 1].split() == ["device", "samples", "MHz", "MHz", "C", "W", "reasons"]
    assert "…" not in "".join(lines[row - 4 : row + 1])


def test_a_word_that_fits_no_line_stays_where_it_is() -> None:
    report = starved_loader()
    name = "trace_" + "x" * 90 + ".json.gz"
    report.run["sources"] = [report.run["sources"][0] | {"path": f"/data/{name}"}]
    lines = render(report, "text", width=80).splitlines()
    assert lines[1:3] == [f"files  .../{name}", "         (torch.profiler trace, rank 0)"]


def test_a_command_inside_a_sentence_is_never_wrapped() -> None:
    report = starved_loader()
    command = "nvidia-smi -q -x -l 1 -f smi.xml"
    report.rules = [RuleOutcome("a", "not-applicable", "no samples", f"record all ranks at once; clocks: {command}, or so")]
    for width in range(60, 120):
        assert command in render(report, "text", width=width)
