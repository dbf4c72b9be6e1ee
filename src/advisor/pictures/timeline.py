"""One representative step of a rank as a timeline: tracks with a bounded number of rectangles, links, highlights, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import activities
from advisor.derive.breakdown import breakdown_within
from advisor.derive.calls import links
from advisor.derive.detail import Rectangles, lanes, rectangles
from advisor.derive.steps import steps
from advisor.model import Breakdown, Finding, Run
from advisor.model.pictures import Curve, Links, Timeline, Track
from advisor.pictures.curves import curve
from advisor.pictures.highlights import MOST_INTERVALS, Places, highlight
from advisor.pictures.names import Names
from advisor.pictures.tracks import CATEGORIES, Events, cause_of, gpu_tracks, host_tracks, idle_track
from advisor.pictures.view import View

# Parts of a full view: what is narrower than one may be merged. A screen has about 2000; the rest is for zooming in.
FINEST = 32_000
MOST_RECTANGLES = 12_000  # over all timelines
MOST_LINKS = 4000  # over all timelines
MOST_DEPTHS = 32
MEMORY_POINTS = 800


def timeline(
    run: Run,
    view: View,
    names: Names,
    findings: Sequence[Finding],
    places: Places,
    views: int = 1,
) -> Timeline:
    """The timeline of a step, one of so many views that share the bounds.

    At most MOST_RECTANGLES rectangles, or one a depth of each track where those are more.
    """
    low, high = view.low, view.high
    notes: list[str] = []
    events, breakdowns = _events(run, view, notes)
    drawn = _drawn(events, view, MOST_RECTANGLES // views, notes)
    found = steps(run)
    number = int(found.number[view.step])
    tracks = [_track(each, depths, rects, hidden, names, low) for each, depths, rects, hidden in drawn]
    share = MOST_INTERVALS // views
    flagged = {finding.fingerprint: highlight(places, view, finding, events, share) for finding in findings}
    return Timeline(
        rank=view.rank if view.rank >= 0 else None,
        why=view.why,
        step=int(np.flatnonzero(found.of(view.rank, view.process) == view.step)[0]),
        number=number if found.source not in ("none", "inferred") else None,
        start_ns=low,
        duration_ns=high - low,
        host_start_ns=view.host[0] - low,
        host_end_ns=view.host[1] - low,
        gpu_start_ns=view.gpu[0] - low,
        gpu_end_ns=view.gpu[1] - low,
        breakdown=breakdowns,
        categories=list(CATEGORIES),
        tracks=tracks,
        links=_links(run, events, drawn, low, high, MOST_LINKS // views),
        highlights=flagged,
        memory=_memory(run, view),
        notes=notes,
    )


def _events(run: Run, view: View, notes: list[str]) -> tuple[list[Events], list[Breakdown]]:
    events, more, around = host_tracks(run, view.rank, view.process, view.low, view.high)
    if around:
        notes.append(f"{around} Python frames that enclose all of this are not drawn")
    if more:
        notes.append(f"{more} more host threads with few events are not shown")
    breakdowns = []
    for index, activity in enumerate(activities(run)):
        if (activity.gpu.rank, activity.gpu.process) != (view.rank, view.process):
            continue
        tracks, _ = gpu_tracks(run, index, view.low, view.high)
        events += [*tracks, idle_track(run, activity, *view.gpu)]
        window = (np.array([view.gpu[0]], np.int64), np.array([view.gpu[1]], np.int64))
        breakdowns.append(breakdown_within(run, activity, window))
    if view.gpu[0] > view.host[1]:
        notes.append("the host runs so far ahead that the GPU begins the step after the host has ended it")
    return events, breakdowns


# Events of a track, depth of each event (MOST_DEPTHS: none), its rectangles, and how many events are hidden.
_Drawn = tuple[Events, npt.NDArray[np.int64], Rectangles, int]


def _drawn(events: list[Events], view: View, most: int, notes: list[str]) -> list[_Drawn]:
    """Rectangles of all tracks. What a track does not need of its share goes to those that need more."""
    narrow = max((view.high - view.low) // FINEST, 1)
    depths = [cause_of(each.category) if each.kind == "idle" else lanes(each.start, each.end, MOST_DEPTHS) for each in events]
    kept = [depth < MOST_DEPTHS for depth in depths]
    wanted = [int(keep.sum()) for keep in kept]
    shares = _shares(wanted, most)
    result: list[_Drawn] = []
    for each, depth, keep, share in zip(events, depths, kept, shares, strict=True):
        made = rectangles(each.start[keep], each.end[keep], depth[keep], each.category[keep], share, narrow)
        full = np.full(len(each), -1, np.int64)
        full[keep] = made.of_event
        longest = np.flatnonzero(keep)[made.longest]
        result.append((each, depth, replace(made, of_event=full, longest=longest), int((~keep).sum())))
    merged = sum(int(made.count[made.count > 1].sum()) for _, _, made, _ in result)
    if merged:
        notes.append(
            f"{merged:,} of {sum(wanted):,} events are too short to show one by one and are drawn as {_many(result):,} "
            "rectangles that say how many they stand for"
        )
    deep = sum(hidden for *_, hidden in result)
    if deep:
        notes.append(f"{deep:,} events nest deeper than {MOST_DEPTHS} levels and are not drawn")
    return result


def _many(drawn: list[_Drawn]) -> int:
    return sum(int((made.count > 1).sum()) for _, _, made, _ in drawn)


def _shares(wanted: list[int], most: int) -> list[int]:
    """How many rectangles each track may have: equal parts, of which the small ones leave the rest to the large."""
    result, left = [0] * len(wanted), most
    for place, i in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        result[i] = max(min(wanted[i], left // (len(wanted) - place)), 1)
        left -= result[i]
    return result


def _track(each: Events, depth: npt.NDArray[np.int64], made: Rectangles, hidden: int, names: Names, low: int) -> Track:
    name = each.name[made.longest]
    if each.text is None:
        codes = names.codes(name)
    else:
        text = each.text[made.longest]
        codes = [
            names.of(code) if code >= 0 else names.of_text(each.texts[word])
            for code, word in zip(name.tolist(), text.tolist(), strict=True)
        ]
    return Track(
        kind=each.kind,
        label=each.label,
        depths=int(made.depth.max(initial=-1)) + 1,
        start_ns=(made.start - low).tolist(),
        duration_ns=(made.end - made.start).tolist(),
        depth=made.depth.tolist(),
        name=codes,
        category=made.category.tolist(),
        count=made.count.tolist(),
        covered_ns=made.covered.tolist(),
        events=len(each),
        hidden=hidden,
        merged_below_ns=made.merged_below,
        process=each.process,
        thread=each.thread,
        device=each.device,
        stream=each.stream,
    )


def _links(run: Run, events: list[Events], drawn: list[_Drawn], low: int, high: int, most: int) -> Links:
    """Launches of the operations that are drawn one by one; of too many those of the longest operations."""
    calls, call_of = run.table("runtime_calls"), links(run).call
    track = np.full(len(calls), -1, np.int64)
    depth = np.zeros(len(calls), np.int64)
    for number, (each, depths, _, _) in enumerate(drawn):
        if each.kind == "host" and each.call is not None:
            is_call = (each.call >= 0) & (depths < MOST_DEPTHS)
            track[each.call[is_call]] = number
            depth[each.call[is_call]] = depths[is_call]
    found = []
    left_out = 0
    for number, (each, _, made, _) in enumerate(drawn):
        if each.kind != "stream" or each.work is None or not len(made):
            continue
        single = np.flatnonzero(made.count == 1)
        call = call_of[each.work[made.longest[single]]]
        known = call >= 0
        there = known & (track[np.maximum(call, 0)] >= 0) if len(calls) else known
        there[there] &= (calls["start"][call[there]] >= low) & (calls["start"][call[there]] < high)
        left_out += int((known & ~there).sum())
        single, call = single[there], call[there]
        found.append(np.stack([call, np.full(len(call), number), single, made.end[single] - made.start[single]]))
    rows = np.concatenate(found, axis=1) if found else np.empty((4, 0), np.int64)
    order = np.argsort(-rows[3], kind="stable")
    left_out += max(len(order) - most, 0)
    call, to_track, to_rectangle, _ = rows[:, np.sort(order[:most])]
    return Links(
        from_track=track[call].tolist(),
        from_ns=(calls["start"][call] - low).tolist(),
        from_depth=depth[call].tolist(),
        to_track=to_track.tolist(),
        to_rectangle=to_rectangle.tolist(),
        left_out=left_out,
    )


def _memory(run: Run, view: View) -> dict[int, Curve]:
    """Bytes in use on each GPU of the process, from the value at the begin of the timeline on."""
    events = run.table("memory_events")
    usable = (events["rank"] == view.rank) & (events["process"] == view.process) & (events["device"] >= 0)
    usable &= events.known("allocated")
    result = {}
    for device in np.unique(events["device"][usable]).tolist():
        rows = np.flatnonzero(usable & (events["device"] == device))
        time = events["time"][rows]
        first = max(int(np.searchsorted(time, view.low, side="right")) - 1, 0)
        rows, time = rows[first:], time[first:]
        inside = time < view.high
        if inside.any():
            made = curve(np.maximum(time[inside], view.low) - view.low, events["allocated"][rows[inside]], MEMORY_POINTS)
            result[device] = made
    return result
