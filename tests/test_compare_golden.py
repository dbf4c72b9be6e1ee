"""Formats of comparisons as people see them, and comparisons of recorded loops.

The golden files are to be read by people: ADVISOR_UPDATE_GOLDEN=1 rewrites them, then look at the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from advisor.api import analyze, load
from advisor.comparing import Recording, compare
from advisor.model.comparison import Comparison
from advisor.report.comparison import render
from build.comparisons import finding, repeats, report

GOLDEN = Path(__file__).parent / "golden" / "compare"
CORPUS = Path(__file__).resolve().parents[1] / "../shared/corpus"
SYNCS = "18 host synchronisations in every step stall the GPU"
KERNELS = {"void add<float, 4>(int)": 3.0, "gemm": 7.0}


def mended() -> Comparison:
    """A fix that keeps its promise and brings a smaller fault in."""
    found = [finding("host-sync-in-step", 6, title=SYNCS), finding("pageable-copy", 1)]
    before = report(20, found, idle=8.0, kernels=KERNELS | {"triton_poi_fused_add_3": 2.0})
    left = [finding("pageable-copy", 2.5), finding("unfused-elementwise", 1.4)]
    program = {"versions": {"torch_version": "2.12.0"}}
    after = report(14, left, seed=2, idle=1.0, program=program, kernels=KERNELS | {"triton_poi_fused_add_7": 3.5})
    return compare([Recording("main/trace.json.gz", before)], [Recording("pr/trace.json.gz", after)], "0.1.0")


def unfair() -> Comparison:
    other = report(14, seed=2, devices=[{**report().run["devices"][0], "name": "NVIDIA A100"}])
    return compare([Recording("a.json", report(20))], [Recording("b.json", other)], "0.1.0")


def unchanged() -> Comparison:
    return compare(repeats(20, 4, 0.005, seed=1), repeats(20, 4, 0.005, seed=7), "0.1.0")


CASES = {
    "mended-100.txt": (mended, "text", {"width": 100}),
    "mended-60-quiet.txt": (mended, "text", {"width": 60, "verbosity": -1}),
    "mended.md": (mended, "markdown", {}),
    "unchanged-80.txt": (unchanged, "text", {"width": 80}),
    "unfair-80-ascii.txt": (unfair, "text", {"width": 80, "unicode": False}),
    "unfair.json": (unfair, "json", {}),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_golden(name: str) -> None:
    made, form, style = CASES[name]
    text = render(made(), form, **style)
    path = GOLDEN / name
    if os.environ.get("ADVISOR_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def recorded(loop: str, side: str) -> Recording:
    return Recording(side, analyze(load(CORPUS / loop / side / "trace_light.json.gz")))


@pytest.mark.shared
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recordings are not here")
@pytest.mark.parametrize("loop", ["fp32_matmul", "launch_bound", "loader_starved"])
def test_recorded_loops(loop: str) -> None:
    planted = json.loads((CORPUS / loop / "truth.json").read_text())["rules"]
    base, head = recorded(loop, "before"), recorded(loop, "after")
    there, back = compare([base], [head]), compare([head], [base])
    assert there.step.verdict == "faster" and back.step.verdict == "slower"
    assert {one.finding.rule for one in there.of("gone")} & set(planted) and not there.of("new")
    assert {one.finding.rule for one in back.of("new")} & set(planted)
    assert there.promises is not None and there.promises.kept == "kept"
    assert compare([base], [base]).step.verdict == "no-measurable-change"
