"""The allocator through time, from snapshots that the real reader read."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.derive.allocation_sites import holders, places, site
from advisor.derive.allocator import BEFORE, History, histories
from advisor.derive.fragmentation import held, memory_lines
from advisor.derive.memory import allocator_use
from advisor.model import Run
from build.snapshot import GIB, MIB, Allocator


def history(a: Allocator, folder: Path) -> tuple[Run, History]:
    run = a.to_run(folder)
    [one] = histories(run)
    return run, one


class Watched(Allocator):
    """Notes after each event what is in use, held, and in holes."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.truth: list[tuple[int, int, int]] = []

    def event(self, action: str, address: int, size: int, stack: str = "", **more: object) -> None:
        super().event(action, address, size, stack, **more)
        used = {segment: sum(length for owner, length, _ in self.live.values() if owner == segment) for segment in self.segments}
        holes = sum(self.segments[s]["bytes"] - used[s] for s in self.segments if used[s] and self.segments[s]["pool"] == (0, 0))
        reserved = sum(one["bytes"] for one in self.segments.values())
        self.truth.append((sum(used.values()), reserved, holes))


def played(seed: int, steps: int, ring: int | None) -> Watched:
    """A random life: allocations, releases, segments given back, private pools."""
    dice, a = random.Random(seed), Watched(ring=ring)
    if dice.random() < 0.3:
        pool = a.segment(16 * MIB, pool=(0, 7))
        a.alloc(3 * MIB, segment=pool)
    for _ in range(steps):
        live = [address for address, (owner, _, _) in a.live.items() if a.segments[owner]["pool"] == (0, 0)]
        empty = [s for s in a.segments if not any(owner == s for owner, _, _ in a.live.values())]
        if empty and dice.random() < 0.15:
            a.release(dice.choice(empty))
        elif live and dice.random() < 0.48:
            a.free(dice.choice(live))
        else:
            a.alloc(dice.choice([512, 4096, MIB, 3 * MIB, 7 * MIB]), f"train.py:{dice.randint(1, 5)} step")
    return a


@given(st.integers(0, 10**6), st.integers(1, 60), st.booleans(), st.integers(0, 40))
@settings(max_examples=120, deadline=None)
def test_the_time_line_is_what_happened(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int, whole: bool, cut: int
) -> None:
    """Also of a ring that lost its beginning: followed backwards from the end."""
    a = played(seed, steps, None)
    a.ring = None if whole else max(len(a.events) - cut, 1)
    run, one = history(a, tmp_path_factory.mktemp("s"))
    truth = np.array(a.truth)[-len(one) :]
    [line] = memory_lines(run)
    # What happens inside one call of the allocator is several events: a segment before its block, a release in two.
    assert line.reserved.tolist() == truth[:, 1].tolist()
    assert line.allocated[-1] == truth[-1, 0] and line.holes[-1] == held(one, one.last).holes
    for position in {one.last, one.peak}:
        state = held(one, position)
        assert (state.allocated, state.reserved) == (line.allocated[position], line.reserved[position])
        assert state.holes == line.holes[position] == state.hole_sizes.sum()
        assert state.holes + state.cached + state.private + state.allocated == state.reserved
        assert state.largest_hole == (state.hole_sizes.max() if len(state.hole_sizes) else 0) <= max(state.largest, 0)
    assert (line.allocated >= 0).all() and (line.holes >= 0).all() and (line.allocated <= line.reserved).all()


def test_the_exact_time_line_of_a_small_life(tmp_path: Path) -> None:
    a = Allocator()
    a.segment(20 * MIB)
    first, second = a.alloc(8 * MIB), a.alloc(4 * MIB)
    a.free(first)
    a.alloc(2 * MIB)
    a.free(second)
    _, one = history(a, tmp_path)
    run, _ = history(a, tmp_path)
    [line] = memory_lines(run)
    assert (line.allocated // MIB).tolist() == [0, 8, 12, 4, 4, 6, 2, 2]
    assert (line.reserved // MIB).tolist() == [20] * 8
    assert (line.holes // MIB).tolist() == [0, 12, 8, 16, 16, 14, 18, 18]
    assert line.peak == 2 and line.time is not None and line.time[2] - line.time[0] == 2000
    state = held(one, 4)
    assert (state.holes, state.largest_hole, state.cached, state.largest) == (16 * MIB, 8 * MIB, 0, 8 * MIB)


def test_cache_private_pools_and_expandable_segments_are_no_holes(tmp_path: Path) -> None:
    a = Allocator()
    a.segment(30 * MIB)  # cache
    pool = a.segment(16 * MIB, pool=(0, 3))
    a.alloc(6 * MIB, segment=pool)
    _, one = history(a, tmp_path)
    state = held(one, one.last)
    assert (state.holes, state.cached, state.private, state.largest) == (0, 30 * MIB, 10 * MIB, 30 * MIB)
    b = Allocator(expandable=True)
    b.segment(20 * MIB)
    first = b.alloc(8 * MIB)
    b.alloc(MIB)
    b.free(first)
    _, one = history(b, tmp_path)
    state = held(one, one.last)
    assert (state.holes, state.cached, state.largest) == (0, 19 * MIB, 11 * MIB)


def test_expandable_segments_had_another_size_before(tmp_path: Path) -> None:
    a = Allocator(expandable=True)
    segment = a.segment(40 * MIB)
    a.events.clear()
    a.alloc(4 * MIB)
    a.event("segment_map", segment + 20 * MIB, 20 * MIB)
    a.alloc(25 * MIB)
    run, one = history(a, tmp_path)
    assert (one.reserved() // MIB).tolist() == [20, 40, 40]
    assert held(one, 0).reserved == 20 * MIB and held(one, 1).reserved == 40 * MIB
    [line] = memory_lines(run)
    assert (line.allocated // MIB).tolist() == [4, 4, 29]


def test_rings_that_lost_their_start(tmp_path: Path) -> None:
    a = Allocator(ring=4)
    a.segment(64 * MIB)
    old = a.alloc(10 * MIB, "train.py:1 load; train.py:50 main")
    kept = a.alloc(20 * MIB, "train.py:2 build; train.py:50 main")
    a.free(old)
    a.alloc(5 * MIB)
    a.alloc(6 * MIB)
    run, one = history(a, tmp_path)
    assert (one.allocated() // MIB).tolist() == [20, 20, 25, 31]
    early = one.blocks.begin == BEFORE
    assert sorted((one.blocks.bytes[early] // MIB).tolist()) == [10, 20]
    found = {each.site.text: each.bytes // MIB for each in holders(run, one, one.last)}
    assert found == {"train.py:2 build": 20, "train.py:10 step": 11} and kept in one.blocks.address
    # What was freed since is only known to have been there.
    assert "allocated before the history begins" in {each.site.text for each in holders(run, one, 0 - 1)}


def test_without_a_history_or_times(tmp_path: Path) -> None:
    a = Allocator(times=False)
    a.alloc(2 * MIB)
    run, one = history(a, tmp_path)
    assert one.time is None and memory_lines(run)[0].time is None
    a.events.clear()
    run, one = history(a, tmp_path)
    assert not len(one) and memory_lines(run) == [] and held(one, one.last).allocated == 2 * MIB
    assert [each.bytes for each in holders(run, one, one.last)] == [2 * MIB]


def test_the_allocators_use_is_known_without_a_trace(tmp_path: Path) -> None:
    a = Allocator(device=2)
    a.segment(3 * GIB)
    a.free(a.alloc(GIB))
    [use] = allocator_use(a.to_run(tmp_path))
    assert (use.device, use.peak_allocated, use.peak_reserved, use.capacity) == (2, GIB, 3 * GIB, None)


@pytest.mark.parametrize(
    ("stack", "text", "line"),
    [
        ("model.py:3 forward; train.py:9 main", "model.py:3 forward", 3),
        (
            "at::_ops::mm::call(x); /u/site-packages/torch/nn/modules/linear.py:9 forward; train.py:9 main",
            "train.py:9 main (aten::mm)",
            9,
        ),
        ("/u/site-packages/torch/nn/modules/linear.py:9 forward", "torch/nn/modules/linear.py:9 forward", None),
        ("at::_ops::mm::call(x); torch::autograd::Engine::thread_main()", "backward pass (aten::mm)", None),
        ("at::_ops::mm::call(x)", "aten::mm", None),
        ("main", "no Python frame (backward pass, or stacks not recorded)", None),
    ],
)
def test_sites(tmp_path: Path, stack: str, text: str, line: int | None) -> None:
    a = Allocator()
    a.alloc(MIB, stack)
    run, one = history(a, tmp_path)
    [found] = holders(run, one, one.last)
    assert found.site.text == text and (found.site.place.line if found.site.place else None) == line
    assert [place.line for place in places([found], MIB)] == ([line] if line else [])
    assert site(run, -1).place is None
