"""Plots: what is drawn has the values of the report, and every one says why where it has nothing to draw."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import advisor
from advisor.model import Report
from build import reports
from build.reports import part, run_facts
from build.workload import Workload

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

from matplotlib import pyplot as plt  # noqa: E402

import advisor.plot as plot  # noqa: E402

HOSTILE = "<b>$\\frac{1}{0}$ $x \x1b[31m kernel_" + "long" * 60
ALL = ("kernels", "memory", "ranks", "roofline", "samples", "savings", "step_bars", "timeline")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def drawn(ax) -> None:
    ax.figure.canvas.draw()


def loop(name: str = "sgemm_128x128") -> Report:
    w = Workload()
    for _ in w.steps(6):
        for _ in range(5):
            with w.op("aten::mm", us=6, shapes=[[1024, 1024], [1024, 1024]], types=["float", "float"]):
                w.launch(name, gpu_us=300)
            w.item()
    return advisor.analyze(w.to_run(), pictures=True)


def test_step_bars_are_as_long_as_the_parts() -> None:
    report = reports.two_ranks()
    ax = plot.step_bars(report)
    drawn(ax)
    width: dict[float, float] = {}
    for bar in ax.patches:
        width[round(bar.get_y(), 3)] = width.get(round(bar.get_y(), 3), 0) + bar.get_width()
    assert list(width.values()) == pytest.approx([one.step_ns / 1e6 for one in report.breakdown])
    assert ax.get_yticklabels()[0].get_text().startswith("rank 0")


def test_savings_show_low_expected_and_high() -> None:
    report = reports.starved_loader()
    ax = plot.savings(report)
    drawn(ax)
    first = next(finding.saving for finding in report.findings if finding.saving)
    span, dot = ax.lines[0].get_xdata(), ax.lines[1].get_xdata()
    assert list(span) == pytest.approx([100 * ns / report.step_ns for ns in (first.low_ns, first.high_ns)])
    assert list(dot) == pytest.approx([100 * first.expected_ns / report.step_ns])


def test_a_timeline_draws_every_rectangle_and_frames_the_finding() -> None:
    report = loop()
    bare = plot.timeline(report)
    framed = plot.timeline(report, finding="host-sync-in-step")
    drawn(framed)
    line = report.pictures.timelines[0]

    def count(ax) -> int:
        return sum(len(collection.get_paths()) for collection in ax.collections)

    assert count(bare) == sum(map(len, line.tracks))
    (waits,) = (f.fingerprint for f in report.findings if f.rule == "host-sync-in-step")
    assert count(framed) - count(bare) == len(line.highlights[waits].track) == 5
    with pytest.raises(KeyError, match="no finding 'nope'"):
        plot.timeline(report, finding="nope")
    with pytest.raises(KeyError, match="rank 7"):
        plot.timeline(report, rank=7)


def test_kernels_and_roofline_hold_the_values_of_the_pictures() -> None:
    report = loop()
    table = report.pictures.kernels
    ax = plot.kernels(report, most=1)
    drawn(ax)
    assert ax.patches[0].get_width() == pytest.approx(table.rows[0].total_ns / 1e6)
    assert ax.patches[1].get_width() == pytest.approx((table.total_ns - table.rows[0].total_ns) / 1e6)
    roof = plot.roofline(report)
    drawn(roof)
    point = report.pictures.roofline.points[0]
    assert roof.collections[0].get_offsets().tolist() == [[pytest.approx(point.intensity), pytest.approx(point.flops)]]


def test_ranks_by_parts_and_by_steps() -> None:
    report = loop()
    for by, shape in (("parts", 1), ("steps", 6)):
        ax = plot.ranks(report, by=by)
        drawn(ax)
        assert ax.images[0].get_array().shape[0] == 1 and ax.images[0].get_array().shape[1] >= shape
    with pytest.raises(ValueError, match="'parts' and 'steps'"):
        plot.ranks(report, by="x")


def test_names_from_a_recording_are_never_taken_for_formulas() -> None:
    report = loop(HOSTILE)
    for name in ("timeline", "kernels", "step_bars", "ranks", "savings"):
        drawn(getattr(plot, name)(report))
    table = reports.starved_loader()
    table.findings[0].rule = HOSTILE
    drawn(plot.savings(table))


def test_an_axes_of_ones_own_is_used() -> None:
    _, ax = plt.subplots()
    assert plot.step_bars(reports.two_ranks(), ax=ax) is ax


@pytest.mark.parametrize("name", ALL)
def test_without_data_it_says_what_to_do(name: str) -> None:
    empty = Report(version="0", run=run_facts(None), step_ns=None)
    with pytest.raises(plot.NothingToDraw, match=r"pictures=True|no step|no finding|GPU work"):
        getattr(plot, name)(empty)


def test_memory_is_drawn_in_bytes_with_its_peak() -> None:
    w = Workload()
    for _ in w.steps(4):
        w.alloc(3 << 30)
        w.launch("gemm", 100)
        w.alloc(-(3 << 30))
    report = advisor.analyze(w.to_run(), pictures=True)
    (one,) = report.pictures.memory
    assert one.peak_allocated == 3 << 30 and max(one.allocated.value) == 3 << 30 and one.allocated.points == 8
    assert len(one.step_start_ns) == 4
    ax = plot.memory(report)
    drawn(ax)
    assert max(ax.lines[0].get_ydata()) == 3.0 and ax.get_ylabel() == "memory, GiB"
    with pytest.raises(plot.NothingToDraw, match="rank and device"):
        plot.memory(report, device=5)
    with pytest.raises(plot.NothingToDraw, match="profile_memory=True"):
        plot.memory(loop())


def test_samples_are_drawn_beside_the_steps() -> None:
    folder = Path(__file__).resolve().parents[1] / "sample_traces"
    run = advisor.load([folder / "loader-starved.torch.json.gz", folder / "loader-starved.smi.csv"])
    report = advisor.analyze(run, pictures=True)
    found = report.pictures.samples
    assert found.gpus[0].samples == len(run.table("device_samples"))
    ax = plot.samples(report, "power")
    drawn(ax)
    assert ax.get_ylabel() == "power, W"
    assert max(ax.lines[0].get_ydata()) == pytest.approx(max(found.gpus[0].metrics["power"].value))
    assert found.aligned == (found.reason is None) == (len(ax.lines) > len(found.gpus))
    with pytest.raises(KeyError, match="there are"):
        plot.samples(report, "voltage")


def test_huge_breakdowns_stay_small() -> None:
    report = Report(version="0", run=run_facts(10.0), step_ns=10_000_000)
    report.breakdown = [part(10.0 + rank / 100, 5.0, rank=rank) for rank in range(500)]
    ax = plot.step_bars(report)
    assert len(ax.get_yticks()) == 32
    drawn(plot.ranks(report))


def test_plots_are_found_on_the_package_and_load_matplotlib_only_when_used() -> None:
    program = "import sys, advisor; advisor.plot; print('matplotlib' in sys.modules, sorted(advisor.plot.__all__))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == f"False {sorted((*ALL, 'NothingToDraw'))}"
