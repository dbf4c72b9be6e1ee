"""The functions for programs and notebooks, and what they say to those who use them wrongly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import advisor

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "sample_traces" / "loader-starved.torch.json.gz"


@pytest.fixture(scope="module")
def run() -> advisor.model.Run:  # type: ignore[name-defined]
    return advisor.load(SAMPLE)


def test_a_report_prints_short(run: object) -> None:
    text = str(advisor.analyze(run))  # type: ignore[arg-type]
    assert len(text) < 2000 and text.startswith("<advisor report: step 83.")
    assert re.search(r"\n   7\d%  single-process-dataloader: The training process loads its own data", text)
    assert len(text.splitlines()) == 1 + len(advisor.analyze(run).findings)  # type: ignore[arg-type]


def test_a_report_is_rendered(run: object) -> None:
    report = advisor.analyze(run, select=["input"])  # type: ignore[arg-type]
    assert "single-process-dataloader" in advisor.render(report, "json")
    assert report.to_dict()["selected"] is True


def test_what_is_exported() -> None:
    assert {name for name in advisor.__all__ if not hasattr(advisor, name)} == set() and set(advisor.__all__) <= set(dir(advisor))
    assert advisor.Options(gpu="h100").gpu == "h100" and issubclass(advisor.InputError, Exception)
    assert advisor.info(SAMPLE)["files"][0]["steps"]["count"] == 8
    with pytest.raises(AttributeError, match="no attribute 'analyse'"):
        _ = advisor.analyse


def test_mistakes_are_explained(run: object) -> None:
    with pytest.raises(KeyError, match="no table 'kernel'; did you mean 'kernels'"):
        run.frame("kernel")  # type: ignore[attr-defined]
    with pytest.raises(KeyError, match="there are kernels, copies"):
        run.table("zzz")  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"not a str: advisor\.analyze\(advisor\.load\(paths\)\)"):
        advisor.analyze("trace.json.gz")  # type: ignore[arg-type]


def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "api.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "traces").mkdir()
    (tmp_path / "trace.json.gz").write_bytes(SAMPLE.read_bytes())
    (tmp_path / "traces" / "trace.json.gz").write_bytes(SAMPLE.read_bytes())
    (tmp_path / "smi.xml").write_bytes((SAMPLE.parent / "loader-starved.smi.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 4 and names["busy_ns"]
