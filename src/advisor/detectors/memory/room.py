"""How much of a GPU's memory the run used at its peak, as far as the input tells."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.derive.health import device_health
from advisor.derive.memory import allocator_use
from advisor.model import Run

# A look or two at a GPU says nothing about the peak of a run.
_FEWEST_SAMPLES = 5


@dataclass(frozen=True)
class Room:
    """The fullest GPU of the run, bytes. `by`: "allocator" (what the framework reserved) or "samples" (what the driver says)."""

    device: int
    peak: int
    capacity: int
    by: str

    @property
    def share(self) -> float:
        return self.peak / self.capacity


def room(run: Run) -> Room | None:
    """The fullest of the GPUs that worked; None where neither allocator totals with a known capacity nor samples tell."""
    seen = [
        Room(health.device, health.memory_used_max, health.memory_total, "samples")
        for health in device_health(run)
        if health.utilization is not None
        and health.busy_samples >= _FEWEST_SAMPLES
        and health.memory_used_max
        and health.memory_total
    ]
    if not seen:
        seen = [
            Room(use.device, use.peak_reserved, use.capacity, "allocator")
            for use in allocator_use(run)
            if use.capacity and use.peak_reserved
        ]
    return max(seen, key=lambda one: (one.share, -one.device)) if seen else None
