"""Several processes read the same text, each some units of it."""

from __future__ import annotations

import os
import signal
import struct
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from itertools import count as itertools_count

from advisor.ingest.source import GZIP_MAGIC, Source
from advisor.ingest.torch_trace.metadata import Members, read_head
from advisor.ingest.torch_trace.parts import Part, collect, leave, local
from advisor.ingest.torch_trace.scan import EventText, Window
from advisor.ingest.torch_trace.share import NeedsOneProcess, read_units

POSSIBLE = sys.platform == "linux"  # needs fork and anonymous files; elsewhere one process reads
MOST_ASKED = 64  # however many the user asks for
_MOST = 4
_WORTH = 1 << 24  # bytes of text from which a second process pays
_RATIO = 10  # bytes of text to a byte of gzip, roughly
_TICKET = struct.Struct("<I")
_TICKETS = 16_000  # about what a pipe holds; units beyond are left to the first process


def suitable(source: Source) -> int:
    """How many processes to use for `source`."""
    if not POSSIBLE or source.member is not None:
        return 1
    try:
        with open(source.file, "rb") as file:
            size = os.fstat(file.fileno()).st_size * (_RATIO if file.read(2) == GZIP_MAGIC else 1)
    except OSError:
        return 1
    return min(len(os.sched_getaffinity(0)), _MOST) if size >= _WORTH else 1


@dataclass
class _Child:
    process: int
    file: int
    running: bool = True

    def wait(self) -> int:
        self.running = False
        return os.waitpid(self.process, 0)[1]


@contextmanager
def read_together(text: EventText, source: Source, processes: int) -> Iterator[list[Part]]:
    """Parts of all units, this process's from `text`, the others' from streams of their own.

    Valid inside the block. Raises NeedsOneProcess if the text cannot be shared out or another process failed.
    """
    children: list[_Child] = []
    tickets, count = _tickets()
    try:
        with suppress(OSError):  # then fewer take part
            for _ in range(processes - 1):
                children.append(_Child(_fork(source, tickets, file := os.memfd_create("columns")), file))
        share = read_units(text, chain(_units(tickets), itertools_count(count)))
        if sum(child.wait() for child in children):
            raise NeedsOneProcess
        yield [local(share), *(collect(child.file) for child in children)]
    finally:
        os.close(tickets)
        for child in children:
            if child.running:
                os.kill(child.process, signal.SIGKILL)
                child.wait()
            os.close(child.file)


def _tickets() -> tuple[int, int]:
    """A pipe that holds the numbers of the units, for whoever is free to take one, and how many it holds."""
    tickets, into = os.pipe()
    os.set_blocking(into, False)
    size = os.write(into, b"".join(map(_TICKET.pack, range(_TICKETS))))
    os.close(into)
    return tickets, size // _TICKET.size


def _units(tickets: int) -> Iterator[int]:
    while ticket := os.read(tickets, _TICKET.size):
        yield _TICKET.unpack(ticket)[0]


def _fork(source: Source, tickets: int, file: int) -> int:
    """Start a process that reads units into `file`; its id. It ends with status 0 if all went well."""
    with warnings.catch_warnings():  # newer Pythons warn of threads; the child touches no lock that one could hold
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process:
        return process
    status = 1
    try:
        source.advance = lambda n: None
        with source.open() as stream:
            window = Window(stream)
            read_head(window, head := Members())
            leave(read_units(EventText(window, head.bare), _units(tickets)), file)
        status = 0
    finally:
        os._exit(status)
