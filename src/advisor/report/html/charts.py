"""The drawn sections: a place for each chart, its figures as a table beside it, and the data that the scripts draw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from advisor.model import Report
from advisor.model.pictures import Curve, MemoryCurve, Pictures, SampleCurves, Samples, Timeline
from advisor.report import gates
from advisor.report import text as t
from advisor.report.html.findings import MOST
from advisor.report.html.frames import chart, cut, gpu
from advisor.report.html.kernels import ROOFLINE, kernel_section, roofline_section
from advisor.report.html.markup import Html, folded, section, table, tag
from advisor.report.json_document import plain

NO_PICTURES = "This page was made from a saved report, which holds no events. Made from the recordings it shows this too."
SELECT = "Nothing selected. Click a rectangle, or choose a finding."
MEMORY = "GPU memory over time"
SENSORS = "The GPU's own sensors"
_LONGEST = 20  # idle intervals in the table beside the timeline
_GPUS = 16  # drawn one by one
_POINTS = 24  # moments in the table beside a curve


def chart_sections(report: Report) -> list[Html | None]:
    pictures = report.pictures
    if pictures is None:
        return [section("timeline", "Timeline", tag("p", NO_PICTURES, class_="quiet"))]
    names = _strings(pictures)
    why = pictures.missing
    return [
        _timeline(report, pictures.timelines, names) or _absent("timeline", "One step in time", why.get("timelines")),
        _ranks(pictures),
        _memory(pictures.memory) or _absent("memory", MEMORY, why.get("memory")),
        _samples(pictures.samples) or _absent("samples", SENSORS, why.get("samples")),
        roofline_section(pictures.roofline, names) or _absent("roofline", ROOFLINE, why.get("roofline")),
        kernel_section(pictures, names) or _absent("kernels", "Kernels", why.get("kernels")),
    ]


def data(report: Report) -> str:
    """What the scripts read: JSON in which no character can end the element it stands in."""
    titles = [{"fingerprint": one.fingerprint, "title": cut(t.sentence(one.title))} for one in report.findings[:MOST]]
    document: dict[str, Any] = {"findings": titles}
    if report.pictures is not None:
        shown = report.pictures.to_dict()
        shown.pop("kernels")  # a table of the page, which needs no script to be read
        document |= {**shown, "strings": _strings(report.pictures)}
        document["ranks"]["columns"] = [cut(name) for name in document["ranks"]["columns"]]
    text = json.dumps(plain(document), ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _strings(pictures: Pictures) -> list[str]:
    return [cut(name) for name in pictures.strings]


def _absent(id: str, title: str, reason: str | None) -> Html:
    return section(
        id, title, tag("p", t.sentence(reason or "The recording holds nothing that could be drawn"), class_="quiet absent")
    )


# The timeline


def _timeline(report: Report, timelines: list[Timeline], names: list[str]) -> Html | None:
    if not timelines:
        return None
    first = timelines[0]
    notes = list(dict.fromkeys(note for timeline in timelines for note in timeline.notes))
    return section(
        "timeline",
        "One step in time",
        _controls(report, timelines),
        tag(
            "figure",
            tag(
                "div",
                class_="canvas",
                role="application",
                tabindex="0",
                aria_label="Timeline. Arrow left and right pan, plus and minus zoom, arrow up and down choose a track, "
                "comma and full stop go from event to event, 0 shows all.",
            ),
            tag("noscript", tag("p", "The drawing needs JavaScript. Its figures are in the table below.", class_="quiet")),
            class_="chart timeline",
            data_chart="timeline",
        ),
        tag("div", SELECT, class_="details", role="status", aria_live="polite"),
        tag("ul", class_="legend", id="timeline-legend", aria_label="Colours of the timeline"),
        tag("ul", (tag("li", t.sentence(note)) for note in notes[:20]), class_="notes") if notes else None,
        [folded(f"As a table: {_whose(one)}", _tracks(one), _idle(one)) for one in timelines],
        lead=f"{_which(first)}. Drag to pan, Ctrl and wheel (or pinch) to zoom.",
    )


def _which(timeline: Timeline) -> str:
    number = f"Step {timeline.number}" if timeline.number is not None else f"Recorded step {timeline.step}"
    return f"{number}, {t.duration(timeline.duration_ns, 3)} from the first moment to the last on both sides"


def _whose(timeline: Timeline) -> str:
    who = "the step" if timeline.rank is None else f"rank {timeline.rank}"
    return f"{who} ({timeline.why})" if timeline.why else who


def _controls(report: Report, timelines: list[Timeline]) -> Html:
    ranks = [tag("option", _whose(one), value=str(i)) for i, one in enumerate(timelines)]
    shown = {key for one in timelines for key, marked in one.highlights.items() if marked.start_ns}
    marked = [
        tag("option", f"{i}. {t.sentence(t.shorten(one.title, 90))}", value=one.fingerprint)
        for i, one in enumerate(_numbered(report), 1)
        if one.fingerprint in shown
    ]
    buttons = (("out", "−", "Zoom out"), ("in", "+", "Zoom in"), ("all", "Whole step", None))
    return tag(
        "div",
        tag("label", "Rank ", tag("select", ranks, id="timeline-rank")) if len(ranks) > 1 else None,
        tag("label", "Highlight ", tag("select", tag("option", "no finding", value=""), marked, id="timeline-finding"))
        if marked
        else None,
        tag(
            "span",
            (tag("button", words, type="button", data_zoom=zoom, aria_label=spoken) for zoom, words, spoken in buttons),
            class_="zoom",
        ),
        class_="controls",
        hidden=True,
    )


def _numbered(report: Report) -> list[Any]:
    main, also = (gates.standing(report, found) for found in t.sections(report))
    return main + also


def _tracks(timeline: Timeline) -> Html:
    rows = [
        [cut(track.label), f"{track.events:,}", t.duration(sum(track.covered_ns)), f"{track.hidden:,}" if track.hidden else ""]
        for track in timeline.tracks
        if track.kind != "idle"
    ]
    columns = ["Track", "events", "time, levels added up", "not drawn, too deep"]
    return table(columns, rows, right=(1, 2, 3), caption="What each track holds")


def _idle(timeline: Timeline) -> Html | None:
    rows = sorted(
        (
            (-duration, start, timeline.categories[category], track.label)
            for track in timeline.tracks
            if track.kind == "idle"
            for start, duration, category in zip(track.start_ns, track.duration_ns, track.category, strict=True)
        ),
    )
    if not rows:
        return None
    shown = [
        [t.IDLE_CAUSES.get(cause, cause), t.duration(-duration), t.duration(start), cut(label)]
        for duration, start, cause, label in rows[:_LONGEST]
    ]
    caption = f"Longest times without GPU work ({len(shown)} of {len(rows)})"
    return table(["Waits for", "how long", "from", "where"], shown, right=(1, 2), caption=caption)


# Ranks


def _ranks(pictures: Pictures) -> Html | None:
    """Of several ranks or GPUs: how their steps differ by part, and by step."""
    parts, steps = pictures.ranks, pictures.step_map
    blocks: list[object] = []
    if len(parts.cells) > 1:
        rows = [
            [gpu(rank, device), *(t.duration(ns) for ns in cells)]
            for rank, device, cells in zip(parts.rank, parts.device, parts.cells, strict=True)
        ]
        columns = ["GPU", *(cut(t.IDLE_CAUSES.get(name, name)) for name in parts.columns)]
        blocks += [
            tag("h3", "By part of the step"),
            chart("ranks", f"Heat map of {len(rows)} GPUs by parts of the step; the figures are in the table below."),
            folded("As a table", table(columns, rows, right=range(1, len(columns)), caption="Parts of the step by GPU")),
            _left_out(parts.left_out, "faster GPU"),
        ]
    if len(steps.cells) > 1 and steps.number:
        rows = [
            ["the run" if rank is None else f"rank {rank}", *("" if ns is None else t.duration(ns) for ns in cells)]
            for rank, cells in zip(steps.rank, steps.cells, strict=True)
        ]
        columns = ["rank", *(f"step {number}" for number in steps.number)]
        blocks += [
            tag("h3", "By step"),
            chart("steps", f"Heat map of {len(rows)} ranks by {len(steps.number)} steps; the figures are in the table below."),
            folded("As a table", table(columns, rows, right=range(1, len(columns)), caption="Each step by rank")),
            _left_out(steps.left_out_ranks, "faster rank"),
            _left_out(steps.left_out_steps, "later step"),
            None if all(steps.steady) else tag("p", "* left out of the figures: not a steady step.", class_="quiet"),
        ]
    if not blocks:
        return None
    lead = "The stronger the colour, the longer: of parts from the least to the most of each column, of steps over all."
    return section("ranks", "Ranks side by side", blocks, lead=lead)


def _left_out(number: int, what: str) -> Html | None:
    return tag("p", f"{t.count(number, what)} left out.", class_="quiet") if number else None


# Curves


def _memory(curves: list[MemoryCurve]) -> Html | None:
    if not curves:
        return None
    rows = [
        [
            gpu(one.rank, one.device),
            t.size(one.peak_allocated),
            "" if one.peak_reserved is None else t.size(one.peak_reserved),
            "" if one.capacity is None else t.size(one.capacity),
            t.size(one.allocated.value[0]) if one.allocated.value else "",
            t.size(one.allocated.value[-1]) if one.allocated.value else "",
        ]
        for one in curves
    ]
    columns = ["GPU", "peak allocated", "peak reserved", "memory of the GPU", "allocated first", "allocated last"]
    return section(
        "memory",
        MEMORY,
        chart("memory", "Memory of the allocator over time; the figures are in the table below."),
        table(columns, rows, right=range(1, 6), caption="Memory of the caching allocator"),
        [
            folded(f"The curve of {gpu(one.rank, one.device)} as a table", _moments({"allocated": one.allocated}, t.size))
            for one in curves[:16]
        ],
        lead="What tensors hold (allocated) and what the framework's cache keeps from the GPU (reserved).",
    )


def _moments(curves: dict[str, Curve], words: Any) -> Html:
    """Some moments of curves that share their times, evenly picked."""
    one = next(iter(curves.values()))
    every = max(len(one.time_ns) // _POINTS, 1)
    rows = [
        [t.duration(one.time_ns[i]), *(words(curve.value[i]) for curve in curves.values())]
        for i in range(0, len(one.time_ns), every)
    ]
    return table(["time", *curves], rows, right=range(len(curves) + 1), caption="Moments of the curve", hidden_caption=True)


def _samples(samples: Samples | None) -> Html | None:
    if samples is None or not samples.gpus:
        return None
    aligned = "Grey bands are recorded steps."
    if not samples.aligned:
        aligned = f"Not aligned with the steps: {t.clean(samples.reason or 'another clock').rstrip('.')}."
    curves = [
        [
            tag("h3", _sampled(one)) if len(samples.gpus) > 1 else None,
            chart("samples", f"Curves of {_sampled(one)}; the figures are in the table below.", index=i),
        ]
        for i, one in enumerate(samples.gpus[:_GPUS])
    ]
    return section(
        "samples",
        SENSORS,
        curves,
        table(
            ["GPU", "value", "lowest", "mean of moments", "highest"],
            (row for one in samples.gpus for row in _metric_rows(one)),
            right=(2, 3, 4),
            caption="Samples in figures",
        ),
        lead=f"{aligned} Utilisation is the share of time with any kernel running, not how full the GPU was.",
    )


def _sampled(one: SampleCurves) -> str:
    name = gpu(one.rank, one.device)
    return f"{name}, {cut(one.name)}" if one.name else name


def _metric_rows(one: SampleCurves) -> Iterator[list[object]]:
    for metric, curve in one.metrics.items():
        unit = one.units.get(metric, "")
        if curve.value:
            mean = sum(curve.value) / len(curve.value)
            figures = [_with_unit(value, unit) for value in (min(curve.value), mean, max(curve.value))]
            yield [_sampled(one), metric.replace("_", " "), *figures]
    for throttled in one.throttled:
        total = t.duration(sum(throttled.duration_ns))
        yield [_sampled(one), f"throttled: {cut(throttled.label)}", "", "", f"{total} in all"]


def _with_unit(value: float, unit: str) -> str:
    return t.size(value) if unit in ("B", "bytes") else f"{t.significant(value, 3)} {unit}".rstrip()
