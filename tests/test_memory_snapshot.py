"""Memory snapshots of PyTorch as tables."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from advisor import api
from advisor.ingest import load, load_traces
from advisor.ingest.memory_snapshot.frames import frame_text
from advisor.model import AllocatorAction, BlockState, InputError, Options, Trace
from build.recordings import write_kineto
from build.shared import SHARED
from build.snapshot import EPOCH_US, GIB, MIB, Allocator


def read(tmp_path: Path, value: Any, protocol: int = 4) -> Trace:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(value, protocol))
    traces, problems, _ = load_traces([path])
    if problems:
        raise InputError(problems[0][1])
    return traces[0]


def small() -> Allocator:
    """A segment of 20 MiB in which a block of 4 MiB lies between two free pieces."""
    a = Allocator()
    a.segment(20 * MIB)
    first = a.alloc(8 * MIB, "train.py:3 load; train.py:50 main")
    a.alloc(4 * MIB)
    a.free(first)
    return a


def test_history(tmp_path: Path) -> None:
    trace = read(tmp_path, small().snapshot())
    events = trace.table("allocator_events")
    assert [AllocatorAction(code).name for code in events["action"]] == [
        "SEGMENT_ALLOC", "ALLOC", "ALLOC", "FREE_REQUESTED", "FREE_COMPLETED",
    ]  # fmt: skip
    assert events["bytes"].tolist() == [20 * MIB, 8 * MIB, 4 * MIB, 8 * MIB, 8 * MIB]
    assert events["time"].tolist() == [0, 1000, 2000, 3000, 4000] and trace.epoch_ns == (EPOCH_US + 1) * 1000
    assert events["sequence"].tolist() == [0, 1, 2, 3, 4] and set(events["device"]) == {0}
    base = 0x7F00_0000_0000
    assert events["address"].tolist() == [base, base, base + 8 * MIB, base, base]
    assert [trace.strings[code] for code in events["stack"]] == [
        "", "train.py(3): load;train.py(50): main", "train.py(10): step;train.py(50): main",
        *["train.py(11): step;train.py(50): main"] * 2,
    ]  # fmt: skip
    assert not events.has("device_free") and [device.index for device in trace.devices] == [0]


def test_state(tmp_path: Path) -> None:
    trace = read(tmp_path, small().snapshot())
    segments, blocks = trace.table("memory_segments"), trace.table("memory_blocks")
    row = {name: segments[name].tolist()[0] for name in segments.column_names if name not in ("address", "stack")}
    assert row == {
        "rank": -1, "process": -1, "device": 0, "stream": 0, "bytes": 20 * MIB, "allocated": 4 * MIB, "active": 4 * MIB,
        "requested": 4 * MIB, "large": 1, "expandable": 0, "private": 0,
    }  # fmt: skip
    assert blocks["bytes"].tolist() == [8 * MIB, 4 * MIB, 8 * MIB]
    assert [BlockState(code).name for code in blocks["state"]] == ["INACTIVE", "ALLOCATED", "INACTIVE"]
    assert trace.strings[blocks["stack"][1]] == "train.py(10): step;train.py(50): main"


def test_settings_and_annotations(tmp_path: Path) -> None:
    a = Allocator(expandable=True)
    a.settings["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    with a.range("Optimizer.step#AdamW.step"):
        a.alloc(MIB)
        with a.range("Optimizer.step#AdamW.step"):
            a.tick(10)
    a.marks += [{"stage": "START", "name": "open", "device": 0, "time_us": a.now}, {"stage": "END", "name": "x"}, 5, {"name": 7}]
    trace = read(tmp_path, a.snapshot())
    assert trace.facts == {
        "allocator_expandable_segments": 1, "allocator_max_split_size": -1, "allocator_garbage_collection_threshold": 0.0,
    }  # fmt: skip
    assert trace.environment == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    ranges = trace.table("allocator_ranges")
    assert ranges["end"].tolist() == [14_000, 13_000][::-1] or ranges["start"].tolist() == [0, 2_000]
    assert {trace.strings[code] for code in ranges["name"]} == {"Optimizer.step#AdamW.step"}
    assert trace.format_version == "with settings and annotations"


def test_a_setting_that_no_setting_looks_like_is_not_kept(tmp_path: Path) -> None:
    a = small()
    a.settings["PYTORCH_CUDA_ALLOC_CONF"] = "x\x1b[31m/home/ann"
    a.settings["max_split_size"] = "text"
    trace = read(tmp_path, a.snapshot())
    assert not trace.environment and "allocator_max_split_size" not in trace.facts


def test_old_layouts(tmp_path: Path) -> None:
    a = Allocator(times=False)
    a.alloc(MIB)
    old = {"segments": a.state(), "device_traces": [a.events]}
    trace = read(tmp_path, old)
    assert trace.format_version == "without times" and trace.epoch_ns is None
    assert len(trace.table("allocator_events")) == 2 and not trace.table("allocator_events").has("time")
    assert [notice.code for notice in trace.notices] == ["no-times"]
    bare = read(tmp_path, a.state())
    assert bare.format_version == "list of segments" and [notice.code for notice in bare.notices] == ["no-history"]
    # torch 1.13 and 2.0: blocks without an address of their own, the stack in a history
    for block in old["segments"][0]["blocks"]:
        del block["address"], block["frames"]
        block["history"] = [{"addr": 1, "real_size": 77, "frames": a.frames("train.py:9 old")}]
    blocks = read(tmp_path, old["segments"]).table("memory_blocks")
    assert blocks["address"].tolist() == [0x7F00_0000_0000, 0x7F00_0000_0000 + MIB] and blocks["requested"][0] == 77


def test_empty_histories_and_other_devices(tmp_path: Path) -> None:
    a = Allocator(device=1)
    a.alloc(MIB)
    trace = read(tmp_path, {"segments": a.state(), "device_traces": [[], [], [], []]})
    assert [device.index for device in trace.devices] == [1] and not len(trace.table("allocator_events"))
    with pytest.raises(InputError, match="without a segment or event"):
        read(tmp_path, {"segments": [], "device_traces": [[]]})
    events = read(tmp_path, a.snapshot()).table("allocator_events")
    assert set(events["device"]) == {1} and events["sequence"].tolist() == [0, 1]


def test_out_of_memory_events_and_unknown_actions(tmp_path: Path) -> None:
    a = small()
    a.oom(2 * GIB, 300 * MIB)
    a.event("oom", 0, GIB, device_free=5)
    a.event("workspace_snapshot", 1, 2)
    a.event("snapshot", 0, 0)
    a.event("segment_map", 1, 2)
    a.events += [{}, 5, {"action": None}, {"action": "alloc", "addr": 1 << 70, "size": "x", "time_us": -5, "frames": {}}]  # type: ignore[list-item]
    trace = read(tmp_path, a.snapshot())
    events = trace.table("allocator_events")
    assert events["action"].tolist()[5:] == [9, 9, 0, 8, 6, 1]
    assert events["bytes"].tolist()[5:7] == [2 * GIB, GIB] and events["device_free"].tolist()[5:7] == [300 * MIB, 5]
    last = {name: int(events[name][-1]) for name in ("address", "bytes", "stack")}
    assert last == {"address": -1, "bytes": -1, "stack": -1} and not events.known("time")[-1]
    assert [notice.code for notice in trace.notices] == ["actions-unknown", "entries-skipped"]
    assert "workspace_snapshot" in trace.notices[0].message and trace.notices[1].message.startswith("3 ")


def test_private_pools_streams_and_strange_segments(tmp_path: Path) -> None:
    a = small()
    a.segment(2 * MIB, pool=(0, 1))
    segments = a.state()
    segments[0]["stream"] = 94_000_000_000_000
    segments += [
        {"address": "x"},
        {"address": 1, "total_size": -5},
        None,
        {**segments[0], "segment_pool_id": None, "blocks": [1, {"size": -1}]},
    ]
    trace = read(tmp_path, {"segments": segments, "device_traces": []})
    table = trace.table("memory_segments")
    assert table["private"].tolist().count(1) == 1 and table["private"].tolist().count(-1) == 1
    assert 94_000_000_000_000 in table["stream"]
    assert "5 entries" in next(notice.message for notice in trace.notices if notice.code == "entries-skipped")


@pytest.mark.parametrize(
    ("name", "file", "line", "text"),
    [
        ("forward", "D:\\Dev\\model.py", 54, "D:\\Dev\\model.py(54): forward"),
        ("<module>", "/tmp/ipykernel_123/456.py", 1, "/tmp/ipykernel_123/456.py(1): <module>"),
        ("a;b", "x.py", 1, "x.py(1): a,b"),
        ("torch::unwind::unwind()", "??", 0, ""),
        ("cfunction_call", "/usr/local/src/conda/python-3.12.7/Objects/methodobject.c", 537, ""),
        ("at::_ops::empty_memory_format::redispatch(c10::DispatchKeySet)", "??", 0, "aten::empty_memory_format"),
        ("torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)", "", 0, "autograd::engine"),
    ],
)
def test_frames(name: str, file: str, line: int, text: str) -> None:
    assert frame_text({"name": name, "filename": file, "line": line}) == text


def test_frames_that_are_none() -> None:
    assert [frame_text(frame) for frame in (None, {}, {"name": 1, "filename": "x.py"}, {"name": "f", "filename": "x.py"})] == [
        "", "", "", "x.py(0): f",
    ]  # fmt: skip


def test_info_and_analysis_of_a_snapshot_alone(tmp_path: Path) -> None:
    path = small().write(tmp_path / "snapshot.pickle")
    [entry] = api.info([path])["files"]
    assert entry["format"] == "cuda-memory-snapshot" and entry["tables"]["memory_events"] == 5 and entry["rank"] is None
    assert entry["devices"][0]["index"] == 0 and entry["gpu"] == [] and entry["steps"]["count"] == 0
    report = api.analyze(api.load([path]))
    document = report.to_dict()
    assert document["run"]["steps"] is None and document["breakdown"] == []
    assert set(document["combined_saving"].values()) == {None}
    assert all(rule["outcome"] != "error" for rule in document["rules"])
    assert "memory_events" not in json.dumps(document["findings"])


def test_beside_a_trace_it_lies_on_the_same_time_line(tmp_path: Path) -> None:
    a = small()
    trace = write_kineto(tmp_path / "trace.json", at_us=EPOCH_US + 500)
    document = json.loads(trace.read_text())
    document["baseTimeNanoseconds"] = 0
    trace.write_text(json.dumps(document))
    run = load([trace, a.write(tmp_path / "snapshot.pickle")])
    assert len(run.table("allocator_events")) == 5 and len(run.table("kernels")) == 6
    times = run.table("allocator_events")["time"]
    if run.epoch_ns is not None:
        assert times[0] + run.epoch_ns == (EPOCH_US + 1) * 1000
    untimed = Allocator(times=False)
    untimed.alloc(MIB)
    run = load([trace, untimed.write(tmp_path / "snapshot.pickle")])
    assert not run.table("allocator_events").has("time") and len(run.table("allocator_events")) == 2


def test_the_memory_picture_is_drawn_from_a_snapshot(tmp_path: Path) -> None:
    from advisor.pictures.curves import memory_curves

    run = small().to_run(tmp_path)
    [curve] = memory_curves(run)
    assert (curve.rank, curve.device, curve.peak_allocated, curve.peak_reserved) == (None, 0, 12 * MIB, 20 * MIB)
    assert curve.allocated.value[-1] == 4 * MIB and curve.reserved is not None and set(curve.reserved.value) == {20 * MIB}
    untimed = Allocator(times=False)
    untimed.alloc(MIB)
    assert memory_curves(untimed.to_run(tmp_path)) == []


def test_snapshots_belong_to_ranks(tmp_path: Path) -> None:
    for rank in range(2):
        folder = tmp_path / f"rank-{rank}"
        write_kineto(folder / "trace.json", rank=rank)
        a = Allocator(device=rank)
        a.alloc(MIB * (rank + 1))
        a.write(folder / "snapshot.pickle")
    run = load([tmp_path])
    assert run.table("memory_segments")["rank"].tolist() == [0, 1]
    assert {(trace.format, trace.rank) for trace in run.traces if trace.format == "cuda-memory-snapshot"} == {
        ("cuda-memory-snapshot", 0), ("cuda-memory-snapshot", 1),
    }  # fmt: skip
    one = load([tmp_path], Options(rank=1))
    assert set(one.table("memory_blocks")["rank"]) == {1} and set(one.table("memory_segments")["device"]) == {1}
    alone = load([tmp_path / "rank-0" / "trace.json", tmp_path / "rank-0" / "snapshot.pickle"])
    assert set(alone.table("memory_segments")["rank"]) == {0} and alone.ranks == [0]


def test_of_several_snapshots_of_one_rank_the_last_one_stays(tmp_path: Path) -> None:
    a = small()
    a.write(tmp_path / "a.pickle")
    a.tick(1_000_000)
    a.events[:-1] = []
    a.alloc(MIB)
    a.events = a.events[-1:]
    a.write(tmp_path / "b.pickle")
    run = load([tmp_path])
    assert len(run.table("memory_segments")) == 1 and len(run.table("allocator_events")) == 1
    assert any(notice.code == "recording-unused" and "a.pickle" in notice.message for notice in run.notices)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="recordings are not here")
def test_real_files() -> None:
    facts = json.loads((SHARED / "traces" / "facts.json").read_text())
    snapshots = {key: fact for key, fact in facts.items() if fact["format"] == "cuda-memory-snapshot"}
    assert len(snapshots) >= 6
    for key, fact in snapshots.items():
        [trace], problems, _ = load_traces([SHARED / "traces" / key])
        assert not problems
        assert len(trace.table("allocator_events")) == fact["snapshot"]["events"]
        assert len(trace.table("memory_segments")) == fact["snapshot"]["segments"]
        assert [device.index for device in trace.devices] == [device["index"] for device in fact["devices"]]
