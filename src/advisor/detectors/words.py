"""Numbers as titles of findings print them."""

from __future__ import annotations


def time_text(ns: float) -> str:
    """Two significant digits and a unit: 45 µs, 1.2 ms, 91 ms, 1.5 s."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= size * 0.9995:
            return f"{_two_digits(ns / size)} {unit}"
    return f"{round(ns)} ns"


def name_text(name: str, most: int = 90) -> str:
    """A kernel's name for a table: templates run to thousands of characters, of which the first tell most."""
    return name if len(name) <= most else name[: most - 1] + "…"


def size_text(size: float) -> str:
    """Bytes in units of 1000: 640 kB, 1.2 MB, 33 GB."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(size) >= unit * 0.9995:
            return f"{_two_digits(size / unit)} {name}"
    return f"{round(size)} B"


def count_text(number: float, noun: str) -> str:
    """'1 wait', '6 waits', '0.5 waits': at most one decimal, only where the number is not whole."""
    rounded = round(number, 1)
    text = f"{rounded:.0f}" if rounded == int(rounded) else f"{rounded:.1f}"
    return f"{text} {noun}" if text == "1" else f"{text} {noun}s"


def counted(number: float, noun: str, verb: str) -> str:
    """'1 kernel a step takes', '3 kernels a step take'. `verb` in the plural; 'are' becomes 'is'."""
    one = {"are": "is"}.get(verb, verb + ("es" if verb.endswith(("ch", "s")) else "s"))
    return f"{count_text(number, noun)} a step {one if number == 1 else verb}"


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}"
