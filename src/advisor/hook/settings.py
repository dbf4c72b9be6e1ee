"""What a user of the hook can choose, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field

from advisor.hook.plan import Schedule, Trigger


@dataclass
class Settings:
    """schedule, triggers: which steps are recorded.

    output: folder in which the run's own folder is made. keep: recorded runs to keep there, older ones are removed;
    0 keeps all. most_bytes: no further windows once a rank's files are larger.
    analyze: print the short report when training ends (rank 0, in another process).
    samples: seconds between two readings of the GPUs by NVML, None for none.
    memory_history: keep the allocator's history with stacks (slows allocations), for snapshots that tell who holds memory.
    snapshot_on_oom: write a snapshot of the allocator when it runs out of memory.
    ranges: name steps and phases (data, forward, backward, optimizer) by NVTX and in the evidence window, by hooks on the
    models that were given; None does so under nsys alone, since a hook on a model that is compiled later breaks its graph.
    enabled: False makes everything a no-op, so that the line can stay in the script.
    """

    schedule: Schedule = field(default_factory=Schedule)
    triggers: tuple[Trigger, ...] = ()
    output: str = "."
    keep: int = 10
    most_bytes: int = 2 << 30
    analyze: bool = True
    samples: float | None = 0.5
    memory_history: bool = False
    snapshot_on_oom: bool = True
    ranges: bool | None = None
    enabled: bool = True
