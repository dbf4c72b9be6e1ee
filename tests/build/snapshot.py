"""A small caching allocator that leaves memory snapshots as PyTorch writes them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from advisor.ingest import load
from advisor.model import Options, Run

MIB, GIB = 1 << 20, 1 << 30
EPOCH_US = 1_767_600_000_000_000  # 2026-01-05


class Allocator:
    """Blocks in segments, best fit; every action is an event. Times pass with `tick` and a microsecond an event."""

    def __init__(self, device: int = 0, *, expandable: bool = False, ring: int | None = None, times: bool = True) -> None:
        self.device, self.expandable, self.ring, self.times = device, expandable, ring, times
        self.now = EPOCH_US
        self.settings: dict[str, Any] = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": expandable}
        self.settings["garbage_collection_threshold"] = 0.0
        self.events: list[dict[str, Any]] = []
        self.marks: list[dict[str, Any]] = []
        self.segments: dict[int, dict[str, Any]] = {}
        self.live: dict[int, tuple[int, int, list[Any]]] = {}  # address -> (segment, bytes, frames)
        self._frames: dict[str, list[dict[str, Any]]] = {}
        self._next = 0x7F00_0000_0000

    def frames(self, stack: str) -> list[dict[str, Any]]:
        """A stack written 'train.py:12 step; train.py:40 main', innermost first, or 'C++ name'; equal ones are one object."""
        if stack not in self._frames:
            made = []
            for part in filter(None, stack.split("; ")):
                place, _, name = part.partition(" ")
                file, _, line = place.rpartition(":")
                python = line.isdigit() and file.endswith(".py")
                made.append({"name": name, "filename": file, "line": int(line)} if python else
                            {"name": part, "filename": "??", "line": 0})  # fmt: skip
            self._frames[stack] = made
        return self._frames[stack]

    def tick(self, us: int) -> None:
        self.now += us

    def event(self, action: str, address: int, size: int, stack: str = "", **more: Any) -> None:
        self.now += 1
        one = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.now, "frames": self.frames(stack)}
        if not self.times:
            del one["time_us"]
        self.events.append({**one, **more})

    def segment(self, size: int, *, pool: tuple[int, int] = (0, 0), stack: str = "") -> int:
        """A new segment; its address."""
        address, self._next = self._next, self._next + size + GIB
        self.segments[address] = {"bytes": size, "pool": pool}
        self.event("segment_alloc", address, size, stack)
        return address

    def release(self, address: int) -> None:
        """Give a segment back to the driver."""
        self.event("segment_free", address, self.segments.pop(address)["bytes"])

    def gaps(self, segment: int) -> Iterator[tuple[int, int]]:
        """(address, bytes) of the free pieces of a segment."""
        at = segment
        for address in sorted(a for a, (owner, _, _) in self.live.items() if owner == segment):
            if address > at:
                yield at, address - at
            at = address + self.live[address][1]
        if segment + self.segments[segment]["bytes"] > at:
            yield at, segment + self.segments[segment]["bytes"] - at

    def alloc(self, size: int, stack: str = "train.py:10 step; train.py:50 main", *, segment: int | None = None) -> int:
        """A block, in the smallest gap that holds it (of `segment`, if given), else in a segment of its own; its address."""
        size = -(-size // 512) * 512
        places = [segment] if segment is not None else [s for s in self.segments if self.segments[s]["pool"] == (0, 0)]
        found = min(((length, at, s) for s in places for at, length in self.gaps(s) if length >= size), default=None)
        if found is None:
            assert segment is None, "does not fit"
            owner = self.segment(-(-size // (2 * MIB)) * 2 * MIB, stack=stack)
            found = (0, owner, owner)
        _, address, owner = found
        self.live[address] = (owner, size, self.frames(stack))
        self.event("alloc", address, size, stack)
        return address

    def free(self, address: int, stack: str = "train.py:11 step; train.py:50 main") -> None:
        _, size, _ = self.live.pop(address)
        self.event("free_requested", address, size, stack)
        self.event("free_completed", address, size, stack)

    def oom(self, requested: int, device_free: int, stack: str = "train.py:10 step; train.py:50 main") -> None:
        self.event("oom", device_free, requested, stack)

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """An annotated range."""
        self.marks.append({"stage": "START", "name": name, "device": self.device, "time_us": self.now})
        yield
        self.now += 1
        self.marks.append({"stage": "END", "name": name, "device": self.device, "time_us": self.now})

    def state(self) -> list[dict[str, Any]]:
        """The list of segments."""
        return [self._segment(address) for address in self.segments]

    def _segment(self, address: int) -> dict[str, Any]:
        one = self.segments[address]
        mine = sorted(a for a, (owner, _, _) in self.live.items() if owner == address)
        blocks = [self._block(a, self.live[a][1], "active_allocated", self.live[a][2]) for a in mine]
        blocks += [self._block(a, length, "inactive", []) for a, length in self.gaps(address)]
        used = sum(self.live[a][1] for a in mine)
        return {
            "device": self.device, "address": address, "total_size": one["bytes"], "allocated_size": used, "active_size": used,
            "requested_size": used, "stream": 0, "segment_type": "large" if one["bytes"] > 2 * MIB else "small",
            "segment_pool_id": one["pool"], "is_expandable": self.expandable, "frames": [],
            "blocks": sorted(blocks, key=lambda block: block["address"]),
        }  # fmt: skip

    @staticmethod
    def _block(address: int, size: int, state: str, frames: list[Any]) -> dict[str, Any]:
        return {"address": address, "size": size, "requested_size": size, "state": state, "frames": frames}

    def history(self) -> list[dict[str, Any]]:
        return self.events[-self.ring :] if self.ring else self.events

    def snapshot(self) -> dict[str, Any]:
        """The newest layout."""
        traces: list[list[Any]] = [[] for _ in range(self.device)] + [self.history()]
        return {
            "segments": self.state(), "device_traces": traces, "allocator_settings": self.settings,
            "external_annotations": self.marks,
        }  # fmt: skip

    def write(self, path: Path, protocol: int = 4) -> Path:
        path.write_bytes(pickle.dumps(self.snapshot(), protocol))
        return path

    def to_run(self, folder: Path, **options: Any) -> Run:
        """The run that the real reader makes of it."""
        return load([self.write(folder / "snapshot.pickle")], Options(**options))
