"""Ranks of recordings, and which recording of a rank gives the times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.ingest import join
from advisor.ingest.ranks import rank_from_name
from advisor.model import InputError, Options, Run, Table, Trace
from build.recordings import S, program_trace, sample_trace


def codes(run: Run) -> list[str]:
    return [notice.code for notice in run.notices]


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("rank3.json", 3),
        ("trace_rank_12.json.gz", 12),
        ("x-rank-0.json", 0),
        ("RANK7.json", 7),
        ("r3.json", 3),
        ("worker0.1623143089861.pt.trace.json", 0),
        ("run/rank5/trace.json", 5),
        ("run/rank5/rank6.json", 6),
        ("all.tar::ranks/rank_2.json", 2),
        ("frank3.json", None),
        ("r3d_18.json", None),
        ("tracer3.json", None),
        ("host_4711.1623143089861.pt.trace.json", None),
        ("rank.json", None),
    ],
)
def test_rank_in_a_name(path: str, rank: int | None) -> None:
    assert rank_from_name(path) == rank


def test_one_file_keeps_its_unknown_rank_whatever_its_name() -> None:
    run = join([program_trace("rank3.json")])
    assert run.ranks == [None]
    assert not run.table("kernels").has("rank")


def test_recorded_rank_beats_the_name_and_fills_every_row() -> None:
    run = join([program_trace("rank5.json", rank=0), program_trace("rank4.json", rank=1)])
    assert run.ranks == [0, 1]
    for name in ("kernels", "host_ops"):
        assert sorted(set(run.table(name)["rank"].tolist())) == [0, 1]
    assert len(run.table("kernels")) == 8


def test_names_tell_files_of_unknown_rank_apart() -> None:
    run = join([program_trace("rank1.json"), program_trace("rank0.json"), program_trace("rank_10.json")])
    assert run.ranks == [0, 1, 10] and run.fuller is None


def test_folders_that_all_files_share_name_no_rank() -> None:
    at = 1_800_000_000 * S
    run = join([program_trace(f"/data/worker3/{name}.json", epoch_ns=at, device=i) for i, name in enumerate("ab")])
    assert run.ranks == [0, 1]
    run = join([program_trace(f"/data/worker3/rank{i}/t.json") for i in (4, 2)])
    assert run.ranks == [2, 4]


def test_processes_that_ran_at_once_are_numbered_by_device() -> None:
    at = 1_800_000_000 * S
    run = join([program_trace("a.json", epoch_ns=at, device=1), program_trace("b.json", epoch_ns=at + 1000, device=0)])
    assert run.ranks == [0, 1] and "ranks-numbered" in codes(run)
    kernels = run.table("kernels")
    assert {(int(r), int(d)) for r, d in zip(kernels["rank"], kernels["device"], strict=True)} == {(0, 0), (1, 1)}


def test_files_that_ran_one_after_the_other_are_two_recordings_of_one_rank() -> None:
    light = program_trace("b.json", epoch_ns=1_800_000_000 * S)
    full = program_trace("a.json", epoch_ns=1_800_000_100 * S, frames=50, shapes=True)
    run = join([full, light])
    assert run.ranks == [None] and [trace.path for trace in run.traces] == ["b.json"]
    assert run.fuller is not None and [trace.path for trace in run.fuller.traces] == ["a.json"]
    assert len(run.table("python_frames")) == 0 and len(run.fuller.table("python_frames")) == 50
    (notice,) = [n for n in run.notices if n.code == "two-recordings"]
    assert "times are those of b.json" in notice.message and "come from a.json" in notice.message


def test_unknown_rank_beside_one_known_is_that_rank() -> None:
    run = join(
        [program_trace("torch.json", rank=2, frames=10), replace(program_trace("nsys.sqlite", ops=0), format="nsys-sqlite")]
    )
    assert run.ranks == [2] and [t.path for t in run.traces] == ["nsys.sqlite"]
    assert run.fuller is not None and [t.path for t in run.fuller.traces] == ["torch.json"]
    assert set(run.table("kernels")["rank"].tolist()) == {2}


def test_unknown_rank_beside_several_known_is_left_out_and_said() -> None:
    run = join([program_trace("a.json", rank=0), program_trace("b.json", rank=1), program_trace("c.json")])
    assert run.ranks == [0, 1] and len(run.table("kernels")) == 8
    (notice,) = [n for n in run.notices if n.code == "rank-unknown"]
    assert notice.message.startswith("c.json") and "ranks 0, 1" in notice.message


def two_ranks_in_one() -> Trace:
    trace = program_trace("both.sqlite", kernels=6)
    rank = np.array([0, 1] * 3)
    trace.tables["kernels"] = trace.tables["kernels"].replace(rank=rank, process=rank + 100)
    trace.tables["host_ops"] = trace.tables["host_ops"].replace(rank=np.array([0, 1] * 4))
    return trace


def test_several_ranks_in_one_file() -> None:
    alone = join([two_ranks_in_one()])
    assert alone.ranks == [0, 1] and len(alone.table("kernels")) == 6
    beside = join([two_ranks_in_one(), program_trace("t0.json", rank=0, frames=9), program_trace("t1.json", rank=1, frames=9)])
    assert beside.ranks == [0, 1] and len(beside.table("kernels")) == 6
    assert beside.fuller is not None and len(beside.fuller.table("kernels")) == 8
    only = join([two_ranks_in_one()], Options(rank=1))
    assert only.ranks == [1] and set(only.table("kernels")["process"].tolist()) == {101}


def test_the_rank_asked_for() -> None:
    traces = [program_trace("a.json", rank=0), program_trace("b.json", rank=1), program_trace("c.json", frames=3)]
    run = join(traces, Options(rank=1))
    assert run.ranks == [1] and [t.path for t in run.traces] == ["b.json"]
    assert run.fuller is not None and [t.path for t in run.fuller.traces] == ["c.json"]  # of unknown rank: taken as asked
    assert join([program_trace()], Options(rank=4)).ranks == [4]
    with pytest.raises(InputError, match="no recording of rank 7: there are ranks 0, 1"):
        join(traces[:2], Options(rank=7))


@pytest.mark.parametrize(
    "fuller",
    [
        program_trace("z.json", frames=1),
        program_trace("z.json", shapes=True),
        program_trace("z.json", memory=3),
        program_trace("z.json", ops=80),
    ],
)
def test_what_slows_less_gives_the_times(fuller: Trace) -> None:
    light = program_trace("zz.json")
    run = join([fuller, light])
    assert [t.path for t in run.traces] == ["zz.json"]


def test_a_recording_without_gpu_work_never_gives_the_times() -> None:
    run = join([program_trace("cpu.json", kernels=0), program_trace("full.json", frames=40, shapes=True)])
    assert [t.path for t in run.traces] == ["full.json"]


def test_of_equal_recordings_the_longest_is_used_and_the_other_named() -> None:
    run = join([program_trace("short.json", kernels=4, ops=8), program_trace("long.json", kernels=40, ops=80)])
    assert [t.path for t in run.traces] == ["long.json"] and run.fuller is None
    (notice,) = [n for n in run.notices if n.code == "recording-unused"]
    assert "short.json" in notice.message


def test_fuller_covers_every_rank() -> None:
    traces = [
        program_trace("l0.json", rank=0),
        program_trace("f0.json", rank=0, frames=5),
        program_trace("l1.json", rank=1),
    ]
    run = join(traces)
    assert run.fuller is not None
    assert [t.path for t in run.traces] == ["l0.json", "l1.json"]
    assert [t.path for t in run.fuller.traces] == ["f0.json", "l1.json"]
    assert run.traces[1] is run.fuller.traces[1]


def test_samples_have_no_rank_and_make_no_rank() -> None:
    run = join([sample_trace("smi.csv", 1_800_000_000 * S, 5)])
    assert run.ranks == [] and len(run.table("device_samples")) == 6
    assert isinstance(run.table("kernels"), Table) and len(run.table("kernels")) == 0
