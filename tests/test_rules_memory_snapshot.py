"""Rules on memory snapshots through the real reader: fragmentation, holders of the peak, growth, out of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.ingest import join, load_traces
from advisor.model import Device, Options, Run, Trace
from build.judge import Verdict, judge
from build.snapshot import GIB, MIB, Allocator

FRAGMENTATION, HOLDERS, GROWTH, OOM = "memory-fragmentation", "memory-peak-holders", "memory-growth", "out-of-memory"


def run_of(a: Allocator, folder: Path, capacity: float | None = None, **options: Any) -> Run:
    """The run of a snapshot; capacity of the GPU in GiB, as a log beside it would tell."""
    traces, problems, _ = load_traces([a.write(folder / "snapshot.pickle")])
    assert not problems
    if capacity is not None:
        device = Device(a.device, name="A GPU", memory_bytes=round(capacity * GIB))
        traces.append(Trace("smi.csv", "nvidia-smi-csv", devices=[device]))
    return join(traces, Options(**options))


def holed(holes: float, used: float, cache: float = 0.0, **options: Any) -> Allocator:
    """An allocator with that many GiB in holes, each between two blocks, in use, and in whole free segments."""
    a = Allocator(**options)
    piece = 64 * MIB
    count = max(round(holes * GIB / piece), 1)
    segment = a.segment(round((holes + used) * GIB / (2 * MIB)) * 2 * MIB)
    block = (round(used * GIB) // (count + 1)) // 512 * 512
    addresses = []
    for _ in range(count):
        a.alloc(block, "model.py:7 forward; train.py:50 main", segment=segment)
        addresses.append(a.alloc(piece, segment=segment))
    while rest := max((length for _, length in a.gaps(segment)), default=0):
        a.alloc(rest, "model.py:9 forward; train.py:50 main", segment=segment)
    for address in addresses:
        a.free(address)
    if cache:
        a.segment(round(cache * GIB))
    a.events.clear()  # the state alone: the peak is when the snapshot was taken
    return a


def fragmented(a: Allocator, folder: Path, capacity: float | None = None, **options: Any) -> Verdict:
    return judge(run_of(a, folder, capacity, **options), FRAGMENTATION)


def test_holes_are_counted_one_by_one(tmp_path: Path) -> None:
    """A34 as a snapshot: 12.0 GiB in use of 19.7 GiB, on a GPU of 23.8 GiB."""
    found = fragmented(holed(7.7, 12.0), tmp_path, 23.8).finding
    facts = found.facts
    assert facts["holes_bytes"] == pytest.approx(7.7 * GIB, rel=0.01) and facts["holes"] == 123
    assert facts["largest_hole_bytes"] == facts["largest_free_bytes"] == 64 * MIB and facts["cached_bytes"] == 0
    assert found.title.endswith("reserved memory lay in holes when the snapshot was taken")
    assert (found.severity, found.saving) == ("medium", None)
    assert [fix.id for fix in found.fixes] == [
        "expandable-segments",
        "max-split-size",
        "garbage-collection-threshold",
        "snapshot",
    ]
    assert found.evidence[2].rows[0][0].startswith("model.py:7 forward")


@pytest.mark.parametrize(
    ("holes", "used", "cache", "capacity", "outcome"),
    [
        (0.74, 13.7, 0.0, 15.8, "clean"),  # N6: that is capacity
        (0.3, 2.0, 9.0, 24.0, "clean"),  # whole free segments are only cache
        (3.0, 6.0, 0.0, 80.0, "clean"),  # room to spare
        (3.0, 6.0, 0.0, 10.0, "found"),
        (1.9, 4.0, 0.0, None, "clean"),
        (2.2, 4.0, 0.0, None, "found"),
    ],
)
def test_when_holes_matter(tmp_path: Path, holes: float, used: float, cache: float, capacity: float | None, outcome: str) -> None:
    assert fragmented(holed(holes, used, cache), tmp_path, capacity).outcome == outcome


def test_holes_at_the_peak_not_those_after_it(tmp_path: Path) -> None:
    a = Allocator()
    segment = a.segment(8 * GIB)
    blocks = [a.alloc(GIB, segment=segment) for _ in range(8)]
    for address in blocks[::2]:
        a.free(address)
    assert fragmented(a, tmp_path, 9.0).outcome == "clean"  # after the peak there are holes; at the peak there was none
    b = Allocator()
    segment = b.segment(8 * GIB)
    blocks = [b.alloc(GIB, segment=segment) for _ in range(8)]
    for address in blocks[::2]:
        b.free(address)
    for _ in range(2):
        b.alloc(5 * GIB)
    found = fragmented(b, tmp_path, 20.0).finding
    assert found.facts["holes_bytes"] == 4 * GIB and found.confidence == "high" and "at the peak" in found.title


@pytest.mark.parametrize(
    ("options", "conf", "windows", "torch", "fixes", "export"),
    [
        ({}, "", False, None, ["expandable-segments", "max-split-size"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ({}, "", False, "2.9.1", ["expandable-segments", "max-split-size"], "PYTORCH_ALLOC_CONF=expandable_segments:True"),
        ({}, "", False, "1.13", ["max-split-size"], "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:256"),
        ({}, "", False, "1.9", [], ""),
        ({}, "", True, "2.6", ["max-split-size"], "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:256"),
        (
            {}, "max_split_size_mb:512", False, "2.6", ["expandable-segments"],
            "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512,expandable_segments:True",
        ),
    ],
)  # fmt: skip
def test_what_is_advised_depends_on_what_is_on(
    tmp_path: Path, options: Any, conf: str, windows: bool, torch: str | None, fixes: list[str], export: str
) -> None:
    a = holed(3.0, 6.0, **options)
    a.settings["PYTORCH_CUDA_ALLOC_CONF"] = conf
    a.settings["max_split_size"] = 512 * MIB if conf else -1
    a.settings["garbage_collection_threshold"] = 0.6
    if windows:
        for frames in a._frames.values():
            for frame in frames:
                frame["filename"] = "D:\\Dev\\" + frame["filename"]
    found = fragmented(a, tmp_path, 10.0, torch_version=torch).finding
    assert [fix.id for fix in found.fixes if fix.id != "snapshot"] == fixes
    if fixes:
        assert found.fixes[0].snippet == f"export {export}"
    assert not any("empty_cache" in fix.snippet for fix in found.fixes)


def test_expandable_segments_leave_no_holes(tmp_path: Path) -> None:
    assert fragmented(holed(3.0, 6.0, expandable=True), tmp_path, 10.0).outcome == "clean"


def trained(
    steps: int, *, leak: int = 0, ring: int | None = None, first_only: bool = False, marks: str = "", **options: Any
) -> Allocator:
    """A loop: weights, activations and gradients each step; `leak` bytes of each step stay, from one line."""
    a = Allocator(ring=ring)
    a.alloc(200 * MIB, "model.py:4 __init__; train.py:3 main")
    kept: list[int] = []
    for number in range(steps):
        name = marks.replace("N", str(number))
        with a.range(name or "nothing"):
            acts = [a.alloc((20 + 7 * (number % 3)) * MIB, f"model.py:{10 + i} forward; train.py:8 main") for i in range(4)]
            if leak and not (first_only and number > 2):
                kept.append(a.alloc(leak, "train.py:9 log; train.py:8 main"))
            grads = [a.alloc(30 * MIB, "torch::autograd::Engine::evaluate_function(x)") for _ in range(4)]
            for address in reversed(acts):
                a.free(address, "torch::autograd::Engine::evaluate_function(x)")
            temporary = a.alloc(10 * MIB, "/x/torch/optim/adamw.py:9 step; train.py:12 main")
            a.free(temporary, "/x/torch/optim/adamw.py:9 step; train.py:12 main")
            for address in grads:
                a.free(address, "/x/torch/optim/optimizer.py:9 zero_grad; train.py:13 main")
        a.tick(1000)
    return a


@pytest.mark.parametrize("marks", ["ProfilerStep#N", "Optimizer.step#AdamW.step", "## step ##", ""])
def test_what_stays_from_every_step(tmp_path: Path, marks: str) -> None:
    a = trained(20, leak=4 * MIB, marks=marks)
    if not marks:
        a.marks.clear()  # the stacks tell the backward passes
    found = judge(run_of(a, tmp_path, 2.0), GROWTH).finding
    assert found.facts["growth_bytes"] == pytest.approx(4 * MIB, rel=0.06)
    assert [(place.file, place.line, place.share) for place in found.locations] == [("train.py", 9, 1.0)]
    assert "with every step" in found.title and "train.py:9 log" in found.title and found.severity == "high"
    assert found.evidence[0].rows[0][1] in (18, 19, 20) and found.facts["left"] > 10
    assert {"ProfilerStep#N": "ProfilerStep", "": "backward"}.get(marks, "the range") in found.facts["steps_told_by"]
    assert [fix.id for fix in found.fixes] == ["detach", "collect-on-host"]


def test_a_ring_that_lost_its_start_shows_it_too(tmp_path: Path) -> None:
    a = trained(40, leak=4 * MIB, ring=400, marks="ProfilerStep#N")
    found = judge(run_of(a, tmp_path), GROWTH).finding
    assert found.facts["growth_bytes"] == pytest.approx(4 * MIB, rel=0.1) and found.facts["steps"] < 20
    assert found.facts["left"] is None and found.severity == "medium"


@pytest.mark.parametrize(
    "a",
    [
        trained(20, marks="ProfilerStep#N"),  # steady, with lengths that vary
        trained(20, leak=50 * MIB, first_only=True, marks="ProfilerStep#N"),  # caches of the first steps
        trained(20, leak=2048, marks="ProfilerStep#N"),  # too little to matter
    ],
    ids=["steady", "warm-up", "little"],
)
def test_no_growth(tmp_path: Path, a: Allocator) -> None:
    assert judge(run_of(a, tmp_path), GROWTH).outcome == "clean"


@pytest.mark.parametrize("a", [trained(6, leak=4 * MIB, marks="ProfilerStep#N"), Allocator()], ids=["short", "no steps"])
def test_too_few_steps_to_judge(tmp_path: Path, a: Allocator) -> None:
    a.alloc(MIB)
    verdict = judge(run_of(a, tmp_path), GROWTH)
    assert verdict.outcome == "not-applicable" and "steps" in verdict.reason


def test_one_forward_pass_is_no_growth(tmp_path: Path) -> None:
    """Layers that keep their activations for the backward pass look like a leak, but no step repeats."""
    a = Allocator()
    for _ in range(48):
        a.alloc(20 * MIB, "model.py:10 forward; train.py:8 main")
        a.free(a.alloc(60 * MIB, "model.py:11 forward; train.py:8 main"))
    assert judge(run_of(a, tmp_path), GROWTH).outcome == "not-applicable"


def test_a_bounded_history_of_the_last_step(tmp_path: Path) -> None:
    """What each step replaces stays only once."""
    a, old = Allocator(), None
    for number in range(20):
        with a.range(f"ProfilerStep#{number}"):
            new = a.alloc(10 * MIB, "train.py:20 ema; train.py:8 main")
            if old is not None:
                a.free(old)
            old = new
    assert judge(run_of(a, tmp_path), GROWTH).outcome == "clean"


def test_who_holds_the_peak(tmp_path: Path) -> None:
    a = Allocator()
    a.alloc(100 * MIB, "model.py:4 __init__; train.py:3 main")
    a.alloc(60 * MIB, "at::_ops::mm::call(x); model.py:9 forward; train.py:8 main")
    a.alloc(60 * MIB, "at::_ops::add::call(x); model.py:9 forward; train.py:8 main")
    acts = [a.alloc(80 * MIB, "at::_ops::exp::call(x); torch::autograd::Engine::x()") for _ in range(2)]
    for address in acts:
        a.free(address)
    found = judge(run_of(a, tmp_path), HOLDERS).finding
    assert found.facts["peak_bytes"] == 380 * MIB and (found.saving, found.severity) == (None, "info")
    assert [(place.line, place.share) for place in found.locations] == [(9, 0.3158), (4, 0.2632)]
    assert found.title.endswith("126 MB (32%), is allocated at model.py:9")
    assert found.evidence[0].rows[0] == ["backward pass (aten::exp)", 2, 160 * MIB, 0.4211]


def test_holders_need_stacks_and_some_memory(tmp_path: Path) -> None:
    a = Allocator()
    a.alloc(GIB, "")
    verdict = judge(run_of(a, tmp_path), HOLDERS)
    assert verdict.outcome == "not-applicable" and "call stacks" in verdict.reason
    b = Allocator()
    b.alloc(100 * MIB)
    assert judge(run_of(b, tmp_path), HOLDERS).outcome == "clean"


def failed(used: float, holes: float, requested: float, free: float, **options: Any) -> Allocator:
    a = holed(holes, used, **options) if holes else Allocator(**options)
    if not holes:
        a.alloc(round(used * GIB))
    a.oom(round(requested * GIB), round(free * GIB), "model.py:33 attention; train.py:50 main")
    return a


@pytest.mark.parametrize(
    ("used", "holes", "requested", "free", "capacity", "cause", "first"),
    [
        (12.0, 7.7, 2.9, 3.0, 23.8, "fragmentation", "expandable-segments"),  # A34
        (13.7, 0.74, 0.5, 0.2, 15.8, "capacity", "smaller-micro-batch"),  # N6
        (12.0, 7.7, 2.9, 3.0, None, "fragmentation", "expandable-segments"),
        (4.0, 0.0, 16.0, 7.3, 11.9, "one request beyond all bounds", "look-at-the-shape"),
        (4.0, 0.0, 16.0, 7.3, None, "one request beyond all bounds", "look-at-the-shape"),
        (6.0, 0.0, 3.0, 0.5, 24.0, "another process", "who-else"),
        (6.0, 0.0, 3.0, 4.0, 12.0, "a limit below what is free", "raise-the-limit"),
        (12.0, 4.0, 8.0, 0.5, 17.0, "capacity", "smaller-micro-batch"),  # holes, but their sum would not do either
    ],
)
def test_what_an_allocation_failed_for(
    tmp_path: Path, used: float, holes: float, requested: float, free: float, capacity: float | None, cause: str, first: str
) -> None:
    found = judge(run_of(failed(used, holes, requested, free), tmp_path, capacity), OOM).finding
    assert found.facts["cause"] == cause and found.fixes[0].id == first
    assert (found.severity, found.saving) == ("high", None)
    assert found.title.startswith("Out of memory: ")
    assert found.facts["requested_bytes"] == round(requested * GIB) and found.facts["free_bytes"] == round(free * GIB)
    assert found.facts["allocated_bytes"] == pytest.approx(used * GIB, rel=0.001)
    assert [(place.file, place.line) for place in found.locations] == [("model.py", 33)]
    assert found.evidence[1].rows == [["model.py:33 attention", 1]]
    assert not any("empty_cache" in fix.snippet for fix in found.fixes)


def test_fragmentation_that_failed_an_allocation_tells_the_largest_piece(tmp_path: Path) -> None:
    a = failed(3.0, 1.0, 0.9, 0.1)
    both = judge(run_of(a, tmp_path), OOM, FRAGMENTATION)
    found = both.finding
    assert "whose largest free piece is 67 MB" in found.title and found.facts["largest_free_bytes"] == 64 * MIB
    # Less than 2 GiB: it matters all the same, since an allocation failed.
    assert [one.rule for one in both.report.findings] == [OOM, FRAGMENTATION]


def test_failures_alike_are_one_finding(tmp_path: Path) -> None:
    a = failed(6.0, 0.0, 3.0, 0.5)
    for _ in range(3):
        a.oom(3 * GIB, GIB // 2)
    a.oom(60 * GIB, GIB // 2)
    verdict = judge(run_of(a, tmp_path, 6.6), OOM)
    assert sorted(one.facts["failures"] for one in verdict.findings) == [1, 4]
    assert len({one.fingerprint for one in verdict.findings}) == 2
    assert any("(4 times)" in one.title for one in verdict.findings)


def test_no_failure_is_clean(tmp_path: Path) -> None:
    assert judge(run_of(holed(1.0, 2.0), tmp_path), OOM).outcome == "clean"
    assert judge(join([Trace("t", "torch-trace")]), OOM).outcome == "not-applicable"
