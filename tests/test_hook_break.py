"""What programs do to the hook, and what it must not do to them: copies, threads, forks, interrupts, full disks, two at once."""

from __future__ import annotations

import copy
import gc
import io
import json
import logging
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import advisor.hook.window as window_module  # noqa: E402
from advisor.hook import Attachment, Schedule, attach, on_signal  # noqa: E402

SHORT = Schedule(wait=6, warmup=1, active=3, evidence=2)


def model_and_optimizer() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: Any, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def quiet(folder: Path, **more: Any) -> dict[str, Any]:
    return {"schedule": SHORT, "output": str(folder), "analyze": False, **more}


def manifest(attached: Attachment) -> dict[str, Any]:
    assert attached.folder is not None
    return json.loads((attached.folder / "rank-0" / "manifest.json").read_text())


def kinds(attached: Attachment) -> list[str]:
    return [window["kind"] for window in manifest(attached)["windows"]]


def files(attached: Attachment) -> list[str]:
    assert attached.folder is not None
    return sorted(entry.name for entry in (attached.folder / "rank-0").iterdir())


@pytest.fixture(autouse=True)
def as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADVISOR_DEBUG", raising=False)


# Copies


def test_model_and_optimizer_can_be_saved_and_copied(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    with attach(optimizer, model, **quiet(tmp_path, ranges=True)) as attached:
        train(model, optimizer, 3)
        buffer = io.BytesIO()
        torch.save({"model": model, "optimizer": optimizer, "state": optimizer.state_dict()}, buffer)
        assert b"advisor" not in buffer.getvalue()  # it can be loaded where advisor is not installed
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        for other_model, other in ((loaded["model"], loaded["optimizer"]), copy.deepcopy((model, optimizer))):
            train(other_model, other, 2)
        assert attached._clock.count == 3
        train(model, optimizer, 1)
    assert manifest(attached)["steps"]["count"] == 4


def test_a_copy_of_the_attachment_records_nothing(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path)) as attached:
        train(model, optimizer, 2)
        for other in (copy.deepcopy(attached), pickle.loads(pickle.dumps(attached))):
            assert not other.active
            other.step()
            other.close()
        train(model, optimizer, 2)
    assert manifest(attached)["steps"]["count"] == 4 and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("when", ["before the first step", "while it records", "after the end"])
def test_the_program_s_objects_are_not_kept_alive(tmp_path: Path, when: str) -> None:
    model, optimizer = model_and_optimizer()
    attached = attach(optimizer, model, **quiet(tmp_path, ranges=True))
    if when != "before the first step":
        train(model, optimizer, 3)
    if when == "after the end":
        attached.close()
    alive = weakref.ref(model), weakref.ref(optimizer)
    del model, optimizer
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
    attached.close()


# Several at once


def test_two_attachments_have_a_folder_each(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    first, second = attach(optimizer, **quiet(tmp_path)), attach(optimizer, **quiet(tmp_path))
    train(model, optimizer, 40)
    for attached in (first, second, first):
        attached.close()  # a second close does nothing
    assert first.folder != second.folder
    assert kinds(first) == ["timing", "evidence"] and kinds(second) == []
    assert manifest(second)["notices"][0]["message"].startswith("another window was recording")
    assert manifest(first)["steps"]["count"] == manifest(second)["steps"]["count"] == 40


def test_steps_of_several_threads(tmp_path: Path) -> None:
    """torch's profiler ends the process when it is started on one thread and stopped on another."""
    attached = attach(**quiet(tmp_path))
    first, go = threading.Event(), threading.Event()

    def run(mine: threading.Event | None) -> None:
        own_model, own = model_and_optimizer()
        for i in range(40):
            train(own_model, own, 1)
            attached.step()
            if mine is not None and i == 0:
                mine.set()
                go.wait(60)

    threads = [threading.Thread(target=run, args=(first,))]
    threads[0].start()
    assert first.wait(60)
    threads += [threading.Thread(target=run, args=(None,)) for _ in range(3)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    assert attached._clock.count == 1
    go.set()
    threads[0].join()
    attached.close()
    assert manifest(attached)["steps"]["count"] == 40 and kinds(attached) == ["timing", "evidence"]


THREAD_ENDS = """
import sys, threading, torch, advisor
model = torch.nn.Linear(8, 1)
recording = advisor.attach(schedule=advisor.Schedule(wait=4, warmup=1, active=3, evidence=0), output=sys.argv[1], analyze=False)
def train(steps):
    for _ in range(steps):
        model(torch.randn(4, 8)).sum().backward()
        recording.step()
thread = threading.Thread(target=train, args=(6,))
thread.start()
thread.join()
train(30)
recording.close()
print(recording._clock.count, recording._notices[0]["message"])
"""


def test_a_thread_that_ends_inside_a_window(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", THREAD_ENDS, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "36 the thread that trained ended inside a recording window, which is left out\n"


# Ends of many kinds


def test_an_interrupt_inside_the_hook_ends_the_window_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = torch.profiler.profile.export_chrome_trace
    stop = [True]

    def interrupted(self: Any, path: str) -> Any:
        result = export(self, path)
        if stop.pop() if stop else False:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", interrupted)
    model, optimizer = model_and_optimizer()
    attached = attach(optimizer, **quiet(tmp_path, schedule=Schedule(wait=6, warmup=1, active=3, evidence=2, repeat=2)))
    with pytest.raises(KeyboardInterrupt):
        train(model, optimizer, 30)
    assert attached.active and not torch.autograd._profiler_enabled()
    train(model, optimizer, 40)
    attached.close()
    assert [notice["code"] for notice in manifest(attached)["notices"]] == ["window-cut"]
    assert kinds(attached) == ["timing", "evidence"]
    assert files(attached) == ["manifest.json", "window-0-timing.json.gz", "window-1-evidence.json.gz"]


@pytest.mark.parametrize("how", ["os._exit(7)", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("where", ["outside", "while a window is written", "while a window is compressed"])
def test_what_a_killed_program_leaves_is_read(tmp_path: Path, how: str, where: str) -> None:
    arm = {
        "outside": "",
        "while a window is written": (
            "export = torch.profiler.profile.export_chrome_trace\n"
            "def broken(self, path):\n    open(path, 'w').write('{\"traceEvents\": [')\n    END\n"
            "torch.profiler.profile.export_chrome_trace = broken\n"
        ),
        "while a window is compressed": (
            "import shutil\ndef broken(plain, packed, size):\n    packed.write(plain.read(500))\n    packed.flush()\n    END\n"
            "shutil.copyfileobj = broken\n"
        ),
    }[where].replace("END", how)
    program = (
        "import os, sys, torch, advisor\n" + arm + "model = torch.nn.Linear(8, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "advisor.attach(optimizer, schedule=advisor.Schedule(wait=4, warmup=1, active=3, evidence=2), output=sys.argv[1])\n"
        "for i in range(40):\n    model(torch.randn(4, 8)).sum().backward()\n    optimizer.step()\n"
        f"    if i == 30: {how}\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=120, capture_output=True)
    (run,) = tmp_path.glob("advisor-run-*")
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "analyze", str(run), "--format", "json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    report = json.loads(done.stdout)
    assert "hook-unfinished" in [notice["code"] for notice in report["notices"]]
    names = sorted(Path(source["path"]).name.removesuffix(".gz") for source in report["run"]["sources"])
    assert names[0] == "manifest.json" and len(names) == len(set(names))
    assert len(names) == {"outside": 3, "while a window is written": 1}.get(where, 2)


def test_a_fork_inside_training_leaves_the_recording_to_its_parent(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    attached = attach(optimizer, **quiet(tmp_path))
    train(model, optimizer, 3)
    child = os.fork()
    if child == 0:
        attached.step()
        attached.step()
        attached.close()
        os._exit(0 if not attached.active else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    train(model, optimizer, 30)
    attached.close()
    assert kinds(attached) == ["timing", "evidence"] and manifest(attached)["process"] == os.getpid()


# A hostile machine


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No file may grow beyond 6000 bytes: as when the disk is full, torch writes a part of the trace and says nothing."""
    model, optimizer = model_and_optimizer()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with caplog.at_level(logging.WARNING, "advisor"), attach(optimizer, **quiet(tmp_path)) as attached:
        train(model, optimizer, 3)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, before[1]))
        try:
            train(model, optimizer, 30)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(caplog.records) == 1 and not attached.active
    assert files(attached) == ["manifest.json"] and manifest(attached)["notices"][-1]["code"] == "hook-off"
    # The next recording of the process is not disturbed by it.
    with attach(optimizer, **quiet(tmp_path)) as again:
        train(model, optimizer, 30)
    assert kinds(again) == ["timing", "evidence"]


def test_a_folder_that_goes_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = model_and_optimizer()
    with caplog.at_level(logging.WARNING, "advisor"), attach(optimizer, **quiet(tmp_path)) as attached:
        train(model, optimizer, 3)
        assert attached.folder is not None
        shutil.rmtree(attached.folder)
        train(model, optimizer, 30)
    assert len(caplog.records) == 1 and list(tmp_path.iterdir()) == []


def test_a_wall_clock_that_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        perf_counter_ns = staticmethod(time.perf_counter_ns)
        back = 0

        @classmethod
        def time_ns(cls) -> int:
            cls.back += 3_000_000_000
            return time.time_ns() - cls.back

    monkeypatch.setattr(window_module, "time", Clock)
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(tmp_path)) as attached:
        train(model, optimizer, 30)
    for window in manifest(attached)["windows"]:
        assert window["step_edges_ns"] == sorted(window["step_edges_ns"])


def test_a_folder_whose_name_is_not_ascii(tmp_path: Path) -> None:
    folder = tmp_path / "Läufe 実験"
    model, optimizer = model_and_optimizer()
    with attach(optimizer, **quiet(folder, analyze=True)) as attached:
        train(model, optimizer, 30)
    assert attached.report is not None and attached.report.is_file() and kinds(attached) == ["timing", "evidence"]


def test_a_late_signal_does_not_end_the_program(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    try:
        with attach(triggers=[on_signal(signal.SIGUSR2)], **quiet(tmp_path)):
            pass
        os.kill(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)


# What programs do with optimizers


def test_closures_and_skipped_steps(tmp_path: Path) -> None:
    model, _ = model_and_optimizer()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        return loss

    with attach(optimizer, **quiet(tmp_path)) as attached:
        for _ in range(4):
            optimizer.step(closure)
    assert manifest(attached)["steps"]["count"] == 4

    model, optimizer = model_and_optimizer()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=1000)
    with attach(optimizer, **quiet(tmp_path)) as attached:
        for _ in range(40):
            scaler.scale(model(torch.randn(4, 8)).pow(2).mean() * 2.0**20).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert 0 < manifest(attached)["steps"]["count"] < 40


def test_a_compiled_optimizer_is_counted_without_being_compiled_again(tmp_path: Path) -> None:
    model, optimizer = model_and_optimizer()
    compiled = torch.compile(optimizer.step, backend="eager")
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings(record=True) as said, attach(optimizer, **quiet(tmp_path)) as attached:
        for _ in range(40):
            model(torch.randn(4, 8)).pow(2).mean().backward()
            compiled()
            optimizer.zero_grad()
    assert manifest(attached)["steps"]["count"] == 40 and attached.active is False
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] < 5 and "Dynamo" not in " ".join(str(w.message) for w in said)


def test_a_long_run_costs_no_memory(tmp_path: Path) -> None:
    import tracemalloc

    attached = attach(**quiet(tmp_path, schedule=Schedule(repeat=0)))
    for _ in range(70_000):  # more than the ring holds
        attached.step()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(30_000):
        attached.step()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    attached.close()
    assert grown < 20_000, grown
