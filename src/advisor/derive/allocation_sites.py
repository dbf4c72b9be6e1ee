"""Whose memory it is: the line of source, or at least the operator, that a call stack of an allocation names."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from advisor.derive.allocator import BEFORE, History, Pieces
from advisor.derive.attribution import parse_frame
from advisor.derive.paths import short_path
from advisor.model import Location, Run
from advisor.model.tables import Array

BACKWARD = "autograd::engine"  # as the reader of snapshots writes the frames of autograd's threads

_FRAME = re.compile(r"^(.+?)\((\d+)\): (.+)$")
_EARLIER = "allocated before the history begins"
_UNKNOWN = "no Python frame (backward pass, or stacks not recorded)"


@dataclass(frozen=True)
class Site:
    """Where an allocation was made. `text`: in words; `place`: the user's line, None where only a library's is known."""

    text: str
    place: Location | None = None


def site(run: Run, code: int) -> Site:
    """The innermost line of the user's in the stack of that code, with the operator; else what else the stack tells."""
    frames = run.strings[code].split(";") if code >= 0 else []
    operator = next((frame for frame in frames if frame.startswith("aten::")), "")
    doing = f" ({operator})" if operator else ""
    for frame in frames:
        place = parse_frame(frame)
        if place is not None:
            return Site(f"{place.file}:{place.line} {place.function or ''}".rstrip() + doing, place)
    for frame in frames:
        if match := _FRAME.match(frame):
            return Site(f"{short_path(match[1])}:{match[2]} {match[3]}{doing}")
    if BACKWARD in frames:
        return Site(f"backward pass{doing}")
    return Site(operator or _UNKNOWN)


@dataclass(frozen=True)
class Holder:
    """Blocks that one site made: how many, and their bytes."""

    site: Site
    blocks: int
    bytes: int


def holders(run: Run, history: History, position: int) -> list[Holder]:
    """Who holds the memory in use after the event of that position, the largest first."""
    blocks = history.blocks
    there = blocks.at(position) if len(history) else np.ones(len(blocks), bool)
    return by_site(run, blocks, there)


def by_site(run: Run, blocks: Pieces, rows: Array) -> list[Holder]:
    """The chosen blocks by who made them, the largest first."""
    count: defaultdict[Site, int] = defaultdict(int)
    total: defaultdict[Site, int] = defaultdict(int)
    early = rows & (blocks.stack < 0) & (blocks.begin == BEFORE)
    codes, slot = np.unique(blocks.stack[rows & ~early], return_inverse=True)
    each, many = np.zeros(len(codes), np.int64), np.bincount(slot, minlength=len(codes))
    np.add.at(each, slot, blocks.bytes[rows & ~early])
    for code, number, size in zip(codes.tolist(), many.tolist(), each.tolist(), strict=True):
        found = site(run, code)
        count[found] += number
        total[found] += size
    if early.any():
        count[Site(_EARLIER)] += int(early.sum())
        total[Site(_EARLIER)] += int(blocks.bytes[early].sum())
    found_all = [Holder(one, count[one], total[one]) for one in total]
    return sorted(found_all, key=lambda one: (-one.bytes, one.site.text))


def places(found: list[Holder], whole: int, most: int = 5) -> list[Location]:
    """The lines of the user's source among the sites, whatever the operator, with their shares of `whole` bytes."""
    total: defaultdict[tuple[str, int | None, str | None], int] = defaultdict(int)
    for one in found:
        if one.site.place is not None:
            total[one.site.place.file, one.site.place.line, one.site.place.function] += one.bytes
    ranked = sorted(total.items(), key=lambda item: (-item[1], str(item[0])))
    return [Location(file, line, name, round(size / max(whole, 1), 4)) for (file, line, name), size in ranked[:most]]
