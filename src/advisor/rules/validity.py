"""Where advice holds: GPU vendor, compute capability, torch version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta

from advisor.model import Device, Run

Version = tuple[int, ...]

VENDORS = ("nvidia", "amd")


@dataclass(frozen=True)
class Validity:
    """Conditions that all have to hold; None: no condition. The limits themselves are inside."""

    min_compute_capability: Version | None = None
    max_compute_capability: Version | None = None
    vendor: str | None = None
    min_torch: Version | None = None
    max_torch: Version | None = None

    @property
    def conditions(self) -> list[str]:
        """Each condition in words."""
        words = [
            ("compute capability", self.min_compute_capability, self.max_compute_capability),
            ("torch", self.min_torch, self.max_torch),
        ]
        said = [_range(what, low, high) for what, low, high in words if low or high]
        return [*said, *([f"GPUs of {self.vendor.upper()}"] if self.vendor else [])]

    def judge(self, device: Device | None, torch: Version | None) -> tuple[list[str], list[str]]:
        """(conditions that fail, conditions that cannot be checked), in words that name what was found."""
        failing: list[str] = []
        unknown: list[str] = []

        def check(words: str, found: str | None, holds: bool) -> None:
            if found is None:
                unknown.append(f"valid for {words}, which the input does not tell")
            elif not holds:
                failing.append(f"valid for {words}; this run has {found}")

        name = device.name if device and device.name else None
        capability = device.compute_capability if device else None
        if self.min_compute_capability or self.max_compute_capability:
            words = _range("compute capability", self.min_compute_capability, self.max_compute_capability)
            # A compute capability is NVIDIA's number: it says nothing about another vendor's GPU.
            text = None if capability is None or vendor_of(name) == "amd" else f"{text_of(capability)} ({name or 'GPU'})"
            check(words, text, within(capability, self.min_compute_capability, self.max_compute_capability))
        if self.min_torch or self.max_torch:
            words = _range("torch", self.min_torch, self.max_torch)
            check(words, text_of(torch) if torch else None, within(torch, self.min_torch, self.max_torch))
        if self.vendor:
            check(f"GPUs of {self.vendor.upper()}", name, vendor_of(name) == self.vendor)
        return failing, unknown


# Release dates of torch, from its release notes: what a recording of a known day cannot have run with.
_RELEASES: tuple[tuple[date, Version], ...] = (
    (date(2020, 4, 21), (1, 5)),
    (date(2020, 7, 28), (1, 6)),
    (date(2020, 10, 27), (1, 7)),
    (date(2021, 3, 4), (1, 8)),
    (date(2021, 6, 15), (1, 9)),
    (date(2021, 10, 21), (1, 10)),
    (date(2022, 3, 10), (1, 11)),
    (date(2022, 6, 28), (1, 12)),
    (date(2022, 10, 28), (1, 13)),
    (date(2023, 3, 15), (2, 0)),
    (date(2023, 10, 4), (2, 1)),
    (date(2024, 1, 30), (2, 2)),
    (date(2024, 4, 24), (2, 3)),
    (date(2024, 7, 24), (2, 4)),
    (date(2024, 10, 17), (2, 5)),
    (date(2025, 1, 29), (2, 6)),
    (date(2025, 4, 23), (2, 7)),
)
_PRE_RELEASE = timedelta(days=90)  # nightly builds carry the next version's number

NO_CONDITION = Validity()


def within(value: Version | None, low: Version | None, high: Version | None) -> bool:
    """True if low <= value <= high, comparing no more digits than the limit has: 2.8.1 is within a limit of 2.8."""
    if value is None:
        return False
    return (low is None or value[: len(low)] >= low) and (high is None or value[: len(high)] <= high)


def parse_version(text: str) -> Version | None:
    """The leading numbers of a version: "2.11.0+cu130" is (2, 11, 0). None if it does not start with a number."""
    found = re.match(r"\s*v?(\d{1,6}(?:\.\d{1,6}){0,3})", text)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def text_of(version: Version) -> str:
    return ".".join(map(str, version))


def torch_version(run: Run) -> Version | None:
    """What the user or the input says about the version of torch."""
    said = run.options.torch_version or run.facts.get("torch_version")
    return parse_version(str(said)) if said else None


def newest_torch(run: Run) -> Version | None:
    """The newest torch that there was when the run was recorded; None: nothing tells the day, or it is after the list."""
    if run.epoch_ns is None:
        return None
    day = date(1970, 1, 1) + timedelta(seconds=run.epoch_ns // 10**9) + _PRE_RELEASE
    if not _RELEASES[0][0] <= day <= _RELEASES[-1][0]:
        return None
    return max(version for released, version in _RELEASES if released <= day)


def vendor_of(name: str | None) -> str | None:
    """The vendor of a GPU, by its product name. None: no name."""
    if not name:
        return None
    return "amd" if re.search(r"\b(AMD|Instinct|Radeon|gfx\d)", name, re.IGNORECASE) else "nvidia"


def _range(what: str, low: Version | None, high: Version | None) -> str:
    if low and high:
        return f"{what} {text_of(low)} to {text_of(high)}"
    return f"{what} {text_of(low)} and newer" if low else f"{what} up to {text_of(high or ())}"
