"""What the pictures of a report show: plain lists and numbers that a page or a notebook draws as they are.

Everything here is bounded: a recording of a million events and one of a thousand come to about the same size. What was left
out, merged or cut short is said beside the data. `Report.pictures` holds it where it was asked for; it is no part of the JSON
contract.

Conventions:

* Times are integer nanoseconds. In a `Timeline` they count from its own `start_ns`, everywhere else from the run's start.
* Text of timelines and tables is a code into `Pictures.strings`. It comes from recordings: untrusted, to be escaped.
* Lists of one class that run side by side (`start_ns`, `duration_ns`, ...) have one entry a row and the same length.
* A value that is not known is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from advisor.model.breakdown import Breakdown

TrackKind = Literal["ranges", "frames", "host", "collectives", "stream", "idle"]

# The classes of rectangles besides those of kernels (their labels stand in `Timeline.categories` too).
CALL, OPERATOR, FRAME, RANGE, COPY, MEMSET, GRAPH = (
    "CUDA call",
    "operator",
    "Python frame",
    "range",
    "memory copy",
    "memory set",
    "CUDA graph",
)


@dataclass(frozen=True)
class Track:
    """One lane of a timeline: rectangles, one a row, ordered by start within a depth; on one depth none overlaps another.

    kind: what the rectangles are:
        ranges       NVTX and record_function ranges of one host thread: phases, steps, what the program marked;
        frames       calls of Python functions on one host thread, nested;
        host         operators and CUDA calls of one host thread, nested;
        collectives  communication kernels of one GPU, of all streams;
        stream       kernels and copies of one GPU stream;
        idle         when one GPU had nothing to do, one depth a cause, `category` is the cause.
    label: for people; process, thread, device, stream: what it belongs to, None where that makes no sense.
    depths: how many depths there are, so depth is 0 <= depth < depths.
    start_ns, duration_ns: inside the timeline, cut at its ends; duration at least 1.
    name: code into `Pictures.strings`; of several merged events that of the longest.
    category: index into `Timeline.categories`; of several merged events that of which most time is.
    count: events behind the rectangle: 1 for one event as recorded; more for neighbours that would be too narrow to tell
        apart at full view, merged into one rectangle.
    covered_ns: how much of the rectangle its events cover; below duration_ns only for merged ones.
    events: all events of the track inside the timeline: the sum of `count` and `hidden`.
    hidden: events that no rectangle stands for, since they lie deeper than `depths`.
    merged_below_ns: events shorter than that may be merged with their neighbours; 0 where every event has its own rectangle.
    """

    kind: TrackKind
    label: str
    depths: int
    start_ns: list[int]
    duration_ns: list[int]
    depth: list[int]
    name: list[int]
    category: list[int]
    count: list[int]
    covered_ns: list[int]
    events: int
    hidden: int = 0
    merged_below_ns: int = 0
    process: int | None = None
    thread: int | None = None
    device: int | None = None
    stream: int | None = None

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class Links:
    """From launch calls to the kernels and copies that are shown one by one (count 1).

    from_track, to_track: indices into `Timeline.tracks`; from_ns: when the call began; from_depth: where it is drawn;
    to_rectangle: row of the track it leads to. left_out: launches before the timeline begins, or beyond the bound.
    """

    from_track: list[int]
    from_ns: list[int]
    from_depth: list[int]
    to_track: list[int]
    to_rectangle: list[int]
    left_out: int = 0


@dataclass(frozen=True)
class Highlight:
    """Where a finding shows in a timeline: intervals, each on one track. Sorted by track and start; none overlaps on a track.

    basis: "change": what the finding's fix changes; "evidence": events that the evidence names; "none": nothing to show,
    and the lists are empty. intervals: how many there are; more than listed where neighbours were joined to keep the list
    short.
    """

    track: list[int]
    start_ns: list[int]
    duration_ns: list[int]
    basis: Literal["change", "evidence", "none"]
    intervals: int = 0


@dataclass(frozen=True)
class Curve:
    """A value over time, drawn as steps: `value[i]` holds from `time_ns[i]` on. Lows and highs survive the thinning out.

    points: how many there were before.
    """

    time_ns: list[int]
    value: list[int | float]
    points: int


@dataclass(frozen=True)
class Timeline:
    """One steady step of one rank.

    rank: None where unknown; why: why this rank is shown ("sets the pace", "fastest", "rank 0", ...).
    step: position of the step among the recorded steps of its rank; number: as the recording numbers it, None if it does not.
    start_ns, duration_ns: what is shown, in the run's time. It reaches from the first to the last moment of the step on both
        sides: the host runs ahead of the GPU, so a step's host part can lie before its GPU part.
    host_start_ns, host_end_ns, gpu_start_ns, gpu_end_ns: the step as each side has it, inside what is shown. All GPU figures
        (`breakdown`) count from gpu_start_ns to gpu_end_ns.
    breakdown: one entry a GPU, as in the report, but of this one step: the report's is the mean of all steady steps. The idle
        track of the GPU adds up to its idle_by_cause exactly (`covered_ns` by category).
    categories: what `Track.category` points into: classes of kernels, kinds of host events, causes of idle time.
    highlights: by the finding's fingerprint; every finding of the report has one.
    memory: one curve a GPU ("device" -> bytes allocated by the framework), empty where none was recorded.
    notes: what a reader must know about this view, in words.
    """

    rank: int | None
    why: str
    step: int
    number: int | None
    start_ns: int
    duration_ns: int
    host_start_ns: int
    host_end_ns: int
    gpu_start_ns: int
    gpu_end_ns: int
    breakdown: list[Breakdown]
    categories: list[str]
    tracks: list[Track]
    links: Links
    highlights: dict[str, Highlight]
    memory: dict[int, Curve] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class MemoryCurve:
    """The caching allocator of one GPU over the whole recording, bytes. capacity: memory of the GPU, None if unknown.

    step_start_ns: when the steps of its rank began; on the clock of this curve alone, which may come from another recording
    of the same rank than the rest (one with memory events). Bounded.
    """

    rank: int | None
    device: int
    allocated: Curve
    reserved: Curve | None
    capacity: int | None
    peak_allocated: int
    peak_reserved: int | None
    step_start_ns: list[int]


@dataclass(frozen=True)
class Intervals:
    """Intervals of one kind, in the run's time."""

    label: str
    start_ns: list[int]
    duration_ns: list[int]


@dataclass(frozen=True)
class SampleCurves:
    """What nvidia-smi or NVML said about one GPU over time.

    metrics: name -> curve, only those that were recorded. Names are columns of the table `device_samples`
        (utilization, memory_utilization, power, temperature, sm_clock, memory_used, ...); `units` gives each one's unit.
    throttled: one entry a reason that was ever given ("power cap", "too hot", ...).
    """

    rank: int | None
    device: int | None
    name: str | None
    metrics: dict[str, Curve]
    units: dict[str, str]
    throttled: list[Intervals]
    samples: int


@dataclass(frozen=True)
class Samples:
    """Device samples of all GPUs. aligned: their clock is that of the trace, so `Pictures.steps` may be drawn beside them.

    reason: why they are not aligned, None where they are.
    """

    gpus: list[SampleCurves]
    aligned: bool
    reason: str | None


@dataclass(frozen=True)
class RooflinePoint:
    """One kernel against the roofs of its GPU; calls and total_ns are those of a step.

    intensity: FLOP a byte; flops: FLOP/s reached; bandwidth: bytes/s reached, of the least bytes it can move. Of a kernel that
    only moves data the FLOPs are not known; intensity and flops are None and `bandwidth` alone is drawn.
    dtype: what it computes in, a key of `Roofline.peaks`, None where the name does not tell. share: of the step's time.
    peak_share: reached, as a share of the roof that binds it, 0..1. basis: how FLOPs and bytes are known, in words.
    """

    name: int
    kernel_class: str
    dtype: str | None
    calls: float
    total_ns: int
    share: float | None
    intensity: float | None
    flops: float | None
    bandwidth: float | None
    peak_share: float
    basis: str


@dataclass(frozen=True)
class Roofline:
    """The costliest kernels under the roofs of the GPU. bandwidth: bytes/s; peaks: dtype -> FLOP/s, dense."""

    gpu: str
    bandwidth: float
    peaks: dict[str, float]
    points: list[RooflinePoint]


@dataclass(frozen=True)
class KernelRow:
    """One kernel name (or copy direction) in a step of the rank that sets the pace. share: of all GPU work of the step.

    operator: what launched most of its time; occupancy: as the file estimates it, percent, mean over its time.
    median_ns: of one execution; grid, block: launch size of its longest execution (x, y, z); tensor_cores: whether it uses
    them, None where its name does not tell.
    """

    name: int
    kernel_class: str
    calls: float
    total_ns: int
    mean_ns: int
    median_ns: int
    share: float
    occupancy: float | None
    operator: int | None
    grid: list[int] | None
    block: list[int] | None
    tensor_cores: bool | None


@dataclass(frozen=True)
class KernelTable:
    """Kernels and copies by time, the costliest first, a step. others: those beyond the bound, added up; None if all are shown.

    total_ns: GPU work of a step, durations of all streams added up; the rows and `others` sum to it (up to 1 ns a row).
    per: what the counts refer to: "step", or "recording" where no steps were found.
    """

    rank: int | None
    device: int
    rows: list[KernelRow]
    others: KernelRow | None
    other_names: int
    total_ns: int
    per: Literal["step", "recording"]


@dataclass(frozen=True)
class RankMap:
    """One row a GPU, one column a part of the steady step; values in ns, as in the report's breakdown.

    rank, device: of each row, sorted. columns: names ("step", "compute", "exposed communication", "waiting for other ranks",
    "exposed copies", then one a cause of idle time); cells: one list a row. left_out: rows beyond the bound (the fastest).
    """

    rank: list[int | None]
    device: list[int]
    columns: list[str]
    cells: list[list[int]]
    left_out: int = 0


@dataclass(frozen=True)
class StepMap:
    """How long each recorded step took on each rank, ns: the longer of what host and GPU took.

    rank: of each row; number: of each column, as the recording numbers it; cells: one list a row, None where a rank lacks the
    step. steady: of each column, whether it counts. left_out_ranks, left_out_steps: beyond the bound (the fastest ranks, the
    last steps).
    """

    rank: list[int | None]
    number: list[int]
    cells: list[list[int | None]]
    steady: list[bool]
    left_out_ranks: int = 0
    left_out_steps: int = 0


@dataclass(frozen=True)
class StepMarks:
    """The recorded steps of the rank that sets the pace, on the host, in the run's time. Bounded: then only the first."""

    start_ns: list[int]
    end_ns: list[int]
    number: list[int]
    steady: list[bool]
    left_out: int = 0


@dataclass(frozen=True)
class Pictures:
    """All pictures of one report. None or empty: nothing was recorded that could be drawn.

    strings: text by code; long names are shortened in the middle. missing: picture ("timelines", "memory", "samples",
    "roofline", "kernels", "ranks", "step_map") -> why it is absent and what to record, in words; pictures that are there have
    no entry.
    """

    strings: list[str]
    steps: StepMarks
    timelines: list[Timeline]
    memory: list[MemoryCurve]
    samples: Samples | None
    roofline: Roofline | None
    kernels: KernelTable | None
    ranks: RankMap
    step_map: StepMap
    missing: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; keys of dictionaries are text."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value] if value and not isinstance(value[0], int | float | str) else value
    return value
