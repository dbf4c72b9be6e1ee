"""A log as a sequence of sections: each line is either part of the section that is being read or opens another one.

So a file may hold a table, then CSV; pages with repeated headers; several runs one after another; and lines of other programs,
which are counted and left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from advisor.ingest.nvidia_smi import monitor, query_csv, query_text, query_xml, table, topology
from advisor.ingest.nvidia_smi.collect import Collector
from advisor.ingest.nvidia_smi.stamps import Clock, Stamp, words
from advisor.model import InputError

_ERRORS = tuple(
    (re.compile(pattern), sense)
    for pattern, sense in (
        (r'Field "([\w.\- ]{1,80})" is not a valid field to query', "nvidia-smi did not know the field {0!r} and logged nothing"),
        (r"NVIDIA-SMI has failed because (.{1,120}?)(?:\.|$)", "nvidia-smi failed because {0}"),
        (r"No devices were found", "nvidia-smi found no devices"),
        (
            r"Unable to determine the device handle for (?:GPU|gpu)\s?([\w:.]*)[^:]*: (.{1,80}?)(?:\.|$)",
            "nvidia-smi lost GPU {0}: {1}",
        ),
        (r"Failed to initialize NVML: (.{1,120}?)\.?$", "nvidia-smi could not reach the driver: {0}"),
        (r"NVIDIA-SMI couldn't find ([\w.]{1,40}) library", "nvidia-smi did not find the library {0}"),
        (r"Invalid combination of input arguments", "nvidia-smi did not accept its arguments"),
        (
            r"nvidia-smi: (?:command )?not found|'nvidia-smi' is not recognized",
            "nvidia-smi is not installed where the log was made",
        ),
    )
)
_HEADLESS_MONITOR = re.compile(r"\s*\d{8},\s+\d\d:\d\d:\d\d,(?:\s+[\d-]+,?)+\s*")


class Section(Protocol):
    """Reader of one format. `feed` takes lines up to one that opens something else and returns where that is."""

    @property
    def format(self) -> str: ...

    def feed(self, lines: Sequence[str], at: int, opens_other: Callable[[str], bool], /) -> int: ...

    def close(self) -> None: ...


def complaint(line: str) -> str | None:
    """What nvidia-smi says in place of a log, in our words and without what may be private."""
    for pattern, sense in _ERRORS:
        if found := pattern.search(line):
            return sense.format(*found.groups())
    return None


class Log:
    """Takes the lines of one file, in blocks; `collector` then holds its rows."""

    def __init__(self) -> None:
        self.collector = Collector()
        self.rows_by_format: Counter[str] = Counter()
        self.unknown_lines = 0
        self.headless: int | None = None  # cells of a row that no header explains
        self._section: Section | None = None
        self._opened: list[str] = []
        self._before = ""

    def feed(self, lines: Sequence[str], cut: bool = False) -> None:
        """The next whole lines; `cut`: the last one has no line end."""
        if cut:
            lines = [*lines[:-1], self._without_cut_value(lines[-1])]
        at = 0
        while at < len(lines):
            if self._section is not None:
                at = self._count(self._section, lines, at)
                if at >= len(lines):
                    break
            line = lines[at]
            opened = self._open(line)
            if opened is not None:
                self._change(opened)
                # The line that a section is made of is read by it, a header is not.
                at += isinstance(opened, query_csv.CsvSection | monitor.MonitorSection)
                continue
            self._other(line)
            at += 1
        self._before = lines[-1] if lines else self._before

    def _count(self, section: Section, lines: Sequence[str], at: int) -> int:
        before = self.collector.rows.total()
        at = section.feed(lines, at, self._opens)
        self.rows_by_format[section.format] += self.collector.rows.total() - before
        return at

    def _flush(self) -> None:
        """The section hands on what it holds back."""
        if self._section is not None:
            before = self.collector.rows.total()
            self._section.close()
            self.rows_by_format[self._section.format] += self.collector.rows.total() - before

    def _change(self, section: Section) -> None:
        self._flush()
        if section.format not in self._opened:
            self._opened.append(section.format)
        self._section = section

    def finish(self) -> None:
        """The log has ended."""
        self._flush()
        self._section = None

    @property
    def format(self) -> str | None:
        """The format of most rows, else the first one that was seen; None where nothing was."""
        if self.rows_by_format.total():
            return max(self._opened, key=lambda form: self.rows_by_format[form])
        if self._opened:
            return self._opened[0]
        return query_csv.FORMAT if self.headless or self.collector.complaints else None

    def _opens(self, line: str) -> bool:
        """Whether a line, met inside a section, ends it."""
        return self._stamp(line) is not None or complaint(line) is not None or self._open(line) is not None

    def _open(self, line: str) -> Section | None:
        text = line.lstrip()[:24]
        if not text or text[0] in "0123456789-":
            return None
        if text[0] == "#":
            return monitor.MonitorSection(self.collector, line) if monitor.header(line) else None
        if text[0] in "+|":
            return table.TableSection(self.collector) if table.opens(line) else None
        if text[0] == "=":
            return query_text.QuerySection(self.collector) if query_text.opens(line) else None
        if text[0] == "<":
            return query_xml.XmlSection(self.collector) if query_xml.opens(line) else None
        if text.startswith("GPU") and topology.opens(line):
            return topology.TopologySection(self.collector)
        head = query_csv.header(line)
        return query_csv.CsvSection(self.collector, head) if head is not None else None

    @staticmethod
    def _stamp(line: str) -> Stamp | None:
        """The stamp of a date line, as `nvidia-smi -l`, `date` and `watch` print it."""
        text = line.strip()
        if len(text) > 300 or not (text[:3] in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun") or text.startswith("Every ")):
            return None
        stamp = words(text)
        return stamp if stamp.clock != Clock.NONE else None

    def _other(self, line: str) -> None:
        stamp = self._stamp(line)
        if stamp is not None:
            self._flush()  # what comes after the date line is another sample
            self.collector.mark(stamp)
        elif (said := complaint(line)) is not None:
            if said not in self.collector.complaints:
                self.collector.complaints.append(said)
        elif query_csv.is_headless_row(line) or _HEADLESS_MONITOR.fullmatch(line):
            self.headless = self.headless or line.count(",") + 1
        elif line.strip():
            self.unknown_lines += 1

    def _without_cut_value(self, line: str) -> str:
        section = self._section
        if isinstance(section, query_csv.CsvSection) and query_csv.last_value_is_cut(line, self._before, section.delimiter):
            self.collector.counts["value-cut"] += 1
            return line[: line.rfind(section.delimiter) + 1]
        return line


def refusal(log: Log) -> InputError | None:
    """Why a finished log without rows cannot be used."""
    collector = log.collector
    if collector.rows.total() or collector.links or collector.declared:
        return None
    if collector.complaints:
        return InputError(f"no samples: {collector.complaints[0]}")
    if log.headless:
        return InputError(query_csv.HEADLESS.format(n=log.headless))
    if log.format is None:
        return InputError("this is no log of nvidia-smi")
    return InputError("the log of nvidia-smi holds no sample")


def scan(blocks: Iterable[Sequence[str]]) -> Log:
    """A log from blocks of lines."""
    log = Log()
    for lines in blocks:
        log.feed(lines)
    log.finish()
    return log
