"""Executes a graph, unchanged or changed, and says how long a steady step then takes."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.replay.graph import NO_WAIT, WAIT_END, Amounts, Graph

# A short window in which the host runs ahead is not yet steady; the window is run several times end to end and the last counts.
PASSES = 3
# Arrivals and transfers of collectives depend on each other across ranks; a few rounds settle them.
ROUNDS = 6
SETTLED = 1e-4


def step_ns(graphs: Sequence[Graph], amounts: Sequence[Amounts]) -> float:
    """Mean length of a step of the slowest rank, ns."""
    shared = _shared(graphs)
    if not shared:
        return max(_run(graph, part, {}, None) / graph.steps for graph, part in zip(graphs, amounts, strict=True))
    delays: list[dict[tuple[int, int], float]] = [{} for _ in graphs]
    result = 0.0
    for _ in range(ROUNDS):
        before = result
        arrivals: list[dict[tuple[int, int], float]] = [{} for _ in graphs]
        times = [
            _run(graph, part, delays[i], arrivals[i]) / graph.steps
            for i, (graph, part) in enumerate(zip(graphs, amounts, strict=True))
        ]
        result = max(times)
        if abs(result - before) < SETTLED * result:
            break
        for key in {key for arrived in arrivals for key in arrived}:
            last = max(arrived[key] for arrived in arrivals if key in arrived)
            for i, arrived in enumerate(arrivals):
                if key in arrived:
                    delays[i][key] = last
    return result


def _shared(graphs: Sequence[Graph]) -> bool:
    return len(graphs) > 1 and any((graph.collective >= 0).any() for graph in graphs)


def _run(
    graph: Graph, amounts: Amounts, latest: dict[tuple[int, int], float], arrivals: dict[tuple[int, int], float] | None
) -> float:
    """Time of the last pass over the window. `latest`: when the last rank arrives at a collective, by (pass, number)."""
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
                if arrivals is not None and collective[op] >= 0:
                    key = (number, collective[op])
                    arrivals[key] = start
                    end = max(latest.get(key, start), start) + length[op]
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
