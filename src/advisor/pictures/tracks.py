"""The tracks of a timeline: which events they hold, before any is merged or dropped."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import CAUSES, Activity, idle_causes
from advisor.derive.collectives import KINDS, collectives
from advisor.derive.gpus import COPY as COPIES
from advisor.derive.gpus import KERNEL, gpu_work, work_by_row
from advisor.derive.host import driving_threads
from advisor.derive.kernel_classes import KernelClass, kernel_kinds
from advisor.derive.nesting import mixed_key
from advisor.model import CopyKind, MemoryKind, RangeKind, Run, Table
from advisor.model.pictures import CALL, COPY, FRAME, GRAPH, MEMSET, OPERATOR, RANGE, TrackKind

Ints = npt.NDArray[np.int64]

# What `Track.category` points into: host events, GPU work, causes of idle time.
CATEGORIES = [
    FRAME,
    OPERATOR,
    CALL,
    RANGE,
    COPY,
    MEMSET,
    GRAPH,
    *(kind.label for kind in KernelClass),
    *CAUSES,
]
_OF_KERNEL = 7
_OF_CAUSE = _OF_KERNEL + len(KernelClass)
_HOST_TABLES = {
    "ranges": CATEGORIES.index(RANGE),
    "python_frames": CATEGORIES.index(FRAME),
    "host_ops": CATEGORIES.index(OPERATOR),
    "runtime_calls": CATEGORIES.index(CALL),
}
_HOST_TRACKS: tuple[tuple[TrackKind, str, tuple[str, ...]], ...] = (
    ("ranges", "ranges of {}", ("ranges",)),
    ("frames", "Python on {}", ("python_frames",)),
    ("host", "{}", ("host_ops", "runtime_calls")),
)
MOST_THREADS = 8
MOST_STREAMS = 12


@dataclass
class Events:
    """All events of one track, in the run's time, cut to the window, ordered by start, the longer first.

    name: codes of the run's strings; where -1, `text` names the event by position in `texts`. call: rows of `runtime_calls`;
    work: positions in `gpu_work` (-1: neither).
    """

    kind: TrackKind
    label: str
    start: Ints
    end: Ints
    name: Ints
    category: Ints
    call: Ints | None = None
    work: Ints | None = None
    text: Ints | None = None
    texts: list[str] = field(default_factory=list)
    process: int | None = None
    thread: int | None = None
    device: int | None = None
    stream: int | None = None

    def __len__(self) -> int:
        return len(self.start)


def host_tracks(run: Run, rank: int, process: int, low: int, high: int) -> tuple[list[Events], int, int]:
    """Ranges, frames and nested events of each host thread, the threads that launch first.

    Also how many threads are left out, and how many Python frames, since they enclose the whole window.
    """
    parts = {name: (run.table(name), _rows(run.table(name), rank, process, low, high)) for name in _HOST_TABLES}
    ranges, marked = parts["ranges"]
    parts["ranges"] = ranges, marked[ranges["kind"][marked] != int(RangeKind.MARK)]
    frames, rows = parts["python_frames"]
    enclosing = (frames["start"][rows] <= low) & (frames["end"][rows] >= high)
    parts["python_frames"] = frames, rows[~enclosing]
    threads = np.concatenate([table["thread"][rows] for table, rows in parts.values()])
    found, count = np.unique(threads, return_counts=True)
    driving = np.isin(
        mixed_key(np.full(len(found), rank, np.int64), np.full(len(found), process, np.int64), found), driving_threads(run)
    )
    # The main thread first: it holds the ranges (steps, phases), or launches most.
    table, rows = parts["ranges"]
    ranged = {int(one): int((table["end"] - table["start"])[rows][table["thread"][rows] == one].sum()) for one in found}
    order = sorted(range(len(found)), key=lambda i: (not driving[i], -ranged[int(found[i])], -int(count[i]), int(found[i])))
    result: list[Events] = []
    for i in order[:MOST_THREADS]:
        thread = int(found[i])
        name = "host thread" if thread < 0 else f"host thread {thread}"
        name += " (launches)" if driving[i] else ""
        mine = {key: (table, rows[table["thread"][rows] == thread]) for key, (table, rows) in parts.items()}
        for kind, label, tables in _HOST_TRACKS:
            chosen = [(*mine[key], _HOST_TABLES[key]) for key in tables if len(mine[key][1])]
            if chosen:
                events = _host(kind, label.format(name), chosen, low, high)
                events.process, events.thread = (process if process >= 0 else None), thread
                result.append(events)
    return result, max(len(found) - MOST_THREADS, 0), int(enclosing.sum())


def _rows(table: Table, rank: int, process: int, low: int, high: int) -> Ints:
    inside = (table["start"] < high) & (table["end"] > low) & (table["rank"] == rank) & (table["process"] == process)
    return np.flatnonzero(inside)


def _host(kind: TrackKind, label: str, parts: list[tuple[Table, Ints, int]], low: int, high: int) -> Events:
    start = np.concatenate([table["start"][rows] for table, rows, _ in parts])
    end = np.concatenate([table["end"][rows] for table, rows, _ in parts])
    name = np.concatenate([table["name"][rows] for table, rows, _ in parts]).astype(np.int64)
    category = np.concatenate([np.full(len(rows), category, np.int64) for _, rows, category in parts])
    call = np.concatenate([rows if table.name == "runtime_calls" else np.full(len(rows), -1) for table, rows, _ in parts])
    events = Events(kind, label, start, end, name, category, call=call)
    return _cut(events, low, high)


def _cut(events: Events, low: int, high: int) -> Events:
    """Inside the window, at least a nanosecond long, ordered."""
    start = np.clip(events.start, low, high - 1)
    end = np.clip(np.maximum(events.end, start + 1), low + 1, high)
    # Among events of the same extent the outer one comes first: frames, operators, calls.
    order = np.lexsort((events.category, -end, start))
    events.start, events.end = start[order], end[order]
    for column in ("name", "category", "call", "work", "text"):
        values = getattr(events, column)
        if values is not None:
            setattr(events, column, values[order])
    return events


def gpu_tracks(run: Run, index: int, low: int, high: int) -> tuple[list[Events], int]:
    """Collectives and streams of one GPU (its place in `gpu_work(run).gpus`); and how many streams share the last track."""
    work = gpu_work(run)
    rows = work.of(index)
    rows = rows[(work.start[rows] < high) & (work.end[rows] > low)]
    result = []
    found = collectives(run)
    place = work_by_row(work, KERNEL, len(run.table("kernels")))[found.kernel]
    mine = np.isin(place, rows)
    if mine.any():
        events = _on_gpu(run, "collectives", f"GPU {work.gpus[index].device} collectives", place[mine], index)
        events.text, events.texts = found.kind[mine].astype(np.int64), ["communication", *KINDS[1:]]
        events.name = np.full(len(events), -1, np.int64)
        result.append(_cut(events, low, high))
    streams, of = np.unique(work.stream[rows], return_inverse=True)
    spent = np.bincount(of, weights=work.end[rows] - work.start[rows], minlength=len(streams))
    order = sorted(range(len(streams)), key=lambda i: (-spent[i], int(streams[i])))
    shown = sorted(order[:MOST_STREAMS], key=lambda i: int(streams[i]))
    for i in shown:
        stream = int(streams[i])
        label = f"GPU {work.gpus[index].device} stream {stream}" if stream >= 0 else f"GPU {work.gpus[index].device}"
        events = _on_gpu(run, "stream", label, rows[of == i], index)
        events.stream = stream if stream >= 0 else None
        result.append(_cut(events, low, high))
    rest = order[MOST_STREAMS:]
    if rest:
        label = f"GPU {work.gpus[index].device}, {len(rest)} other streams"
        result.append(_cut(_on_gpu(run, "stream", label, rows[np.isin(of, rest)], index), low, high))
    return result, len(rest)


def _on_gpu(run: Run, kind: TrackKind, label: str, rows: Ints, index: int) -> Events:
    work, gpu = gpu_work(run), gpu_work(run).gpus[index]
    name, category, text, texts = work_names(run, rows)
    return Events(
        kind,
        label,
        work.start[rows],
        work.end[rows],
        name,
        category,
        work=rows,
        text=text,
        texts=texts,
        process=gpu.process if gpu.process >= 0 else None,
        device=gpu.device if gpu.device >= 0 else None,
    )


def work_names(run: Run, rows: Ints) -> tuple[Ints, Ints, Ints, list[str]]:
    """(name, category, text, texts) of entries of `gpu_work`: kernels by their name's code, all other work by a text of ours."""
    work, copies = gpu_work(run), run.table("copies")
    name, text, texts = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64), [GRAPH]
    category = np.full(len(rows), CATEGORIES.index(GRAPH), np.int64)
    kernel = work.source[rows] == KERNEL
    name[kernel] = run.table("kernels")["name"][work.row[rows[kernel]]]
    category[kernel] = _OF_KERNEL + kernel_kinds(run).kind[work.row[rows[kernel]]]
    copy = work.source[rows] == COPIES
    row = work.row[rows[copy]]
    ends = np.stack([copies[column][row].astype(np.int64) for column in ("kind", "source", "target")])
    if ends.shape[1]:
        kinds, index = np.unique(ends, axis=1, return_inverse=True)
        text[copy] = index.reshape(-1) + 1
        texts += [copy_name(*one) for one in kinds.T.tolist()]
        is_set = ends[0] == int(CopyKind.MEMSET)
        category[copy] = np.where(is_set, CATEGORIES.index(MEMSET), CATEGORIES.index(COPY))
    return name, category, text, texts


def copy_name(kind: int, source: int, target: int) -> str:
    """A copy in words, with the kinds of memory at its ends where they are known."""
    if kind == int(CopyKind.MEMSET):
        return "memset"

    def word(value: int) -> str:
        return "?" if value == int(MemoryKind.UNKNOWN) else MemoryKind(value).name.lower().replace("_", " ")

    name = "memcpy" if kind == int(CopyKind.UNKNOWN) else f"memcpy {CopyKind(kind).name.lower().replace('_', ' ')}"
    unknown = int(MemoryKind.UNKNOWN)
    return name if (source, target) == (unknown, unknown) else f"{name} ({word(source)} to {word(target)})"


def idle_track(run: Run, activity: Activity, low: int, high: int) -> Events:
    """When the GPU had nothing to do inside [low, high), one event a gap and cause."""
    windows = (np.array([low], np.int64), np.array([high], np.int64))
    causes = idle_causes(run, activity, windows)
    label = f"GPU {activity.gpu.device} idle"
    start, end = (np.concatenate([causes[cause][side] for cause in CAUSES]) for side in (0, 1))
    cause = np.repeat(np.arange(len(CAUSES)), [len(causes[cause][0]) for cause in CAUSES])
    order = np.lexsort((-end, start))
    events = Events("idle", label, start[order], end[order], np.full(len(start), -1, np.int64), _OF_CAUSE + cause[order])
    events.text, events.texts = cause[order], list(CAUSES)
    events.process = activity.gpu.process if activity.gpu.process >= 0 else None
    events.device = activity.gpu.device if activity.gpu.device >= 0 else None
    return events


def cause_of(category: Ints) -> Ints:
    """The cause, as its place in CAUSES, of categories of an idle track."""
    return category - _OF_CAUSE
