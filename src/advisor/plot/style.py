"""What all plots share: the Axes, colours, safe text, and the pictures of the report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from advisor.model import Report
from advisor.model.pictures import Pictures
from advisor.report.colors import PARTS as PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# By category of a timeline; classes of kernels that are not named here count as compute.
CATEGORY_COLORS = {
    **PALETTE,
    "Python frame": "#D9C89E",
    "operator": "#9FB8D8",
    "CUDA call": "#5B7DB1",
    "range": "#C8C8C8",
    "memory copy": PALETTE["copy"],
    "memory set": "#A6DDF2",
    "communication": PALETTE["communication"],
    "matrix multiply": "#009E73",
    "convolution": "#00805E",
    "attention": "#33B890",
    "elementwise": "#7CC36E",
    "copy or cast": "#A8C97F",
    "normalisation": "#5FA8A0",
    "optimizer": "#4F9D69",
}
_DURATIONS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))


class NothingToDraw(ValueError):
    """The report holds nothing for this plot; the message says why and what to record."""


def axes(ax: Axes | None, width: float = 9.0, height: float = 3.5) -> Axes:
    """The Axes given, else those of a new figure. ImportError, saying what to install, without matplotlib."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'gpu-advisor[notebook]'") from error
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def pictures_of(report: Report, picture: str) -> Pictures:
    """The pictures of a report. NothingToDraw where it has none of that name."""
    if report.pictures is None:
        raise NothingToDraw("the report was made without pictures: advisor.analyze(run, pictures=True)")
    if picture in report.pictures.missing:
        raise NothingToDraw(f"no {picture.replace('_', ' ')}: {report.pictures.missing[picture]}")
    return report.pictures


def safe(text: str, most: int = 60) -> str:
    """Text of a recording as matplotlib prints it as it stands: no formulas, no control characters, not too long."""
    text = "".join(c if c.isprintable() else " " for c in text).replace("$", r"\$")
    return text if len(text) <= most else text[: most * 2 // 3] + "…" + text[len(text) - most // 3 :]


def color_of(category: str) -> str:
    return CATEGORY_COLORS.get(category, PALETTE["compute"])


def time_scale(ns: int) -> tuple[float, str]:
    """(ns of a unit, its name) in which so long a time is read best."""
    return next(((scale, unit) for scale, unit in _DURATIONS if ns >= scale), _DURATIONS[-1])


def rank_label(rank: int | None, device: int | None = None) -> str:
    parts = [] if rank is None else [f"rank {rank}"]
    return " ".join([*parts, *([] if device is None else [f"GPU {device}"])])


def steps(time: list[int], value: list[Any], until: int) -> tuple[list[int], list[Any]]:
    """A curve that holds each value until the next, up to the end."""
    return [*time, max(until, time[-1])], [*value, value[-1]]


def bytes_scale(most: float) -> tuple[float, str]:
    power = max(min(int(math.log(most, 1024)), 4), 0) if most > 0 else 0
    return 1024.0**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]
