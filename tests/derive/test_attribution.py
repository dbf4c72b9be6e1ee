"""To which operator, range and source line calls and kernels belong; and that nobody's name is printed."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.derive.attribution import (
    calls_in_ranges,
    calls_under_ops,
    locations,
    op_above,
    op_of_call,
    op_of_work,
    ops_named,
    parse_frame,
    ranges_named,
    work_of_calls,
)
from advisor.derive.gpus import gpu_work
from advisor.derive.nesting import thread_keys
from advisor.model import Location, Run
from build.workload import Workload


def op_names(run: Run, rows: np.ndarray) -> list[str]:
    return [run.strings[int(run.table("host_ops")["name"][row])] if row >= 0 else "-" for row in rows]


def model(w: Workload) -> None:
    with w.op("aten::linear"), w.op("aten::addmm"):
        w.launch("gemm")
    w.launch("bare")
    with w.backward(), w.op("autograd::engine::evaluate_function: AddmmBackward0"), w.op("AddmmBackward0"):
        with w.op("aten::mm"):
            w.launch("gemm_nt")
        w.copy("DtoD", 100)


def test_the_operator_is_the_innermost_around_the_launch() -> None:
    w = Workload(closing_sync=False)
    model(w)
    run = w.to_run()
    assert op_names(run, op_of_call(run)) == ["aten::addmm", "-", "aten::mm", "AddmmBackward0"]
    assert op_names(run, op_of_work(run)) == ["aten::addmm", "-", "aten::mm", "AddmmBackward0"]


def test_an_operator_of_another_thread_or_rank_is_not_around_it() -> None:
    w = Workload(ranks=2, closing_sync=False)
    with w.op("aten::mm", us=500):
        pass
    w.now -= 400_000
    with w.thread(99):
        w.launch("gemm")
    w.ranks[1].host(200)
    w.ranks[1].launch("gemm")
    run = w.to_run()
    assert op_names(run, op_of_call(run)) == ["-", "-"]


def test_where_the_launch_was_lost_the_external_id_tells() -> None:
    w = Workload(ranks=2, closing_sync=False)
    for rank in w.ranks:
        with rank.op(f"aten::op{rank.number}"):
            rank.launch("gemm")
            rank.copy("HtoD", 100)
            rank.launch("gemm")
        rank.rows["kernels"][-1]["op"] = -1
        del rank.rows["runtime_calls"]
    run = w.to_run()
    work = gpu_work(run)
    found = op_names(run, op_of_work(run))
    # The same id means another operator in another rank; without an id nothing is known.
    assert [name for name, rank in zip(found, work.rank, strict=True) if rank == 0] == ["aten::op0", "aten::op0", "-"]
    assert [name for name, rank in zip(found, work.rank, strict=True) if rank == 1] == ["aten::op1", "aten::op1", "-"]


def test_above() -> None:
    w = Workload(closing_sync=False)
    model(w)
    run = w.to_run()
    rows = op_of_work(run)
    assert op_names(run, op_above(run, rows, r"^aten::linear$")) == ["aten::linear", "-", "-", "-"]
    assert op_names(run, op_above(run, rows, "Backward0$")) == ["-", "-", "AddmmBackward0", "AddmmBackward0"]
    assert op_names(run, op_above(run, rows, "addmm")) == ["aten::addmm", "-", "-", "-"]
    assert calls_under_ops(run, "evaluate_function").tolist() == [False, False, True, True]
    assert [run.strings[int(c)] for c in run.table("host_ops")["name"][ops_named(run, "mm$")]] == ["aten::addmm", "aten::mm"]


def test_ranges_are_around_calls_of_their_thread() -> None:
    w = Workload(closing_sync=False)
    with w.range("forward", nvtx=True):
        w.launch("a")
        with w.range("attention"):
            w.launch("b")
        with w.thread(9):
            w.launch("c", stream=9)
    w.launch("d")
    run = w.to_run()
    assert calls_in_ranges(run, "^forward$").tolist() == [True, True, False, False]
    assert calls_in_ranges(run, "attention").tolist() == [False, True, False, False]
    assert calls_in_ranges(run, "backward").tolist() == [False] * 4
    assert ranges_named(run, "w|att").tolist() == [True, True]
    inside = work_of_calls(run, calls_in_ranges(run, "^forward$"))
    kernels = run.table("kernels")["name"][gpu_work(run).row[inside]]
    assert {run.strings[int(name)] for name in kernels} == {"a", "b"}


def test_nothing_recorded_nothing_around() -> None:
    run = Run()
    assert len(op_of_call(run)) == len(op_of_work(run)) == 0
    assert op_above(run, np.array([-1, -1]), "x").tolist() == [-1, -1]
    assert not len(calls_in_ranges(run, "x")) and not len(calls_under_ops(run, "x"))
    assert locations(run, np.array([1]), np.array([5])) == []


# Source lines


def lines(run: Run, weights: list[float] | None = None) -> list[Location]:
    calls = run.table("runtime_calls")
    return locations(run, thread_keys(calls), calls["start"], None if weights is None else np.array(weights))


def test_the_users_line_is_the_innermost_that_is_no_librarys() -> None:
    w = Workload(closing_sync=False)
    with w.frame("train.py(40): main"), w.frame("train.py(12): step"):
        forward = ("torch/nn/modules/module.py(1500): _call_impl", "model.py(7): forward", "torch/nn/functional.py(10): linear")
        with w.frame(forward[0]), w.frame(forward[1]), w.frame(forward[2]), w.frame("<built-in method linear>"):
            w.launch("gemm")
        with w.frame("torch/optim/adamw.py(100): step"):
            w.launch("adam")
            w.launch("adam")
    found = lines(w.to_run())
    assert found == [Location("train.py", 12, "step", 0.6667), Location("model.py", 7, "forward", 0.3333)]
    heavy = lines(w.to_run(), [10, 1, 1])
    assert [(place.file, place.share) for place in heavy] == [("model.py", 0.8333), ("train.py", 0.1667)]


def test_moments_on_threads_without_frames_count_as_unknown() -> None:
    w = Workload(closing_sync=False)
    with w.frame("train.py(12): step"):
        w.launch("forward")
        with w.backward():
            w.launch("backward")
    assert lines(w.to_run()) == [Location("train.py", 12, "step", 0.5)]


def test_only_the_heaviest_lines_are_told() -> None:
    w = Workload(closing_sync=False)
    for number in range(1, 9):
        with w.frame(f"model.py({number}): f"):
            for _ in range(number):
                w.launch("gemm")
    assert [place.line for place in lines(w.to_run())] == [8, 7, 6, 5, 4]


def test_stacks_of_operators_stand_in_for_frames() -> None:
    w = Workload(closing_sync=False)
    stack = ["torch/nn/functional.py(10): linear", "model.py(7): forward", "train.py(12): step"]
    with w.op("aten::linear", stack=stack):
        w.launch("gemm")
        with w.op("aten::addmm"):  # an inner operator without a stack has that of the one around it
            w.launch("gemm")
    with w.op("aten::add", stack=["torch/_tensor.py(3): add"]):
        w.launch("add")
    assert lines(w.to_run()) == [Location("model.py", 7, "forward", 0.6667)]


@pytest.mark.parametrize(
    "text",
    [
        "/opt/conda/lib/python3.11/site-packages/transformers/trainer.py(2100): train",
        "/usr/lib/python3/dist-packages/numpy/core.py(3): f",
        "/usr/lib/python3.12/threading.py(1012): run",
        "torch/autograd/function.py(300): apply",
        "/opt/pytorch/torch/nn/modules/linear.py(116): forward",
        "C:\\Python311\\Lib\\site-packages\\torch\\nn\\functional.py(4): relu",
        "transformers/trainer.py(2100): train",
        "multiprocessing/queues.py(113): get",
        "threading.py(1012): run",
        "<frozen importlib._bootstrap>(241): _call_with_frames_removed",
        "<string>(1): <module>",
        "<built-in method item of Tensor object at 0x7f>",
        "nn.Module: Linear_3",
        "",
    ],
)
def test_library_frames(text: str) -> None:
    assert parse_frame(text) is None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("train.py(12): main", ("train.py", 12, "main")),
        ("/workspace/llm/train.py(12): <module>", ("llm/train.py", 12, "<module>")),
        ("/home/ann/llm/model.py(7): forward", ("llm/model.py", 7, "forward")),
        ("C:\\Users\\ann\\llm\\model.py(7): forward", ("llm/model.py", 7, "forward")),
        ("my_torch/nn_utils.py(3): f", ("my_torch/nn_utils.py", 3, "f")),
        ("/data/torch/train.py(3): f", ("torch/train.py", 3, "f")),
        ("queue_utils.py(3): f", ("queue_utils.py", 3, "f")),
        ("D:\\work (x86)\\a.py(30): Model.forward", ("work (x86)/a.py", 30, "Model.forward")),
    ],
)
def test_frames_of_the_user(text: str, place: tuple[str, int, str]) -> None:
    found = parse_frame(text)
    assert found is not None and (found.file, found.line, found.function) == place
