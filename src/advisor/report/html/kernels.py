"""The kernels of the page: under the roofs of the GPU, and as a table that sorts and searches."""

from __future__ import annotations

from advisor.model.pictures import KernelRow, Pictures, Roofline
from advisor.report import text as t
from advisor.report.html.frames import chart, cut, gpu
from advisor.report.html.markup import Html, folded, section, table, tag

ROOFLINE = "Kernels under the roofs of the GPU"


def roofline_section(roofline: Roofline | None, names: list[str]) -> Html | None:
    if roofline is None or not roofline.points:
        return None
    rows = [
        [
            tag("code", names[point.name]),
            point.kernel_class,
            point.dtype or "",
            t.duration(point.total_ns),
            "" if point.intensity is None else t.significant(point.intensity, 3),
            "" if point.flops is None else f"{t.significant(point.flops / 1e12, 3)} TFLOP/s",
            "" if point.bandwidth is None else f"{t.significant(point.bandwidth / 1e9, 3)} GB/s",
            t.percent(point.peak_share),
        ]
        for point in roofline.points
    ]
    columns = ["kernel", "class", "dtype", "a step", "FLOP/byte", "reached", "moved", "of its roof"]
    placed = any(point.flops and point.intensity for point in roofline.points)
    moving = any(not (point.flops and point.intensity) and point.bandwidth for point in roofline.points)
    return section(
        "roofline",
        ROOFLINE,
        chart("roofline", "Roofline: speed reached over FLOP per byte, both logarithmic; the figures are in the table below.")
        if placed
        else None,
        [
            tag("h3", "Kernels that only move data: share of the memory bandwidth, and time a step"),
            chart("moving", "Bars: share of the memory bandwidth that each kernel reaches; the figures are in the table below."),
        ]
        if moving
        else None,
        folded("As a table", table(columns, rows, right=range(3, 8), caption="Kernels and their roofs", head=False)),
        lead=f"{cut(roofline.gpu)}. The size of a dot is the kernel's share of the step; "
        "the further below its roof, the more there is to gain.",
    )


def kernel_section(pictures: Pictures, names: list[str]) -> Html | None:
    kernels = pictures.kernels
    if kernels is None or not kernels.rows:
        return None
    rows = [_kernel(row, names) for row in kernels.rows]
    per = "a step" if kernels.per == "step" else "in the recording"
    columns = (
        ("Kernel", ""),
        (f"time {per}", "n"),
        ("share", "n"),
        (f"calls {per}", "n"),
        ("mean", "n"),
        ("median", "n"),
        ("class", ""),
        ("tensor cores", ""),
        ("occupancy", "n"),
        ("grid × block", ""),
        ("launched by", ""),
    )
    others = kernels.others
    return section(
        "kernels",
        "Kernels",
        tag(
            "div",
            tag("label", "Search ", tag("input", type="search", id="kernel-search", autocomplete="off", spellcheck="false")),
            tag("output", f"{len(rows)} of {len(rows)}", id="kernel-count", for_="kernel-search"),
            class_="controls",
            hidden=True,
        ),
        tag(
            "div",
            tag(
                "table",
                tag("caption", f"Kernels and copies, {per}", class_="sr"),
                tag(
                    "thead",
                    tag(
                        "tr",
                        (
                            tag("th", name, scope="col", class_=kind or None, aria_sort="descending" if i == 1 else None)
                            for i, (name, kind) in enumerate(columns)
                        ),
                    ),
                ),
                tag("tbody", rows),
                class_="sortable",
                id="kernel-table",
            ),
            class_="scroll tall",
            tabindex="0",
            role="group",
            aria_label="Table of kernels",
        ),
        tag(
            "p",
            f"{t.count(kernels.other_names, 'more name')} with {t.duration(others.total_ns)} "
            f"and {t.significant(others.calls, 3)} calls are not listed.",
            class_="quiet",
        )
        if others is not None
        else None,
        lead=f"{gpu(kernels.rank, kernels.device)}: {t.duration(kernels.total_ns, 3)} of GPU work {per}, all streams added up.",
    )


def _kernel(row: KernelRow, names: list[str]) -> Html:
    def figure(value: float | None, words: str) -> Html:
        return tag("td", "" if value is None else words, class_="n", data_value="" if value is None else repr(value))

    return tag(
        "tr",
        tag("th", tag("code", names[row.name]), scope="row"),
        figure(row.total_ns, t.duration(row.total_ns)),
        figure(row.share, t.percent(row.share)),
        figure(row.calls, t.significant(row.calls, 3)),
        figure(row.mean_ns, t.duration(row.mean_ns)),
        figure(row.median_ns, t.duration(row.median_ns)),
        tag("td", row.kernel_class, class_="keep"),
        tag("td", t.cell("", row.tensor_cores)),
        figure(row.occupancy, f"{t.significant(row.occupancy or 0, 2)} %"),
        tag("td", " × ".join(_size(one) for one in (row.grid, row.block) if one), class_="keep"),
        tag("td", tag("code", names[row.operator]) if row.operator is not None else None, class_="keep"),
    )


def _size(size: list[int]) -> str:
    """'24' or '(2, 64)': ones at the end go without saying."""
    while len(size) > 1 and size[-1] == 1:
        size = size[:-1]
    return str(size[0]) if len(size) == 1 else f"({', '.join(map(str, size))})"
