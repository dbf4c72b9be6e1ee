"""The parts of a snapshot as columns: history, segments, blocks, annotated ranges, settings."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from advisor.ingest.memory_snapshot.frames import Stacks
from advisor.model import AllocatorAction, BlockState, InputError, Strings, Table

_ACTIONS = {
    "alloc": AllocatorAction.ALLOC,
    "free_requested": AllocatorAction.FREE_REQUESTED,
    "free": AllocatorAction.FREE_REQUESTED,
    "free_completed": AllocatorAction.FREE_COMPLETED,
    "segment_alloc": AllocatorAction.SEGMENT_ALLOC,
    "segment_free": AllocatorAction.SEGMENT_FREE,
    "segment_map": AllocatorAction.SEGMENT_MAP,
    "segment_unmap": AllocatorAction.SEGMENT_UNMAP,
    "snapshot": AllocatorAction.SNAPSHOT,
    "oom": AllocatorAction.OUT_OF_MEMORY,
}
_STATES = {
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,
    "active_awaiting_free": BlockState.PENDING_FREE,
    "inactive": BlockState.INACTIVE,
}
_MOST_EVENTS = 50_000_000
_MOST_DEVICES = 4096
_MOST_NAMES = 5
_NO_TIME = -(1 << 63)
_LONGEST_LABEL = 1000


def signed(value: Any) -> int:
    """An address as the tables have it; -1 for what is none."""
    if type(value) is not int or not 0 <= value < 1 << 64:
        return -1
    return value - (1 << 64) if value >= 1 << 63 else value


def size(value: Any) -> int:
    """A size in bytes, or another natural number; -1 for what is none."""
    return value if type(value) is int and 0 <= value < 1 << 62 else -1


def flag(value: Any) -> int:
    return int(value) if isinstance(value, bool) else -1


def microseconds(value: Any) -> int | None:
    return value * 1000 if type(value) is int and 0 < value < 1 << 52 else None


class History:
    """Takes the events of all devices as they are read, and keeps 61 bytes of each."""

    def __init__(self, strings: Strings) -> None:
        self.stacks = Stacks(strings)
        self.devices: set[int] = set()
        self.strange = 0  # entries that are no event
        self.unknown: Counter[str] = Counter()  # names of actions
        self._at: defaultdict[int, int] = defaultdict(int)
        self._whole = {name: array("q") for name in ("sequence", "time", "address", "bytes", "stream", "device_free")}
        self._device, self._action, self._stack = array("i"), array("b"), array("i")

    def __len__(self) -> int:
        return len(self._device)

    def take(self, device: int, events: Iterable[Any]) -> None:
        """Rows of one device in their order. InputError beyond all bounds."""
        if device >= _MOST_DEVICES or len(self) > _MOST_EVENTS:
            raise InputError("holds more events or devices than any snapshot does")
        columns, stacks, number = self._whole, self.stacks, self._at[device]
        put_sequence, put_time = columns["sequence"].append, columns["time"].append
        put_address, put_bytes = columns["address"].append, columns["bytes"].append
        put_stream, put_free = columns["stream"].append, columns["device_free"].append
        for event in events:
            name = event.get("action") if type(event) is dict else None
            if type(name) is not str:
                self.strange += 1
                continue
            action = _ACTIONS.get(name, AllocatorAction.UNKNOWN)
            if action is AllocatorAction.UNKNOWN and (len(self.unknown) < 1000 or name in self.unknown):
                self.unknown[name] += 1
            get = event.get
            free = get("device_free", -1)
            address = get("addr", -1)
            if action is AllocatorAction.OUT_OF_MEMORY and "device_free" not in event:
                free, address = address, -1  # the address' place holds it
            time = get("time_us")
            put_sequence(number)
            put_time(time * 1000 if type(time) is int and 0 < time < 1 << 52 else _NO_TIME)
            put_address(signed(address))
            put_bytes(size(get("size", -1)))
            put_stream(signed(get("stream", -1)))
            put_free(size(free))
            self._device.append(device)
            self._action.append(action)
            self._stack.append(stacks.code(get("frames")))
            number += 1
        if number:
            self.devices.add(device)
        self._at[device] = number

    def zero(self) -> int | None:
        """The first moment, epoch ns; None if no event has a time."""
        time = np.frombuffer(self._whole["time"], np.int64) if len(self) else np.zeros(0, np.int64)
        known = time[time != _NO_TIME]
        return int(known.min()) if len(known) else None

    def table(self, zero: int) -> Table:
        if not len(self):
            return Table("allocator_events")
        columns: dict[str, Any] = {name: np.frombuffer(values, np.int64) for name, values in self._whole.items()}
        time = columns.pop("time")
        if (time != _NO_TIME).any():
            columns["time"] = np.where(time == _NO_TIME, time, time - zero)
        return Table(
            "allocator_events",
            {
                **columns,
                "device": np.frombuffer(self._device, np.int32),
                "action": np.frombuffer(self._action, np.int8),
                "stack": np.frombuffer(self._stack, np.int32),
            },
        )

    def unknown_names(self) -> str:
        """The actions that this program does not know, the most frequent first."""
        names = ["".join(c if c.isprintable() else "?" for c in name[:40]) for name, _ in self.unknown.most_common(_MOST_NAMES)]
        return ", ".join(names) + (", ..." if len(self.unknown) > _MOST_NAMES else "")


def segments(entries: Any, stacks: Stacks) -> tuple[Table, Table, int]:
    """(memory_segments, memory_blocks, entries that could not be used) of the list of segments."""
    rows: list[tuple[int, ...]] = []
    blocks: list[tuple[int, ...]] = []
    strange = 0
    for entry in entries if isinstance(entries, list) else []:
        address, total = (signed(entry.get("address")), size(entry.get("total_size"))) if type(entry) is dict else (-1, -1)
        if address == -1 or total == -1:
            strange += 1
            continue
        device = max(size(entry.get("device", 0)), 0)
        device = device if device < _MOST_DEVICES else -1
        large = {"large": 1, "small": 0}.get(str(entry.get("segment_type")), -1)
        pool = entry.get("segment_pool_id")
        private = int(any(pool)) if type(pool) is tuple and all(type(part) is int for part in pool) else -1
        sizes = [size(entry.get(name)) for name in ("allocated_size", "active_size", "requested_size")]
        expandable, stack = flag(entry.get("is_expandable")), stacks.code(entry.get("frames"))
        rows.append((device, signed(entry.get("stream")), address, total, *sizes, large, expandable, private, stack))
        strange += _blocks(entry.get("blocks"), device, address, stacks, blocks)
    names = (
        "device",
        "stream",
        "address",
        "bytes",
        "allocated",
        "active",
        "requested",
        "large",
        "expandable",
        "private",
        "stack",
    )
    return (
        _table("memory_segments", names, rows),
        _table("memory_blocks", ("device", "segment", "address", "bytes", "requested", "state", "stack"), blocks),
        strange,
    )


def _blocks(entries: Any, device: int, segment: int, stacks: Stacks, rows: list[tuple[int, ...]]) -> int:
    """Adds the blocks of a segment; old files give no address, the blocks then follow one another."""
    strange, at = 0, segment
    for entry in entries if isinstance(entries, list) else []:
        length = size(entry.get("size")) if type(entry) is dict else -1
        if length == -1:
            strange += 1
            continue
        address = signed(entry["address"]) if "address" in entry else at
        at = address + length
        if not -(1 << 63) <= at < 1 << 63:
            strange += 1
            at = segment
            continue
        state = entry.get("state")
        known = _STATES.get(state, BlockState.UNKNOWN) if isinstance(state, str) else BlockState.UNKNOWN
        frames, requested = entry.get("frames"), entry.get("requested_size")
        if frames is None and isinstance(past := entry.get("history"), list) and past and type(past[0]) is dict:
            frames, requested = past[0].get("frames"), past[0].get("real_size")  # as torch 1.13 and 2.0 wrote them
        rows.append((device, segment, address, length, size(requested), int(known), stacks.code(frames)))
    return strange


def _table(name: str, columns: tuple[str, ...], rows: list[tuple[int, ...]]) -> Table:
    if not rows:
        return Table(name)
    values = np.array(rows, np.int64)
    return Table(name, {column: values[:, i] for i, column in enumerate(columns)}).ordered()


def ranges(entries: Any, zero: int, strings: Strings) -> Table:
    """allocator_ranges: each END closes the latest START of its name and device; without END a range is left out."""
    found: list[tuple[int, ...]] = []
    begun: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for entry in entries if isinstance(entries, list) else []:
        if type(entry) is not dict or type(name := entry.get("name")) is not str:
            continue
        moment, device = microseconds(entry.get("time_us")), size(entry.get("device", 0))
        if moment is None or not 0 <= device < _MOST_DEVICES:
            continue
        key = (name[:_LONGEST_LABEL], device)
        if entry.get("stage") == "START":
            begun[key].append(moment)
        elif entry.get("stage") == "END" and begun[key]:
            start = begun[key].pop()
            if start <= moment:
                found.append((start - zero, moment - zero, device, strings.code(key[0])))
    return _table("allocator_ranges", ("start", "end", "device", "name"), found)


def first_mark(entries: Any) -> int | None:
    """The first moment of the annotations, epoch ns."""
    times = [microseconds(entry.get("time_us")) for entry in entries if type(entry) is dict] if isinstance(entries, list) else []
    return min((time for time in times if time is not None), default=None)
