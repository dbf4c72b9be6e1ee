"""The members beside the event array: versions, devices, the job. Names of users, hosts and paths are not kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from advisor.ingest.torch_trace.events import as_int
from advisor.ingest.torch_trace.repair import repaired
from advisor.ingest.torch_trace.scan import BOM, Window
from advisor.model import Capture, Device, Trace

# Versions that stand as one number, and what its major and minor part are worth in it.
_CUDA, _HIP = (1000, 10), (10_000_000, 100_000)
_VERSIONS = {
    "cuda_driver_version": _CUDA,
    "cuda_runtime_version": _CUDA,
    "hip_driver_version": _HIP,
    "hip_runtime_version": _HIP,
}
_SWITCHES = {"with_stack": "stacks", "record_shapes": "shapes", "profile_memory": "memory"}
_WANTED = {
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "baseTimeNanoseconds",
    "trace_id",
    "with_flops",
    "with_modules",
    *_VERSIONS,
    *_SWITCHES,
}


@dataclass
class Members:
    """Members of the top-level object. `in_events`: the window stands behind the `[` of the event array."""

    values: dict[str, Any] = field(default_factory=dict)
    in_events: bool = False
    bare: bool = False  # the array is the whole text
    complete: bool = False  # the end of the object was seen
    more: bool = False  # another text follows
    damaged: bool = False  # something among them is no JSON; what follows it was passed over


def read_head(window: Window, members: Members) -> None:
    """Go to the first event, over documents without any. The window begins at the text's first byte."""
    while len(window.data) < len(BOM) and window.more():
        pass
    if window.data.startswith(BOM):
        window.at += len(BOM)
    while (first := window.peek()) in (0x7B, 0x5B):  # { or [
        window.at += 1
        if first == 0x5B:
            members.in_events = members.bare = True
            return
        read_members(window, members)
        if members.in_events or not members.complete:
            return


def read_members(window: Window, members: Members) -> None:
    """Members up to the event array or the object's end. Damage is skipped by searching for the array."""
    members.complete = False
    while True:
        try:
            byte = window.peek()
            if byte == 0x2C:
                window.at += 1
                continue
            if byte == 0x7D:
                window.at += 1
                members.complete = True
                return
            key = window.string() if byte == 0x22 else None
            if key is None or window.peek() != 0x3A:
                raise EOFError
            window.at += 1
            name = key[1:-1].decode("utf-8", "replace")
            if name == "traceEvents" and window.peek() == 0x5B:
                window.at += 1
                members.in_events = True
                return
            text = window.value()
        except EOFError:
            members.damaged = not window.ended  # else the text is cut
            members.in_events = window.find_events()
            return
        if text is not None and name in _WANTED:
            try:
                members.values[name] = json.loads(text)
            except (ValueError, RecursionError):
                members.values[name] = repaired(text)


def read_tail(window: Window, bare: bool) -> Members:
    """What follows the event array, from where the window stands. `bare`: the array was the whole text."""
    members = Members(complete=bare)
    if not bare:
        read_members(window, members)
    members.more = members.complete and window.peek() != -1
    return members


def apply(values: dict[str, Any], trace: Trace, used: list[int], process: int | None) -> None:
    """Fill what the members say into `trace`. `used`: devices that did work; `process`: the process that used them."""
    schema = as_int(values.get("schemaVersion"))
    trace.format_version = "chrome trace" if schema is None else f"kineto schema {schema}"
    job = values.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    rank, world_size = as_int(job.get("rank")), as_int(job.get("world_size"))
    trace.rank = rank if rank is not None and 0 <= rank < 1 << 31 else None  # the rank column is int32
    trace.world_size = world_size if world_size is not None and world_size > 0 else None
    for key in ("backend", "nccl_version"):
        if isinstance(job.get(key), str) and job[key]:
            trace.facts[key] = job[key]
    for key, (major, minor) in _VERSIONS.items():
        number = as_int(values.get(key))
        if number is not None and number >= major:
            trace.facts[key] = f"{number // major}.{number % major // minor}"
    listed = values.get("deviceProperties")
    properties = {as_int(p.get("id")): p for p in listed if isinstance(p, dict)} if isinstance(listed, list) else {}
    trace.devices = [_device(index, properties.get(index, {}), trace.rank, process) for index in used]


def _device(index: int, properties: dict[str, Any], rank: int | None, process: int | None) -> Device:
    def number(key: str) -> int | None:
        value = as_int(properties.get(key))
        return value if value is not None and value > 0 else None

    name = properties.get("name")
    major, minor = number("computeMajor"), as_int(properties.get("computeMinor"))
    return Device(
        index=index,
        name=name.strip() or None if isinstance(name, str) else None,
        rank=rank,
        process=process,
        compute_capability=None if major is None or minor is None else (major, minor),
        sm_count=number("numSms"),
        memory_bytes=number("totalGlobalMem"),
        registers_per_sm=number("regsPerMultiprocessor"),
        shared_memory_per_sm=number("sharedMemPerMultiprocessor"),
        threads_per_sm=number("maxThreadsPerMultiprocessor"),
    )


def capture(values: dict[str, Any], seen: dict[str, bool]) -> Capture:
    """What was recorded: as the members say, else as the rows show. `seen`: field of Capture -> rows of that kind exist."""
    # Writers that know these switches write the ones that are on, with value 1, and leave out the others.
    states = any(key in values for key in (*_SWITCHES, "trace_id", "with_flops", "with_modules"))
    found = Capture(tool="torch.profiler", cuda=seen["cuda"] or None)
    for key, name in _SWITCHES.items():
        on = bool(as_int(values.get(key))) or seen[name]
        setattr(found, name, True if on else False if states else None)
    return found
