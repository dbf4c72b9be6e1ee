"""Executes a graph, unchanged or changed, and says how long a steady step then takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Sequence

import numpy as np

from advisor.replay.graph import NO_WAIT, WAIT_END, Amounts, Graph

# A short window in which the host runs ahead is not yet steady; the window is run several times end to end and the last counts.
PASSES = 3

# A collective as the ranks share it: pass over the window, and number.
_Key = tuple[int, int]


def step_ns(graphs: Sequence[Graph], amounts: Sequence[Amounts]) -> float:
    """Mean length of a step of the slowest rank, ns.

    All ranks run side by side: at a collective each waits until its last member has arrived.
    """
    members = _members(graphs)
    runs = [_run(graph, part, members.keys()) for graph, part in zip(graphs, amounts, strict=True)]
    times, arrived = [0.0] * len(graphs), dict[_Key, dict[int, float]]()
    gone: dict[_Key, float] = {}
    ready: list[tuple[int, float | None]] = [(rank, None) for rank in range(len(graphs))]
    while ready or arrived:
        if not ready:
            # Ranks that issue collectives in different orders wait for each other; the earliest goes on without the others.
            _release(min(arrived, key=lambda key: max(arrived[key].values())), arrived, gone, ready)
        rank, latest = ready.pop()
        try:
            key, start = runs[rank].send(latest)
        except StopIteration as end:
            times[rank] = end.value / graphs[rank].steps
            continue
        if key in gone:
            ready.append((rank, max(gone[key], start)))
            continue
        arrived.setdefault(key, {})[rank] = start
        if len(arrived[key]) == members[key[1]]:
            _release(key, arrived, gone, ready)
    return max(times)


def _release(
    key: _Key, arrived: dict[_Key, dict[int, float]], gone: dict[_Key, float], ready: list[tuple[int, float | None]]
) -> None:
    """The ranks that wait at a collective go on from the arrival of the last of them."""
    waiting = arrived.pop(key)
    gone[key] = max(waiting.values())
    ready.extend((rank, gone[key]) for rank in waiting)


def _members(graphs: Sequence[Graph]) -> dict[int, int]:
    """Number of each collective that several ranks recorded -> how many did."""
    count = Counter(int(number) for graph in graphs for number in np.unique(graph.collective[graph.collective >= 0]))
    return {number: ranks for number, ranks in count.items() if ranks > 1}


def _run(graph: Graph, amounts: Amounts, shared: Collection[int]) -> Generator[tuple[_Key, float], float | None, float]:
    """Time of the last pass over the window. Yields its arrival at each shared collective, and is sent that of the last rank."""
    calls, ops = len(graph.call), len(graph.work)
    before, own = amounts.before.tolist(), amounts.own.tolist()
    wait_kind, wait_on, wait_extra = amounts.wait_kind.tolist(), graph.wait_on.tolist(), amounts.wait_extra.tolist()
    first, length, stream = graph.first.tolist(), amounts.length.tolist(), graph.stream.tolist()
    latency, gap = amounts.latency.tolist(), amounts.gap.tolist()
    after, after_gap = graph.after.tolist(), graph.after_gap.tolist()
    collective, on_stream = graph.collective.tolist(), amounts.on_stream.tolist()
    issued, queue = graph.issued.tolist(), graph.queue
    free = [0.0] * graph.streams
    starts = [0.0] * (ops * PASSES)
    ends = [0.0] * (ops * PASSES)
    host, marks = 0.0, []
    for number in range(PASSES):
        base = number * ops
        for i in range(calls):
            host += before[i]
            begin = host
            for op in range(first[i], first[i + 1]):
                at = base + op
                lane = stream[op]
                start = free[lane] + gap[op] if on_stream[op] else 0.0
                if issued[op] and begin + latency[op] > start:
                    start = begin + latency[op]
                if after[op] >= 0:
                    ready = ends[base + after[op]] + after_gap[op]
                    if ready > start:
                        start = ready
                end = start + length[op]
                if collective[op] in shared:
                    end = max((yield (number, collective[op]), start) or start, start) + length[op]
                starts[at], ends[at] = start, end
                if on_stream[op]:
                    free[lane] = end
            host += own[i]
            # A full queue holds the launch until the operation that many places back has started.
            back = base + first[i + 1] - 1 - queue
            if first[i + 1] > first[i] and back >= 0 and starts[back] > host:
                host = starts[back]
            if wait_kind[i] != NO_WAIT:
                target = base + wait_on[i]
                moment = (ends if wait_kind[i] == WAIT_END else starts)[target] + wait_extra[i]
                if moment > host:
                    host = moment
        marks.append((host, max(free)))
    return max(marks[-1][0] - marks[-2][0], marks[-1][1] - marks[-2][1])
