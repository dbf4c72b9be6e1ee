"""The engine: outcomes, savings, order, folding, evidence of a fuller recording, and plain data whatever detectors give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from advisor.ingest import load
from advisor.model import Device, Evidence, Location, Options, Report, Run, Saving
from advisor.rules import engine
from advisor.rules.catalogue import Entry
from advisor.rules.contract import Change, Context, Draft, NotApplicable
from advisor.rules.plain import plain
from advisor.rules.rule import FixTemplate, Rule, Threshold
from advisor.rules.validity import Validity
from build.workload import Workload

Detect = Callable[[Context], Any]


MS = 1_000_000


def gpu_bound(stacks: bool = False) -> Run:
    """Steps of 10 kernels of 1 ms, for which the host needs little; with `stacks` all takes twice as long."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(10):
            with w.op("aten::mm", us=100):
                w.launch("gemm", gpu_us=2000 if stacks else 1000)
    return w.to_run()


def rule(name: str, **fields: Any) -> Rule:
    return Rule(id=name, family="custom", title=name, summary=name, **fields)


def entry(named: str | Rule, detect: Detect) -> Entry:
    made = rule(named) if isinstance(named, str) else named
    return Entry(made, lambda: cast(ModuleType, SimpleNamespace(detect=detect)))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """analyze(run) with these entries as the catalogue."""

    def run_it(run: Run, *entries: Entry, **options: Any) -> Report:
        ordered = sorted(entries, key=lambda one: one.rule.id)
        monkeypatch.setattr(engine, "catalogue", lambda dirs: (ordered, []))
        report = engine.analyze(run, **options)
        json.dumps(report.to_dict(), allow_nan=False)  # the contract: plain data, no NaN
        return report

    return run_it


def outcome_of(report: Report) -> dict[str, str]:
    return {one.id: one.outcome for one in report.rules}


def claim(share: float, name: str = "a", **fields: Any) -> Entry:
    """A rule that takes this share of the GPU work of `gpu_bound`."""
    return entry(name, lambda ctx: Draft("t", change=Change(gpu_ns=round(share * 10 * MS)), **fields))


def test_one_outcome_a_rule_whatever_happens(judge: Callable[..., Report], capsys: pytest.CaptureFixture[str]) -> None:
    def fails(ctx: Context) -> None:
        raise ZeroDivisionError("a/b\nsecond line")

    def cannot(ctx: Context) -> None:
        raise NotApplicable("needs at least two ranks", capture="record both")

    report = judge(
        gpu_bound(),
        entry("clean", lambda ctx: None),
        entry("empty", lambda ctx: []),
        entry("error", fails),
        entry("exhausted", lambda ctx: [0] * 10**18),
        entry("found", lambda ctx: [Draft("a", subject=["a"]), Draft("b", subject=["b"])]),
        entry("lacking", cannot),
        entry("wrong", lambda ctx: "text"),
        entry(rule("hint", needs=(("memory_events",),), capture="record memory"), fails),
    )
    assert outcome_of(report) == {
        "clean": "clean",
        "empty": "clean",
        "error": "error",
        "exhausted": "error",
        "found": "found",
        "hint": "not-applicable",
        "lacking": "not-applicable",
        "wrong": "error",
    }
    by_id = {one.id: one for one in report.rules}
    assert by_id["error"].reason == "ZeroDivisionError: a/b second line"
    assert (by_id["lacking"].reason, by_id["lacking"].capture) == ("needs at least two ranks", "record both")
    assert (by_id["hint"].reason, by_id["hint"].capture) == ("the input holds no memory events", "record memory")
    assert len(report.findings) == 2
    assert capsys.readouterr().err == ""


def test_debug_prints_the_traceback(judge: Callable[..., Report], capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_DEBUG", "1")
    judge(gpu_bound(), entry("error", lambda ctx: 1 / 0), entry("clean", lambda ctx: None))
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_warnings_of_detectors_stay_silent(judge: Callable[..., Report], capsys: Any, recwarn: Any) -> None:
    report = judge(gpu_bound(), entry("a", lambda ctx: Draft("t", facts={"mean": np.mean(np.array([])), "x": np.float64(1) / 0})))
    assert report.findings[0].facts == {"mean": None, "x": None}
    assert not recwarn.list and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        ((("kernels",),), None),
        ((("memory_events", "kernels"),), None),
        ((("kernels",), ("memory_events",)), "the input holds no memory events"),
        ((("memory_events", "environment"),), "the input holds neither memory events nor environment variables"),
        ((("host_ops.shapes",),), "the input holds no host ops with shapes"),
        ((("host_ops.name",),), None),
    ],
)
def test_needs(needs: Any, reason: str | None) -> None:
    assert engine.missing(gpu_bound(), rule("a", needs=needs)) == reason


def test_a_rule_that_cannot_hold_on_the_gpu_does_not_run(judge: Callable[..., Report]) -> None:
    only_new = rule("a", valid=Validity(min_compute_capability=(10, 0)))
    report = judge(gpu_bound(), entry(only_new, lambda ctx: Draft("t")))
    assert report.rules[0].outcome == "not-applicable"
    assert report.rules[0].reason == "valid for compute capability 10.0 and newer; this run has 9.0 (NVIDIA H200)"
    run = gpu_bound()
    run.devices = [Device(0, "unheard of")]
    report = judge(run, entry(only_new, lambda ctx: Draft("t")))
    assert report.findings[0].caveats == ["valid for compute capability 10.0 and newer, which the input does not tell"]


def test_severity_by_share_and_confidence_by_basis(judge: Callable[..., Report]) -> None:
    for share, word in ((0.3, "high"), (0.05, "medium"), (0.02, "low")):
        finding = judge(gpu_bound(), claim(share, confidence="high")).findings[0]
        assert (finding.severity, finding.confidence) == (word, "medium")
        assert finding.saving is not None and finding.saving.expected_ns == pytest.approx(share * 10 * MS, rel=0.02)
    replayed = entry("a", lambda ctx: Draft("t", confidence="high", saving=Saving(0, 2 * MS, 3 * MS, "replay")))
    finding = judge(gpu_bound(), replayed).findings[0]
    assert (finding.severity, finding.confidence) == ("high", "high")


def test_below_one_percent_is_clean(judge: Callable[..., Report]) -> None:
    report = judge(gpu_bound(), claim(0.005))
    assert not report.findings and report.combined is None
    assert report.rules[0].outcome == "clean" and report.rules[0].reason == "seen, but worth at most 0.5% of the step"


def test_informing_rules_promise_nothing(judge: Callable[..., Report]) -> None:
    def detect(ctx: Context) -> Draft:
        return Draft("t", change=Change(gpu_ns=5 * MS))

    report = judge(gpu_bound(), entry(rule("a", informs=True), detect), claim(0.2, "b"))
    assert [(f.rule, f.saving is None, f.severity) for f in report.findings] == [("b", False, "high"), ("a", True, "info")]


def test_dangers_stand_after_savings_but_before_remarks(judge: Callable[..., Report]) -> None:
    danger = entry("c", lambda ctx: Draft("t", severity="high"))
    report = judge(gpu_bound(), entry("a", lambda ctx: Draft("t")), danger, claim(0.02, "b"))
    assert [finding.rule for finding in report.findings] == ["b", "c", "a"]
    assert [finding.severity for finding in report.findings] == ["low", "high", "info"]


def test_ranked_by_saving_then_confidence_then_name(judge: Callable[..., Report]) -> None:
    entries = [claim(0.1, "d", confidence="low"), claim(0.1, "c"), claim(0.1, "b"), claim(0.3, "z"), claim(0.05, "a")]
    assert [finding.rule for finding in judge(gpu_bound(), *entries).findings] == ["z", "b", "c", "d", "a"]


def test_alternatives_stand_below_and_count_once(judge: Callable[..., Report]) -> None:
    tf32, half, other = claim(0.2, "tf32"), claim(0.4, "half", alternative_to="tf32"), claim(0.3, "other")
    report = judge(gpu_bound(), tf32, half, other)
    assert [finding.rule for finding in report.findings] == ["other", "tf32", "half"]
    assert report.findings[2].alternative_to == "tf32"
    assert report.combined is not None and report.step_ns is not None
    assert report.combined.expected_ns / report.step_ns == pytest.approx(1 - 0.6 * 0.7, abs=0.02)
    alone = judge(gpu_bound(), half).findings[0]
    assert alone.alternative_to is None and "alternative_to" not in report.to_dict()["findings"][0]


def test_combined_saving_is_no_sum(judge: Callable[..., Report]) -> None:
    report = judge(gpu_bound(), claim(0.5, "a"), claim(0.5, "b"), claim(0.8, "c"))
    assert report.combined is not None and report.step_ns is not None
    assert 0.8 <= report.combined.expected_ns / report.step_ns <= 1.0
    assert report.combined.high_ns <= report.step_ns


def test_a_rule_takes_in_what_it_explains(judge: Callable[..., Report]) -> None:
    def by(name: str, share: float, *subsumes: str) -> Entry:
        return entry(rule(name, subsumes=subsumes), lambda ctx: Draft("t", change=Change(gpu_ns=round(share * 10 * MS))))

    report = judge(gpu_bound(), by("a", 0.3, "b", "d", "absent"), by("b", 0.3, "c"), by("c", 0.1), by("d", 0.4))
    assert [finding.rule for finding in report.findings] == ["d", "a"]
    assert {one.id: (one.outcome, one.reason) for one in report.rules} == {
        "a": ("found", None),
        "b": ("found", "reported under a"),
        "c": ("found", "reported under a"),
        "d": ("found", None),
    }
    mutual = judge(gpu_bound(), by("a", 0.3, "b"), by("b", 0.3, "a"))
    assert [finding.rule for finding in mutual.findings] == ["a"]


def test_fingerprints_hold_no_times(judge: Callable[..., Report]) -> None:
    def prints(run: Run, *drafts: Draft) -> list[str]:
        return sorted(finding.fingerprint for finding in judge(run, entry("a", lambda ctx: list(drafts))).findings)

    first = prints(gpu_bound(), Draft("took 3 ms", facts={"ns": 3}, subject=["aten::mm"]))
    assert first == prints(gpu_bound(stacks=True), Draft("took 4 ms", facts={"ns": 4}, subject=["aten::mm"]))
    assert first != prints(gpu_bound(), Draft("took 3 ms", subject=["aten::bmm"]))
    assert first[0].startswith("a:") and len(first[0]) == 2 + 8
    assert len(set(prints(gpu_bound(), Draft("x"), Draft("y")))) == 2


def test_same_bytes(judge: Callable[..., Report]) -> None:
    def once() -> str:
        entries = [claim(0.1, "b"), claim(0.1, "a"), entry("c", lambda ctx: Draft("t", scope={"ranks": [0]}))]
        return json.dumps(judge(gpu_bound(), *entries).to_dict())

    assert once() == once()


def test_drafts_become_plain_data(judge: Callable[..., Report]) -> None:
    draft = Draft(
        "a\x1b[31m title\nof two lines",
        facts={"n": np.int64(3), "x": np.float32("nan"), "list": np.arange(2), "set": {2, 1}, "flag": np.bool_(True)},
        evidence=[Evidence("c", ["where", "n_ns"], [["/home/ann/llm/train.py(12): f", np.int32(1)]])],
        locations=[Location("/home/ann/llm/train.py", np.int64(12), "f", np.float64(0.97123456))],  # type: ignore[arg-type]
    )
    finding = judge(gpu_bound(), entry("a", lambda ctx: draft)).findings[0]
    assert finding.title == "a [31m title of two lines"
    assert finding.facts == {"n": 3, "x": None, "list": [0, 1], "set": [1, 2], "flag": True}
    assert finding.evidence[0].rows == [["llm/train.py(12): f", 1]]
    assert finding.locations == [Location("llm/train.py", 12, "f", 0.9712)]


def test_redaction_leaves_no_place_behind(judge: Callable[..., Report]) -> None:
    fix = FixTemplate("m", "m", "pytorch", "text", "look at <<where>>", "operational", "minutes", example={"where": "the loop"})
    draft = Draft(
        "waits in train.py:12",
        facts={"where": "src/secret/train.py:12", "op": "aten::item"},
        evidence=[Evidence("c", ["where"], [["/home/ann/secret/train.py(12): forward"], ["aten::item"]])],
        locations=[Location("train.py", 12)],
        caveats=["see secret/util.py"],
    )
    finding = judge(gpu_bound(), entry(rule("a", fixes=(fix,)), lambda ctx: draft), redact=True).findings[0]
    text = json.dumps(vars(finding), default=str)
    assert "secret" not in text and ".py" not in text and "forward" not in text
    assert finding.locations == [] and finding.facts["op"] == "aten::item"
    assert finding.fixes[0].snippet == "look at (redacted)" or finding.fixes[0].snippet == "look at the loop"


def test_texts_that_are_no_paths_stay() -> None:
    for text in ("https://pytorch.org/docs/stable/a.html", "12 GB/s of 24 GB/s", "aten::mm / aten::add_", "void f<a, b>(c*)"):
        assert plain(text) == text and plain(text, redact=True) == text


def test_without_a_trace_there_is_no_step(judge: Callable[..., Report]) -> None:
    report = judge(Run(environment={"CUDA_LAUNCH_BLOCKING": "1"}), claim(0.5))
    document = report.to_dict()
    assert document["run"]["steps"] is None and document["breakdown"] == [] and document["run"]["window_ns"] is None
    assert document["findings"][0]["saving"]["basis"] == "none"
    assert set(document["combined_saving"].values()) == {None}


def test_the_fuller_recording_helps_out(judge: Callable[..., Report]) -> None:
    run = gpu_bound()
    run.fuller = gpu_bound(stacks=True)

    def locates(ctx: Context) -> Draft:
        full = ctx.run is run.fuller
        place = [Location("train.py", 3)] if full else []
        evidence = [Evidence("full" if full else "light", ["x"], [])]
        return Draft("t", change=Change(gpu_ns=(4 if full else 1) * MS), locations=place, evidence=evidence)

    def only_full(ctx: Context) -> Draft:
        if ctx.run is not run.fuller:
            raise NotApplicable("no shapes")
        return Draft("t", change=Change(gpu_ns=4 * MS))

    def light_only(ctx: Context) -> Draft | None:
        return Draft("t") if ctx.run is run.fuller else None

    report = judge(run, entry("a", locates), entry("b", only_full), entry("c", light_only))
    assert outcome_of(report) == {"a": "found", "b": "found", "c": "clean"}
    a, b = (next(f for f in report.findings if f.rule == name) for name in "ab")
    assert a.saving is not None and b.saving is not None
    assert a.saving.expected_ns == MS and a.locations and a.evidence[0].caption == "full"
    assert b.saving.expected_ns == pytest.approx(2 * MS, rel=0.02)  # 4 of 20 ms there are 2 of 10 ms here
    assert [n.code for n in report.notices].count("evidence-from-fuller-recording") == 1
    assert "a, b" in next(n.message for n in report.notices if n.code == "evidence-from-fuller-recording")


@pytest.mark.parametrize(
    "draft",
    [
        Draft("t", confidence="sure"),  # type: ignore[arg-type]
        Draft("t", severity="fatal"),  # type: ignore[arg-type]
        Draft("t", fixes=["absent"]),
        Draft("t", evidence=[Evidence("c", ["a"], [[1, 2]])]),
        Draft("t", change=Change(gpu_ns=float("nan"))),  # type: ignore[arg-type]
    ],
)
def test_a_draft_that_no_report_can_hold_is_an_error_of_its_rule(judge: Callable[..., Report], draft: Draft) -> None:
    assert outcome_of(judge(gpu_bound(), entry("a", lambda ctx: draft), claim(0.1, "b"))) == {"a": "error", "b": "found"}


def test_throughput(judge: Callable[..., Report]) -> None:
    run = gpu_bound()
    run.options = Options(items_per_step=64)
    document = judge(run, claim(0.1)).to_dict()
    assert document["throughput"]["items_per_second"] == pytest.approx(64 / 0.010, rel=0.02)


def test_thresholds_reach_the_detector(judge: Callable[..., Report]) -> None:
    limits = {"least": Threshold(3.0, "x", "y")}
    report = judge(gpu_bound(), entry(rule("a", thresholds=limits), lambda ctx: Draft(str(ctx.threshold("least")))))
    assert report.findings[0].title == "3.0"


def documented_files() -> dict[str, str]:
    """The files that docs/add-a-rule.md prints."""
    text = (Path(__file__).resolve().parents[1] / "docs" / "add-a-rule.md").read_text()
    files = {}
    for part in text.split("<!-- file: ")[1:]:
        name, rest = part.split(" -->", 1)
        files[name] = rest.split("\n", 2)[2].split("\n```", 1)[0] + "\n"
    return files


def test_the_documented_example_works(tmp_path: Path) -> None:
    for name, text in documented_files().items():
        (tmp_path / name).write_text(text)
    w = Workload()
    for _ in w.steps(5):
        for _ in range(20):
            w.launch("tiny", gpu_us=3)
        w.launch("gemm", gpu_us=1000)
    report = engine.analyze(w.to_run(), select=["tiny-kernels"], rule_dirs=[tmp_path])
    (finding,) = report.findings
    assert finding.title == "100 of 105 kernels are tiny" and finding.facts == {"tiny": 100, "kernels": 105}
    assert finding.saving is not None and 0 < finding.saving.expected_ns <= 60_000
    assert 'mode="reduce-overhead")   # 100 of 105' in finding.fixes[0].snippet
    assert finding.fixes[0].caveats[-1] == "Valid for torch 2.1 and newer, which the input does not tell."


@pytest.mark.parametrize(
    ("given", "words"), [(3, "not int"), ("text", "not str"), ([Draft("t"), 3], "not a list that holds int")]
)
def test_a_detector_that_returns_something_else_is_told_what_it_must(
    judge: Callable[..., Report], given: object, words: str
) -> None:
    (outcome,) = judge(gpu_bound(), entry("a", lambda ctx: given)).rules
    assert outcome.reason == f"TypeError: detect() must return a Draft, a list of Drafts or None, {words}"


def test_the_documented_example_finds_something_on_a_sample(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[1]
    for name, text in documented_files().items():
        (tmp_path / name).write_text(text)
    sample = "sample_traces/host-sync.torch-stacks.json.gz"
    assert f"advisor analyze {sample} --rules my_rules --select tiny-kernels" in (root / "docs" / "add-a-rule.md").read_text()
    (finding,) = engine.analyze(load([root / sample]), select=["tiny-kernels"], rule_dirs=[tmp_path]).findings
    assert finding.facts["tiny"] > finding.facts["kernels"] / 2
