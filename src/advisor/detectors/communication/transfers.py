"""What the communication rules look at: the collectives of the GPU that sets the pace, and how much of each is transfer.

A communication kernel runs from its rank's arrival to the end of the transfer, so its length says nothing about the network.
Where all ranks of a collective were recorded, the transfer is what follows the last arrival. Otherwise the shortest kernel of
the same collective stands for the transfer of all: it waited least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import Activity, activities, step_windows
from advisor.derive.bounds import TwoSided, pending
from advisor.derive.collectives import Collectives, collectives
from advisor.derive.gpus import KERNEL, Gpu, device_of, gpu_work, work_by_row
from advisor.derive.intervals import EMPTY, IntervalSet, covered, intersect, length, merge, subtract, union
from advisor.derive.kernel_classes import KernelClass, kernel_kinds
from advisor.derive.nesting import mixed_key
from advisor.model import Run
from advisor.model.device_table import spec_of

Rows = npt.NDArray[np.int64]
# With fewer kernels of the same collective the shortest may have waited too.
LEAST_SAMPLES = 3
# Share of the SMs that NCCL's channels take where the launch size or the GPU is unknown: 24 channels of 132 SMs on H200.
USUAL_SM_SHARE = 0.18


@dataclass(frozen=True)
class Transfers:
    """Arrays have one entry a communication kernel of the steady steps on one GPU, in order of end; ns.

    at: position in `collectives(run)`; step: number of the steady step it ends in; begin, end: its transfer; wait: before
    that, in the kernel; stream: CUDA stream; complete: all ranks of the collective were recorded; estimated: the shortest
    kernel gave the length of the transfer; serial: it runs on the stream of the compute kernels; exposed: part of the
    transfer beside no compute; held: of that, the part in which compute had been launched and waited; sm_share: of the SMs
    that its blocks take, 0..1. exposed_set, held_set: the same of all kernels together.
    """

    activity: Activity
    windows: IntervalSet
    found: Collectives
    at: Rows
    step: Rows
    begin: Rows
    end: Rows
    wait: Rows
    stream: Rows
    complete: npt.NDArray[np.bool_]
    estimated: npt.NDArray[np.bool_]
    serial: npt.NDArray[np.bool_]
    exposed: Rows
    held: Rows
    sm_share: npt.NDArray[np.float64]
    exposed_set: IntervalSet
    held_set: IntervalSet

    def __len__(self) -> int:
        return len(self.at)

    @property
    def steps(self) -> int:
        return len(self.windows[0])

    @property
    def kind(self) -> npt.NDArray[np.int8]:
        """Index into `collectives.KINDS`."""
        return self.found.kind[self.at]

    @property
    def bytes(self) -> Rows:
        """Message size, -1 unknown."""
        return self.found.bytes[self.at]

    @property
    def length(self) -> Rows:
        """Length of the transfer."""
        return self.end - self.begin

    def per_step(self, amounts: npt.NDArray[np.int64]) -> int:
        return int(amounts.sum()) // max(self.steps, 1)

    def covered_per_step(self, when: IntervalSet) -> int:
        """Length of a set inside the steady steps, for one step."""
        return length(intersect(when, merge(self.windows))) // max(self.steps, 1)

    def left(self, mine: npt.NDArray[np.bool_], share: float) -> float:
        """What is left of the kernels' time when that share of their transfers stays, as a replay counts it.

        A replay finds out by itself how long a collective waits, where all its ranks were recorded.
        """
        waits = int(self.wait[mine & ~self.complete].sum())
        moves = int(self.length[mine].sum())
        return (waits + share * moves) / max(waits + moves, 1)

    def last_of_step(self) -> npt.NDArray[np.bool_]:
        """Whether a kernel is the one of its step that ends last: nothing of the step is left to hide it behind."""
        mask = np.zeros(len(self), bool)
        for step in np.unique(self.step):
            mine = np.flatnonzero(self.step == step)
            mask[mine[self.end[mine].argmax()]] = True
        return mask


def transfers(run: Run, pace: TwoSided) -> Transfers | None:
    """Of the GPU of that rank which communicates most; None without collectives in steady steps."""
    kernels, found = run.table("kernels"), collectives(run)
    mine = [a for a in activities(run) if (a.gpu.rank, a.gpu.process) == (pace.rank, pace.process)]
    if not mine or not len(found):
        return None
    activity = max(mine, key=lambda a: length(a.communication))
    gpu = activity.gpu
    windows = step_windows(run, gpu)
    row = found.kernel
    end = kernels["end"][row]
    of_gpu = on_gpu(run, row, gpu)
    step = np.searchsorted(windows[0], end, side="left") - 1
    if not len(windows[0]) or not of_gpu.any():
        return None
    at = np.flatnonzero(of_gpu & (step >= 0) & (end <= windows[1][np.maximum(step, 0)]))
    if not len(at):
        return None
    at = at[np.argsort(end[at], kind="stable")]
    row, end, step = row[at], end[at], step[at]
    recorded = end - kernels["start"][row] - np.maximum(found.wait_ns[at], 0)
    complete = _complete(run, found, at)
    short = _shortest(run, found, np.flatnonzero(of_gpu), at, step, recorded, len(windows[0]))
    estimated = ~complete & (short >= 0)
    taken = np.where(estimated, np.minimum(recorded, short), recorded)
    begin = end - taken
    stream, nothing = kernels["stream"][row], np.zeros(len(at), np.int64)
    result = Transfers(
        activity, windows, found, at, step, begin, end, begin - kernels["start"][row], stream, complete, estimated,
        stream == _compute_stream(run, activity), nothing, nothing, sm_share(run, activity, row), EMPTY, EMPTY,
    )  # fmt: skip
    exposed = subtract(subtract(union(begin, end), activity.compute), _hidden_elsewhere(run, result))
    # Without launches nothing tells what waited; then all that is exposed counts.
    held = intersect(exposed, pending(run, activity)) if len(run.table("runtime_calls")) else exposed
    return replace(
        result, exposed_set=exposed, held_set=held, exposed=covered(exposed, begin, end), held=covered(held, begin, end)
    )


def on_gpu(run: Run, rows: Rows, gpu: Gpu) -> npt.NDArray[np.bool_]:
    """For each of these rows of `kernels`: whether it ran on that GPU."""
    kernels = run.table("kernels")
    same = (kernels["rank"][rows] == gpu.rank) & (kernels["process"][rows] == gpu.process)
    return np.asarray(same & (kernels["device"][rows] == gpu.device), bool)


def work_of(run: Run, rows: Rows) -> npt.NDArray[np.bool_]:
    """Mask over `gpu_work` of these rows of `kernels`."""
    work = gpu_work(run)
    mask = np.zeros(len(work), bool)
    place = work_by_row(work, KERNEL, len(run.table("kernels")))[rows]
    mask[place[place >= 0]] = True
    return mask


def _complete(run: Run, found: Collectives, at: Rows) -> npt.NDArray[np.bool_]:
    """Whether every rank of each collective was recorded, as far as the size of its group is known."""
    _, slot, count = np.unique(found.match, return_inverse=True, return_counts=True)
    recorded = count[slot[at]]
    wanted = np.where(found.group_size[at] > 0, found.group_size[at], run.world_size or 2)
    return np.asarray((found.match[at] >= 0) & (recorded >= wanted), bool)


def _shortest(run: Run, found: Collectives, known: Rows, at: Rows, step: Rows, recorded: Rows, steps: int) -> Rows:
    """The shortest kernel of the same collective as each of `at`, -1 where there are too few to tell.

    Same collective: same kernel name, kind, size and group, anywhere in `known`, all kernels of the GPU; without a size, the
    same place in every steady step.
    """
    kernels = run.table("kernels")
    name, kind, size = kernels["name"][found.kernel], found.kind, found.bytes
    key = mixed_key(name, kind, size, found.group_size)
    took = kernels["end"][found.kernel] - kernels["start"][found.kernel]
    took[at] = recorded
    unsized = np.flatnonzero(size[at] < 0)
    known = known[size[known] >= 0]
    if len(unsized):
        counts = np.bincount(step[unsized], minlength=steps)
        if counts.min() == counts.max():
            place = np.arange(len(unsized)) - np.concatenate(([0], np.cumsum(counts)))[step[unsized]]
            rows = at[unsized]
            key[rows] = mixed_key(name[rows], kind[rows], place)
            known = np.concatenate((known, rows))
    _, group = np.unique(key, return_inverse=True)
    least, count = np.full(len(key), np.iinfo(np.int64).max), np.bincount(group[known], minlength=len(key))
    np.minimum.at(least, group[known], took[known])
    return np.where(count[group[at]] >= LEAST_SAMPLES, least[group[at]], -1)


def _compute_stream(run: Run, activity: Activity) -> int:
    """The stream with most compute time."""
    kernels = run.table("kernels")
    compute = ~kernel_kinds(run).of(KernelClass.COMMUNICATION)
    compute &= on_gpu(run, np.arange(len(kernels)), activity.gpu)
    if not compute.any():
        return -2
    streams, index = np.unique(kernels["stream"][compute], return_inverse=True)
    spent = np.bincount(index, weights=(kernels["end"] - kernels["start"])[compute])
    return int(streams[int(spent.argmax())])


def sm_count(run: Run, activity: Activity) -> int | None:
    """SMs of a GPU, as recorded or as its model has them."""
    device = device_of(run, activity.gpu)
    if device is None:
        return None
    spec = spec_of(device)
    return device.sm_count or (spec.sm_count if spec else None)


def sm_share(run: Run, activity: Activity, row: Rows) -> npt.NDArray[np.float64]:
    kernels, count = run.table("kernels"), sm_count(run, activity)
    blocks = kernels["grid_x"][row].astype(float) * kernels["grid_y"][row] * kernels["grid_z"][row]
    known = (kernels["grid_x"][row] > 0) & (count is not None)
    return np.where(known, np.minimum(blocks / (count or 1), 1.0), USUAL_SM_SHARE)


def _hidden_elsewhere(run: Run, mine: Transfers) -> IntervalSet:
    """Parts of the transfers in which another rank of the same collective computes.

    Such a rank hides the transfer; the one that cannot is ahead of it, and would only wait for it later.
    """
    found = mine.found
    matched = found.match[mine.at]
    known = np.flatnonzero(matched >= 0)
    if not len(known):
        return EMPTY
    sets = []
    keys, index = matched[known], known[np.argsort(matched[known], kind="stable")]
    keys = np.sort(keys)
    for other in activities(run):
        if other.gpu == mine.activity.gpu:
            continue
        asked = found.match[on_gpu(run, found.kernel, other.gpu) & (found.match >= 0)]
        place = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        shared = index[place[keys[place] == asked]]
        if len(shared):
            sets.append(intersect(union(mine.begin[shared], mine.end[shared]), other.compute))
    return merge(*sets) if sets else EMPTY


def rates(run: Run, found: Transfers) -> npt.NDArray[np.float64]:
    """Bus bandwidth of each kernel, bytes/s, NaN where its size is unknown."""
    lengths = np.full(len(found.found), -1, np.int64)
    lengths[found.at] = found.length
    return found.found.bus_bandwidth(run.world_size, lengths)[found.at]


def spread(found: Transfers, rate: npt.NDArray[np.float64], mine: npt.NDArray[np.bool_]) -> float | None:
    """How far the rates of different sizes lie apart, highest over lowest; None where all sizes are about equal.

    Time on the links grows with the size of the message, waiting does not. So large kernels of one rank tell the links' rate
    where messages of clearly different size come out at nearly the same.
    """
    sizes = found.bytes[mine]
    if not len(sizes) or sizes.max() < 2 * sizes.min():
        return None
    usual = [float(np.median(rate[mine][sizes == size])) for size in np.unique(sizes)]
    return max(usual) / min(usual)


def known_words(found: Transfers) -> list[str]:
    """What a reader must know of how the transfers were told from waiting, if anything."""
    if found.complete.all():
        return []
    if found.estimated[~found.complete].all():
        return [
            "Not all ranks of the collectives were recorded: the shortest kernel of each kind and size stands for the transfer, "
            "the rest counts as waiting for peers."
        ]
    return ["Not all ranks of the collectives were recorded: what counts as transfer here may be waiting for peers."]
