"""Where a step goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Breakdown:
    """Where the steady step of one GPU goes. The parts (compute, exposed_*, idle) add up to step_ns."""

    rank: int | None
    device: int
    step_ns: int
    busy_ns: int
    compute_ns: int
    exposed_communication_ns: int
    exposed_communication_wait_ns: int
    exposed_copy_ns: int
    idle_ns: int
    idle_by_cause: dict[str, int]
