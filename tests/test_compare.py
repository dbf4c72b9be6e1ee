"""Comparisons of made-up reports: each verdict must fire where it should and stay silent where it should not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from advisor.api import compare as compare_reports
from advisor.comparing import Recording, compare
from advisor.comparing.parts import normalised
from advisor.comparing.statistics import Interval
from advisor.model import Notice, Report, RuleOutcome, Saving
from advisor.model.comparison import STATUSES, Comparison
from build.any_report import REPORTS
from build.comparisons import finding, recording, repeats, report
from build.reports import MS


def both(base: Report, head: Report) -> Comparison:
    return compare([Recording("base.json", base)], [Recording("head.json", head)])


def statuses(found: Comparison) -> dict[str, str]:
    return {one.finding.fingerprint: one.status for one in found.findings}


# The step


def test_one_recording_each_tells_a_large_change_of_the_gpu() -> None:
    found = both(report(20, seed=1), report(14, seed=2)).step
    assert found.verdict == "faster" and found.method == "single-recording"
    assert found.ratio == pytest.approx(0.7, rel=0.01)
    assert found.low is not None and found.high is not None and found.low < 0.7 < found.high < 0.75
    assert found.regression_frac == 0.0 and found.change_frac == pytest.approx(-0.3, abs=0.01)


def test_swapped_sides_mirror() -> None:
    there, back = both(report(20, seed=1), report(14, seed=2)).step, both(report(14, seed=2), report(20, seed=1)).step
    assert (there.verdict, back.verdict) == ("faster", "slower")
    assert there.ratio is not None and there.high is not None and back.ratio is not None and back.low is not None
    assert there.ratio * back.ratio == pytest.approx(1, rel=1e-5) and there.high * back.low == pytest.approx(1, rel=1e-5)
    assert back.regression_frac == pytest.approx(20 / 14 - 1, rel=0.02)


def test_two_recordings_of_one_program_show_no_change() -> None:
    found = both(report(20, seed=1), report(20.05, seed=2)).step
    assert found.verdict == "no-measurable-change" and found.regression_frac == 0.0
    assert found.noise_frac is not None and 0.02 < found.noise_frac < 0.05
    assert "repeats would show" in found.reason


def test_a_loop_paced_by_its_host_needs_more_than_one_recording() -> None:
    host: dict[str, Any] = {"paced_by": "host", "idle": 12.0}
    found = both(report(20, **host), report(17, seed=2, **host)).step
    assert found.verdict == "cannot-tell" and "record repeats" in found.reason and found.regression_frac is None
    assert both(report(20, **host), report(10, seed=2, **host)).step.verdict == "faster"
    assert both(report(20, spread=0.05, **host), report(20.1, spread=0.05, seed=2, **host)).step.verdict == "no-measurable-change"


def test_repeats_tell_what_single_recordings_cannot() -> None:
    base = repeats(20, 5, between=0.01, seed=1, paced_by="host", idle=12.0)
    head = repeats(17, 5, between=0.01, seed=2, paced_by="host", idle=10.0)
    found = compare(base, head).step
    assert found.verdict == "faster" and found.method == "repeats"
    assert found.noise_frac is not None and found.noise_frac < 0.03


def test_the_spread_of_repeats_counts_and_not_that_of_steps() -> None:
    # The steps of each recording agree to 0.1 %, the recordings differ by 10 %: nothing is told by a difference of 8 %.
    base = repeats(20, 3, between=0.1, seed=1, spread=0.001)
    head = repeats(18.5, 3, between=0.1, seed=2, spread=0.001)
    assert compare(base, head).step.verdict == "cannot-tell"


def test_repeats_without_a_change() -> None:
    found = compare(repeats(20, 4, 0.005, seed=1), repeats(20, 4, 0.005, seed=7)).step
    assert found.verdict == "no-measurable-change" and found.method == "repeats"


def test_the_same_recording_twice_is_no_repeat() -> None:
    one, other = recording(20), recording(20.02, seed=2)
    found = compare([one, one, one], [other, other])
    assert found.base.repeats == found.head.repeats == 1 and found.step.method == "single-recording"
    assert [notice.code for notice in found.notices].count("same-recording") == 2


def test_the_same_on_both_sides_is_told() -> None:
    found = both(report(20), report(20))
    assert found.step.ratio == 1.0 and found.step.verdict == "no-measurable-change"
    told = {notice.code: notice.message for notice in found.notices}
    assert told["same-on-both-sides"] == "1 recording is given on both sides"


def test_without_steps_nobody_can_tell() -> None:
    none = replace(report(20), step_ns=None, run=report(20).run | {"steps": None})
    found = both(none, report(20)).step
    assert found.verdict == "cannot-tell" and found.ratio is None and "base has no step" in found.reason


def test_per_item_where_the_items_differ() -> None:
    one, other = report(20), report(38, seed=2)
    one.extra["throughput"], other.extra["throughput"] = {"items_per_step": 32}, {"items_per_step": 64}
    found = both(one, other)
    assert found.step.per == "item" and found.step.verdict == "faster"
    assert found.step.ratio == pytest.approx(38 / 20 / 2, rel=0.01)
    assert found.unfair[0].what == "items" and "step" not in found.unfair[0].voids


def test_the_profilers_part_widens_the_interval() -> None:
    plain = both(report(20), report(20, seed=2)).step.noise_frac
    unequal = both(report(20), report(20, seed=2, inflation=1.5)).step.noise_frac
    alike = both(report(20, inflation=1.5), report(20, seed=2, inflation=1.5)).step.noise_frac
    assert plain is not None and unequal is not None and alike is not None
    assert unequal > 2 * plain and alike == pytest.approx(plain, rel=0.2)


# Configuration


@pytest.mark.parametrize(
    ("base", "head", "what", "voided"),
    [
        ({}, {"devices": [{"rank": 0, "index": 0, "name": "NVIDIA A100", "sm_count": 108}]}, "gpu", True),
        ({}, {"world_size": 2}, "ranks", True),
        ({"program": {"versions": {"torch_version": "2.10.0"}}}, {}, "torch-version", False),
        ({"program": {"variables": {"A": "1"}}}, {"program": {"variables": {"A": "2"}}}, "variable", False),
        ({"program": {"compiled": True}}, {}, "compiled", False),
        ({"program": {"input_bytes": 100}}, {"program": {"input_bytes": 200}}, "input-bytes", False),
    ],
)
def test_differences_of_configuration(base: Any, head: Any, what: str, voided: bool) -> None:
    found = both(report(20, **base), report(10, seed=2, **head))
    assert [one.what for one in found.unfair] == [what]
    assert bool(found.unfair[0].voids) is voided
    assert found.step.verdict == ("cannot-tell" if voided else "faster")
    assert found.step.ratio == pytest.approx(0.5, rel=0.01)  # told, whatever it is worth
    if voided:
        assert found.step.regression_frac is None and "not comparable" in found.step.reason


def overhead(stacks: bool, share: float) -> dict[str, Any]:
    return {"stacks": stacks, "shapes": False, "memory": False, "estimated_frac": share}


def test_another_capture_voids_the_step_only_where_it_slows() -> None:
    slow = both(report(20, profiler_overhead=overhead(False, 0.1)), report(30, seed=2, profiler_overhead=overhead(True, 0.4)))
    assert [(one.what, bool(one.voids)) for one in slow.unfair] == [("capture-stacks", True)]
    assert slow.step.verdict == "cannot-tell"
    fast = both(report(20, profiler_overhead=overhead(False, 0.0)), report(30, seed=2, profiler_overhead=overhead(True, 0.01)))
    assert [(one.what, bool(one.voids)) for one in fast.unfair] == [("capture-stacks", False)]
    assert fast.step.verdict == "slower"


def work(flops: float, shapes: list[list[float]]) -> dict[str, Any]:
    return {"program": {"matrix_flops": round(flops), "matrix_shapes": shapes}}


def test_another_batch_is_no_change_of_the_program_and_less_work_is() -> None:
    one = work(1e12, [[1, 4096, 1024, 1024, 48.0], [1, 4096, 4096, 1024, 24.0]])
    other = work(2e12, [[1, 8192, 1024, 1024, 48.0], [1, 8192, 4096, 1024, 24.0]])
    twice = work(2e12, [[1, 4096, 1024, 1024, 96.0], [1, 4096, 4096, 1024, 48.0]])
    less = work(0.8e12, [[1, 4096, 1024, 1024, 24.0], [1, 4096, 4096, 1024, 24.0]])
    for head, voided in ((other, True), (twice, True), (less, False)):
        found = both(report(20, **one), report(30, seed=2, **head))
        assert [(each.what, bool(each.voids)) for each in found.unfair] == [("work", voided)]
    assert both(report(20, **one), report(20, seed=2, **one)).unfair == []


def test_what_voids_stands_first() -> None:
    found = both(report(20), report(20, seed=2, world_size=4, program={"versions": {"torch_version": "2.9"}, "compiled": True}))
    assert [bool(one.voids) for one in found.unfair] == [True, False, False]


def test_whole_windows_are_no_steps() -> None:
    head = report(30, seed=2)
    head.run["steps"]["source"] = "none"
    assert both(report(20), head).step.verdict == "cannot-tell"


def test_a_cut_recording_is_told() -> None:
    head = replace(report(30, seed=2), notices=[Notice("input-cut-short", "cut")])
    assert [one.what for one in both(report(20), head).unfair] == ["cut-short"]


# Findings


def test_gone_new_worse_better_same() -> None:
    before = [
        finding("host-sync-in-step", 5),
        finding("launch-bound", 3),
        finding("pageable-copy", 2),
        finding("small-batch", None),
    ]
    after = [finding("launch-bound", 1), finding("pageable-copy", 4), finding("small-batch", None)]
    found = both(report(20, before), report(19.5, [*after, finding("unfused-elementwise", 3)], seed=2))
    assert statuses(found) == {
        "host-sync-in-step:1": "gone",
        "launch-bound:1": "better",
        "pageable-copy:1": "worse",
        "small-batch:1": "same",
        "unfused-elementwise:1": "new",
    }
    assert [one.status for one in found.findings] == ["new", "worse", "gone", "better", "same"]
    assert [one.status for one in found.worsened] == ["new", "worse"]
    assert {key: n for key, n in found.counts.items() if n} == {"new": 1, "worse": 1, "gone": 1, "better": 1, "same": 1}
    assert found.findings[1].change_ns == 2 * MS


def test_a_rule_pairs_findings_of_other_fingerprints() -> None:
    found = both(report(20, [finding("launch-bound", 3, "a")]), report(20, [finding("launch-bound", 3.1, "b")], seed=2))
    assert [(one.status, one.paired_by) for one in found.findings] == [("same", "rule")]


def test_savings_within_noise_are_the_same() -> None:
    noisy: dict[str, Any] = {"paced_by": "host", "idle": 10.0}
    found = both(report(20, [finding("launch-bound", 6)], **noisy), report(20, [finding("launch-bound", 7.5)], seed=2, **noisy))
    assert statuses(found) == {"launch-bound:1": "same"}


@pytest.mark.parametrize(
    ("outcome", "reason", "status"),
    [
        ("not-applicable", "no stacks", "not-judged"),
        ("error", "broken", "not-judged"),
        ("found", "reported under launch-bound", "folded"),
        ("clean", "seen, but worth at most 0.4% of the step", "faded"),
        ("clean", None, "gone"),
    ],
)
def test_what_silence_of_the_head_means(outcome: Any, reason: str | None, status: str) -> None:
    head = report(20, seed=2, outcomes=[RuleOutcome("host-sync-in-step", outcome, reason)])
    found = both(report(20, [finding("host-sync-in-step", 5)]), head)
    assert statuses(found) == {"host-sync-in-step:1": status}
    assert (found.promises is not None) == (status == "gone")
    back = both(head, report(20, [finding("host-sync-in-step", 5)]))
    mirrored = {"not-judged": "first-judged", "folded": "same", "faded": "uncovered", "gone": "new"}
    assert statuses(back) == {"host-sync-in-step:1": mirrored[status]}


def test_what_another_fix_uncovers_is_not_new() -> None:
    # The GPU computes 8 ms on both sides; without the 12 ms of idle time, pointwise kernels matter.
    slow = report(20, [finding("host-sync-in-step", 11)], idle=12.0, paced_by="host")
    fast = report(8, [finding("unfused-elementwise", 2)], seed=2)
    assert statuses(both(slow, fast)) == {"host-sync-in-step:1": "gone", "unfused-elementwise:1": "uncovered"}
    assert statuses(both(fast, slow)) == {"host-sync-in-step:1": "new", "unfused-elementwise:1": "faded"}
    # With more compute than before it is new.
    worse = report(12, [finding("unfused-elementwise", 4)], seed=2)
    assert statuses(both(slow, worse))["unfused-elementwise:1"] == "new"


def test_a_saving_near_the_least_that_is_told_is_not_new() -> None:
    found = both(report(20), report(20, [finding("launch-bound", 0.3)], seed=2))
    assert statuses(found) == {"launch-bound:1": "uncovered"}
    assert statuses(both(report(20), report(20, [finding("launch-bound", 0.6)], seed=2))) == {"launch-bound:1": "new"}


def test_a_finding_of_some_repeats() -> None:
    with_it, without = [finding("launch-bound", 3)], []
    base = [recording(20, with_it, seed=1), recording(20, without, seed=2), recording(20, without, seed=3)]
    head = [recording(20, without, seed=4), recording(20.1, without, seed=5)]
    found = compare(base, head).findings
    assert [(one.status, one.base_seen) for one in found] == [("same", 1)]
    often = [recording(20, with_it, seed=1), recording(20, with_it, seed=2), recording(20, without, seed=3)]
    assert [(one.status, one.base_seen) for one in compare(often, head).findings] == [("gone", 2)]


# Promises


def test_a_promise_kept() -> None:
    found = both(report(20, [finding("host-sync-in-step", 6)]), report(14, seed=2)).promises
    assert found is not None and found.kept == "kept" and found.together_by == "single"
    assert found.together.expected_ns == 6 * MS and found.obtained_ns == pytest.approx(6 * MS, rel=0.03)
    assert found.obtained_low_ns is not None and found.obtained_high_ns is not None
    assert found.obtained_low_ns < 6 * MS < found.obtained_high_ns


@pytest.mark.parametrize(("head", "kept"), [(18.0, "less"), (9.0, "more"), (14.2, "kept")])
def test_less_and_more_than_promised(head: float, kept: str) -> None:
    found = both(report(20, [finding("host-sync-in-step", 6)]), report(head, seed=2)).promises
    assert found is not None and found.kept == kept


def test_several_promises_are_no_plain_sum() -> None:
    before = report(20, [finding("host-sync-in-step", 6), finding("launch-bound", 5)])
    before.combined = Saving(6 * MS, 7 * MS, 8 * MS, "replay")
    found = both(before, report(13, seed=2)).promises
    assert found is not None and found.together_by == "sum" and found.kept == "kept"
    assert found.together.expected_ns == 7 * MS and found.together.high_ns == 8 * MS
    replayed = Saving(6 * MS, 6_500_000, 7 * MS, "replay")
    found = compare([Recording("b", before, replayed)], [recording(13, seed=2)]).promises
    assert found is not None and found.together_by == "replay" and found.together == replayed


def test_no_promise_without_a_gone_finding() -> None:
    assert both(report(20, [finding("small-batch", None)]), report(14, seed=2)).promises is None
    assert both(report(20, [finding("launch-bound", 3)]), report(20, [finding("launch-bound", 3)], seed=2)).promises is None


# Parts and kernels


def test_parts_add_up_and_noise_is_told_apart() -> None:
    found = both(report(20, idle=6.0), report(16, idle=2.0, seed=2)).categories
    assert {one.name: (one.base_ns, one.head_ns, one.changed) for one in found} == {
        "compute": (14 * MS, 14 * MS, False),
        "launch": (6 * MS, 2 * MS, True),
    }


def test_kernels_by_name_and_by_normalised_name() -> None:
    before = {"void add<float, 4>(int)": 3.0, "triton_poi_fused_add_3": 2.0, "old": 1.0, "slow": 1.0}
    after = {"void add<float, 4>(int)": 3.01, "triton_poi_fused_add_7": 1.0, "young": 1.0, "slow": 1.5}
    found = both(report(20, kernels=before), report(20, kernels=after, seed=2)).kernels
    assert found is not None and (found.new, found.gone, found.slower, found.faster) == (1, 1, 1, 1)
    named = {one.name: (one.base_ns, one.head_ns, one.matched) for one in found.kernels}
    assert named == {
        "triton_poi_fused_add": (2 * MS, 1 * MS, "normalised"),
        "old": (MS, None, "normalised"),
        "young": (None, MS, "normalised"),
        "slow": (MS, 1_500_000, "exact"),
    }


def test_a_kernel_below_the_end_of_a_list_is_not_called_gone() -> None:
    before, after = report(20, kernels={"a": 5.0, "b": 1.0}), report(20, kernels={"a": 5.0}, seed=2)
    after.extra["kernels"]["least_ns"] = 2 * MS
    found = both(before, after).kernels
    assert found is not None and found.gone == 0 and [one.known for one in found.kernels] == [False]


def test_no_kernels_on_a_side() -> None:
    assert both(report(20, kernels={"a": 1.0}), report(20, seed=2)).kernels is None


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, Add<float>>(int, float)",
            "at::native::vectorized_elementwise_kernel",
        ),
        ("void (anonymous namespace)::softmax_warp<float>(float*)", "(anonymous namespace)::softmax_warp"),
        ("triton_poi_fused_add_mul_12", "triton_poi_fused_add_mul"),
        ("fused_0a1b2c3d_kernel", "fused_#_kernel"),
        ("Cijk_Ailk_MT128x64", "Cijk_Ailk_MT#x#"),
        ("<<<", "<<<"),
        ("", ""),
    ],
)
def test_normalised(name: str, short: str) -> None:
    assert normalised(name) == short


# Anything


def test_a_comparison_needs_both_sides() -> None:
    with pytest.raises(ValueError, match="recording on each side"):
        compare([], [recording()])


def test_from_python() -> None:
    found = compare_reports(report(20), [report(14, seed=2), report(14.1, seed=3)])
    assert found.step.verdict == "faster" and found.head.repeats == 2


@settings(
    max_examples=80,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(REPORTS, min_size=1, max_size=2), st.lists(REPORTS, min_size=1, max_size=2))
def test_any_two_reports_compare(base: list[Report], head: list[Report]) -> None:
    found = compare([Recording("b", one) for one in base], [Recording("h", one) for one in head])
    assert sum(found.counts.values()) == len(found.findings) and {one.status for one in found.findings} <= set(STATUSES)
    step = found.step
    if step.ratio is not None:
        assert step.low is not None and step.high is not None and step.low <= step.ratio <= step.high
    assert sorted(one.base_ns for one in found.categories if one.base_ns < 0) == []


@pytest.mark.parametrize("log_ratio", [-1e6, 1e6, 5000.0])
def test_ratios_of_impossible_reports_are_numbers(log_ratio: float) -> None:
    interval = Interval(log_ratio, 1e9)
    assert 0 < interval.low < interval.ratio < interval.high < float("inf") and interval.noise < float("inf")
