"""Where a step goes, as one bar a GPU. Blocks are a busy GPU; letters are an idle one and say why; no colour is needed."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model import Breakdown
from advisor.report import text as t
from advisor.report.summary import parts
from advisor.report.terminal_page import Page

MOST_BARS = 8
# Part of a step -> character, its replacement in ASCII, style.
GLYPHS: dict[str, tuple[str, str, str]] = {
    "compute": ("█", "#", "green"),
    "communication": ("▓", "=", "blue"),
    "communication_wait": ("▒", "~", "magenta"),
    "copy": ("░", "+", "cyan"),
    "dataloader": ("d", "d", "red"),
    "host-sync": ("s", "s", "red"),
    "launch": ("l", "l", "yellow"),
    "python": ("p", "p", "yellow"),
    "memory-management": ("m", "m", "red"),
    "unexplained": ("·", ".", "dim"),
}
_OTHER_GLYPH = ("?", "?", "dim")
_SMALLEST_SHARE = 0.0005
_SLOWED = 1.005  # recorded step against the one without the profiler, from which on the two are told apart


def show_breakdown(page: Page, breakdowns: Sequence[Breakdown], step_ns: int | None = None, per: str = "a step") -> None:
    """`step_ns` is the step without the profiler, where it is known."""
    if not any(part.step_ns > 0 for part in breakdowns):
        return
    longest = max(breakdowns, key=lambda part: part.step_ns)
    page.heading(t.breakdown_title(per), f"{t.duration(longest.step_ns, 3)} as recorded")
    rows = _rows(breakdowns)
    label_width = max(len(label) for label, _, _ in rows) if len(breakdowns) > 1 else 0
    room = page.width - label_width - (4 if label_width else 2)
    for label, shares, whole_ns in rows:
        cells = _cells(shares, max(round(room * whole_ns / longest.step_ns), 1))
        bar = [(_glyph(page, name) * number, _style(name)) for name, number in cells.items() if number]
        page.line(*([label.ljust(label_width) + "  "] if label_width else []), *bar, indent=2)
    _legend(page, [(parts(part), part.step_ns) for part in breakdowns if part.step_ns > 0])
    if step_ns and longest.step_ns > _SLOWED * step_ns:
        text = (
            "As recorded, with what the profiler added; verdict, titles and savings refer to the step without it, "
            f"{t.duration(step_ns, 3)}."
        )
        page.paragraph((text, "dim"), indent=2)


def _glyph(page: Page, name: str) -> str:
    return GLYPHS.get(name, _OTHER_GLYPH)[0 if page.style.unicode else 1]


def _style(name: str) -> str:
    return GLYPHS.get(name, _OTHER_GLYPH)[2]


def _rows(breakdowns: Sequence[Breakdown]) -> list[tuple[str, dict[str, float], int]]:
    """Label, parts and step of each bar; of many GPUs those that wait least and most, and the mean of the rest."""
    several_devices = len({(part.rank, part.device) for part in breakdowns}) > len({part.rank for part in breakdowns})
    rows = [(_label(part, several_devices), dict[str, float](parts(part)), part.step_ns) for part in breakdowns]
    if len(rows) <= MOST_BARS:
        return rows
    by_wait = sorted(range(len(rows)), key=lambda i: (_waiting(rows[i][1]), i))
    ends = MOST_BARS // 2
    shown = sorted(by_wait[:ends] + by_wait[1 - ends :])
    rest = [rows[i] for i in range(len(rows)) if i not in shown]
    names = {name: None for _, shares, _ in rest for name in shares}
    mean = {name: sum(shares.get(name, 0) for _, shares, _ in rest) / len(rest) for name in names}
    return [rows[i] for i in shown] + [(f"{len(rest)} others", mean, round(sum(row[2] for row in rest) / len(rest)))]


def _label(part: Breakdown, several_devices: bool) -> str:
    if part.rank is None:
        return f"gpu {part.device}"
    return f"rank {part.rank} gpu {part.device}" if several_devices else f"rank {part.rank}"


def _waiting(shares: dict[str, float]) -> float:
    return sum(ns for name, ns in shares.items() if name not in ("compute", "communication", "copy"))


def _cells(shares: dict[str, float], room: int) -> dict[str, int]:
    """Characters of each part, adding up to `room`: largest remainder."""
    whole = sum(shares.values())
    if whole <= 0:
        return {"unexplained": room}
    exact = {name: ns / whole * room for name, ns in shares.items()}
    cells = {name: int(value) for name, value in exact.items()}
    for name in sorted(exact, key=lambda name: cells[name] - exact[name])[: room - sum(cells.values())]:
        cells[name] += 1
    order = list(GLYPHS)
    return dict(sorted(cells.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def _legend(page: Page, rows: list[tuple[dict[str, int], int]]) -> None:
    names = list(dict.fromkeys(name for shares, _ in rows for name in shares))
    busy = [name for name in names if name in t.BUSY_PARTS]
    idle = [name for name in names if name not in t.BUSY_PARTS]
    for label, group in (("busy", busy), ("idle", sorted(idle, key=lambda name: -max(_shares(rows, name))))):
        entries = []
        for name in group:
            shares = _shares(rows, name)
            if max(shares) >= _SMALLEST_SHARE:
                amount = f" {t.duration(rows[0][0].get(name, 0))}," if len(rows) == 1 else ""
                words = t.BUSY_PARTS.get(name) or t.IDLE_CAUSES.get(name, name)
                entries.append((name, f" {words}{amount} {t.percent_range(min(shares), max(shares))}"))
        if entries:
            _entries(page, label, entries)


def _shares(rows: list[tuple[dict[str, int], int]], name: str) -> list[float]:
    return [shares.get(name, 0) / step_ns for shares, step_ns in rows]


def _entries(page: Page, label: str, entries: list[tuple[str, str]]) -> None:
    """Entries side by side, as many as fit on a line."""
    line: list[str | tuple[str, str]] = [(f"{label}  ", "dim")]
    used = start = len(label) + 4
    for name, words in entries:
        gap = "" if used == start else "   "
        width = len(gap) + 1 + len(words)
        if gap and used + width > page.width:
            page.line(*line, indent=2)
            line, used, gap = [" " * (start - 2)], start, ""
        line += [gap, (_glyph(page, name), _style(name)), words]
        used += width
    page.line(*line, indent=2)
