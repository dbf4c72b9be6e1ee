"""Figures of the run that budgets ask for and no finding has to be there for."""

from __future__ import annotations

from typing import Any

from advisor.derive.health import device_health
from advisor.derive.memory import allocator_use
from advisor.derive.sequence import sequence
from advisor.derive.steady import steady
from advisor.derive.waits import waits
from advisor.model import Run


def measured(run: Run) -> dict[str, Any]:
    """The contract's "run.measured"; None for what the recording does not tell, also where looking for it fails."""
    peak, source = _told(_memory_peak, run) or (None, None)
    return {
        "memory_peak_bytes": peak,
        "memory_peak_source": source,
        "host_syncs_per_step": _told(_host_syncs, run),
        "kernels_per_step": _told(_kernels, run),
    }


def _told(figure: Any, run: Run) -> Any:
    """From the recording that times best, else from the fuller one. A figure is worth no failure of the report."""
    for source in (run, run.fuller):
        if source is not None:
            try:
                found = figure(source)
            except Exception:
                continue
            if found is not None:
                return found
    return None


def _memory_peak(run: Run) -> tuple[int, str] | None:
    """Samples see all processes but only now and then, the allocator sees its own at all times: the larger of both."""
    sampled = [(one.memory_used_max, "device-samples") for one in device_health(run) if one.memory_used_max is not None]
    reserved = [(one.peak_reserved, "allocator") for one in allocator_use(run)]
    return max([*sampled, *reserved], default=None)


def _host_syncs(run: Run) -> float | None:
    judged = steady(run)
    if judged is None or judged.unmarked or not judged.count:
        return None
    return round(len(waits(run, judged)) / judged.count, 3)


def _kernels(run: Run) -> float | None:
    found, judged = sequence(run), steady(run)
    if not found.steps or (judged is not None and judged.unmarked):
        return None
    return round(len(found) / found.steps, 3)
