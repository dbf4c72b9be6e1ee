"""Plots of what a step is made of and what could be saved of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model import Breakdown, Report
from advisor.plot.style import PALETTE, NothingToDraw, axes, pictures_of, rank_label, safe, time_scale
from advisor.report.summary import parts
from advisor.report.text import BUSY_PARTS, IDLE_CAUSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS = 32
MOST_FINDINGS = 20


def step_bars(report: Report, ax: Axes | None = None) -> Axes:
    """Where the recorded step of each GPU goes, one bar a GPU, idle time by cause; of many GPUs the slowest."""
    usable = sorted((part for part in report.breakdown if part.step_ns > 0), key=lambda part: -part.step_ns)[:MOST_BARS]
    if not usable:
        raise NothingToDraw("the recording holds no step with GPU work")
    usable.sort(key=_order)
    ax = axes(ax, 9.0, 1.6 + 0.35 * len(usable))
    scale, unit = time_scale(max(part.step_ns for part in usable))
    rows = [parts(part) for part in usable]
    left = [0.0] * len(rows)
    for name, label in (BUSY_PARTS | IDLE_CAUSES).items():
        widths = [row.get(name, 0) / scale for row in rows]
        if any(widths):
            ax.barh(range(len(rows)), widths, left=left, color=PALETTE[name], label=label)
            left = [a + b for a, b in zip(left, widths, strict=True)]
    ax.set_yticks(range(len(rows)), [rank_label(part.rank, part.device) for part in usable])
    ax.invert_yaxis()
    ax.set_xlabel(f"a step as recorded, {unit}")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    return ax


def _order(part: Breakdown) -> tuple[int, int]:
    return (-1 if part.rank is None else part.rank, part.device)


def savings(report: Report, ax: Axes | None = None) -> Axes:
    """What each finding would save of a step: a dot for what is expected, a line from low to high; and all together."""
    saving = [(finding.rule, finding.saving) for finding in report.findings if finding.saving is not None][:MOST_FINDINGS]
    if not saving or not report.step_ns:
        raise NothingToDraw("no finding of this report promises a saving")
    rows = [*saving, *([("all together", report.combined)] if report.combined and len(saving) > 1 else [])]
    ax = axes(ax, 8.0, 1.4 + 0.32 * len(rows))
    for at, (_, one) in enumerate(rows):
        low, expected, high = (100 * ns / report.step_ns for ns in (one.low_ns, one.expected_ns, one.high_ns))
        color = "0.3" if at == len(saving) else PALETTE["communication"]
        ax.plot([low, high], [at, at], color=color, linewidth=3, alpha=0.4, solid_capstyle="butt")
        ax.plot([expected], [at], "o", color=color)
    ax.set_yticks(range(len(rows)), [safe(name) for name, _ in rows])
    ax.invert_yaxis()
    ax.set_xlim(0, 100 if report.combined and report.combined.high_ns > 0.6 * report.step_ns else None)
    ax.set_xlabel("saved of a step, %")
    return ax


def ranks(report: Report, by: str = "parts", ax: Axes | None = None) -> Axes:
    """All GPUs as a heat map. by: "parts", what their steps are made of; "steps", how long each step took on each rank."""
    if by == "parts":
        if not report.breakdown:
            raise NothingToDraw("the recording holds no step with GPU work")
        rows = sorted((part for part in report.breakdown), key=_order)
        names = [name for name in BUSY_PARTS | IDLE_CAUSES if any(parts(part).get(name) for part in rows)]
        cells = [[parts(part).get(name, 0) for name in names] for part in rows]
        left = [rank_label(part.rank, part.device) for part in rows]
        below = [(BUSY_PARTS | IDLE_CAUSES)[name] for name in names]
    elif by == "steps":
        found = pictures_of(report, "step_map").step_map
        cells = [[float("nan") if ns is None else ns for ns in row] for row in found.cells]  # type: ignore[misc]
        left, below = [rank_label(rank) or "the process" for rank in found.rank], [str(number) for number in found.number]
    else:
        raise ValueError(f"by={by!r}; there are 'parts' and 'steps'")
    scale, unit = time_scale(int(max((ns for row in cells for ns in row if ns == ns), default=1)))
    ax = axes(ax, max(4.0, min(2.0 + 0.5 * len(below), 14.0)), max(2.5, min(1.5 + 0.25 * len(left), 14.0)))
    image = ax.imshow([[ns / scale for ns in row] for row in cells], aspect="auto", cmap="cividis", interpolation="nearest")
    every = max(len(left) // 40, 1)
    ax.set_yticks(range(0, len(left), every), left[::every])
    across = max(len(below) // 40, 1)
    ax.set_xticks(range(0, len(below), across), below[::across], rotation=40 if by == "parts" else 0, ha="right")
    if by == "steps":
        ax.set_xlabel("step")
    ax.figure.colorbar(image, ax=ax, label=f"time a step, {unit}")
    return ax
