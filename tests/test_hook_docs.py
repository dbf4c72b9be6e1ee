"""Every example of docs/hook.md runs as it stands and leaves a recording with a report."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = re.findall(r"^```python\n(.*?)^```", (Path(__file__).parents[1] / "docs" / "hook.md").read_text(), re.M | re.S)
LIBRARIES = ("transformers", "lightning", "accelerate")


def name(example: str) -> str:
    found = [library for library in LIBRARIES if f"import {library}" in example or f"from {library}" in example]
    return found[0] if found else "torch"


def test_there_is_an_example_for_each_framework() -> None:
    assert [name(example) for example in EXAMPLES] == ["torch"] * 4 + ["transformers", "lightning", "accelerate", "torch"]


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"{i}-{name(example)}" for i, example in enumerate(EXAMPLES)])
def test_example(example: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec(name(example)) is None:
        pytest.skip(f"needs {name(example)}")
    (tmp_path / "train.py").write_text(example)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.glob("advisor-run-*")
    assert f"The whole report: advisor analyze {run.name}" in done.stderr
    report = json.loads((run / "report.json").read_text())
    assert report["schema"] == "advisor.report/1" and {"advisor-bundle", "torch-trace"} == {
        s["format"] for s in report["run"]["sources"]
    }
    assert json.loads((run / "rank-0" / "manifest.json").read_text()).get("notices", []) == []
