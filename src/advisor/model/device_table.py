"""What known GPUs can do at most, from their data sheets: the roof of every roofline and the judge of precision advice.

`find` knows a GPU by the name its driver prints or a user types; a name it does not know gives None, never a neighbour:
laptop versions, MIG slices and cut-down editions share most of a name but not the figures.

The rows are in `device_data/*.toml`. Conventions of their keys:

* `tflops`: peak of a matrix product per element type in 1e12 operations/s, without sparsity, accumulating in FP32 (INT8: in
  INT32). `fp64` counts the tensor cores where they take FP64; `fp32` is IEEE single precision, so on NVIDIA not the tensor
  cores (those are `tf32`). Data sheets often print the figure with 2:4 sparsity, twice as much.
* `half_rate`: the tensor cores accumulate in FP32 at half the rate at which they accumulate in FP16 (GeForce and a few
  others); the peaks have that already.
* `memory`: GiB (2**30) and GB/s (1e9). `link_gb_per_s`: all NVLink or Infinity Fabric links to other GPUs together, per
  direction; `link_optional`: they lead somewhere only with a bridge or in some systems. `c2c_gb_per_s`: link to the CPU in
  place of PCIe, per direction. `boost_mhz`: maximum boost clock.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from advisor.model.devices import Device

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")

# The first compute capability whose tensor cores take each element type: CUDA C++ Programming Guide, "Tensor core data types".
_TENSOR_CORES_SINCE = {
    "fp16": (7, 0),
    "int8": (7, 5),
    "bf16": (8, 0),
    "tf32": (8, 0),
    "fp8": (8, 9),
    "fp4": (10, 0),
}

# Bytes/s of one PCIe lane per direction after encoding (128b/130b; generation 6: 242 of 256 bytes of a flit).
_PCIE_LANE = {3: 8e9 / 8 * 128 / 130, 4: 16e9 / 8 * 128 / 130, 5: 32e9 / 8 * 128 / 130, 6: 64e9 / 8 * 242 / 256}

_VENDOR_WORDS = re.compile(r"\b(nvidia|corporation|tesla|geforce|amd|instinct)\b")


def tensor_core_types(capability: tuple[int, int] | None) -> frozenset[str]:
    """Element types that the tensor cores of an NVIDIA GPU of that compute capability multiply; empty when unknown.

    Only for NVIDIA: AMD's tools report numbers of their own kind in the same field. GTX 16 cards say 7.5 but have none.
    """
    if capability is None:
        return frozenset()
    return frozenset(dtype for dtype, since in _TENSOR_CORES_SINCE.items() if capability >= since)


@dataclass(frozen=True)
class DeviceSpec:
    """One GPU model. Rates are per second in plain units (FLOP/s, bytes/s), clocks in Hz; None: it has none, or not published."""

    name: str
    names: tuple[str, ...]
    capability: tuple[int, int] | None
    sm_count: int
    boost_clock: float
    peaks: dict[str, float]
    half_rate: bool
    memory_bytes: int | None
    memory_bandwidth: float
    link_bandwidth: float | None
    link_optional: bool
    pcie_generation: int
    pcie_lanes: int
    c2c_bandwidth: float | None
    source: str

    def peak(self, dtype: str) -> float | None:
        """Dense peak of a matrix product in FLOP/s; None where the GPU has no such unit. KeyError for an unknown type."""
        if dtype not in DTYPES:
            raise KeyError(f"no element type {dtype!r}; known: {', '.join(DTYPES)}")
        return self.peaks.get(dtype)

    def supports(self, dtype: str) -> bool:
        """True if its tensor or matrix cores (fp32, fp64: any unit) multiply that type."""
        if self.capability is None or dtype in ("fp32", "fp64"):
            return self.peak(dtype) is not None
        return dtype in tensor_core_types(self.capability)

    @property
    def host_bandwidth(self) -> float:
        """Most bytes/s between host and GPU per direction, before protocol overhead."""
        return self.c2c_bandwidth or _PCIE_LANE[self.pcie_generation] * self.pcie_lanes


def find(name: str | None) -> DeviceSpec | None:
    """The GPU called so by its driver ("NVIDIA H100 80GB HBM3") or a user ("h100", "a100-80gb"); None if unknown or ambiguous.

    A bare family name means its SXM form where that comes with one memory size ("h100", but not "a100").
    """
    return _by_key().get(_key(name)) if name else None


def similar(name: str) -> list[str]:
    """Names of known GPUs that contain what the user typed, for a message such as: which of these do you mean."""
    key = _key(name)
    return sorted({spec.name for known, spec in _by_key().items() if key and key in known})


def spec_of(device: Device) -> DeviceSpec | None:
    """The row of a recorded device; None if its name is unknown, or its SM count or capability says it is a slice or variant."""
    spec = find(device.name)
    if spec is None or device.sm_count not in (None, spec.sm_count):
        return None
    if spec.capability is not None and device.compute_capability not in (None, spec.capability):
        return None
    return spec


@functools.cache
def devices() -> tuple[DeviceSpec, ...]:
    """All known GPUs."""
    folder = resources.files("advisor.model") / "device_data"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return tuple(_spec(row) for file in files for row in tomllib.loads(file.read_text("utf-8"))["device"])


@functools.cache
def _by_key() -> dict[str, DeviceSpec]:
    return {_key(name): spec for spec in devices() for name in (spec.name, *spec.names)}


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _VENDOR_WORDS.sub("", name.lower()))


def _spec(row: dict[str, Any]) -> DeviceSpec:
    unknown = set(row["tflops"]) - set(DTYPES)
    if unknown:
        raise ValueError(f"{row['name']}: unknown element types {sorted(unknown)}")
    major, _, minor = row.get("capability", "").partition(".")
    memory, link, c2c = row["memory"], row.get("link_gb_per_s"), row.get("c2c_gb_per_s")
    return DeviceSpec(
        name=row["name"],
        names=tuple(row["names"]),
        capability=(int(major), int(minor)) if major else None,
        sm_count=row["sm_count"],
        boost_clock=row["boost_mhz"] * 1e6,
        peaks={dtype: value * 1e12 for dtype, value in row["tflops"].items()},
        half_rate=row.get("half_rate", False),
        memory_bytes=memory["gib"] << 30 if "gib" in memory else None,
        memory_bandwidth=memory["gb_per_s"] * 1e9,
        link_bandwidth=None if link is None else link * 1e9,
        link_optional=row.get("link_optional", False),
        pcie_generation=row["pcie"]["generation"],
        pcie_lanes=row["pcie"]["lanes"],
        c2c_bandwidth=None if c2c is None else c2c * 1e9,
        source=row["source"],
    )


__all__ = ["DTYPES", "DeviceSpec", "devices", "find", "similar", "spec_of", "tensor_core_types"]
