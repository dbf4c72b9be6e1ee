"""Code or plans are built anew inside steps: compilation, module loading, or library plans for every new shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import locations, matching_codes, op_forest, op_of_call
from advisor.derive.bounds import two_sided
from advisor.derive.calls import CallKind
from advisor.derive.host import HostSide, driving_threads, host_sides
from advisor.derive.intervals import covered, union
from advisor.derive.nesting import thread_keys
from advisor.derive.steps import step_time, steps
from advisor.detectors.words import time_text
from advisor.model import Evidence, Run, Saving
from advisor.rules.contract import Change, Context, Draft, NotApplicable

# Spans of PyTorch's compiler as traces name them.
_COMPILING = (
    r"\(dynamo_timed\)|compile_inner|entire_frame_compile|backend_compile|inductor_compile|async_compile|benchmark_all_configs"
)
# What libraries call while they choose and build a plan, and never in an ordinary launch.
_PLANNING = r"GetDeviceProperties|ModuleLoad|LibraryLoad|cuLinkCreate|cuLinkComplete"
_NEAR = 4  # CUDA calls on either side of a pause in which such a call is looked for


@dataclass(frozen=True)
class Building:
    """Times in which something was built, in order. name: the operator, compiler span or call that did; sure: a call or
    span proves the building, not only the length; shapes: code of the operator's input shapes, -1 unknown."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    name: list[str]
    sure: npt.NDArray[np.bool_]
    shapes: npt.NDArray[np.int64]


def detect(ctx: Context) -> Draft | None:
    run, found = ctx.run, steps(ctx.run)
    step, recorded = two_sided(run), step_time(run)
    side = host_sides(run).get((step.rank, step.process)) if step else None
    if step is None or recorded is None or side is None or not len(side):
        raise NotApplicable("the input holds no steps with CUDA calls")
    own = found.of(step.rank, step.process)
    own = own[~found.hitch[own]]
    if len(own) < 2 or found.source == "none":
        raise NotApplicable("the input holds fewer than two steps")
    building = _building(ctx, side)
    when = union(building.start, building.end)
    spent = covered(when, found.start[own], found.end[own])
    hit = spent >= ctx.threshold("least_pause_ns")
    is_steady = found.steady[own]
    each = int(spent[is_steady].mean()) if is_steady.any() else 0
    if hit.sum() < ctx.threshold("least_steps") or each < ctx.threshold("least_share") * step.step_ns:
        return None
    inside = _inside(building, found.start[own][hit], found.end[own][hit])
    names = _ranked(building, inside)
    sure = bool(building.sure[inside].mean() >= 0.5)
    draft = Draft(
        title=f"{time_text(each)} of each step on average go into building code or plans in {names[0]}"
        + (f" and {len(names) - 1} more" if len(names) > 1 else ""),
        confidence="medium" if sure and hit.mean() >= 0.5 and hit[is_steady].mean() >= 0.5 else "low",
        subject=sorted(names)[:4],
        facts={
            "build_ns": each,
            "steps_with_builds": int(hit.sum()),
            "steps": len(own),
            "operators": names[:4],
            "shapes": _shapes(building, inside),
        },
        evidence=[_evidence(building, inside, found.start[own], found.end[own], found.number[own])],
        locations=locations(
            run,
            thread_keys(run.table("runtime_calls"))[
                side.call[np.minimum(np.searchsorted(side.start, building.start[inside]), len(side) - 1)]
            ],
            (building.start + building.end)[inside] // 2,
            (building.end - building.start)[inside].astype(float),
        ),
        scope={"ranks": [step.rank]} if step.rank >= 0 else {},
    )
    if recorded.mean_used or hit[is_steady].mean() >= 0.5:
        draft.change = Change(host_ns=each)
    else:
        draft.saving = Saving(0, each, each, "bound")
        draft.caveats.append("The step of the report is the one without building, which comes on top of it now and then.")
    if not sure:
        draft.caveats.append("Only the length of the pauses inside operators tells; no call proves that something was built.")
    if int(found.number[own[hit]].max()) < ctx.threshold("warm_up_steps") or not hit[-1]:
        draft.caveats.append(
            "The last steps are free of it: if the recording began with the training, this may have been warm-up."
        )
    return draft


def _building(ctx: Context, side: HostSide) -> Building:
    spans, loads, plans = _compile_spans(ctx.run, side), _module_loads(ctx.run, side), _plans(ctx, side)
    start = np.concatenate([spans.start, loads.start, plans.start])
    order = np.argsort(start, kind="stable")
    names = [*spans.name, *loads.name, *plans.name]
    return Building(
        start[order],
        np.concatenate([spans.end, loads.end, plans.end])[order],
        [names[i] for i in order],
        np.concatenate([spans.sure, loads.sure, plans.sure])[order],
        np.concatenate([spans.shapes, loads.shapes, plans.shapes])[order],
    )


def _certain(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], name: list[str]) -> Building:
    return Building(start, end, name, np.ones(len(start), bool), np.full(len(start), -1, np.int64))


def _compile_spans(run: Run, side: HostSide) -> Building:
    parts = []
    for table in (run.table("host_ops"), run.table("ranges")):
        codes = matching_codes(run, table["name"], _COMPILING)
        rows = np.isin(table["name"], codes) & (table["rank"] == side.rank) & (table["process"] == side.process)
        rows &= np.isin(thread_keys(table), driving_threads(run))  # compiling on other threads holds nobody up
        parts.append(table.take(np.flatnonzero(rows)))
    names = [run.strings[int(code)] for part in parts for code in part["name"]]
    return _certain(np.concatenate([p["start"] for p in parts]), np.concatenate([p["end"] for p in parts]), names)


def _module_loads(run: Run, side: HostSide) -> Building:
    rows = np.flatnonzero(side.kind == CallKind.MODULE)
    calls = run.table("runtime_calls")
    return _certain(side.start[rows], side.end[rows], [run.strings[int(code)] for code in calls["name"][side.call[rows]]])


def _plans(ctx: Context, side: HostSide) -> Building:
    """Long pauses inside one operator that elsewhere goes straight to its launch; without operators, pauses beside a call
    that only planning makes."""
    run, calls, ops = ctx.run, ctx.run.table("runtime_calls"), ctx.run.table("host_ops")
    begin = side.start - side.before
    long = side.before >= ctx.threshold("least_pause_ns")
    planning = np.isin(calls["name"][side.call], matching_codes(run, calls["name"], _PLANNING))
    near = (
        np.convolve(planning, np.ones(2 * _NEAR + 1), mode="same") > 0
        if len(side) > 2 * _NEAR
        else np.full(len(side), planning.any())
    )
    if not len(ops):
        rows = np.flatnonzero(long & near & ~_first_of_step(run, side))
        name = [run.strings[int(code)] for code in calls["name"][side.call[rows]]]
        return Building(begin[rows], side.start[rows], name, np.ones(len(rows), bool), np.full(len(rows), -1, np.int64))
    op = op_of_call(run)[side.call]
    known = np.maximum(op, 0)
    within = (op >= 0) & (ops["start"][known] <= begin + side.before // 10)
    code = np.where(op >= 0, ops["name"][known], -1)
    usual = _usual(code, side.before, within)
    rows = np.flatnonzero(long & within & (side.before > ctx.threshold("times_usual") * usual))
    name = [run.strings[int(c)] for c in code[rows]]
    return Building(begin[rows], side.start[rows], name, near[rows], _input_shapes(run, op[rows]))


def _usual(code: npt.NDArray[np.int64], before: npt.NDArray[np.int64], within: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """For each call: the median segment before calls of the same operator."""
    usual = np.zeros(len(code))
    for one in np.unique(code[within]):
        same = within & (code == one)
        usual[same] = float(np.median(before[same]))
    return usual


def _first_of_step(run: Run, side: HostSide) -> npt.NDArray[np.bool_]:
    """Calls that are the first of their step: the time before them lies between steps."""
    found = steps(run)
    starts = found.start[found.of(side.rank, side.process)]
    first = np.searchsorted(side.start, starts)
    mask = np.zeros(len(side), bool)
    mask[first[first < len(side)]] = True
    return mask


def _input_shapes(run: Run, op: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Code of the shapes of each operator, of its nearest ancestor where it has none itself; -1 unknown."""
    ops = run.table("host_ops")
    if not ops.has("shapes") or not len(op):
        return np.full(len(op), -1, np.int64)
    nearest = op_forest(run).nearest(ops.known("shapes"))[op]
    return np.where(nearest >= 0, ops["shapes"][np.maximum(nearest, 0)], -1).astype(np.int64)


def _inside(building: Building, start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Rows that begin inside one of the steps."""
    at = np.searchsorted(start, building.start, side="right") - 1
    return np.flatnonzero((at >= 0) & (building.start < end[np.maximum(at, 0)]))


def _ranked(building: Building, rows: npt.NDArray[np.int64]) -> list[str]:
    total: dict[str, int] = {}
    for row in rows:
        total[building.name[row]] = total.get(building.name[row], 0) + int(building.end[row] - building.start[row])
    return sorted(total, key=lambda name: (-total[name], name))


def _shapes(building: Building, rows: npt.NDArray[np.int64]) -> int | None:
    """How many different input shapes were built for; None where shapes were not recorded."""
    known = building.shapes[rows]
    known = known[known >= 0]
    return len(np.unique(known)) if len(known) else None


def _evidence(
    building: Building,
    rows: npt.NDArray[np.int64],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    number: npt.NDArray[np.int64],
) -> Evidence:
    longest = rows[np.argsort(-(building.end - building.start)[rows], kind="stable")[:8]]
    table = []
    for row in np.sort(longest):
        at = int(np.searchsorted(start, building.start[row], side="right")) - 1
        table.append(
            [int(number[at]), building.name[row], int(building.start[row]), int(building.end[row] - building.start[row])]
        )
    return Evidence("The longest builds inside steps", ["step", "where", "start_ns", "build_ns"], table)
