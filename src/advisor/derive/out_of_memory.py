"""Failed allocations, from error messages and from snapshots, and what each failed for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from advisor.derive.allocation_sites import Site, site
from advisor.derive.allocator import histories
from advisor.derive.fragmentation import held
from advisor.derive.memory import capacity_of
from advisor.model import AllocatorAction, Run

_LOOSE = 0.2  # share of what is reserved: a loop of fixed shapes keeps 2 to 10 % unused
_CROWDED = 0.1  # share of the device that others use
_UNSTATED = 0.25  # the same where it is what is left over, with the context and libraries of this process
_MOST = 20  # failures looked at, the last ones; a loop that catches the error and goes on has thousands alike


class Cause(Enum):
    """Why an allocation failed."""

    FRAGMENTATION = "fragmentation"
    CAPACITY = "capacity"
    OTHERS = "another process"
    REQUEST = "one request beyond all bounds"
    LIMIT = "a limit below what is free"


@dataclass(frozen=True)
class Failure:
    """One failed allocation, bytes. None: not known.

    unallocated: held by the allocator and not in use; usable_gap: the largest free piece that it held, which a message does
    not tell; others: used by other processes, as stated or as what is left over (`others_stated`).
    """

    rank: int
    device: int
    requested: int
    capacity: int | None
    free: int | None
    allocated: int | None
    reserved: int | None
    unallocated: int | None
    usable_gap: int | None
    others: int | None
    others_stated: bool
    site: Site | None
    cause: Cause


def failures(run: Run) -> list[Failure]:
    """The failed allocations: of snapshots where they tell, else of messages; in order."""
    return run.derived(_failures)


def _failures(run: Run) -> list[Failure]:
    return _of_snapshots(run) or _of_messages(run)


def _of_snapshots(run: Run) -> list[Failure]:
    events, result = run.table("allocator_events"), []
    for history in histories(run):
        for position in np.flatnonzero(history.action == int(AllocatorAction.OUT_OF_MEMORY))[-_MOST:].tolist():
            row = int(history.rows[position])
            requested, free = int(events["bytes"][row]), int(events["device_free"][row])
            if requested < 0:
                continue
            state = held(history, position)
            capacity = capacity_of(run, history.rank, history.device)
            known_free = free if free >= 0 else None
            others = max(capacity - free - state.reserved, 0) if capacity is not None and free >= 0 else None
            result.append(
                _judged(
                    rank=history.rank, device=history.device, requested=requested, capacity=capacity,
                    free=known_free, allocated=state.allocated, reserved=state.reserved,
                    unallocated=state.reserved - state.allocated, loose=state.holes,
                    usable_gap=state.largest, others=others, others_stated=False,
                    site=site(run, int(events["stack"][row])),
                )
            )  # fmt: skip
    return result


def _of_messages(run: Run) -> list[Failure]:
    table, result = run.table("out_of_memory"), []
    known = {name: table.known(name) for name in table.column_names}
    for row in range(max(len(table) - _MOST, 0), len(table)):
        value = {name: int(table[name][row]) if known[name][row] else None for name in table.column_names}
        allocated, reserved, requested = value["allocated"], value["reserved"], value["requested"]
        if requested is None:
            continue
        rank, device = int(table["rank"][row]), int(table["device"][row])
        unallocated = max(reserved - allocated, 0) if allocated is not None and reserved is not None else None
        capacity = value["capacity"] if value["capacity"] is not None else capacity_of(run, rank, device)
        others, stated = value["others_used"], value["others_used"] is not None
        if not stated and capacity is not None and value["free"] is not None:
            own = value["process_used"] if value["process_used"] is not None else reserved
            others = max(capacity - value["free"] - own, 0) if own is not None else None
            stated = value["process_used"] is not None
        result.append(
            _judged(
                rank=rank, device=device, requested=requested, capacity=capacity, free=value["free"], allocated=allocated,
                reserved=reserved, unallocated=unallocated, loose=unallocated, usable_gap=None, others=others,
                others_stated=stated, site=None,
            )
        )  # fmt: skip
    return result


def _judged(*, loose: int | None, **facts: object) -> Failure:
    failure = Failure(**facts, cause=Cause.CAPACITY)  # type: ignore[arg-type]
    return Failure(**facts, cause=_cause(failure, loose or 0))  # type: ignore[arg-type]


def _cause(one: Failure, loose: int) -> Cause:
    """loose: free memory inside the allocator that it could not use; of a message all that it did not use."""
    free, reserved = one.free or 0, one.reserved or 0
    everything = one.capacity if one.capacity is not None else reserved + free
    if everything and one.requested > everything:
        return Cause.REQUEST
    fragmented = reserved > 0 and loose >= _LOOSE * reserved and loose + free >= one.requested
    others = one.others or 0
    crowded = one.capacity is not None and others >= (_CROWDED if one.others_stated else _UNSTATED) * one.capacity
    if crowded and others + free >= one.requested and not (fragmented and loose >= others):
        return Cause.OTHERS
    if fragmented:
        return Cause.FRAGMENTATION
    return Cause.LIMIT if one.free is not None and free >= one.requested else Cause.CAPACITY


def pressed(run: Run) -> bool:
    """Whether the allocator ran out of memory, or nearly did: what is free on the device is then not the program's to use."""
    return bool(failures(run)) or bool((run.table("allocator_summaries")["retries"] > 0).any())
