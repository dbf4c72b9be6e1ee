"""Plots over time: a step, the memory, what was sampled of the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from advisor.model import Report
from advisor.model.pictures import Curve, Timeline, Track
from advisor.plot.style import NothingToDraw, axes, bytes_scale, color_of, pictures_of, rank_label, safe, steps, time_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARK = "#D7263D"
_LABELS = {
    "utilization": "utilisation",
    "memory_utilization": "memory controller",
    "sm_clock": "SM clock",
    "memory_used": "memory in use",
}


def timeline(report: Report, rank: int | None = None, finding: str | None = None, ax: Axes | None = None) -> Axes:
    """One representative step: host threads, streams, collectives, idle time of the GPU by cause.

    rank: which of the shown ranks, default the one that sets the pace; finding: rule or fingerprint of a finding whose
    intervals are framed. KeyError for a rank or finding that is not there.
    """
    pictures = pictures_of(report, "timelines")
    line = _line(pictures.timelines, rank)
    rows = sum(track.depths for track in line.tracks)
    ax = axes(ax, 11.0, min(max(1.5 + 0.22 * rows, 3.0), 14.0))
    scale, unit = time_scale(line.duration_ns)
    at, used = 0, dict[str, None]()
    ticks, labels, places = [], [], []
    for track in line.tracks:
        depths = 1 if track.kind == "idle" else track.depths
        _draw_track(ax, line, track, at, scale)
        used.update(dict.fromkeys(line.categories[code] for code in track.category))
        ticks.append(at + depths / 2)
        labels.append(safe(track.label, 40))
        places.append((at, depths))
        at += depths + 1
    if finding is not None:
        mark = line.highlights[_fingerprint(report, finding)]
        for number, start, length in zip(mark.track, mark.start_ns, mark.duration_ns, strict=True):
            low, depths = places[number]
            ax.broken_barh([(start / scale, length / scale)], (low, depths), facecolor="none", edgecolor=_MARK, linewidth=1.2)
    ax.set_ylim(at, -0.5)
    ax.set_xlim(0, line.duration_ns / scale)
    ax.set_yticks(ticks, labels)
    ax.set_xlabel(f"time in the step, {unit}")
    who = rank_label(line.rank)
    ax.set_title(safe(f"step {line.step if line.number is None else line.number}{f' of {who}' if who else ''}: {line.why}", 100))
    handles = [ax.broken_barh([], (0, 0), facecolor=color_of(category), label=safe(category)) for category in used]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    return ax


def _draw_track(ax: Axes, line: Timeline, track: Track, at: int, scale: float) -> None:
    """Rectangles by depth and colour; merged ones are paler, the less of them is covered."""
    by_look: dict[tuple[int, int, float], list[tuple[float, float]]] = {}
    for start, length, depth, category, count, covered in zip(
        track.start_ns, track.duration_ns, track.depth, track.category, track.count, track.covered_ns, strict=True
    ):
        strength = 1.0 if count == 1 else 0.3 + 0.1 * round(6 * covered / length)
        by_look.setdefault((depth, category, strength), []).append((start / scale, length / scale))
    for (depth, category, strength), spans in by_look.items():
        row = at if track.kind == "idle" else at + depth
        ax.broken_barh(spans, (row, 0.9), facecolor=color_of(line.categories[category]), alpha=strength, linewidth=0)


def _line(lines: list[Timeline], rank: int | None) -> Timeline:
    if rank is None:
        return lines[0]
    for line in lines:
        if line.rank == rank:
            return line
    raise KeyError(f"rank {rank} is not among those shown: {', '.join(str(line.rank) for line in lines)}")


def _fingerprint(report: Report, name: str) -> str:
    for finding in report.findings:
        if name in (finding.rule, finding.fingerprint):
            return finding.fingerprint
    raise KeyError(f"no finding {name!r}; there are {', '.join(finding.rule for finding in report.findings) or 'none'}")


def memory(report: Report, rank: int | None = None, device: int | None = None, ax: Axes | None = None) -> Axes:
    """Memory that the allocator has in use and holds, over the whole recording, with the begin of each step.

    rank, device: only theirs; default: all GPUs.
    """
    pictures = pictures_of(report, "memory")
    chosen = [m for m in pictures.memory if rank in (None, m.rank) and device in (None, m.device)]
    if not chosen:
        raise NothingToDraw("no memory events of that rank and device")
    ax = axes(ax)
    size, size_unit = bytes_scale(max(m.peak_reserved or m.peak_allocated for m in chosen))
    scale, unit = time_scale(max(m.allocated.time_ns[-1] for m in chosen))
    for one in chosen:
        who = rank_label(one.rank, one.device)
        (drawn,) = _step_curve(ax, one.allocated, scale, size, f"{who} in use")
        if one.reserved is not None:
            _step_curve(ax, one.reserved, scale, size, f"{who} held by the allocator", color=drawn.get_color(), linestyle=":")
        if one.capacity and len(chosen) == 1 and one.capacity < 2 * (one.peak_reserved or one.peak_allocated):
            ax.axhline(one.capacity / size, color="0.5", linewidth=1, label="capacity of the GPU")
    _mark_steps(ax, chosen[0].step_start_ns, scale)
    ax.set_xlabel(f"time, {unit}")
    ax.set_ylabel(f"memory, {size_unit}")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize="small", frameon=False)
    return ax


def samples(report: Report, metric: str = "utilization", ax: Axes | None = None) -> Axes:
    """One sampled metric of every GPU over time; shaded where a GPU's clocks were held down.

    Steps are marked where the samples are on the trace's clock. KeyError for a metric that was not sampled.
    """
    pictures = pictures_of(report, "samples")
    found = pictures.samples
    assert found is not None
    known = sorted({name for gpu in found.gpus for name in gpu.metrics})
    if metric not in known:
        raise KeyError(f"{metric!r} was not sampled; there are {', '.join(known) or 'none'}")
    ax = axes(ax)
    curves = [(gpu, gpu.metrics[metric]) for gpu in found.gpus if metric in gpu.metrics]
    first = 0 if found.aligned else min(curve.time_ns[0] for _, curve in curves)
    scale, unit = time_scale(max(curve.time_ns[-1] - first for _, curve in curves))
    unit_of = curves[0][0].units[metric]
    size, unit_of = bytes_scale(max(max(c.value) for _, c in curves)) if unit_of == "bytes" else (1.0, unit_of)
    for gpu, curve in curves:
        moved = Curve([t - first for t in curve.time_ns], curve.value, curve.points)
        _step_curve(ax, moved, scale, size, rank_label(gpu.rank, gpu.device) or safe(gpu.name or "GPU"))
        for held in gpu.throttled:
            if held.label != "nothing to do":
                for start, length in zip(held.start_ns, held.duration_ns, strict=True):
                    ax.axvspan(
                        (start - first) / scale, (start - first + length) / scale, color="#D55E00", alpha=0.12, linewidth=0
                    )
    if found.aligned:
        _mark_steps(ax, pictures.steps.start_ns, scale)
    else:
        ax.set_title(safe(f"not on the trace's clock: {found.reason}", 100), fontsize="small")
    ax.set_xlabel(f"time, {unit}")
    ax.set_ylabel(f"{_LABELS.get(metric, metric.replace('_', ' '))}, {unit_of}")
    if len(curves) <= 16:
        ax.legend(fontsize="small", frameon=False)
    return ax


def _step_curve(ax: Axes, curve: Curve, scale: float, size: float, label: str, **look: Any) -> list[Any]:
    time, value = steps(curve.time_ns, curve.value, 0)
    return ax.plot(
        [t / scale for t in time], [v / size for v in value], drawstyle="steps-post", linewidth=1.2, label=label, **look
    )


def _mark_steps(ax: Axes, starts: list[int], scale: float) -> None:
    if len(starts) <= 200:
        for start in starts:
            ax.axvline(start / scale, color="0.5", linewidth=0.5, alpha=0.5)
