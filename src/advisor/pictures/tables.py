"""What is counted rather than drawn over time: kernels, ranks, steps, and kernels under their GPU's roofs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from advisor.derive.activity import CAUSES, activities, step_windows, window
from advisor.derive.attribution import op_of_work
from advisor.derive.bounds import two_sided
from advisor.derive.gpus import KERNEL, gpu_work, main_device
from advisor.derive.intervals import contains, length, merge
from advisor.derive.kernel_classes import MATRIX_CLASSES, KernelClass, Precision, kernel_kinds
from advisor.derive.roofline import PEAK_OF, Point, points
from advisor.derive.steps import steps
from advisor.model import Breakdown, Run, Table
from advisor.model.device_table import DeviceSpec, spec_of
from advisor.model.pictures import KernelRow, KernelTable, RankMap, Roofline, RooflinePoint, StepMap, StepMarks
from advisor.pictures.names import Names
from advisor.pictures.tracks import CATEGORIES, work_names

MOST_KERNELS = 400
MOST_POINTS = 60
MOST_RANKS = 1024
MOST_CELLS = 20_000
MOST_STEPS = 1000
_TENSOR_CORES = (Precision.TF32, Precision.FP16, Precision.BF16, Precision.FP8, Precision.INT8)


def kernel_table(run: Run, names: Names) -> KernelTable | None:
    """Kernels, copies and graphs of the busiest GPU of the rank that sets the pace; None without GPU work."""
    work, pace = gpu_work(run), two_sided(run)
    able = [
        (length(activity.busy), -index)
        for index, activity in enumerate(activities(run))
        if pace is None or (activity.gpu.rank, activity.gpu.process) == (pace.rank, pace.process)
    ]
    if not able:
        return None
    index = -max(able)[1]
    windows = step_windows(run, work.gpus[index])
    n = max(len(windows[0]), 1)
    span = merge(windows) if len(windows[0]) else tuple(np.array([moment], np.int64) for moment in window(run))
    rows = work.of(index)
    rows = rows[contains((span[0], span[1]), work.start[rows])]
    if not len(rows):
        return None
    name, category, text, texts = work_names(run, rows)
    keys, of = np.unique(np.stack([name, text * (name < 0), category]), axis=1, return_inverse=True)
    of = of.reshape(-1)
    spent = (work.end - work.start)[rows]
    total = np.bincount(of, weights=spent, minlength=keys.shape[1])
    order = np.argsort(-total, kind="stable")
    whole = int(spent.sum())
    by_group = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of, minlength=keys.shape[1]))[:-1])

    def code(i: int) -> int:
        return names.of(int(keys[0, i])) if keys[0, i] >= 0 else names.of_text(texts[int(keys[1, i])])

    made = [
        _row(run, names, code(i), CATEGORIES[int(keys[2, i])], rows[by_group[i]], n, whole) for i in order[:MOST_KERNELS].tolist()
    ]
    rest = order[MOST_KERNELS:]
    others = None
    if len(rest):
        mine = rows[np.isin(of, rest)]
        others = _row(run, names, names.of_text("others"), "", mine, n, whole)
    return KernelTable(
        rank=work.gpus[index].rank if work.gpus[index].rank >= 0 else None,
        device=work.gpus[index].device,
        rows=made,
        others=others,
        other_names=len(rest),
        total_ns=whole // n,
        per="recording" if steps(run).source == "none" else "step",
    )


def _row(run: Run, names: Names, name: int, label: str, mine: npt.NDArray[np.int64], n: int, whole: int) -> KernelRow:
    work, kernels, ops = gpu_work(run), run.table("kernels"), run.table("host_ops")
    spent = work.end[mine] - work.start[mine]
    total = int(spent.sum())
    op = op_of_work(run)[mine]
    operator = None
    if (op >= 0).any():
        codes, place = np.unique(ops["name"][op[op >= 0]], return_inverse=True)
        operator = names.of(int(codes[int(np.bincount(place, weights=spent[op >= 0]).argmax())]))
    kernel = work.source[mine] == KERNEL
    row = work.row[mine[kernel]]
    occupancy, grid, block, cores = None, None, None, None
    if label and len(row):
        known = kernels.known("occupancy")[row] & (kernels["occupancy"][row] > 0)  # 0: the profiler could not tell
        if known.any():
            weight = np.maximum(spent[kernel][known], 1)
            occupancy = round(float(np.average(kernels["occupancy"][row[known]].astype(float), weights=weight)), 1)
        longest = row[int(spent[kernel].argmax())]
        grid, block = (_sizes(kernels, f"{what}_", longest) for what in ("grid", "block"))
        cores = _tensor_cores(int(kernel_kinds(run).kind[row[0]]), int(kernel_kinds(run).precision[row[0]]))
    return KernelRow(
        name=name,
        kernel_class=label,
        calls=round(len(mine) / n, 2),
        total_ns=total // n,
        mean_ns=total // max(len(mine), 1),
        median_ns=int(np.median(spent)),
        share=round(total / whole, 6) if whole else 0.0,
        occupancy=occupancy,
        operator=operator,
        grid=grid,
        block=block,
        tensor_cores=cores,
    )


def _sizes(kernels: Table, prefix: str, row: int) -> list[int] | None:
    values = [int(kernels[prefix + axis][row]) for axis in "xyz"]
    return values if min(values) > 0 else None


def _tensor_cores(kind: int, path: int) -> bool | None:
    """Of a matrix kernel by the path its name tells; nothing else uses them, as far as its class is known."""
    if kind == KernelClass.UNKNOWN or kind == KernelClass.FUSED:
        return None
    if kind not in MATRIX_CLASSES:
        return False
    if path in (Precision.UNKNOWN, Precision.FP64):  # FP64 has tensor cores from 8.0 on, and the name does not tell
        return None
    return path in _TENSOR_CORES


def roofline(run: Run, names: Names, step_ns: int | None) -> tuple[Roofline | None, str]:
    """The roofs and the kernels under them, of the fuller recording where the light one lacks shapes; else None and why."""
    device = main_device(run)
    spec = spec_of(device) if device else None
    if device is None or not device.name:
        return None, "the recording does not name the GPU: give it with --gpu"
    if spec is None:
        return None, f"the peaks of {device.name} are not in the device table, or it is a slice or variant of a known GPU"
    found, whence = points(run, MOST_POINTS), ""
    if not found and run.fuller is not None:
        found, names, whence = points(run.fuller, MOST_POINTS), names.of_run(run.fuller), ", in the fuller recording"
    if not found:
        return None, "no input shapes of the kernels' operators were recorded: torch.profiler with record_shapes=True"
    peaks = {dtype: spec.peaks[dtype] for dtype in spec.peaks}
    return Roofline(spec.name, spec.memory_bandwidth, peaks, [_point(one, names, spec, step_ns, whence) for one in found]), ""


def _point(one: Point, names: Names, spec: DeviceSpec, step_ns: int | None, whence: str) -> RooflinePoint:
    dtype = PEAK_OF.get(Precision(one.precision))
    intensity = one.flops / one.moved if one.flops is not None and one.moved else None
    peak = spec.peak(dtype) if dtype else None
    shares = [one.moved / spec.memory_bandwidth] if one.moved is not None else []
    if one.flops is not None and peak:
        shares.append(one.flops / peak)
    basis = {
        (True, True): "FLOPs and least bytes from recorded input shapes",
        (True, False): "FLOPs from recorded input shapes",
        (False, True): "least bytes from recorded input shapes",
    }[one.flops is not None, one.moved is not None]
    return RooflinePoint(
        name=names.of(one.name),
        kernel_class=KernelClass(one.kind).label,
        dtype=dtype,
        calls=one.calls,
        total_ns=one.gpu_ns,
        share=round(one.gpu_ns / step_ns, 6) if step_ns else None,
        intensity=round(intensity, 4) if intensity is not None else None,
        flops=round(one.flops) if one.flops is not None else None,
        bandwidth=round(one.moved) if one.moved is not None else None,
        peak_share=round(max(shares, default=0.0), 6),
        basis=basis + whence,
    )


def rank_map(breakdown: Sequence[Breakdown]) -> RankMap:
    """The report's breakdown as rows; of too many the slowest."""
    rows = sorted(breakdown, key=lambda part: -part.step_ns)[:MOST_RANKS]
    rows = sorted(rows, key=lambda part: (-1 if part.rank is None else part.rank, part.device))
    return RankMap(
        rank=[part.rank for part in rows],
        device=[part.device for part in rows],
        columns=["step", "compute", "exposed communication", "waiting for other ranks", "exposed copies", *CAUSES],
        cells=[
            [
                part.step_ns,
                part.compute_ns,
                part.exposed_communication_ns - part.exposed_communication_wait_ns,
                part.exposed_communication_wait_ns,
                part.exposed_copy_ns,
                *(part.idle_by_cause[cause] for cause in CAUSES),
            ]
            for part in rows
        ],
        left_out=len(breakdown) - len(rows),
    )


def step_map(run: Run) -> StepMap:
    """Every recorded step of every rank, ns."""
    found = steps(run)
    members = found.members if len(found) else []
    if not members:
        return StepMap([], [], [], [])
    rows = [found.of(*member) for member in members]
    taken = found.time()
    columns = max(len(row) for row in rows)
    slow = sorted(range(len(rows)), key=lambda i: (-float(np.median(taken[rows[i]])), i))
    kept = sorted(slow[: min(MOST_RANKS, MOST_CELLS)])
    width = min(columns, max(MOST_CELLS // len(kept), 1))
    longest = max((rows[i] for i in kept), key=len)[:width]
    cells: list[list[int | None]] = []
    for i in kept:
        values: list[int | None] = [int(value) for value in taken[rows[i][:width]]]
        cells.append(values + [None] * (width - len(values)))
    return StepMap(
        rank=[members[i][0] if members[i][0] >= 0 else None for i in kept],
        number=found.number[longest].tolist(),
        cells=cells,
        steady=found.steady[longest].tolist(),
        left_out_ranks=len(rows) - len(kept),
        left_out_steps=columns - width,
    )


def step_marks(run: Run) -> StepMarks:
    """The recorded steps of the rank that sets the pace, else of the first; none where the whole recording stands as one."""
    found, pace = steps(run), two_sided(run)
    if not len(found) or found.source == "none":
        return StepMarks([], [], [], [])
    rows = found.of(pace.rank, pace.process) if pace else found.of(*found.members[0])
    kept = rows[:MOST_STEPS]
    return StepMarks(
        start_ns=found.start[kept].tolist(),
        end_ns=found.end[kept].tolist(),
        number=found.number[kept].tolist(),
        steady=found.steady[kept].tolist(),
        left_out=len(rows) - len(kept),
    )
