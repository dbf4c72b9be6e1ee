"""A steady step seen from two sides, as the run has it without a profiler.

    step = max(host, gpu) + wait

`host` is the work of the thread that drives the GPU (Python, operators, launches) without its waits and without what the
profiler added; `gpu` the work of the GPU with the gaps that its queue itself needs; `wait` the time in which the two took
turns instead of overlapping (synchronisation, blocking copies). With several ranks the slowest one rules, and time that a
rank waits for its peers inside collectives belongs to none of the three.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from advisor.derive.activity import Activity, activities, step_windows
from advisor.derive.calls import links
from advisor.derive.gpus import KERNEL, gpu_work
from advisor.derive.host import HostSide, host_sides
from advisor.derive.intervals import IntervalSet, complement, intersect, length, merge, subtract, union
from advisor.derive.kernel_classes import KernelClass, kernel_kinds
from advisor.derive.steps import StepTime, step_times, steps
from advisor.model import Run

# Gaps between dependent kernels of a full queue are about a microsecond; a longer one up to STREAM_GAP_NS is still the
# stream's own (dependency resolution, copy engine hand-over), beyond it the GPU waited for a launch.
QUEUE_GAP_NS = 1000
STREAM_GAP_NS = 3500
# From this share of GPU work in the recorded step on, the GPU sets the pace and the recorded step is the real one.
GPU_BOUND = 0.95


@dataclass(frozen=True)
class TwoSided:
    """One steady step, ns. `recorded_ns`: as recorded; `gpu_bound`: the GPU side is the longer one.

    recorded_host_ns: host work with what the profiler added.
    """

    rank: int
    process: int
    step_ns: int
    host_ns: int
    gpu_ns: int
    wait_ns: int
    recorded_ns: int
    recorded_host_ns: int

    @property
    def gpu_bound(self) -> bool:
        return self.gpu_ns >= self.host_ns

    def after(self, host_ns: int = 0, gpu_ns: int = 0, wait_ns: int = 0) -> int:
        """The step when so much host work, GPU work and waiting vanish."""
        host, gpu = max(self.host_ns - host_ns, 0), max(self.gpu_ns - gpu_ns, 0)
        return max(host, gpu) + max(self.wait_ns - wait_ns, 0)

    @property
    def profiler_share(self) -> float:
        """Share of the recorded step that the profiler added."""
        return max(0.0, 1 - self.step_ns / self.recorded_ns) if self.recorded_ns else 0.0


def two_sided(run: Run) -> TwoSided | None:
    """The slowest rank's step; None without steps, or with steps of no length."""
    sides = all_sides(run)
    slowest = max(sides, key=lambda side: side.step_ns, default=None)
    return slowest if slowest is not None and slowest.step_ns > 0 else None


def all_sides(run: Run) -> list[TwoSided]:
    """One entry a rank that has steps."""
    return run.derived(_all_sides)


def _all_sides(run: Run) -> list[TwoSided]:
    found, hosts = steps(run), host_sides(run)
    result = []
    for (rank, process), recorded in step_times(run).items():
        mine = found.of(rank, process)
        chosen = mine[found.steady[mine]]
        gpus = [a for a in activities(run) if (a.gpu.rank, a.gpu.process) == (rank, process)]
        gpu, peers = max((_gpu_side(run, a) for a in gpus), default=(0, 0))
        side = hosts.get((rank, process))
        spans = (found.start[chosen], found.end[chosen])
        host, real = _host_side(side, spans) if side is not None and len(side) else (recorded.step_ns, recorded.step_ns)
        result.append(_combine(recorded, host, real, gpu, peers))
    return result


def _gpu_side(run: Run, activity: Activity) -> tuple[int, int]:
    """(GPU work with its own gaps, waiting for peers) of a steady step, ns.

    Communication that runs beside no compute counts only while compute was already launched and had to wait for it. Where
    the host was late with the next kernel, a faster host would have hidden that communication.
    """
    windows = step_windows(run, activity.gpu)
    n, span = len(windows[0]), merge(windows)
    if not len(span[0]):
        return 0, 0
    # Stages of a pipeline wait for each other in turn: no one rank is late, and the step has all of it.
    waiting = subtract(subtract(activity.peer_wait, activity.handed_on), activity.compute)
    exposed = subtract(subtract(activity.communication, activity.compute), waiting)
    held_up = intersect(exposed, pending(run, activity))
    work = merge(activity.compute, activity.copies, held_up)
    busy = intersect(work, span)
    gaps = complement(merge(work, exposed, waiting), int(span[0][0]), int(span[1][-1]))
    gaps = intersect(gaps, span)
    size = gaps[1] - gaps[0]
    own = np.where(size <= STREAM_GAP_NS, size, QUEUE_GAP_NS)
    return int((length(busy) + int(own.sum())) / n), int(length(intersect(waiting, span)) / n)


def pending(run: Run, activity: Activity) -> IntervalSet:
    """When a kernel or copy of this GPU, other than communication, was launched and had not begun."""
    work, call, calls = gpu_work(run), links(run).call, run.table("runtime_calls")
    gpu = work.gpus.index(activity.gpu)
    mine = np.flatnonzero((work.gpu == gpu) & (call >= 0))
    communication = np.zeros(len(work), bool)
    kernels = work.source == KERNEL
    communication[kernels] = kernel_kinds(run).of(KernelClass.COMMUNICATION)[work.row[kernels]]
    mine = mine[~communication[mine]]
    return union(calls["end"][call[mine]], work.start[mine])


def _host_side(side: HostSide, spans: IntervalSet) -> tuple[int, int]:
    """(recorded, deflated) host work of a steady step without waits, ns."""
    recorded = deflated = 0
    for start, end in zip(spans[0], spans[1], strict=True):
        calls = side.between(int(start), int(end))
        recorded += int(side.before[calls].sum() + side.own[calls].sum())
        deflated += int(side.deflated_before[calls].sum() + side.deflated_own[calls].sum())
    n = max(len(spans[0]), 1)
    return recorded // n, deflated // n


def _combine(recorded: StepTime, host: int, real: int, gpu: int, peers: int) -> TwoSided:
    step = recorded.step_ns
    if host > step:  # a mean beside a median
        host, real = step, round(real * step / host)
    side = TwoSided(recorded.rank, recorded.process, step, real, min(gpu, step), 0, step, host)
    if side.gpu_ns >= GPU_BOUND * step:
        return replace(side, wait_ns=step - side.gpu_ns, host_ns=min(real, side.gpu_ns))
    # How far the two sides took turns, as a share of the shorter side; the profiler stretches the host, not the share.
    turns = max(step - max(host, side.gpu_ns) - peers, 0)
    shorter = min(host, side.gpu_ns)
    share = min(turns / shorter, 1.0) if shorter > 0 else 0.0
    wait = int(share * min(real, side.gpu_ns))
    return replace(side, step_ns=max(real, side.gpu_ns) + wait, wait_ns=wait)
