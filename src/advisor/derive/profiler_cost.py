"""What recording costs the host, read from the recording itself, and what is left of host time without it.

The run without a profiler lacks that time, so it is taken out before anything is judged. Three kinds of events are paid for:

* an operator. `operator_ns` is what one recorded operator takes, the median over all operators in segments without Python
  frames. Without a profiler it takes OPERATOR of a launch call; the rest is the profiler's.
* a Python frame. `frame_ns` is what one recorded frame takes beyond the operators in its segment, the median over all frames.
  The share FRAME of it is the profiler's: recording a call and its return takes longer than calling.
* a CUDA call. Of a launch the share LAUNCH is the profiler's, and as much time of any other call.

The launch call is the yardstick: it is the one piece of host work that every recording repeats a thousand times, so it tells
how fast the host was while it was recorded. What takes longer than a launch is no operator's overhead but work.

OPERATOR, FRAME and LAUNCH agree with what is known of them (an operator is dispatched in 1 to 2 us, a launch takes about 5 us
without a profiler and 7 us with one), and were settled on 57 recordings of host-bound loops with known unprofiled step; what
leaving out each loop in turn does to them is in docs/accuracy.md. `strength` scales all three: WEAK and STRONG are the range
in which single recordings lie, since the host's own speed varies that much between two minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import LAUNCHES

WEAK, STRENGTH, STRONG = 0.6, 1.0, 1.25
OPERATOR, FRAME, LAUNCH = 0.27, 0.9, 0.3
# A frame is never charged with more than this share of a launch call: what takes longer is the work of the frame.
FRAME_LIMIT = 0.5
# Every segment and call keeps this share of its length.
FLOOR = 0.1
# From this share of the operators on, those in segments without Python frames stand for all.
_ENOUGH = 0.1
# Where no launch was recorded.
_USUAL_LAUNCH_NS = 7000.0


@dataclass(frozen=True)
class ProfilerCost:
    """ns that one recorded operator, Python frame and launch call take, with their own work."""

    operator_ns: float
    frame_ns: float
    launch_ns: float


def profiler_cost(
    kind: npt.NDArray[np.int8],
    before: npt.NDArray[np.int64],
    events: npt.NDArray[np.float64],
    frames: npt.NDArray[np.float64],
    launch_ns: npt.NDArray[np.int64],
) -> ProfilerCost:
    """The cost that a host side shows. Arrays have one entry a call: its kind, the segment before it, operators and frames
    in that segment; launch_ns: the length of a launch without waiting, used where `kind` is one."""
    launches = np.isin(kind, LAUNCHES)
    launch = float(np.median(launch_ns[launches])) if launches.any() else _USUAL_LAUNCH_NS
    framed = frames > 0
    plain = (events >= 1) & ~framed
    if events[plain].sum() < _ENOUGH * events.sum():
        plain = events >= 1
    operator = min(_median_per_unit(before[plain], events[plain]), launch)
    beyond = np.maximum(before[framed] - operator * events[framed], 0)
    return ProfilerCost(operator, min(_median_per_unit(beyond, frames[framed]), FRAME_LIMIT * launch), launch)


def _median_per_unit(time: npt.NDArray[np.float64] | npt.NDArray[np.int64], units: npt.NDArray[np.float64]) -> float:
    """Median over all units of the time of their segment per unit."""
    if not len(units):
        return 0.0
    each = time / units
    order = np.argsort(each, kind="stable")
    reached = np.cumsum(units[order])
    return float(each[order][np.searchsorted(reached, reached[-1] / 2)])


def without_profiler(
    kind: npt.NDArray[np.int8],
    before: npt.NDArray[np.int64],
    events: npt.NDArray[np.float64],
    frames: npt.NDArray[np.float64],
    own: npt.NDArray[np.int64],
    cost: ProfilerCost,
    strength: float = STRENGTH,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(segments, own work of calls) without a profiler that costs `strength` times as much as `cost` says."""
    operator = max(cost.operator_ns - OPERATOR * cost.launch_ns, 0.0)
    segments = before - strength * (operator * events + FRAME * cost.frame_ns * frames)
    share = min(strength * LAUNCH, 1 - FLOOR)
    calls = own - np.where(np.isin(kind, LAUNCHES), share * own, np.minimum(share * cost.launch_ns, share * own))
    return np.maximum(segments, FLOOR * before).astype(np.int64), calls.astype(np.int64)
