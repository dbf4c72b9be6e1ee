"""The hook on real torch: what it writes, and that training neither changes nor breaks."""

from __future__ import annotations

import gzip
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from advisor.hook import Attachment, Schedule, attach  # noqa: E402
from advisor.hook.window import Window  # noqa: E402

SHORT = Schedule(wait=6, warmup=1, active=3, evidence=2)


def model_and_optimizer() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: Any, optimizer: Any, steps: int, accumulate: int = 1) -> list[float]:
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        for _ in range(accumulate):
            loss = model(torch.randn(4, 8)).pow(2).mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def manifest(attached: Attachment, rank: int = 0) -> dict[str, Any]:
    assert attached.folder is not None
    return json.loads((attached.folder / f"rank-{rank}" / "manifest.json").read_text())


def quiet(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"schedule": SHORT, "output": str(tmp_path), "analyze": False, **more}


def test_windows_are_recorded_and_training_is_unchanged(tmp_path: Path) -> None:
    plain = train(*model_and_optimizer(), 30)
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path)) as attached:
        assert train(model, optimizer, 30) == plain
    found = manifest(attached)
    assert found["schema"] == "advisor.bundle/1" and found["finished"] is True
    assert [(w["kind"], w["first_step"], len(w["step_edges_ns"])) for w in found["windows"]] == [
        ("timing", 7, 4),
        ("evidence", 11, 3),
    ]
    assert found["steps"]["count"] == 30 and len(found["steps"]["durations_ns"]) == 30
    states = found["steps"]["states"]
    assert states[6:10] == [2] * 4 and states[10:13] == [2] * 3  # steps of the windows, warm-up included
    assert states[20:] == [0] * 10
    assert sorted(found["files"]) == ["window-0-timing.json.gz", "window-1-evidence.json.gz"]
    trace = json.loads(gzip.decompress((attached.folder / "rank-0" / "window-1-evidence.json.gz").read_bytes()))
    marked = {event["name"] for event in trace["traceEvents"] if str(event.get("name")).startswith("ProfilerStep")}
    assert len(marked) == 2 and trace["record_shapes"] == 1 and trace["with_stack"] == 1


def test_nothing_is_created_before_the_first_step(tmp_path: Path) -> None:
    _, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path)) as attached:
        assert list(tmp_path.iterdir()) == []
    assert attached.folder is None and list(tmp_path.iterdir()) == []


def test_calls_of_step_replace_the_optimizer_s(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path)) as attached:
        for _ in range(8):
            train(model, optimizer, 3)
            attached.step()
    assert manifest(attached)["steps"]["count"] == 3 + 7  # three by the optimizer, until the first call took over


def test_accumulation_counts_optimizer_steps_and_several_optimizers_count_once(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    other_model, other = model_and_optimizer()
    with attach(optimizer, other, model, other_model, **quiet(tmp_path)) as attached:
        for _ in range(5):
            train(model, optimizer, 1, accumulate=4)
            train(other_model, other, 1)
    assert manifest(attached)["steps"]["count"] == 5


def test_every_call_of_a_decorated_function_is_a_step(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    attached = attach(**quiet(tmp_path))

    @attached.each_step
    def one(count: int) -> int:
        train(model, optimizer, count)
        return count

    assert [one(2) for _ in range(4)] == [2] * 4
    attached.close()
    assert one.__name__ == "one" and manifest(attached)["steps"]["count"] == 4


@pytest.mark.parametrize("error", [RuntimeError("lost"), KeyboardInterrupt()])
def test_an_error_of_the_program_passes_and_the_recording_is_closed(tmp_path: Path, error: BaseException) -> None:
    model, optimizer = model_and_optimizer()
    with pytest.raises(type(error)), attach(optimizer, **quiet(tmp_path)) as attached:
        train(model, optimizer, 8)  # inside the timing window
        raise error
    found = manifest(attached)
    assert found["finished"] is True and found["windows"] == []
    assert [notice["code"] for notice in found["notices"]] == ["window-cut"]
    assert not torch.autograd._profiler_enabled()


def test_a_failure_of_the_hook_turns_it_off_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = train(*model_and_optimizer(), 30)
    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)

    def broken(self: Window) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(Window, "open", broken)
    model, optimizer = model_and_optimizer()
    with caplog.at_level(logging.WARNING, "advisor"), attach(optimizer, **quiet(tmp_path)) as attached:
        assert train(model, optimizer, 30) == plain
    assert [record.message for record in caplog.records] == [
        "advisor is off for the rest of this run, training goes on: OSError in _step: disk on fire"
    ]
    assert attached.active is False
    assert manifest(attached)["notices"] == [{"code": "hook-off", "message": "OSError in _step: disk on fire"}]


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    model, optimizer = model_and_optimizer()
    with caplog.at_level(logging.WARNING, "advisor"), attach(optimizer, **quiet(tmp_path / "file")) as attached:
        assert len(train(model, optimizer, 10)) == 10
    assert len(caplog.records) == 1 and attached.folder is None


def test_a_running_profiler_is_left_alone(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own,
        attach(optimizer, **quiet(tmp_path)) as attached,
    ):
        train(model, optimizer, 20)
    assert len(own.events()) > 100
    found = manifest(attached)
    assert found["windows"] == [] and [notice["code"] for notice in found["notices"]] == ["profiler-runs"]


def test_a_profiler_that_only_warms_up_is_left_alone(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    schedule = torch.profiler.schedule(wait=0, warmup=12, active=2, repeat=1)
    seen: list[int] = []
    with (
        torch.profiler.profile(schedule=schedule, on_trace_ready=lambda own: seen.append(len(own.events()))) as own,
        attach(optimizer, **quiet(tmp_path)) as attached,
    ):
        for _ in range(30):
            train(model, optimizer, 1)
            own.step()
    assert len(seen) == 1 and seen[0] > 20
    assert [notice["code"] for notice in manifest(attached)["notices"]] == ["profiler-runs"]


def test_a_window_gives_way_to_the_program_s_profiler(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path)) as attached:
        train(model, optimizer, 8)  # inside the timing window
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            train(model, optimizer, 5)
        train(model, optimizer, 30)
    assert len(own.events()) > 20
    found = manifest(attached)
    assert found["windows"] == [] and [notice["code"] for notice in found["notices"]] == ["profiler-runs"]
    assert found["steps"]["count"] == 43


def test_two_attachments_take_turns(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path / "a")) as one, attach(optimizer, **quiet(tmp_path / "b")) as other:
        train(model, optimizer, 40)
    assert len(manifest(one)["windows"]) == 2
    assert manifest(other)["windows"] == [] and manifest(other)["notices"][0]["message"].startswith(
        "another window was recording"
    )


def test_under_nsys_no_window_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "17")
    model, optimizer = model_and_optimizer()
    with attach(optimizer, model, **quiet(tmp_path)) as attached:
        train(model, optimizer, 20)
    assert manifest(attached)["notices"][0]["message"].startswith("Nsight Systems was recording")


def test_phases_are_ranges_of_the_evidence_window(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    with attach(optimizer, model, **quiet(tmp_path, ranges=True)) as attached:
        train(model, optimizer, 20)
    assert attached.folder is not None
    trace = json.loads(gzip.decompress((attached.folder / "rank-0" / "window-1-evidence.json.gz").read_bytes()))
    counts = {
        name: sum(event.get("name") == name for event in trace["traceEvents"])
        for name in ("data", "forward", "backward", "optimizer")
    }
    assert counts == dict.fromkeys(counts, 2)
    assert len(model._forward_hooks) == len(model._forward_pre_hooks) == 0


def test_a_full_bundle_opens_no_further_window(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    schedule = Schedule(wait=3, warmup=1, active=2, evidence=0, repeat=3)
    with attach(optimizer, **quiet(tmp_path, schedule=schedule, most_bytes=4000)) as attached:
        train(model, optimizer, 40)
    found = manifest(attached)
    assert len(found["windows"]) == 1 and [notice["code"] for notice in found["notices"]] == ["bundle-full"]


def test_old_recordings_go_and_nothing_else(tmp_path: Path) -> None:
    for i in range(3):
        model, optimizer = model_and_optimizer()
        with attach(optimizer, **quiet(tmp_path, keep=2)) as attached:
            train(model, optimizer, 3)
        assert attached.folder is not None
        moved = attached.folder.rename(tmp_path / f"advisor-run-{i}")
        os.utime(moved, ns=(i, i))
    kept = tmp_path / "advisor-run-mine"
    (kept / "rank-0").mkdir(parents=True)
    (tmp_path / "advisor-run-0-notes").mkdir()
    names = {entry.name for entry in tmp_path.iterdir()}
    assert names == {"advisor-run-2", "advisor-run-1", "advisor-run-mine", "advisor-run-0-notes"}


def test_a_run_that_ends_too_early_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path, analyze=True)) as attached:
        train(model, optimizer, 4)
    assert attached.report is None
    assert [record.message for record in caplog.records] == [
        "advisor: no report: training ended after step 4; the first recording begins after step 6 (advisor.Schedule)"
    ]


def test_recordings_that_are_not_closed_stay(tmp_path: Path) -> None:
    def unfinished(name: str, process: int, age: float) -> None:
        folder = tmp_path / f"advisor-run-{name}" / "rank-0"
        folder.mkdir(parents=True)
        file = folder / "manifest.json"
        file.write_text(json.dumps({"schema": "advisor.bundle/1", "finished": False, "process": process}))
        os.utime(file, (time.time() - age,) * 2)
        os.utime(folder.parent, (time.time() - age,) * 2)

    nobody = 2**22 - 1
    unfinished("of-yesterday", nobody, age=2 * 86_400)
    unfinished("still-training", os.getpid(), age=2 * 86_400)
    unfinished("of-another-machine", nobody, age=3600)
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path, keep=1)) as attached:
        train(model, optimizer, 3)
    assert attached.folder is not None
    names = {entry.name for entry in tmp_path.iterdir()} - {attached.folder.name}
    assert names == {"advisor-run-still-training", "advisor-run-of-another-machine"}


def test_ranks_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_RUN_FOLDER", str(tmp_path / "advisor-run-x"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        model, optimizer = model_and_optimizer()
        with attach(optimizer, **quiet(tmp_path)) as attached:
            train(model, optimizer, 3)
        assert manifest(attached, rank)["rank"] == rank and manifest(attached, rank)["world_size"] == 2
    # A second process of the same rank must not write over the first.
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path)) as attached:
        train(model, optimizer, 3)
    assert sorted(entry.name for entry in (tmp_path / "advisor-run-x").iterdir()) == ["rank-0", "rank-1", "rank-1-restart-1"]


def test_off_is_off(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path, enabled=False)) as attached:
        train(model, optimizer, 20)
        attached.step()
    assert list(tmp_path.iterdir()) == [] and attached.folder is None


def test_what_is_no_target() -> None:
    with pytest.raises(TypeError, match="not a int"):
        attach(3)
    with pytest.raises(TypeError, match="shedule"):
        attach(shedule=SHORT)


PROGRAM = """
import sys, torch
from torch.utils.data import DataLoader, Dataset
import advisor

class Numbers(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.full((8,), float(i))

def main():
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    advisor.attach(optimizer, schedule=advisor.Schedule(wait=4, warmup=1, active=2, evidence=1), output=sys.argv[1])
    for batch in DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[2]):
        model(batch).mean().backward()
        optimizer.step()
    print("trained")

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_one_line_in_a_script_prints_the_report_at_its_end(tmp_path: Path, context: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "out"), context], capture_output=True, text=True, timeout=240, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\n"
    (run,) = (tmp_path / "out").iterdir()
    assert f"advisor analyze out/{run.name}" in done.stderr
    assert json.loads((run / "report.json").read_text())["schema"] == "advisor.report/1"
    assert [entry.name for entry in run.iterdir() if entry.is_dir()] == ["rank-0"]
