"""Writes a memory snapshot of any number of events, as torch.cuda.memory._dump_snapshot does, without holding them all.

python benchmarks/snapshot.py snapshot.pickle --events 1000000
"""

from __future__ import annotations

import argparse
import pickle
import random
from pathlib import Path
from typing import Any, BinaryIO

_BATCH = 999  # events that the pickle adds at once: blocks come and go within a batch, so that batches can be repeated
_KINDS = 40  # batches that differ
_DEPTH = (18, 32)  # frames of a call stack
_BASE, _SEGMENT = 0x7F00_0000_0000, 64 << 20


def _frames(dice: random.Random, pool: list[dict[str, Any]]) -> list[dict[str, Any]]:
    depth = dice.randint(*_DEPTH)
    start = dice.randrange(len(pool) - depth)
    return pool[start : start + depth]


def _batch(dice: random.Random, stacks: list[list[dict[str, Any]]], now: int) -> list[dict[str, Any]]:
    """Blocks of one step: all are allocated and given up again, each with a list of frames of its own, as torch writes it."""
    events: list[dict[str, Any]] = []
    places = [(_BASE + _SEGMENT * (i // 64) + (i % 64 << 20), 512 * dice.randint(1, 2048)) for i in range(_BATCH // 3)]

    def event(action: str, place: tuple[int, int], frames: list[dict[str, Any]]) -> None:
        events.append(
            {
                "action": action, "addr": place[0], "size": place[1], "stream": 0, "time_us": now + len(events),
                "compile_context": "N/A", "user_metadata": "", "frames": frames,
            }
        )  # fmt: skip

    for place in places:
        event("alloc", place, list(dice.choice(stacks)))
    for place in reversed(places):
        frames = list(dice.choice(stacks))
        event("free_requested", place, frames)
        event("free_completed", place, frames)
    return events


def _segment(address: int) -> dict[str, Any]:
    block = {"address": address, "size": _SEGMENT, "requested_size": 0, "state": "inactive", "frames": []}
    return {
        "device": 0, "address": address, "total_size": _SEGMENT, "allocated_size": 0, "active_size": 0, "requested_size": 0,
        "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": [block],
    }  # fmt: skip


def write(path: Path, events: int, seed: int = 1) -> int:
    """A snapshot of about so many events; its size in bytes. The same seed gives the same bytes."""
    dice = random.Random(seed)
    pool = [
        {"name": f"function_{i}", "filename": f"/srv/job/site-packages/package/module_{i % 40}.py", "line": 10 * i}
        for i in range(500)
    ]
    stacks = [_frames(dice, pool) for _ in range(150)]
    with open(path, "wb") as out:
        _write(out, events, dice, stacks)
    return path.stat().st_size


def _write(out: BinaryIO, events: int, dice: random.Random, stacks: list[list[dict[str, Any]]]) -> None:
    pickler: Any = pickle._Pickler(out, 4)  # type: ignore[attr-defined]  # the one in Python can be driven by hand
    pickler.framer.start_framing = lambda: None
    out.write(b"\x80\x04}(")
    pickler.save("segments")
    pickler.save([_segment(_BASE + _SEGMENT * i) for i in range(_BATCH // 3 // 64 + 1)])
    pickler.save(stacks)  # every frame has its place in the memo before the first batch that is repeated
    out.write(b"0")
    pickler.save("device_traces")
    out.write(b"](](")
    batches: list[bytes] = []
    for number in range(max(-(-events // _BATCH), 1)):
        if number < _KINDS:
            start = out.tell()
            for event in _batch(dice, stacks, 1_767_600_000_000_000 + number * _BATCH):
                pickler.save(event)
            out.write(b"e(")
            out.flush()
            with open(out.name, "rb") as written:
                written.seek(start)
                batches.append(written.read())
        else:
            out.write(batches[number % _KINDS])
    out.write(b"eeu.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    print(f"{write(options.path, options.events):,} bytes")
