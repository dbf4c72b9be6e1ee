"""What is already set of PyTorch's caching allocator, so that no fix advises it again, and how its variable is called."""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.derive.allocator import histories
from advisor.model import Run

# From this version on the variable serves all accelerators; the old name still works there and is the only one before.
_NEW_NAME = (2, 9)
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_WINDOWS_PATH = re.compile(r"^[A-Za-z]:\\")
_MOST_STACKS = 200


@dataclass(frozen=True)
class AllocatorSettings:
    """None: the input does not tell. max_split: bytes, None too where there is no limit."""

    expandable: bool | None
    max_split: int | None
    collects: bool | None
    windows: bool
    variable: str
    text: str

    @property
    def facts(self) -> dict[str, str]:
        """Values for the placeholders of snippets: the name of the variable, and what it holds already, with a comma."""
        kept = [part for part in self.text.split(",") if part and not part.startswith("expandable_segments")]
        return {"alloc_variable": self.variable, "alloc_kept": "".join(f"{part.strip()}," for part in kept)}


def allocator_settings(run: Run) -> AllocatorSettings:
    """The settings as a snapshot states them, else as the environment of the recording does."""
    text = next((run.environment[name] for name in _VARIABLES if run.environment.get(name)), "")
    said = run.facts.get("allocator_expandable_segments")
    stated = re.search(r"expandable_segments:\s*(true|false)", text, re.IGNORECASE)
    expandable = bool(said) if said is not None else stated[1].lower() == "true" if stated else None
    split = run.facts.get("allocator_max_split_size")
    collects = run.facts.get("allocator_garbage_collection_threshold")
    torch = re.match(r"(\d+)\.(\d+)", str(run.options.torch_version or run.facts.get("torch_version") or ""))
    new = torch is not None and (int(torch[1]), int(torch[2])) >= _NEW_NAME
    return AllocatorSettings(
        expandable=expandable,
        max_split=int(split) if isinstance(split, int) and split > 0 else None,
        collects=None if collects is None else float(collects) > 0,
        windows=_on_windows(run),
        variable=_VARIABLES[0] if new else _VARIABLES[1],
        text=text,
    )


def against_holes(settings: AllocatorSettings) -> list[str]:
    """The fixes, by id, that make the allocator leave fewer holes and are not in force, the best first."""
    fixes = []
    if not settings.expandable and not settings.windows:
        fixes.append("expandable-segments")
    if settings.max_split is None and not settings.expandable:
        fixes.append("max-split-size")
    if not settings.collects and not settings.expandable:
        fixes.append("garbage-collection-threshold")
    return fixes


def _on_windows(run: Run) -> bool:
    """Whether the stacks name files as Windows does."""
    events, blocks = run.table("allocator_events"), run.table("memory_blocks")
    if not histories(run):
        return False
    codes = {int(code) for table in (events, blocks) for code in table["stack"][:100_000] if code >= 0}
    return any(_WINDOWS_PATH.match(run.strings[code]) for code in sorted(codes)[:_MOST_STACKS])
