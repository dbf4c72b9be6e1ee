"""Fingerprints on recordings of one loop: with and without shapes and stacks, and on other steps of it."""

from __future__ import annotations

import pytest

from advisor import Options, analyze, load
from advisor.model import Report
from build.shared import SHARED

CORPUS = SHARED / "corpus"


def prints(report: Report) -> dict[str, set[str]]:
    """rule -> fingerprints of its findings."""
    found: dict[str, set[str]] = {}
    for finding in report.findings:
        found.setdefault(finding.rule, set()).add(finding.fingerprint)
    return found


@pytest.mark.shared
@pytest.mark.parametrize("name", ["sync_item_layers", "optimizer_loop", "unfused_pointwise"])
def test_the_same_loop_has_the_same_fingerprints(name: str) -> None:
    folder = CORPUS / name / "before"
    if not folder.is_dir():
        pytest.skip("the recordings are not here")
    light = load([folder / "trace_light.json.gz"])
    found = [
        prints(analyze(light)),
        prints(analyze(load([folder / "trace_full.json.gz"]))),
        prints(analyze(load([folder / "trace_light.json.gz"], Options(steps=(1, 5))))),
    ]
    common = set(found[0]) & set(found[1]) & set(found[2])
    assert len(common) >= 2
    for rule in common:
        assert found[0][rule] == found[1][rule] == found[2][rule], rule
