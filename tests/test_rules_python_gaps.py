"""python-gap, garbage-collection-pause, graph-breaks: host time that is no operator and no CUDA call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from build.judge import judge
from build.workload import Workload

GAP, GC, BREAKS = "python-gap", "garbage-collection-pause", "graph-breaks"


def train(w: Workload, layers: int = 10, host_us: float = 50, gpu_us: float = 100) -> None:
    for _ in range(layers):
        with w.op("aten::mm", us=host_us):
            w.launch("gemm", gpu_us=gpu_us)


@contextmanager
def frames(w: Workload, *names: str) -> Iterator[None]:
    if not names:
        yield
        return
    with w.frame(names[0]), frames(w, *names[1:]):
        yield


def logging(gap_us: float, *names: str, gpu_us: float = 100, steps: int = 6) -> Workload:
    """Each step: 10 layers, then Python code that calls nothing."""
    w = Workload()
    for _ in w.steps(steps):
        with w.frame("train.py(10): step"):
            train(w, gpu_us=gpu_us)
            w.item()
            with frames(w, *names):
                w.host(gap_us)
    return w


def test_the_gap_and_its_line() -> None:
    found = judge(logging(4000, "metrics.py(42): log", "json/encoder.py(205): iterencode").to_run(), GAP)
    # The GPU has 1 ms of work, which the gap follows.
    assert found.part() == pytest.approx(4000 / 5200, abs=0.07)
    assert found.finding.facts["python_ns"] == pytest.approx(4e6, rel=0.05)
    assert [(place.file, place.line) for place in found.finding.locations] == [("metrics.py", 42)]
    assert found.finding.evidence[0].rows[0][0] == "json/encoder.py(205): iterencode"
    assert found.finding.evidence[0].rows[0][2] == pytest.approx(1, abs=0.05)
    assert "metrics.py:42" in found.finding.fixes[0].snippet


def test_builtins_are_told_under_the_line_that_calls_them() -> None:
    finding = judge(logging(4000, "train.py(33): wait", "<built-in function sleep>").to_run(), GAP).finding
    assert [(place.file, place.line) for place in finding.locations] == [("train.py", 33)]
    assert finding.evidence[0].rows[0][0] == "<built-in function sleep>"


@pytest.mark.parametrize(("gap_us", "outcome"), [(250, "clean"), (400, "found")])
def test_short_gaps_are_the_dispatch_of_operators(gap_us: float, outcome: str) -> None:
    assert judge(logging(gap_us, "metrics.py(42): log").to_run(), GAP).outcome == outcome


def test_the_frameworks_own_python_is_no_gap() -> None:
    assert judge(logging(4000, "/x/torch/autograd/graph.py(825): _engine_run_backward").to_run(), GAP).outcome == "clean"


def test_a_gap_behind_a_busy_gpu_is_worth_nothing() -> None:
    w = Workload()
    for _ in w.steps(6):
        with w.frame("train.py(10): step"):
            train(w, gpu_us=2000)
            with w.frame("metrics.py(42): log"):
                w.host(4000)
    assert judge(w.to_run(), GAP).outcome == "clean"


def test_a_data_loader_is_no_gap() -> None:
    w = Workload()
    for _ in w.steps(6):
        with w.frame("train.py(10): step"):
            w.loader(5000)
            train(w)
            w.item()
    assert judge(w.to_run(), GAP).outcome == "clean"


def test_cannot_name_lines_without_frames() -> None:
    w = Workload()
    for _ in w.steps(6):
        train(w)
        w.item()
        w.host(4000)
    found = judge(w.to_run(), GAP)
    assert found.outcome == "not-applicable" and "python frames" in found.reason
    assert "with_stack=True" in next(one.capture or "" for one in found.report.rules)


def test_collections_of_garbage() -> None:
    found = judge(logging(20_000, "train.py(50): step", "<built-in function collect>").to_run(), GC, GAP)
    assert [finding.rule for finding in found.report.findings] == [GC]
    assert found.finding.title == "1 garbage collection a step on the training thread, 20 ms each"
    assert found.part() == pytest.approx(20 / 21.2, abs=0.03)
    assert [(place.file, place.line) for place in found.finding.locations] == [("train.py", 50)]


@pytest.mark.parametrize(("pause_us", "outcome"), [(900, "clean"), (1100, "found")])
def test_short_collections_do_not_count(pause_us: float, outcome: str) -> None:
    w = logging(pause_us, "train.py(50): step", "<built-in function collect>")
    assert judge(w.to_run(), GC).outcome == outcome


def test_collections_that_a_range_marks() -> None:
    w = Workload(tool="nsys")
    for _ in w.steps(6):
        train(w)
        w.sync()
        with w.range("gc.collect", nvtx=True):
            w.host(3000)
    assert judge(w.to_run(), GC).finding.facts["pause_ns"] == pytest.approx(3e6, rel=0.01)


def test_other_frames_are_no_collections() -> None:
    assert judge(logging(4000, "data.py(3): collect_samples").to_run(), GC).outcome == "clean"
    w = Workload()
    for _ in w.steps(6):
        train(w)
    assert judge(w.to_run(), GC).outcome == "clean"
    assert judge(Workload().to_run(), GC).outcome == "not-applicable"


def compiled(pieces: list[str], gap_us: float = 300) -> Workload:
    """Each step runs these pieces of compiled code, with Python between them."""
    w = Workload()
    for _ in w.steps(6):
        for name in pieces:
            with w.op(f"Torch-Compiled Region: {name}", us=5):
                w.leaf("AOTDispatcher Runtime Wrapper Prologue", 20)
                w.launch("triton_poi_fused_add_0", gpu_us=100)
            w.host(gap_us)
        w.item()
    return w


def test_breaks_between_pieces() -> None:
    found = judge(compiled(["0/0", "1/0", "2/0", "3/0", "4/0", "5/0"]).to_run(), BREAKS)
    assert found.finding.facts["breaks_per_step"] == 5 and found.finding.facts["pieces"] == 6
    assert found.finding.facts["between_ns"] == pytest.approx(5 * 300_000, rel=0.05)
    assert found.part() > 0.4
    assert found.finding.evidence[0].rows[0][:2] == ["Torch-Compiled Region: 0/0", 1.0]


def test_three_compiled_functions_a_step_are_no_breaks() -> None:
    assert judge(compiled(["0/0", "1/0", "2/0", "3/0"]).to_run(), BREAKS).outcome == "clean"


def test_layers_compiled_one_by_one_are_no_breaks() -> None:
    assert judge(compiled(["0/0"] * 12).to_run(), BREAKS).outcome == "clean"


def test_cannot_judge_without_compiled_regions() -> None:
    found = judge(logging(4000).to_run(), BREAKS)
    assert found.outcome == "not-applicable" and "torch.compile" in found.reason


def test_frames_tell_a_loader_from_other_python() -> None:
    """Nothing marks a loader: frames in the pause between steps decide whether it may be one."""
    for name, outcome in (("data/batches.py(7): load_batch", "found"), ("metrics.py(42): log", "clean")):
        w = Workload()
        for _ in w.steps(6):
            with w.frame("train.py(10): step"):
                with w.frame(name):
                    w.host(20_000)
                train(w)
        run = w.to_run()
        assert judge(run, "dataloader-bound").outcome == outcome
        assert judge(run, GAP).outcome == "found"
