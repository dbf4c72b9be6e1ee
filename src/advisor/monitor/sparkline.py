"""A row of figures as a row of characters."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.:-=+*#"  # where the terminal's encoding holds no blocks


def sparkline(values: Sequence[float | None], width: int, low: float, high: float, levels: str = BLOCKS) -> str:
    """The last `width` values, newest at the right, on a scale from `low` to `high`; always `width` characters.

    What lies outside the scale gets the lowest or highest level. A value that is missing, or no number, is a space.
    """
    shown = list(values[-width:]) if width > 0 else []
    return "".join(_level(value, low, high, levels) for value in shown).rjust(max(width, 0))


def _level(value: float | None, low: float, high: float, levels: str) -> str:
    if value is None or value != value:
        return " "
    if value >= high:
        return levels[-1]
    if value <= low:
        return levels[0]
    return levels[min(int((value - low) / (high - low) * len(levels)), len(levels) - 1)]
