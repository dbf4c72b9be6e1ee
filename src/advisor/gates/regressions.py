"""Allowed regressions: whether the second side of a comparison got worse by more than a limit, noise taken into account."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """What can get worse. category: name of the part of the step in a comparison, None for the step and for memory."""

    words: str
    meaning: str
    category: str | None = None


_CATEGORY = "Time of this part, as a share of the base step, that the head may take more: {}"

PARTS: dict[str, Part] = {
    "step-time": Part("step time", "Time of a step (of an item, where both sides know the items a step)"),
    "memory-peak": Part("peak of GPU memory", "Most memory in use on a GPU, relative to the base"),
    **{
        name: Part(words, _CATEGORY.format(words), category)
        for name, words, category in (
            ("compute", "compute kernels", "compute"),
            ("exposed-communication", "exposed communication", "communication"),
            ("waiting-for-ranks", "waiting for other ranks", "communication_wait"),
            ("exposed-copies", "exposed copies", "copy"),
            ("idle-dataloader", "idle time by data loading", "dataloader"),
            ("idle-host-sync", "idle time by host synchronisation", "host-sync"),
            ("idle-launch", "idle time by kernel launches", "launch"),
            ("idle-python", "idle time by Python", "python"),
            ("idle-memory-management", "idle time by memory management", "memory-management"),
            ("idle-unexplained", "unexplained idle time", "unexplained"),
        )
    },
}
