"""Several processes on one GPU."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from advisor.detectors.words import size_text
from advisor.model import Evidence
from advisor.rules.contract import Context, Draft, NotApplicable


@dataclass(frozen=True)
class Tenant:
    """A process that computes on a GPU: most memory, mean share of time with kernels in %, None where not recorded."""

    process: int
    command: str
    memory: int | None
    sm: float | None


def detect(ctx: Context) -> Draft | None:
    table = ctx.run.table("device_processes")
    tenants = _tenants(ctx)
    if not len(table):
        raise NotApplicable("the samples do not list the processes on the GPUs")
    shared = {device: found for device, found in tenants.items() if len(found) > 1}
    if not shared:
        return None
    device = max(shared, key=lambda one: (len(shared[one]), -one))
    busy = [one for one in shared[device] if (one.sm or 0.0) >= ctx.threshold("computes")]
    competing = len(busy) > 1
    verb = "compute" if competing else "hold memory"
    held = sum(one.memory or 0 for one in shared[device])
    total = f" ({size_text(held)} in all)" if held else ""
    return Draft(
        title=f"{len(shared[device])} processes {verb} on GPU {device}{total}",
        confidence="medium",
        severity="medium" if competing else "low",
        facts={"device": device, "processes": len(shared[device]), "computing": len(busy), "gpus_shared": len(shared)},
        evidence=[
            Evidence(
                "Compute processes at the same time on a GPU",
                ["device", "process", "command", "memory_bytes", "sm_percent"],
                [
                    [number, one.process, one.command, one.memory, None if one.sm is None else round(one.sm, 1)]
                    for number in sorted(shared)
                    for one in shared[number]
                ][:8],
            )
        ],
        scope={"devices": sorted(shared)},
        caveats=["Ranks that share a GPU on purpose, or slices of it (MIG), look the same."],
        fixes=["other-gpu", "own-device"] if competing else ["own-device", "other-gpu"],
        subject=["processes", f"gpu {device}"],
    )


def _tenants(ctx: Context) -> dict[int, list[Tenant]]:
    """For each GPU the compute processes that were seen together in one sample and hold more than next to nothing."""
    table, run = ctx.run.table("device_processes"), ctx.run
    # C+G draws as well: on a desktop every window is such a process.
    compute = [code for code in np.unique(table["type"]) if code < 0 or run.strings[int(code)] == "C"]
    together: dict[int, set[int]] = defaultdict(set)
    rows = np.flatnonzero(np.isin(table["type"], compute) & (table["process"] >= 0))
    order = rows[np.lexsort((table["device"][rows], table["time"][rows]))]
    key = np.stack([table["time"][order], table["device"][order].astype(np.int64)])
    breaks = np.flatnonzero((np.diff(key, axis=1) != 0).any(axis=0)) + 1 if len(order) else np.empty(0, np.int64)
    for sample in np.split(order, breaks):
        own = set(table["process"][sample].tolist())
        if len(own) > 1:
            together[int(table["device"][sample[0]])] |= own
    result = {}
    for device, processes in together.items():
        found = [_tenant(ctx, device, process) for process in sorted(processes)]
        result[device] = [one for one in found if _matters(ctx, one)]
    return result


def _tenant(ctx: Context, device: int, process: int) -> Tenant:
    table = ctx.run.table("device_processes")
    rows = table.take((table["device"] == device) & (table["process"] == process))
    memory, sm = rows["memory_used"][rows.known("memory_used")], rows["sm"][rows.known("sm")]
    return Tenant(
        process=process,
        command=ctx.run.strings[int(rows["command"][0])],
        memory=int(memory.max()) if len(memory) else None,
        sm=float(sm.mean()) if len(sm) else None,
    )


def _matters(ctx: Context, one: Tenant) -> bool:
    if one.memory is None and one.sm is None:
        return True
    return (one.memory or 0) >= ctx.threshold("least_memory") or (one.sm or 0.0) >= ctx.threshold("computes")
