"""From files to a `Run`: `load`. One module a format; `sniff` picks it by content; `align` joins traces."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence

from advisor.ingest.align import join
from advisor.ingest.discover import Discovery, find
from advisor.ingest.foreign import OUR_OWN
from advisor.ingest.sniff import plug_in_notices, read
from advisor.ingest.source import Source, UnknownKind
from advisor.model import InputError, Notice, Options, Run, Trace

Paths = Sequence[str | os.PathLike[str]]
Progress = Callable[[int, int], None]
Problem = Callable[[str, str], None]

_NAMED = 5  # names in a notice about many files


class NothingRead(InputError):
    """No input could be read. `problems` holds (path, reason) of each."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        path, reason = problems[0] if problems else ("", "no input given")
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{path}: {reason}{more}" if path else reason)
        self.problems = list(problems)


def load(
    paths: Paths,
    options: Options | None = None,
    progress: Progress | None = None,
    problem: Problem | None = None,
    processes: int | None = None,
) -> Run:
    """All input of one call, joined: traces, device logs, folders, patterns and archives of them.

    progress(done, total): called while reading, in bytes. problem(path, reason): called for each input that cannot be used;
    it is also a notice of the run. processes: how many worker processes a reader may use; None lets it decide.
    Raises NothingRead, an InputError, if no input can be used.
    """
    traces, problems, notices = load_traces(paths, progress, problem, processes)
    if not traces:
        raise NothingRead(problems)
    run = join(traces, options)
    run.notices = [Notice("input-unused", f"{path}: {reason}") for path, reason in problems] + notices + run.notices
    return run


def load_traces(
    paths: Paths,
    progress: Progress | None = None,
    problem: Problem | None = None,
    processes: int | None = None,
) -> tuple[list[Trace], list[tuple[str, str]], list[Notice]]:
    """(what each file or archive member holds, (path, reason) of what cannot be used, notices on what was skipped)."""
    found = find(paths)
    reading = _Reading(found, progress, problem, processes)
    for path, reason in found.problems:
        reading.problem(path, reason)
    for source, origin in found.sources:
        reading.add(source, origin)
    reading.close_folders()
    return reading.traces, reading.problems, [*found.notices, *plug_in_notices(), *reading.notices]


class _Reading:
    """The state of one pass over all files."""

    def __init__(self, found: Discovery, progress: Progress | None, problem: Problem | None, processes: int | None) -> None:
        self.traces: list[Trace] = []
        self.problems: list[tuple[str, str]] = []
        self.notices: list[Notice] = []
        self._skipped: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._used: set[str] = set()
        self._folder_of = found.folder_of
        self._progress, self._problem, self._processes = progress, problem, processes
        self._done, self._total = 0, sum(_size(source) for source, _ in found.sources)

    def problem(self, path: str, reason: str) -> None:
        self.problems.append((path, reason))
        if self._problem is not None:
            self._problem(path, reason)

    def add(self, source: Source, origin: str) -> None:
        before = self._done
        source.advance = self._advance
        try:
            self.traces.append(read(source, self._processes))
            self._used.add(origin)
        except UnknownKind as unknown:
            if source.path == origin:
                self.problem(source.path, str(unknown))
            else:
                self._skipped[origin].append((source.name, str(unknown)))
        except InputError as error:
            self.problem(source.path, str(error))
            self._used.add(origin)
        self._done = before
        self._advance(_size(source))

    def _advance(self, n: int) -> None:
        self._done = min(self._done + n, self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)

    def close_folders(self) -> None:
        """Say what was skipped in folders and archives; one without any recording is a problem like any other input."""
        for archive, folder in self._folder_of.items():
            if archive in self._used:
                self._used.add(folder)
            elif archive in self._skipped:  # an archive of other things is itself a file of another kind
                _, reason = self._skipped.pop(archive)[0]
                self._skipped[folder].append((os.path.basename(archive), reason))
        for origin, skipped in self._skipped.items():
            if origin in self._used:
                skipped = [(name, reason) for name, reason in skipped if not reason.endswith(OUR_OWN)]
                if not skipped:
                    continue
                names = ", ".join(name for name, _ in skipped[:_NAMED]) + (", ..." if len(skipped) > _NAMED else "")
                what = "file" if len(skipped) == 1 else "files"
                self.notices.append(Notice("files-skipped", f"{origin}: {len(skipped)} {what} of other kinds skipped: {names}"))
            else:
                name, reason = skipped[0]
                more = f", and {len(skipped) - 1} more of other kinds" if len(skipped) > 1 else ""
                self.problem(origin, f"holds no recording: in {name}, {reason}{more}")


def _size(source: Source) -> int:
    try:
        return source.size
    except OSError:
        return 0


__all__ = ["NothingRead", "Paths", "join", "load", "load_traces"]
