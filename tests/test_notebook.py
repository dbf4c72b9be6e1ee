"""Reports and runs in notebooks: the pages they show, their DataFrames, and docs/notebook.md run as a notebook."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

import advisor
from advisor.model import Evidence, Fix, Location, Report, Run, Saving, display
from advisor.report.notebook import report_page, run_page
from build import reports
from build.reports import fix, part, run_facts, saving
from build.workload import Workload

ROOT = Path(__file__).resolve().parents[1]
HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&$\\frac{1}{0}$\x1b[31m\x00"
VOID = {"br", "img", "input", "meta", "link"}


class Page(HTMLParser):
    """What a page is made of: tags, attributes, text; checks that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def check_safe(page: Page) -> None:
    assert set(page.tags) <= set(
        "style div p strong details summary table thead tbody tr th td span pre code".split()  # noqa: SIM905
    )
    assert {name for name, _ in page.attributes} <= {"class", "style", "title"}
    assert not any("url(" in (value or "") for _, value in page.attributes)


@pytest.mark.parametrize("make", [reports.starved_loader, reports.two_ranks, reports.healthy, reports.samples_only])
def test_a_report_shows_its_verdict_bars_and_findings(make) -> None:
    report = make()
    page = Page(report_page(report))
    check_safe(page)
    for finding in report.findings:
        assert finding.title.split()[-1] in page.text
        for one in finding.fixes[:1]:
            assert one.title in page.text and one.snippet.splitlines()[0] in page.text
    assert page.attributes.count(("class", "bar")) == sum(one.step_ns > 0 for one in report.breakdown)


def test_hostile_text_is_only_text() -> None:
    report = Report(
        version="0",
        run=run_facts(10.0, sources=[{"path": HOSTILE, "format": HOSTILE, "rank": 0}]),
        step_ns=10_000_000,
        breakdown=[part(10.0, 4.0)],
        findings=[
            advisor.model.Finding(
                rule=HOSTILE,
                family="host",
                title=HOSTILE,
                severity="high",
                confidence="high",
                saving=saving(1, 2, 3),
                evidence=[Evidence(HOSTILE, [HOSTILE, "n"], [[HOSTILE, 3]])],
                locations=[Location(HOSTILE, 3, HOSTILE)],
                fixes=[fix(HOSTILE, HOSTILE, HOSTILE)],
                caveats=[HOSTILE],
            )
        ],
    )
    page = Page(report_page(report))
    check_safe(page)
    assert page.text.count("<script>") >= 6
    w = Workload()
    for _ in w.steps(2):
        w.launch(HOSTILE, 10)
    run = w.to_run()
    for trace in run.traces:
        trace.path = HOSTILE
    check_safe(Page(run_page(run)))


def test_bars_have_the_widths_of_their_parts() -> None:
    report = reports.two_ranks()
    page = report_page(report)
    longest = max(one.step_ns for one in report.breakdown)
    whole = sum(float(width) for width in re.findall(r"style='width:([\d.]+)%;background", page))
    assert whole == pytest.approx(100 * sum(one.step_ns for one in report.breakdown) / longest, abs=0.5)


def test_many_findings_and_gpus_are_cut_short_and_counted() -> None:
    report = reports.starved_loader()
    report.findings = report.findings * 30
    report.breakdown = [part(10.0 + rank, 5.0, rank=rank) for rank in range(40)]
    page = Page(report_page(report))
    assert "the slowest 8 of 40 GPUs" in page.text and "rank 39" in page.text and "rank 3 " not in page.text
    assert f"and {len(report.findings) - 20} more" in page.text
    assert len(report_page(report)) < 500_000


def test_a_run_lists_its_tables_and_files() -> None:
    run = advisor.load(ROOT / "sample_traces" / "host-sync.torch-stacks.json.gz")
    page = Page(run._repr_html_() or "")
    check_safe(page)
    assert "host-sync.torch-stacks.json.gz" in page.text and "run.frame('kernels')" in page.text
    assert f"{len(run.table('kernels')):,}" in page.text
    assert repr(run).startswith("<advisor run: 1 recordings") and len(repr(run)) < 400


def test_an_object_that_nobody_can_show_falls_back_to_its_text() -> None:
    assert display.page(object()) is None
    assert advisor.load and Run()._repr_html_() == run_page(Run())
    report = reports.healthy()
    assert report._repr_html_() == report_page(report)


def test_findings_as_a_frame() -> None:
    report = reports.starved_loader()
    frame = report.frame()
    assert frame["rule"].tolist() == [finding.rule for finding in report.findings]
    first = report.findings[0]
    assert frame["expected_ns"].dtype == "Int64" and frame["expected_ns"][0] == first.saving.expected_ns
    assert frame["fix"][0] == first.fixes[0].title
    assert pd.isna(frame["expected_ns"][len(frame) - 1]) == (report.findings[-1].saving is None)


@pytest.mark.parametrize("name", ["findings", "breakdown", "evidence", "fixes", "locations", "rules", "notices"])
def test_every_frame_has_its_rows_and_stands_empty_too(name: str) -> None:
    report = reports.two_ranks()
    rows = {
        "findings": len(report.findings),
        "breakdown": len(report.breakdown),
        "rules": len(report.rules),
        "notices": len(report.notices),
        "fixes": sum(len(finding.fixes) for finding in report.findings),
        "locations": sum(len(finding.locations) for finding in report.findings),
        "evidence": sum(len(table.rows) for finding in report.findings for table in finding.evidence),
    }
    frame = report.frame(name)
    assert len(frame) == rows[name]
    empty = Report(version="0", run=run_facts(None), step_ns=None).frame(name)
    assert len(empty) == 0 and set(empty.columns) <= set(frame.columns) | set(empty.columns)
    if len(frame) and name != "breakdown":
        assert list(empty.columns) == list(frame.columns)


def test_an_unknown_frame_names_the_nearest() -> None:
    with pytest.raises(KeyError, match="did you mean 'findings'"):
        reports.healthy().frame("finding")


def test_a_whole_saving_stays_whole() -> None:
    report = reports.starved_loader()
    report.findings[0].saving = Saving(2**53 + 1, 2**53 + 3, 2**53 + 5, "replay")
    assert report.frame()["low_ns"][0] == 2**53 + 1
    assert isinstance(report.findings[0].fixes[0], Fix)


def snippets() -> list[str]:
    text = (ROOT / "docs" / "notebook.md").read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.S)


def test_the_page_runs_as_a_notebook(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in snippets()])
    client = nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}})
    client.execute()
    cells = dict(zip([code.strip() for code in snippets()], notebook.cells, strict=True))

    def shown(start: str, kind: str) -> str:
        (cell,) = (cell for code, cell in cells.items() if code.startswith(start))
        for output in cell.outputs:
            if kind in output.get("data", {}):
                return output["data"][kind]
        raise AssertionError(f"{start}: no {kind} among {[dict(output) for output in cell.outputs]}")

    check_safe(Page(next(o["data"]["text/html"] for o in cells["report"].outputs)))
    check_safe(Page(next(o["data"]["text/html"] for o in cells["run"].outputs)))
    for plot in ("step_bars", "savings", "kernels", "roofline", "ranks"):
        assert shown(f"advisor.plot.{plot}(", "image/png")
    assert shown("ax = advisor.plot.timeline", "image/png") and shown("watched = ", "image/png")
    assert "profile_memory=True" in cells[next(code for code in cells if code.startswith("try:"))].outputs[0]["text"]
