"""`advisor record`: programs that do not know of it are recorded, and notice nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from advisor.hook.plan import Schedule
from advisor.hook.recorded import from_environment, to_environment

ADVISOR = [sys.executable, "-m", "advisor"]
TRAIN = """
import sys, torch
model = torch.nn.Linear(8, 8)
optimizer, other = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters())
for _ in range(40):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    other.step()
    optimizer.zero_grad()
print("trained", sys.argv[1:], "sitecustomize" in sys.modules)
sys.exit(3)
"""
FEW = ["--wait", "5", "--warmup", "1", "--active", "2", "--evidence", "1"]


def record(folder: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ADVISOR, "record", *words], cwd=folder, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, **more
    )


def needs_torch() -> None:
    pytest.importorskip("torch")


def manifests(folder: Path) -> list[dict[str, Any]]:
    (run,) = folder.glob("advisor-run-*")
    return [json.loads(file.read_text()) for file in sorted(run.glob("rank-*/manifest.json"))]


def test_an_unchanged_script_is_recorded(tmp_path: Path) -> None:
    needs_torch()
    (tmp_path / "train.py").write_text(TRAIN)
    done = record(tmp_path, *FEW, "--", sys.executable, "train.py", "--epochs", "1")
    assert done.returncode == 3, done.stderr
    assert done.stdout == "trained ['--epochs', '1'] True\n"
    (found,) = manifests(tmp_path)
    assert found["steps"]["count"] == 40 and [window["kind"] for window in found["windows"]] == ["timing", "evidence"]
    (run,) = tmp_path.glob("advisor-run-*")
    assert f"The whole report: advisor analyze {run.name}" in done.stderr and (run / "report.json").is_file()


def test_the_user_s_own_sitecustomize_runs(tmp_path: Path) -> None:
    needs_torch()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys; sys.mine = 17")
    (tmp_path / "train.py").write_text(TRAIN.replace("sys.argv[1:]", "sys.mine"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "own"), os.environ.get("PYTHONPATH", "")])}
    done = record(tmp_path, *FEW, "--no-analyze", "--", sys.executable, "train.py", env=environment)
    assert done.stdout == "trained 17 True\n" and len(manifests(tmp_path)) == 1


def test_several_ranks_under_torchrun(tmp_path: Path) -> None:
    needs_torch()
    script = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n" + TRAIN.replace("sys.exit(3)", "")
    (tmp_path / "train.py").write_text(script)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = record(tmp_path, *FEW, "--", *launcher)
    assert done.returncode == 0, done.stderr
    found = manifests(tmp_path)
    assert [(each["rank"], each["world_size"], each["finished"]) for each in found] == [(0, 2, True), (1, 2, True)]
    assert "The whole report: advisor analyze" in done.stderr


def test_a_script_that_attaches_itself_is_recorded_once(tmp_path: Path) -> None:
    needs_torch()
    schedule = "advisor.Schedule(wait=8, warmup=1, active=2, evidence=1)"
    own = f"import advisor\nadvisor.attach(optimizer, schedule={schedule}, analyze=False)\n"
    (tmp_path / "train.py").write_text(TRAIN.replace("for _", own + "for _"))
    done = record(tmp_path, *FEW, "--no-analyze", "--", sys.executable, "train.py")
    assert done.returncode == 3, done.stderr
    (found,) = manifests(tmp_path)
    assert [window["first_step"] for window in found["windows"]] == [9, 12]


def test_a_script_without_an_optimizer(tmp_path: Path) -> None:
    (tmp_path / "no.py").write_text("print('no training')")
    done = record(tmp_path, "--", sys.executable, "no.py")
    assert (done.returncode, done.stdout) == (0, "no training\n")
    assert done.stderr == "advisor: nothing was recorded: no torch optimizer stepped in a Python that has advisor installed\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "no.py"]


def test_a_script_that_ends_before_its_window(tmp_path: Path) -> None:
    needs_torch()
    (tmp_path / "train.py").write_text(TRAIN.replace("range(40)", "range(10)"))
    done = record(tmp_path, "--", sys.executable, "train.py")
    assert done.returncode == 3
    assert "training ended before a window was complete; the first begins after step 20 (--wait, --active)" in done.stderr


HELPER = TRAIN.replace("sys.exit(3)", "")
SPAWNED = """
import multiprocessing

def work():
    import train

if __name__ == "__main__":
    workers = [multiprocessing.get_context("spawn").Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        (["-c", "import train"], 1),
        (["-m", "train"], 1),
        (["-c", "import os; os.environ['PYTHONPATH'] = '/nowhere'; import train"], 1),
        (["spawned.py"], 2),
        (["-I", "-c", "import sys; sys.path.insert(0, '.'); import train"], 0),  # told to look at no environment
    ],
    ids=["code", "module", "own-path", "spawn", "isolated"],
)
def test_ways_to_start_python(tmp_path: Path, words: list[str], recorded: int) -> None:
    needs_torch()
    (tmp_path / "train.py").write_text(HELPER)
    (tmp_path / "spawned.py").write_text(SPAWNED)
    done = record(tmp_path, *FEW, "--no-analyze", "--", sys.executable, *words, env={**os.environ, "PYTHONNOUSERSITE": "1"})
    assert done.returncode == 0 and done.stdout.count("trained") == max(recorded, 1), done.stderr
    assert ("nothing was recorded" in done.stderr) is (recorded == 0)
    assert len(list(tmp_path.glob("advisor-run-*/rank-*/manifest.json"))) == recorded


def test_a_sitecustomize_of_the_user_s_that_fails_fails_as_without_us(tmp_path: Path) -> None:
    needs_torch()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("raise RuntimeError('mine')")
    (tmp_path / "train.py").write_text(HELPER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "own"), os.environ.get("PYTHONPATH", "")])}
    done = record(tmp_path, *FEW, "--no-analyze", "--", sys.executable, "train.py", env=environment)
    assert done.returncode == 0 and "RuntimeError: mine" in done.stderr and "Traceback" not in done.stderr
    assert len(manifests(tmp_path)) == 1


def test_a_python_without_advisor_runs_as_ever(tmp_path: Path) -> None:
    import venv

    venv.create(tmp_path / "alone", with_pip=False, symlinks=True)
    python = str(tmp_path / "alone" / "bin" / "python")
    launch = [
        sys.executable,
        "-c",
        f"import os; os.environ.update(PYTHONPATH=os.environ['PYTHONPATH'].split(os.pathsep)[0]); "
        f"os.execv({python!r}, [{python!r}, '-c', 'print(17)'])",
    ]
    done = record(tmp_path, "--", *launch)
    assert (done.returncode, done.stdout) == (0, "17\n")
    assert "this Python is not recorded: ModuleNotFoundError" in done.stderr and "nothing was recorded" in done.stderr


def test_signals_go_on_and_the_status_says_so(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)")
    process = subprocess.Popen(
        [*ADVISOR, "record", "--", sys.executable, "wait.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM and time.monotonic() - began < 30


def test_dry_run_does_nothing(tmp_path: Path) -> None:
    done = record(tmp_path, "--dry-run", "--at", "7,70", "--", sys.executable, "train me.py")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("PYTHONPATH=") and "/hook/startup" in lines[0]
    assert lines[1].startswith("ADVISOR_RUN_FOLDER=") and '"at": [7, 70]' in lines[2]
    assert lines[3] == f"{sys.executable} 'train me.py'" and lines[4].startswith("advisor analyze ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--", "no-such-command"], "no command 'no-such-command'"),
        (["--at", "soon", "--", "true"], "write numbers of steps"),
        (["--wait", "-1", "--", "true"], "--wait"),
        ([], "COMMAND"),
    ],
)
def test_wrong_usage(tmp_path: Path, words: list[str], reason: str) -> None:
    done = record(tmp_path, *words)
    assert done.returncode == 2 and reason in done.stderr and "Traceback" not in done.stderr


def test_nsys_is_asked_for_and_absent(tmp_path: Path) -> None:
    done = record(tmp_path, "--nsys", "--", sys.executable, "-c", "0", env={**os.environ, "PATH": "/nowhere"})
    assert done.returncode == 2 and "there is no nsys on the PATH" in done.stderr


def test_nsys_runs_around_the_command(tmp_path: Path) -> None:
    nsys = tmp_path / "bin" / "nsys"
    nsys.parent.mkdir()
    nsys.write_text("#!/bin/sh\n")
    nsys.chmod(0o755)
    environment = {**os.environ, "PATH": f"{nsys.parent}{os.pathsep}{os.environ['PATH']}"}
    done = record(tmp_path, "--nsys", "--dry-run", "--", sys.executable, "train.py", env=environment)
    line = done.stdout.splitlines()[3]
    assert line.startswith("nsys profile --trace=cuda,nvtx") and line.endswith(f"{sys.executable} train.py")
    assert "--export=sqlite" in line


def test_settings_survive_the_environment() -> None:
    schedule = Schedule(wait=3, at=(4, 9), light=True)
    assert from_environment(to_environment(schedule, samples=0.1, analyze=False)) == {
        "schedule": schedule,
        "samples": 0.1,
        "analyze": False,
    }
