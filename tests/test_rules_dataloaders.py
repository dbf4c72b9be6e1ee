"""single-process-dataloader and dataloader-bound: one cause, one finding, and none where the GPU does not care."""

from __future__ import annotations

import pytest

from advisor.ingest import load
from build.judge import judge
from build.workload import Workload

SINGLE, BOUND = "single-process-dataloader", "dataloader-bound"


def loop(loader_us: float, gpu_us: float, *, workers: bool = False, host_us: float = 1000, steps: int = 6) -> Workload:
    """Each step: the loader, then 10 operators of a tenth of host_us and of gpu_us each."""
    w = Workload()
    for _ in w.steps(steps):
        w.loader(loader_us, workers=workers)
        for _ in range(10):
            with w.op("aten::mm", us=host_us / 10 - 4):
                w.launch("gemm", gpu_us=gpu_us / 10)
    return w


def test_loading_in_the_training_process_is_named_with_its_worth() -> None:
    run = loop(791_000, 20_000).to_run()
    found = judge(run, SINGLE)
    assert found.finding.title == "The training process loads its own data: 791 ms of each step, 100%"
    # 791 ms of loading, 1 ms of issuing; afterwards the GPU's 20 ms are the step.
    assert found.part() == pytest.approx((792 - 20) / 792, abs=0.01)
    assert found.finding.facts["least_workers"] == 40 and found.finding.caveats
    assert found.finding.evidence[0].rows[0][2:] == [791_000_000, pytest.approx(771_000_000, rel=0.01)]


def copied(waits: bool, before: bool = False) -> Workload:
    """GPU work of 20 ms, 3 ms of issuing; each step loads for 20 ms and copies the batch, waiting for the copy or not."""
    w = Workload()
    for _ in w.steps(6):
        if before:
            w.sync()
        w.loader(20_000)
        w.copy("HtoD", 64_000, 10, source="pinned")
        if waits:
            w.sync()
        for _ in range(10):
            with w.op("aten::mm", us=296):
                w.launch("gemm", gpu_us=2000)
    return w


def test_the_wait_for_a_batch_goes_with_its_loading() -> None:
    """Batches of workers lie in pinned memory, so issuing and the GPU's work overlap afterwards."""
    waiting, not_waiting = judge(copied(True).to_run(), SINGLE), judge(copied(False).to_run(), SINGLE)
    left = [(1 - found.part()) * found.report.step_ns for found in (waiting, not_waiting)]
    assert left == pytest.approx([20_000_000] * 2, rel=0.02)


def test_another_wait_stays() -> None:
    found = judge(copied(False, before=True).to_run(), SINGLE)
    assert (1 - found.part()) * found.report.step_ns > 20_200_000


def test_one_finding_for_one_cause() -> None:
    found = judge(loop(50_000, 20_000).to_run(), SINGLE, BOUND)
    assert [finding.rule for finding in found.report.findings] == [SINGLE]
    assert {rule.id: rule.reason for rule in found.report.rules}[BOUND] == f"reported under {SINGLE}"
    assert found.finding.facts["workers"] == 4  # 50 ms a batch, 20 ms a step: three keep up, one to spare
    assert "num_workers=4," in found.finding.fixes[0].snippet


def test_too_few_workers() -> None:
    run = loop(217_000, 100_000, workers=True, host_us=3000).to_run()
    assert judge(run, SINGLE).outcome == "clean"
    found = judge(run, BOUND)
    assert found.finding.title == "Each step waits 217 ms for its batch, 99% of the step"
    assert found.part() == pytest.approx((220 - 100) / 220, abs=0.02)
    assert found.finding.fixes[0].id == "more-workers"


@pytest.mark.parametrize("rule", [SINGLE, BOUND])
def test_a_wait_that_the_gpu_hides_is_no_finding(rule: str) -> None:
    # 20 ms of kernels are queued when the 10 ms of loading begin.
    assert judge(loop(10_000, 20_000).to_run(), rule).outcome == "clean"


@pytest.mark.parametrize(("rule", "below", "above"), [(SINGLE, 600, 750), (BOUND, 1150, 1350)])
def test_thresholds(rule: str, below: float, above: float) -> None:
    """18 ms of host work beside the loading, and a GPU that has time for all of it."""
    assert judge(loop(below, 5_000, host_us=18_000).to_run(), rule).outcome == "clean"
    assert judge(loop(above, 5_000, host_us=18_000).to_run(), rule).outcome == "found"


def test_a_loader_on_a_thread_of_its_own_holds_nobody_up() -> None:
    w = Workload()
    for _ in w.steps(5):
        with w.thread(7777, aside=True):
            w.loader(9_000)
        w.host(10_000)
        w.launch("gemm", gpu_us=500)
    run = w.to_run()
    assert judge(run, SINGLE).outcome == judge(run, BOUND).outcome == "clean"


def test_the_lines_that_load() -> None:
    w = Workload()
    for _ in w.steps(5):
        with w.frame("train.py(41): main"):
            w.loader(9_000)
            w.launch("gemm", gpu_us=500)
    place = judge(w.to_run(), SINGLE).finding.locations[0]
    assert (place.file, place.line, place.function) == ("train.py", 41, "main")


@pytest.mark.parametrize("label", ["data loading", "## dataloader ##", "[pl][profile][_TrainingEpochLoop].train_dataloader_next"])
def test_ranges_of_users_and_frameworks_mark_a_loader_too(label: str) -> None:
    w = Workload(tool="nsys")
    for _ in w.steps(5):
        with w.range(label, nvtx=True):
            w.host(9_000)
        w.launch("gemm", gpu_us=500)
    found = judge(w.to_run(), BOUND)
    assert found.finding.facts["range"] == label and found.finding.facts["loader_ns"] == 9_000_000


def unmarked(gap_us: float, *, copy: bool = True, tool: str = "nsys") -> Workload:
    w = Workload(tool=tool)
    for _ in w.steps(5):
        w.host(gap_us)
        if copy:
            w.copy("HtoD", 64_000, source="pageable")
        for _ in range(100):
            w.host(20)
            w.launch("gemm", gpu_us=100)
    return w


@pytest.mark.parametrize("tool", ["nsys", "torch"])
def test_without_a_mark_the_guess_is_told_as_one(tool: str) -> None:
    run = unmarked(90_000, tool=tool).to_run()
    assert judge(run, SINGLE).outcome == "not-applicable"
    found = judge(run, BOUND)
    assert found.finding.confidence == "low"
    assert "between steps outside CUDA calls and then copies to the GPU: most often this is data loading" in found.finding.title
    assert found.part() == pytest.approx((92.4 - 10) / 92.4, abs=0.02)
    assert any("record_function or NVTX" in text for text in found.finding.caveats)
    assert "mark-the-loader" in [fix.id for fix in found.finding.fixes]


def test_without_a_mark_small_gaps_and_hidden_ones_are_no_loader() -> None:
    assert judge(unmarked(4_900).to_run(), BOUND).outcome == "clean"
    # 8 ms of host work while 10 ms of kernels are queued
    assert judge(unmarked(8_000).to_run(), BOUND).outcome == "clean"
    assert "copies" not in judge(unmarked(30_000, copy=False).to_run(), BOUND).finding.title


def test_one_long_pause_in_many_steps_is_no_loader() -> None:
    w = Workload(tool="nsys")
    for number in w.steps(8):
        w.host(200_000 if number == 4 else 100)
        for _ in range(100):
            w.launch("gemm", gpu_us=100)
    assert judge(w.to_run(), BOUND).outcome == "clean"


def test_cannot_judge_without_cuda_calls() -> None:
    w = Workload(closing_sync=False)
    for _ in w.steps(4):
        w.loader(5000)
        w.row("kernels", start=w.now, end=w.now + 1000, device=0, stream=7, name="gemm")
    run = w.to_run()
    assert judge(run, SINGLE).outcome == judge(run, BOUND).outcome == "not-applicable"


def test_the_file_gives_the_same_as_the_tables(tmp_path) -> None:
    w = loop(50_000, 20_000)
    from_file = judge(load(w.write_kineto(tmp_path)), SINGLE)
    from_tables = judge(w.to_run(), SINGLE)
    assert from_file.part() == pytest.approx(from_tables.part(), abs=1e-6)
    assert from_file.finding.title == from_tables.finding.title
    assert from_file.finding.fingerprint == from_tables.finding.fingerprint
