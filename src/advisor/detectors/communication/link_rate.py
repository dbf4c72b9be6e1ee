"""How fast the GPUs of one machine are connected."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from advisor.model import Device, Run
from advisor.model.device_table import DeviceSpec, spec_of
from advisor.rules.contract import NotApplicable

TOPOLOGY = "nvidia-smi topo -m > topo.txt    # and give topo.txt to the analysis too"
_NVLINK = re.compile(r"^NV(\d+)$")
_GPU = re.compile(r"^GPU\d+$")
# Bytes/s of one NVLink per direction by the generation that came with each compute capability: NVIDIA's NVLink data sheets.
_PER_LINK = {(7, 0): 25e9, (7, 5): 25e9, (8, 0): 25e9, (8, 6): 14.0625e9, (9, 0): 25e9, (10, 0): 50e9, (10, 3): 50e9}
# GPUs that one machine's links join: NVSwitch systems hold 8, the rack-scale ones 72.
_IN_ONE_SYSTEM = 8
_IN_ONE_RACK = 72


@dataclass(frozen=True)
class LinkRate:
    """Bytes/s of one GPU to its peers, per direction. `what`: NVLink or PCIe; `stated`: the topology was recorded."""

    bytes_per_s: float
    what: str
    stated: bool


def link_rate(run: Run, device: Device | None, ranks: int) -> LinkRate:
    """For a group of so many ranks. NotApplicable where the input does not tell."""
    spec = spec_of(device) if device else None
    if spec is None:
        raise NotApplicable("the GPU or its links are not in the device table", "name the nearest model: --gpu NAME")
    if ranks > (_IN_ONE_RACK if spec.name.startswith("NVIDIA GB") else _IN_ONE_SYSTEM):
        raise NotApplicable(f"groups of {ranks} ranks span machines, whose network the input does not tell")
    counts = _between_gpus(run)
    if counts is None:
        if spec.link_bandwidth and not spec.link_optional:
            return LinkRate(spec.link_bandwidth, "NVLink" if spec.capability else "Infinity Fabric", False)
        raise NotApplicable(f"{spec.name} may be linked by PCIe alone, by NVLink, or not to its peers", TOPOLOGY)
    if spec.link_bandwidth and counts.min() > 0:
        return LinkRate(_nvlink(spec, int(counts.min()), ranks), "NVLink", True)
    # Some pair has only PCIe, and nothing says which pair the ranks are.
    return LinkRate(spec.host_bandwidth, "PCIe", True)


def _between_gpus(run: Run) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """NVLinks of each pair of GPUs, 0 for a pair on PCIe; None without a topology of several GPUs."""
    table = run.table("links")
    counts = []
    for a, b, link in zip(table["a"], table["b"], table["link"], strict=True):
        if _GPU.match(run.strings[int(a)]) and _GPU.match(run.strings[int(b)]) and a != b:
            found = _NVLINK.match(run.strings[int(link)])
            counts.append(int(found[1]) if found else 0)
    return np.array(counts, np.int64) if counts else None


def _nvlink(spec: DeviceSpec, links: int, ranks: int) -> float:
    """A GPU sends to all peers of its group at once, over the links it has to each, and never over more than it has."""
    each = _PER_LINK.get(spec.capability) if spec.capability else None
    whole = spec.link_bandwidth or 0.0
    return whole if each is None else min(whole, max(ranks - 1, 1) * links * each)
