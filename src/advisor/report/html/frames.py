"""What all drawn sections share: the box of a chart, names cut to length, GPUs by name."""

from __future__ import annotations

from advisor.report import text as t
from advisor.report.html.markup import Html, tag

_NAME = 240  # characters of a name in the data and in tables


def cut(name: str) -> str:
    return t.shorten(t.clean(t.shorten(str(name), _NAME)), _NAME)


def chart(kind: str, label: str, *around: object, index: int | None = None) -> Html:
    """The box that a script draws into; without script it says where the figures are."""
    return tag(
        "figure",
        tag("div", class_="canvas", role="img", aria_label=label),
        tag("noscript", tag("p", "The drawing needs JavaScript. Its figures are in the table below.", class_="quiet")),
        around,
        class_=f"chart {kind}",
        data_chart=kind,
        data_index=index,
    )


def gpu(rank: int | None, device: int | None) -> str:
    where = "all GPUs" if device is None else f"GPU {device}"
    return where if rank is None else f"rank {rank}, {where}"
