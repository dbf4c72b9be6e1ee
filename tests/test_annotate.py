"""`advisor.annotate`: what a tool that listens to NVTX gets, and that nothing happens without one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import advisor
from advisor import annotate
from advisor.derive.activity import DATALOADER
from advisor.derive.marks import marked_steps
from advisor.derive.phases import OPTIMIZER_RANGE
from build.nsys import DOMAIN, NsysExport

TOOL = Path(__file__).parent / "build" / "nvtx_tool.c"
PAGE = (Path(__file__).parents[1] / "docs" / "how-to-capture.md").read_text("utf-8")
(EXAMPLE,) = (part for part in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S) if "annotate" in part)

PROGRAM = """
import threading
from advisor import annotate

for _ in range(2):
    with annotate.step():
        with annotate.phase("data"):
            pass
        with annotate.phase("optimizer"):
            pass

@annotate.step
def one(x):
    "Doc."
    return x + 1

@annotate.phase("Vorwärts")
def forward():
    raise ValueError

@annotate.phase
def backward():
    pass

assert one(1) == 2 and one.__name__ == "one" and one.__doc__ == "Doc."
with annotate.step(number=40):
    try:
        forward()
    except ValueError:
        backward()
"""


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tool that listens, as nsys does, and writes down what it hears."""
    pytest.importorskip("nvtx")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("nvtx") / "tool.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(TOOL)], check=True, timeout=60)
    return library


def heard(program: str, tool: Path, folder: Path) -> list[str]:
    log = folder / "heard.txt"
    more = {"NVTX_INJECTION64_PATH": str(tool), "NVTX_TOOL_FILE": str(log), "PYTHONPATH": str(Path(advisor.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env={**os.environ, **more})
    return log.read_text("utf-8").splitlines()


def recorded(events: list[str], path: Path) -> Path:
    """The events as an nsys export, a microsecond each, with a kernel after each push."""
    export, open_ranges = NsysExport(), []
    export.range("NVTX", -100, None, kind=DOMAIN, domain=1)
    for number, event in enumerate(events):
        now = 1000 * number
        if event == "pop":
            name, start = open_ranges.pop()
            export.range(name, start, now, domain=1, registered=True)
        else:
            open_ranges.append((event.removeprefix("push "), now))
            correlation = export.call("cudaLaunchKernel_v7000", now + 10, now + 20)
            export.kernel("k", now + 30, now + 500, correlation=correlation)
    assert not open_ranges
    return export.write(path)


def test_an_nsys_recording_has_the_steps_and_phases(tool: Path, tmp_path: Path) -> None:
    events = heard(PROGRAM, tool, tmp_path)
    assert [event for event in events if event != "pop"] == [
        *("push step 0", "push data loading", "push optimizer"),
        *("push step 1", "push data loading", "push optimizer"),
        *("push step 2", "push step 40", "push Vorwärts", "push backward"),
    ]
    run = advisor.load([recorded(events, tmp_path / "run.sqlite")])
    marks = marked_steps(run)
    assert marks.source == "nvtx" and marks.number.tolist() == [0, 1, 2, 40]
    assert {"data loading", "optimizer"} <= {run.strings[code] for code in run.table("ranges")["name"].tolist()}


def test_reports_know_the_phases() -> None:
    assert DATALOADER.search("data loading") and re.search(OPTIMIZER_RANGE, "optimizer")


def test_the_example_of_the_page(tool: Path, tmp_path: Path) -> None:
    step = ["push data loading", "pop", "push forward", "pop", "pop"]
    assert heard(EXAMPLE, tool, tmp_path) == [event for i in range(3) for event in (f"push step {i}", *step)]


def test_without_a_tool_nothing_is_done() -> None:
    assert annotate._tool() is None

    def function() -> None: ...

    assert annotate.step()(function) is function and annotate.phase("x")(function) is function
    with annotate.step(), annotate.phase("data"):
        pass
    exec(EXAMPLE, {})


@pytest.mark.parametrize("broken", ["raise ImportError", "raise OSError('no library')", "push_range = 3"])
def test_a_package_that_does_not_work_is_no_package(broken: str, tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text(broken)
    path = os.pathsep.join([str(tmp_path), str(Path(advisor.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLE], env={**os.environ, "PYTHONPATH": path}, timeout=60, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_cannot_be_annotated() -> None:
    with pytest.raises(TypeError, match="runs in parts"):

        @annotate.step
        async def later() -> None: ...

    with pytest.raises(TypeError, match="has a name"):
        annotate.phase(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        annotate.step("three")


def test_it_brings_no_torch() -> None:
    program = "import sys, advisor; advisor.annotate.step(); print('torch' in sys.modules, 'click' in sys.modules)"
    inside = {**os.environ, "PYTHONPATH": str(Path(advisor.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=inside, timeout=60)
    assert done.stdout == "False False\n", done.stderr
