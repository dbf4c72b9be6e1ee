"""How readings look: a line for each GPU, or a picture with the latest minutes that a terminal draws again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from advisor.hook.nvml import Reading
from advisor.model import THROTTLE_WORDS, ThrottleReason
from advisor.monitor.readings import Beat, Histories
from advisor.monitor.sparkline import ASCII, BLOCKS, sparkline

_GIB = 1 << 30
_HARMLESS = int(ThrottleReason.IDLE) | int(ThrottleReason.APPLICATION_CLOCKS)
_LABEL, _VALUE, _WIDEST = 13, 24, 120
_UNKNOWN = "not told"


def reasons(bits: int | None) -> str:
    """What holds the clocks back, in words; bits without a name are shown as they are."""
    if bits is None:
        return _UNKNOWN
    words = [word for bit, word in THROTTLE_WORDS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_WORDS)
    return ", ".join([*words, *([f"0x{rest:x}"] if rest else [])]) or "nothing"


def _of(value: float | None, whole: float | None, unit: str, digits: int = 0) -> str:
    """'225 of 700 W'; without the part that is not known."""
    if value is None:
        return _UNKNOWN
    text = f"{value:,.{digits}f}"
    return f"{text} {unit}" if whole is None else f"{text} of {whole:,.{digits}f} {unit}"


def _gib(count: int | None) -> float | None:
    return None if count is None else count / _GIB


@dataclass(frozen=True)
class Measure:
    """One row of the picture: its label, the figure in words, the value, and the top of its scale for a reading."""

    label: str
    words: Callable[[Reading], str]
    value: Callable[[Reading], float | None]
    top: Callable[[Reading], float | None]


MEASURES = (
    Measure("utilisation", lambda r: _of(r.utilization, None, "%"), lambda r: r.utilization, lambda r: 100),
    Measure(
        "memory",
        lambda r: _of(_gib(r.memory_used), _gib(r.memory_total), "GiB", 1),
        lambda r: r.memory_used,
        lambda r: r.memory_total,
    ),
    Measure("power", lambda r: _of(r.power, r.power_limit, "W"), lambda r: r.power, lambda r: r.power_limit),
    Measure("SM clock", lambda r: _of(r.sm_clock, r.sm_clock_max, "MHz"), lambda r: r.sm_clock, lambda r: r.sm_clock_max),
    Measure("temperature", lambda r: _of(r.temperature, None, "C"), lambda r: r.temperature, lambda r: 100),
)


def lines(beat: Beat) -> list[str]:
    """One line for each GPU of the beat: for logs and pipes."""
    at = f"{beat.at:%H:%M:%S}"
    return [
        "  ".join([at, f"GPU {r.index}", *(m.words(r) for m in MEASURES), f"held back by: {reasons(r.throttle_reasons)}"])
        for r in beat.readings
    ]


@dataclass
class Picture:
    """What rich draws of the histories as they are at that moment: six lines a GPU, one where they would not fit."""

    histories: Histories
    every: str
    unicode: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        text = f"{self.histories.beats:,} readings, every {self.every} s; Ctrl-C ends it"
        yield Text(text, "dim", no_wrap=True, overflow="ellipsis")
        gpus = sorted(self.histories.of.items())
        short = len(gpus) * (len(MEASURES) + 2) + 1 > console.size.height
        for index, readings in gpus:
            yield from self._short(index, list(readings), width) if short else self._whole(index, list(readings), width)

    def _whole(self, index: int, readings: list[Reading], width: int) -> RenderResult:
        last = readings[-1]
        yield Text.assemble((f"GPU {index}", "bold"), f"  {_printable(last.name)}", no_wrap=True, overflow="ellipsis")
        for measure in MEASURES:
            text = _labelled(measure.label).append(f"{measure.words(last):<{_VALUE}}")
            yield text.append(self._spark(measure, readings, width - len(text.plain)), "cyan")
        yield _labelled("held back by").append(reasons(last.throttle_reasons), _style(last.throttle_reasons))

    def _short(self, index: int, readings: list[Reading], width: int) -> RenderResult:
        last = readings[-1]
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"GPU {index:<3}", "bold")
        text.append("  ".join(f"{measure.words(last):>5}" for measure in MEASURES) + "  ")
        if last.throttle_reasons and last.throttle_reasons & ~_HARMLESS:
            text.append(reasons(last.throttle_reasons) + "  ", "yellow")
        text.append(self._spark(MEASURES[0], readings, width - len(text.plain)), "cyan")
        yield text

    def _spark(self, measure: Measure, readings: Sequence[Reading], width: int) -> str:
        values = [measure.value(reading) for reading in readings]
        top = next((top for reading in reversed(readings) if (top := measure.top(reading)) is not None), None)
        known = [value for value in values if value is not None]
        return sparkline(values, width, 0, top or max(known, default=1), BLOCKS if self.unicode else ASCII)


def _labelled(label: str) -> Text:
    return Text(no_wrap=True, overflow="ellipsis").append(f"  {label:<{_LABEL}}", "dim")


def _style(bits: int | None) -> str:
    return "yellow" if bits is not None and bits & ~_HARMLESS else "none"


def _printable(name: str | None) -> str:
    return "".join(c if c.isprintable() else " " for c in name or "")
