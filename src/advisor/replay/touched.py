"""Where a fix shows on the time line: the calls, host segments and GPU operations that its edits change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.derive.calls import links
from advisor.derive.gpus import gpu_work
from advisor.derive.host import HostSide, driving_threads, host_sides
from advisor.derive.intervals import EMPTY, IntervalSet, clip, merge, union
from advisor.derive.nesting import mixed_key
from advisor.model import Run
from advisor.replay.changes import Edit, Mask


@dataclass
class Touched:
    """Interval sets by host thread and by (device, stream), of one rank and process."""

    threads: dict[int, IntervalSet] = field(default_factory=dict)
    streams: dict[tuple[int, int], IntervalSet] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(len(part[0]) for part in (*self.threads.values(), *self.streams.values()))

    def within(self, host: tuple[int, int], gpu: tuple[int, int]) -> Touched:
        """What of it lies inside a window on the host and one on the GPU."""
        threads = {key: clip(part, *host) for key, part in self.threads.items()}
        streams = {key: clip(part, *gpu) for key, part in self.streams.items()}
        return Touched(
            {key: part for key, part in threads.items() if len(part[0])},
            {key: part for key, part in streams.items() if len(part[0])},
        )


def touched(run: Run, edits: Sequence[Edit], rank: int, process: int) -> Touched:
    """What the edits change on one rank, in all steps."""
    result = Touched()
    side = host_sides(run).get((rank, process))
    for edit in edits:
        if edit.work is not None and len(edit.work) == len(gpu_work(run)):
            on_streams(run, edit.work, result, rank, process)
        if side is None or not len(side):
            continue
        if edit.calls is not None and len(edit.calls) == len(run.table("runtime_calls")):
            _on_host(run, side, edit.calls[side.call], edit.host is not None, result)
        if edit.vanish and edit.work is not None and len(edit.work) == len(gpu_work(run)):
            _on_host(run, side, _left_idle(run, edit.work)[side.call], True, result)
        if edit.intervals is not None and edit.of in (None, (rank, process)):
            thread = _main_thread(run, side)
            result.threads[thread] = merge(result.threads.get(thread, EMPTY), edit.intervals)
    return result


def on_streams(run: Run, chosen: Mask, result: Touched, rank: int, process: int) -> None:
    """Add the chosen entries of `gpu_work` of one rank to its streams."""
    work = gpu_work(run)
    rows = np.flatnonzero(chosen & (work.rank == rank) & (work.process == process))
    lane = np.stack([work.gpu[rows].astype(np.int64), work.stream[rows]])
    for gpu, stream in np.unique(lane, axis=1).T.tolist():
        mine = rows[(lane[0] == gpu) & (lane[1] == stream)]
        key = (work.gpus[gpu].device, stream)
        more = union(work.start[mine], work.end[mine])
        result.streams[key] = merge(result.streams[key], more) if key in result.streams else more


def _on_host(run: Run, side: HostSide, chosen: Mask, segments: bool, result: Touched) -> None:
    """The chosen calls of a host side, with the segments before them where those change too."""
    thread = run.table("runtime_calls")["thread"][side.call]
    for one in np.unique(thread[chosen]).tolist():
        mine = chosen & (thread == one)
        begin = side.start[mine] - (side.before[mine] if segments else 0)
        more = union(begin, np.maximum(side.end[mine], begin + 1))
        result.threads[one] = merge(result.threads[one], more) if one in result.threads else more


def _left_idle(run: Run, gone: Mask) -> Mask:
    """For each row of `runtime_calls`: whether it launched something, all of which is gone."""
    link = links(run)
    lost = np.bincount(link.call[(link.call >= 0) & gone], minlength=len(run.table("runtime_calls")))
    return np.asarray((link.count > 0) & (lost == link.count), bool)


def _main_thread(run: Run, side: HostSide) -> int:
    """The thread on which most of the time between calls passes: where Python runs."""
    calls = run.table("runtime_calls")
    thread = calls["thread"][side.call]
    keys = mixed_key(calls["rank"][side.call], calls["process"][side.call], thread)
    driving = np.isin(keys, driving_threads(run))
    chosen = driving if driving.any() else np.ones(len(side), bool)
    found, index = np.unique(thread[chosen], return_inverse=True)
    return int(found[int(np.bincount(index, weights=side.before[chosen]).argmax())])
