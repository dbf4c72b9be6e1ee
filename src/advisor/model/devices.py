"""A GPU as the input describes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """One GPU that the input lists or used. None: the input does not tell.

    `index` is the CUDA ordinal as the process sees it, `memory_bandwidth` is bytes/s, `max_clock` MHz.
    """

    index: int
    name: str | None = None
    rank: int | None = None
    process: int | None = None
    compute_capability: tuple[int, int] | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    memory_bandwidth: float | None = None
    max_clock: float | None = None
    registers_per_sm: int | None = None
    shared_memory_per_sm: int | None = None
    threads_per_sm: int | None = None
    uuid: str | None = None

    @property
    def capability_text(self) -> str | None:
        return None if self.compute_capability is None else "{}.{}".format(*self.compute_capability)
