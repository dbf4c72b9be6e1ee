"""A PCIe link that runs slower than it could while its GPU is at work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.derive.gpus import COPY, gpu_work
from advisor.derive.intervals import length, subtract, union
from advisor.derive.steady import steady
from advisor.model import CopyKind, Evidence, Run
from advisor.replay.changes import Edit, Factor
from advisor.rules.contract import Change, Context, Draft, NotApplicable

# Bytes/s of a lane per direction by generation, after line coding (PCI Express base specifications 1.0 to 6.0).
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}


@dataclass(frozen=True)
class Link:
    """The best that a GPU's link did in samples under load, and what it could do."""

    device: int
    samples: int
    generation: int
    generation_max: int
    width: int
    width_max: int

    @property
    def rate(self) -> float:
        """Bytes/s in use."""
        return _LANE.get(self.generation, 0.0) * self.width

    @property
    def rate_max(self) -> float:
        return _LANE.get(self.generation_max, 0.0) * self.width_max


def detect(ctx: Context) -> Draft | None:
    links = _links(ctx)
    if not links:
        raise NotApplicable("no samples of a GPU under load say which PCIe generation and width are in use and possible")
    slow = [link for link in links if 0 < link.rate < ctx.threshold("least_rate_share") * link.rate_max]
    if not slow:
        return None
    worst = min(slow, key=lambda link: (link.rate / link.rate_max, link.device))
    share = worst.rate / worst.rate_max
    edits, change = _copies(ctx.run, worst, share)
    return Draft(
        title=f"GPU {worst.device} runs at PCIe {worst.generation} x{worst.width} under load instead of PCIe "
        f"{worst.generation_max} x{worst.width_max}: {worst.rate / 1e9:.0f} of {worst.rate_max / 1e9:.0f} GB/s",
        confidence="medium" if worst.samples >= ctx.threshold("sure_samples") else "low",
        severity="medium",
        edits=edits,
        change=change,
        facts={
            "device": worst.device,
            "generation": worst.generation,
            "width": worst.width,
            "rate_gb_per_s": round(worst.rate / 1e9, 1),
            "possible_gb_per_s": round(worst.rate_max / 1e9, 1),
            "samples_under_load": worst.samples,
        },
        evidence=[
            Evidence(
                "Links under load",
                ["device", "samples", "generation", "possible_generation", "lanes", "possible_lanes", "gb_per_s"],
                [
                    [k.device, k.samples, k.generation, k.generation_max, k.width, k.width_max, round(k.rate / 1e9, 1)]
                    for k in links[:8]
                ],
            )
        ],
        scope={"devices": sorted(link.device for link in slow)},
        caveats=["An idle GPU lowers its link to save power; only samples under load were judged."],
        subject=["pcie", f"gpu {worst.device}"],
    )


def _links(ctx: Context) -> list[Link]:
    """One entry a GPU with samples under load that tell generation and width."""
    samples = ctx.run.table("device_samples")
    loaded = np.nan_to_num(samples["utilization"], nan=0.0) >= ctx.threshold("load")
    for column in ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max"):
        loaded &= samples.known(column) & (samples[column] > 0)
    result = []
    for device in np.unique(samples["device"][loaded]):
        rows = np.flatnonzero(loaded & (samples["device"] == device))
        best = {
            column: int(samples[column][rows].max())
            for column in ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")
        }
        result.append(
            Link(
                int(device),
                len(rows),
                best["pcie_generation"],
                best["pcie_generation_max"],
                best["pcie_width"],
                best["pcie_width_max"],
            )
        )
    return result


def _copies(run: Run, link: Link, share: float) -> tuple[list[Edit], Change | None]:
    """Copies over the link take the share of their time that the rates say; nothing is promised where their GPU is not sure."""
    judged, work, copies = steady(run), gpu_work(run), run.table("copies")
    sampled = np.unique(run.table("device_samples")["device"])
    if judged is None or (len(sampled) > 1 and judged.activity.gpu.device != link.device):
        return [], None
    mask = (work.source == COPY) & (work.rank == judged.step.rank) & (work.process == judged.step.process)
    rows = work.row[mask]
    over = np.isin(copies["kind"][rows], (int(CopyKind.HOST_TO_DEVICE), int(CopyKind.DEVICE_TO_HOST)))
    mask[mask] = over
    if not mask.any():
        return [], None
    alone = subtract(union(work.start[mask], work.end[mask]), judged.activity.compute)
    gone = round(judged.within(alone) * (1 - share))
    return [Edit(work=mask, gpu=Factor(1.0, share, share))], Change(gpu_ns=gone) if length(alone) else None
