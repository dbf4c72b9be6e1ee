"""Which reader takes a file, decided by its first bytes and never by its name.

A reader is a module of this package, or one that a third party registers under the entry point group `advisor.readers`, with
two functions:

    claims(head: bytes) -> bool | str | None                true if the first (decompressed) bytes are of its kind
    read(source: Source, *, processes: int | None) -> Trace raises InputError; UnknownKind if it is not of its kind after all

and, if its `__all__` lists it, a third for files that look like its own and are not:

    refusal(head: bytes) -> str | None                      what they are: "a Horovod timeline; ..."
"""

from __future__ import annotations

import importlib
import tarfile
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from advisor.ingest import foreign
from advisor.ingest.plausible import keep_plausible
from advisor.ingest.source import Source, UnknownKind, reason_of
from advisor.model import InputError, Notice, Trace

# In the order in which they are asked: from sure signs to weak ones. Each is imported when those before it declined.
READERS = ("bundle", "torch_trace", "nsys", "nvidia_smi", "memory_snapshot", "memory_text")

_HEAD = 1 << 16
_LONGER_HEAD = 1 << 21  # for JSON whose metadata (groups of thousands of ranks) hides what it is


def identify(source: Source) -> ModuleType:
    """The reader that takes this file. Raises UnknownKind, or InputError when the file cannot be opened."""
    head = source.head(_HEAD)
    reader = _reader(head)
    if reader is None and len(head) == _HEAD and foreign.is_json(head[:200].decode("latin-1")):
        head = source.head(_LONGER_HEAD)
        reader = _reader(head)
    if reader is None and not head and source.damage:
        raise InputError(f"{source.damage} before the first event")
    if reader is None:
        raise UnknownKind(f"this is {_what(head)}")
    return reader


def _reader(head: bytes) -> ModuleType | None:
    return next((reader for reader in readers() if reader.claims(head)), None) if head else None


def _what(head: bytes) -> str:
    """What a file is that nobody takes. A reader may know its neighbours better than we do."""
    known = foreign.recognise(head)
    if known is not None:
        return known
    if is_tar(head):
        return "an archive inside an archive: unpack it first"
    for reader in readers():
        # Of a module we ask only what it offers: it may use the same word for its own affairs.
        if "refusal" in getattr(reader, "__all__", ()) and (reason := reader.refusal(head)):
            return str(reason)
    return foreign.describe_unknown(head)


def read(source: Source, processes: int | None = None) -> Trace:
    """What the file holds. Raises InputError, whatever is wrong with the file or its reader."""
    reader = identify(source)
    try:
        trace: Trace = keep_plausible(reader.read(source, processes=processes))
    except (InputError, KeyboardInterrupt):
        raise
    except MemoryError as error:
        raise InputError("does not fit into memory") from error
    except Exception as error:
        # A reader's mistake on one file must not take the other files down.
        name = reader.__name__.rpartition(".")[2]
        raise InputError(f"the {name} reader failed on it ({type(error).__name__}: {error}); please report this") from error
    return trace


def readers() -> Iterator[ModuleType]:
    """The readers of this package, then those of third parties."""
    for name in READERS:
        module = importlib.import_module(f"advisor.ingest.{name}")
        if hasattr(module, "claims"):
            yield module
    yield from plug_ins()[0]


@cache
def plug_ins() -> tuple[tuple[ModuleType, ...], tuple[Notice, ...]]:
    """The readers of third parties, and a notice for each that cannot be loaded."""
    from importlib.metadata import entry_points

    modules, notices = [], []
    for entry in sorted(entry_points(group="advisor.readers")):
        try:
            modules.append(entry.load())
        except Exception as error:
            notices.append(Notice("plug-in-broken", f"the reader {entry.value} cannot be loaded: {reason_of(error)}"))
    return tuple(modules), tuple(notices)


def plug_in_notices() -> tuple[Notice, ...]:
    """What is wrong with plug-ins, if any were needed: looking for them takes longer than reading a small file."""
    return plug_ins()[1] if plug_ins.cache_info().currsize else ()


def is_tar(head: bytes) -> bool:
    """True if the bytes begin with a valid tar header. Its check sum makes a mistake unlikely, with or without a magic."""
    if len(head) < tarfile.BLOCKSIZE or not head[:1].strip(b"\0"):
        return False
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True
