"""Plots of kernels: which take most time, and how near their GPU's peaks they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.model import Report
from advisor.plot.style import axes, color_of, pictures_of, safe, time_scale
from advisor.report.text import kernel_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED = 8


def kernels(report: Report, most: int = 15, ax: Axes | None = None) -> Axes:
    """The kernels and copies that take most time of a step, and all others together."""
    pictures = pictures_of(report, "kernels")
    table = pictures.kernels
    assert table is not None
    rows = [(pictures.strings[row.name], row.kernel_class, row.total_ns, row.calls) for row in table.rows[:most]]
    rest = table.total_ns - sum(ns for *_, ns, _ in rows)
    left = len(table.rows) - len(rows) + table.other_names
    if left:
        rows.append((f"{left} others", "", max(rest, 0), 0.0))
    ax = axes(ax, 9.0, 1.2 + 0.28 * len(rows))
    scale, unit = time_scale(max(ns for *_, ns, _ in rows))
    ax.barh(
        range(len(rows)), [ns / scale for *_, ns, _ in rows], color=[color_of(kind) if kind else "0.7" for _, kind, *_ in rows]
    )
    for at, (_, kind, ns, calls) in enumerate(rows):
        share = f"{100 * ns / table.total_ns:.1f} %" if table.total_ns else ""
        ax.annotate(
            f" {share}" + (f", {calls:g} x, {kind}" if kind else ""),
            (ns / scale, at),
            va="center",
            fontsize="x-small",
            color="0.4",
        )
    ax.set_yticks(range(len(rows)), [safe(kernel_name(name), 50) for name, *_ in rows], fontsize="small")
    ax.invert_yaxis()
    ax.margins(x=0.25)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"GPU time a {table.per}, {unit}")
    return ax


def roofline(report: Report, ax: Axes | None = None) -> Axes:
    """The costliest kernels under their GPU's roofs, both axes logarithmic; the area of a dot is its time.

    Kernels of which only the bytes are known are drawn as ticks at the bandwidth that they reach, at the left edge.
    """
    pictures = pictures_of(report, "roofline")
    found = pictures.roofline
    assert found is not None
    ax = axes(ax, 10.0, 4.5)
    placed = [(point.intensity, point.flops, point) for point in found.points if point.intensity and point.flops]
    used = sorted({point.dtype for *_, point in placed if point.dtype}) or list(found.peaks)[:3]
    ridges = [found.peaks[dtype] / found.bandwidth for dtype in used if dtype in found.peaks]
    low = min([intensity for intensity, *_ in placed] + [min(ridges, default=1.0) / 100]) / 2
    high = max([intensity for intensity, *_ in placed] + ridges) * 4
    for dtype in used:
        if dtype in found.peaks:
            peak = found.peaks[dtype]
            ridge = peak / found.bandwidth
            ax.plot(
                [low, ridge, high],
                [low * found.bandwidth, peak, peak],
                linewidth=1.2,
                label=f"{dtype}: {peak / 1e12:.4g} TFLOP/s",
            )
    longest = max((point.total_ns for point in found.points), default=1)
    for intensity, flops, point in placed:
        size = 20 + 280 * point.total_ns / max(longest, 1)
        ax.scatter([intensity], [flops], s=size, color=color_of(point.kernel_class), alpha=0.7, edgecolor="0.3", zorder=3)
    for number, (intensity, flops, point) in enumerate(placed[:MOST_NAMED], 1):
        ax.annotate(str(number), (intensity, flops), fontsize="x-small", ha="center", va="center", zorder=4)
        ax.plot([], [], " ", label=f"{number}  {safe(kernel_name(pictures.strings[point.name]), 44)}")
    moving = [point for point in found.points if point.flops is None and point.bandwidth]
    for point in moving:
        # On the slope's own scale: where the roof of that bandwidth meets the left edge.
        ax.plot([low, low * 1.15], [low * (point.bandwidth or 0)] * 2, color=color_of(point.kernel_class), linewidth=2, zorder=3)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_xlabel("FLOP a byte (least bytes that the kernel can move)")
    ax.set_ylabel("FLOP/s")
    note = f"; ticks at the left: bandwidth of {len(moving)} kernels without known FLOPs" if moving else ""
    ax.set_title(safe(f"{found.gpu}, {found.bandwidth / 1e12:.3g} TB/s{note}", 110), fontsize="small")
    ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax
