"""Number formats and wording."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from advisor.model import Breakdown, Evidence, Finding, Notice, RuleOutcome, Saving
from advisor.report import render
from advisor.report import text as t
from advisor.report.summary import parts, run_facts, unjudged, verdict
from build.reports import healthy, part, samples_only, starved_loader, two_ranks


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (4_600_000, "4.6 ms"),
        (16_520_000, "16.5 ms"),
        (132_160_000, "132 ms"),
        (999_960_000, "1,000 ms"),
        (850_000, "850 µs"),
        (1_500, "1.5 µs"),
        (999, "999 ns"),
        (0, "0 ns"),
        (1_320_000_000, "1.3 s"),
        (90 * 10**9, "1.5 min"),
        (7200 * 10**9, "2 h"),
        (9_960_000, "10 ms"),
        (None, "unknown"),
        (float("nan"), "unknown"),
    ],
)
def test_duration(ns: float | None, text: str) -> None:
    assert t.duration(ns) == text


def test_duration_digits() -> None:
    assert t.duration(1_324_000_000, 3) == "1.32 s"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (150_109_880_320, "140 GiB"),
        (80 << 30, "80 GiB"),
        (1536, "1.5 KiB"),
        (4096, "4 KiB"),
        (12, "12 B"),
        (0, "0 B"),
        (None, "unknown"),
    ],
)
def test_size(count: int | None, text: str) -> None:
    assert t.size(count) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.284, "28 %"),
        (0.034, "3.4 %"),
        (0.03, "3 %"),
        (0.0996, "10 %"),
        (0.004, "0.4 %"),
        (0.0001, "<0.1 %"),
        (0.0, "0 %"),
        (1.0, "100 %"),
    ],
)
def test_percent(share: float, text: str) -> None:
    assert t.percent(share) == text


def test_ranges() -> None:
    assert t.percent_range(0.19, 0.36) == "19 to 36 %"
    assert t.percent_range(0.101, 0.1012) == "10 %"
    assert t.duration_range(3_100_000, 5_900_000) == "3.1 to 5.9 ms"
    assert t.duration_range(400_000, 1_100_000) == "400 µs to 1.1 ms"
    assert t.duration_range(0, 12_400_000) == "0 to 12.4 ms"


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("wait_ns", 36_800_000, "36.8 ms"),
        ("total_bytes", 1 << 20, "1 MiB"),
        ("bytes", 1 << 20, "1 MiB"),
        ("share_frac", 0.5, "50 %"),
        ("calls", 1185, "1,185"),
        ("clock", 1245.5, "1,246"),
        ("ratio", 0.12345, "0.123"),
        ("wait_ns", None, ""),
        ("flag", True, "yes"),
        ("shape", [64, 3, 224], "64, 3, 224"),
        ("name", "a\tb\x1b", "a b\\x1b"),
        ("ratio", float("nan"), "unknown"),
    ],
)
def test_cell(column: str, value: object, text: str) -> None:
    assert t.cell(column, value) == text


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("wait_ns", "wait"),
        ("total_bytes", "total"),
        ("step_frac", "step"),
        ("bytes", "bytes"),
        ("copies_per_step", "copies/step"),
        ("gb_per_s", "GB/s"),
        ("max_sm_clock_mhz", "max SM clock MHz"),
        ("power_w", "power W"),
    ],
)
def test_heading(column: str, text: str) -> None:
    assert t.heading(column) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("the GPU waits", "The GPU waits"),
        ("cudaMalloc runs", "cudaMalloc runs"),
        ("aten::mm is slow", "aten::mm is slow"),
        ("smi.csv is cut", "smi.csv is cut"),
        ("18 waits", "18 waits"),
        ("", ""),
    ],
)
def test_sentence(text: str, sentence: str) -> None:
    assert t.sentence(text) == sentence


def test_shorten_keeps_both_ends() -> None:
    assert t.shorten("void at::native::vectorized_elementwise_kernel<4>", 20) == "void at::n…kernel<4>"
    assert t.shorten("short", 20) == "short"


def test_clean() -> None:
    assert t.clean("a\nb\x1b[31m\u202e\udcff") == "a b\\x1b[31m\\u202e\N{REPLACEMENT CHARACTER}"
    assert t.clean("naïve 字幕 µs") == "naïve 字幕 µs"
    assert t.clean_block("\n\n  a\r\n\tb  \n\n") == ["  a", "    b"]


def test_file_name() -> None:
    assert t.file_name("/data/run/rank0.json.gz") == "rank0.json.gz"
    assert t.file_name("C:\\run\\rank0.json") == "rank0.json"


def test_short_path() -> None:
    assert t.short_path("/a/long/way/to/the/trace.json.gz", 21) == ".../the/trace.json.gz"
    assert t.short_path("trace.json.gz", 5) == "trace.json.gz"
    assert t.short_path("/a/trace.json.gz", 5) == ".../trace.json.gz"


def test_sections_set_weak_findings_apart() -> None:
    main, also = t.sections(starved_loader())
    assert [finding.rule for finding in main] == ["single-process-dataloader", "pageable-copy", "unfused-optimizer"]
    assert [finding.rule for finding in also] == ["tf32-instead-of-16bit", "memory-headroom"]


def test_verdicts() -> None:
    assert verdict(starved_loader()).startswith(
        "68 % of each step could be saved (51 to 75 %): 57.2 ms → 18.3 ms. Biggest: the GPU waits"
    )
    assert verdict(two_ranks()).startswith("18 % of each step could be saved (8.3 to 25 %)")
    assert verdict(healthy()) == (
        "Nothing worth fixing was found: the GPU computes for 97 % of each step. 1 of 6 rules could not judge this recording."
    )
    text = verdict(samples_only())
    assert text.startswith("There is no step in this input, so no saving can be stated; 2 things stood out.")
    assert text.endswith("Warning: GPU 3 is throttled by heat in 61 % of the samples under load.")


def test_verdict_keeps_names_as_they_are() -> None:
    report = starved_loader()
    report.findings[0].title = "NCCL waits"
    assert "Biggest: NCCL waits." in verdict(report)


def test_verdict_does_not_boast_of_a_little() -> None:
    report = starved_loader()
    report.findings = [Finding("r", "f", "A little", "low", "high", saving=Saving(0, 600_000, 900_000, "replay"))]
    report.combined = report.findings[0].saving
    report.breakdown = healthy().breakdown
    assert verdict(report) == "There is little to gain: at most 1.6 % of each step. Best lead: a little."


def test_an_idle_gpu_is_never_called_healthy() -> None:
    report = healthy()
    report.breakdown = [part(16.52, 0.5, launch=4, python=9)]
    idle = "yet the GPU is idle for 97 % of each recorded step, the largest part: Python between launches."
    assert verdict(report).startswith(f"No rule names a fix, {idle}")
    report.findings = [Finding("r", "f", "FP32 products", "info", "medium", saving=Saving(0, 0, 2_000_000, "bound"))]
    report.combined = report.findings[0].saving
    assert verdict(report).startswith(
        f"What the rules found gains little, at most 12 % of each step, {idle} Best lead: FP32 products."
    )


def test_no_saving_expected() -> None:
    assert t.saving_long(Saving(0, 0, 2_000_000, "bound"), 16_520_000) == "nothing by itself, at most 2 ms a step (12 %)"


def test_a_range_that_reads_as_one_figure_is_none() -> None:
    saving = Saving(28_490_000, 28_500_000, 28_520_000, "replay")
    assert t.saving_long(saving, 1_187_500_000) == "28.5 ms a step, 2.4 %"
    assert t.saving_short(saving, 1_187_500_000) == "28.5 ms, 2.4 %"
    report = starved_loader()
    report.combined = Saving(40_010_000, 40_020_000, 40_030_000, "replay")
    assert verdict(report).startswith("70 % of each step could be saved: 57.2 ms")


def test_run_facts() -> None:
    facts = dict(run_facts(starved_loader()))
    assert facts["files"] == ["runs/trace.json.gz (torch.profiler trace, rank 0)", "runs/smi.csv (nvidia-smi log)"]
    assert facts["GPU"] == ["1 x NVIDIA H200 (compute capability 9.0, 132 SMs, 140 GiB)"]
    assert facts["steps"] == [
        "8 by ProfilerStep# marks, 57.2 ms each (p10 to p90: 56.6 to 58.9 ms)",
        "recorded at 58.6 ms; 57.2 ms is the estimate without the profiler",
    ]
    assert facts["rate"] == ["1,119 items/s (64 items a step)"]
    assert facts["lacks"] == ["call stacks and memory events"]
    assert "ranks" not in facts
    assert dict(run_facts(two_ranks()))["ranks"] == ["0 and 1 of 2"]


def test_a_gpu_that_a_log_lists_again_is_named_once() -> None:
    report = starved_loader()
    full = report.run["devices"][0]
    bare = full | {"rank": None, "compute_capability": None, "sm_count": None}
    report.run["devices"] = [full, bare, bare | {"name": None}, bare | {"name": "Tesla T4", "index": 1}]
    assert dict(run_facts(report))["GPU"] == [
        "1 x NVIDIA H200 (compute capability 9.0, 132 SMs, 140 GiB)",
        "1 x Tesla T4 (140 GiB)",
    ]


def test_two_recordings_lack_nothing_that_is_known_here() -> None:
    report = starved_loader()
    report.notices.append(Notice("two-recordings", "two recordings of one rank"))
    report.run["sources"] = [*report.run["sources"], *report.run["sources"]]
    facts = dict(run_facts(report))
    assert "lacks" not in facts
    assert len(facts["files"]) == 2


def test_many_files_and_ranks_are_summarised() -> None:
    report = two_ranks()
    first = report.run["sources"][0]
    report.run["sources"] = [first | {"path": f"traces/rank{rank}.json.gz", "rank": rank} for rank in range(64)]
    report.run |= {"ranks": list(range(64)), "world_size": 64}
    facts = dict(run_facts(report))
    assert facts["files"] == ["64 torch.profiler traces: rank0.json.gz ... rank63.json.gz"]
    assert facts["ranks"] == ["0 to 63 of 64"]
    assert len(dict(run_facts(report, full=True))["files"]) == 64


def test_parts_of_a_step_are_disjoint() -> None:
    part = Breakdown(0, 0, 100, 70, 50, 15, 5, 5, 30, {"launch": 10, "python": 5})
    assert parts(part) == {
        "compute": 50,
        "communication": 10,
        "communication_wait": 5,
        "copy": 5,
        "launch": 10,
        "python": 5,
        "unexplained": 15,
    }
    assert sum(parts(part).values()) == 100


def test_unjudged_rules_are_grouped() -> None:
    rules = [
        RuleOutcome("a", "not-applicable", "needs shapes", "record_shapes=True"),
        RuleOutcome("b", "error", "boom"),
        RuleOutcome("c", "not-applicable", "needs shapes", "record_shapes=True"),
        RuleOutcome("d", "clean"),
    ]
    assert unjudged(rules) == [("needs shapes", ["record_shapes=True"], ["a", "c"]), ("failed: boom", [], ["b"])]


def test_what_lets_most_rules_judge_stands_first() -> None:
    """The short command of one rule does not stand for what twenty others lack."""
    captures = ["smi", "a torch trace", "a torch trace", "torch 2.3", None]
    rules = [RuleOutcome(str(i), "not-applicable", "no kernels", capture) for i, capture in enumerate(captures)]
    assert unjudged(rules) == [("no kernels", ["a torch trace", "smi", "torch 2.3"], ["0", "1", "2", "3", "4"])]


def test_without_gpu_work_nothing_is_called_fine() -> None:
    report = healthy()
    assert verdict(report).startswith("Nothing worth fixing was found")
    report.breakdown = []
    report.notices = [Notice("no-gpu-work", "no GPU work was recorded")]
    assert verdict(report).startswith("No GPU work was recorded, so nothing can be said of the GPU.")
    assert "Nothing worth fixing" not in render(report, "text")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>", "cunn_SoftMaxForward<4, float>"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::Fill<float>>",
            "vectorized_elementwise_kernel<4, Fill<float>>",
        ),
        ("void <unnamed>::add(int)", "add(int)"),
        ("avoid at", "avoid at"),
        ("at::native::", "at::native::"),
        ("", ""),
    ],
)
def test_kernel_names(name: str, shown: str) -> None:
    assert t.cell("kernel", name) == shown
    assert t.cell("call", name) == name


def test_columns_without_a_value_are_left_out() -> None:
    table = Evidence("waits", ["queue", "calls", "wait_ns"], [[None, 3, 0], [None, 4]])
    assert t.evidence_table(table) == Evidence("waits", ["calls", "wait_ns"], [[3, 0], [4]])
    for kept in (
        replace(table, rows=[[0, 3, 1], [None, 4, 2]]),
        replace(table, rows=[]),
        replace(table, rows=[[None, None, None]]),
    ):
        assert t.evidence_table(kept) is kept
    report = starved_loader()
    report.findings[0] = replace(report.findings[0], evidence=[table])
    for form in ("text", "markdown", "html"):
        assert "calls" in render(report, form) and "queue" not in render(report, form)


def test_saving_text() -> None:
    saving = Saving(3_100_000, 4_600_000, 5_900_000, "replay")
    assert t.saving_long(saving, 16_520_000) == "4.6 ms a step, 28 % (3.1 to 5.9 ms, 19 to 36 %)"
    assert t.saving_short(saving, 16_520_000) == "4.6 ms, 28 % (19 to 36 %)"
    assert t.saving_short(None, 16_520_000) == "no promise"
    assert t.saving_long(saving, None) == "4.6 ms a step (3.1 to 5.9 ms)"
    assert (
        t.confidence(replace(starved_loader().findings[0])) == "Confidence high: seen directly; the step was replayed without it"
    )


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_a_recording_without_steps_speaks_of_itself(format: str) -> None:
    report = starved_loader()
    assert "a step" in render(report, format)
    report.run["steps"] = {**report.run["steps"], "source": "none"}
    for finding in report.findings:
        finding.title, finding.evidence, finding.caveats, finding.fixes = "The loader is slow", [], [], []
    told = render(report, format)
    assert "of the recording" in told and "Where the time goes" in told
    assert not re.search(r"(?i)(saves?|saving)[^.\n]{0,40} a step|saving per step", told)
