"""The dependency graph of one rank's recorded steps, as arrays in the order in which the host issued the work.

Two kinds of nodes: the CUDA calls of the logical host thread, each with the host segment before it, and the operations that
they put on the GPU. Every dependency points backwards in this order, so one pass in order executes the graph:

* a call begins when the call before it has ended and the segment between them has passed;
* an operation starts when its stream is free, its launch has reached the GPU, and the event its stream waits for is recorded;
* a call that waits returns when the operation it waits for has ended, or has started where the launch queue was full;
* a collective ends one transfer after its last rank has arrived.

The weights of these edges are what the recording shows. Where an operation was held up by one of its dependencies, that edge
carries the observed distance and the others their smallest usual value, so that they take over when the first is removed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.profiler_cost import ProfilerCost

Ints = npt.NDArray[np.int64]

# What a call waits for: nothing, the end of an operation, or its start.
NO_WAIT, WAIT_END, WAIT_START = 0, 1, 2


@dataclass(frozen=True)
class Graph:
    """Times in ns. Positions refer to these arrays, -1 stands for none.

    Calls: `call` row of `runtime_calls`; `kind` CallKind; `begin` when it began in the recording; `before` segment and `own`
    work, as recorded; `wait_kind`, `wait_on` position of an operation, `wait_extra` from that moment to the return; `first`:
    position of the first operation issued at or after the call (one entry more than calls), so that operations
    first[i]..first[i+1] belong to call i; `events`, `frames`: operators and Python frames recorded in the segment.

    Operations: `work` position in `gpu_work`; `length` duration (of a collective that several ranks recorded: its transfer);
    `stream` index; `latency` from the begin of the launch call to the start; `gap` to the operation before on the stream;
    `after` position of the operation whose event is waited for, and `after_gap`; `collective` number shared with other ranks;
    `issued`: False where the launch was not recorded.

    steps: how many recorded steps this is; recorded_ns: their mean length as recorded; queue: operations that may be
    outstanding before a launch waits; cost: what the profiler costs the host; speed: how many times as long as recorded host
    work takes on a host that is as fast as those of the other ranks.
    """

    rank: int
    process: int
    call: Ints
    kind: npt.NDArray[np.int8]
    begin: Ints
    before: Ints
    own: Ints
    wait_kind: npt.NDArray[np.int8]
    wait_on: Ints
    wait_extra: Ints
    first: Ints
    events: npt.NDArray[np.float64]
    frames: npt.NDArray[np.float64]
    work: Ints
    length: Ints
    stream: npt.NDArray[np.int32]
    streams: int
    latency: Ints
    gap: Ints
    after: Ints
    after_gap: Ints
    collective: Ints
    issued: npt.NDArray[np.bool_]
    steps: int
    recorded_ns: int
    queue: int
    cost: ProfilerCost
    speed: float = 1.0

    @property
    def nodes(self) -> int:
        return len(self.call) + len(self.work)


@dataclass(frozen=True)
class Amounts:
    """The weights of a graph that a replay uses; a change replaces some of them. Arrays as in Graph.

    on_stream: False for operations that run beside their stream instead of occupying it.
    """

    before: Ints
    own: Ints
    wait_kind: npt.NDArray[np.int8]
    wait_extra: Ints
    length: Ints
    latency: Ints
    gap: Ints
    on_stream: npt.NDArray[np.bool_]


def recorded_amounts(graph: Graph) -> Amounts:
    """The graph as recorded."""
    return Amounts(
        before=graph.before,
        own=graph.own,
        wait_kind=graph.wait_kind,
        wait_extra=graph.wait_extra,
        length=graph.length,
        latency=graph.latency,
        gap=graph.gap,
        on_stream=np.ones(len(graph.work), bool),
    )
