"""To which operator, annotated range and line of source a CUDA call, a kernel or a moment of host time belongs."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import links
from advisor.derive.gpus import gpu_work
from advisor.derive.nesting import Nesting, mixed_key, thread_keys
from advisor.model import Location, Run

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def op_forest(run: Run) -> Nesting:
    """Nesting of `host_ops`."""
    return run.derived(_op_forest)


def _op_forest(run: Run) -> Nesting:
    return Nesting(run.table("host_ops"))


def range_forest(run: Run) -> Nesting:
    """Nesting of `ranges`."""
    return run.derived(_range_forest)


def _range_forest(run: Run) -> Nesting:
    return Nesting(run.table("ranges"))


def frame_forest(run: Run) -> Nesting:
    """Nesting of `python_frames`."""
    return run.derived(_frame_forest)


def _frame_forest(run: Run) -> Nesting:
    return Nesting(run.table("python_frames"))


def op_of_call(run: Run) -> Rows:
    """For each row of `runtime_calls`: the row of `host_ops` that is innermost around it, else -1."""
    return run.derived(_op_of_call)


def _op_of_call(run: Run) -> Rows:
    calls = run.table("runtime_calls")
    if not len(run.table("host_ops")):
        return np.full(len(calls), -1, np.int64)
    return op_forest(run).innermost(thread_keys(calls), calls["start"])


def op_of_work(run: Run) -> Rows:
    """For each entry of `gpu_work`: the row of `host_ops` that launched it, else -1.

    By the launch call's place; where the call was lost, by the operation's own external id.
    """
    return run.derived(_op_of_work)


def _op_of_work(run: Run) -> Rows:
    work, link, ops = gpu_work(run), links(run), run.table("host_ops")
    result = np.full(len(work), -1, np.int64)
    known = link.call >= 0
    result[known] = op_of_call(run)[link.call[known]]
    lost = np.flatnonzero(result < 0)
    if len(lost) and len(ops):
        ids = np.concatenate(
            [run.table("kernels")["op"], run.table("copies")["op"], np.full(len(run.table("graph_executions")), -1)]
        )
        offset = np.array([0, len(run.table("kernels")), len(run.table("kernels")) + len(run.table("copies"))])
        op = ids[offset[work.source[lost]] + work.row[lost]]
        named = np.flatnonzero(ops["op"] > 0)
        keys, first = np.unique(mixed_key(ops["rank"][named], ops["process"][named], ops["op"][named]), return_index=True)
        if len(keys):
            asked = mixed_key(work.rank[lost], work.process[lost], op)
            at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
            hit = (op > 0) & (keys[at] == asked)
            result[lost[hit]] = named[first[at[hit]]]
    return result


def matching_codes(run: Run, codes: npt.NDArray[np.int32], pattern: str) -> npt.NDArray[np.int32]:
    """Those of the distinct codes whose text the pattern matches (re.search)."""
    compiled = re.compile(pattern)
    return np.array([c for c in np.unique(codes) if c >= 0 and compiled.search(run.strings[int(c)])], np.int32)


def ops_named(run: Run, pattern: str) -> Mask:
    """For each row of `host_ops`: whether its name matches."""
    names = run.table("host_ops")["name"]
    return np.isin(names, matching_codes(run, names, pattern))


def ranges_named(run: Run, pattern: str) -> Mask:
    """For each row of `ranges`: whether its label matches."""
    names = run.table("ranges")["name"]
    return np.isin(names, matching_codes(run, names, pattern))


def op_above(run: Run, rows: Rows, pattern: str) -> Rows:
    """For each given row of `host_ops` (-1 allowed): itself or its nearest ancestor whose name matches, else -1."""
    if not len(run.table("host_ops")):
        return np.full(len(rows), -1, np.int64)
    nearest = op_forest(run).nearest(ops_named(run, pattern))
    return np.where(rows >= 0, nearest[np.maximum(rows, 0)], -1)


def calls_in_ranges(run: Run, pattern: str) -> Mask:
    """For each row of `runtime_calls`: whether a range with a matching label is open around it on its thread."""
    calls, wanted = run.table("runtime_calls"), ranges_named(run, pattern)
    if not wanted.any():
        return np.zeros(len(calls), bool)
    forest = range_forest(run)
    inner = forest.innermost(thread_keys(calls), calls["start"])
    return np.asarray((inner >= 0) & (forest.nearest(wanted)[np.maximum(inner, 0)] >= 0), bool)


def calls_under_ops(run: Run, pattern: str) -> Mask:
    """For each row of `runtime_calls`: whether an operator with a matching name is open around it."""
    return op_above(run, op_of_call(run), pattern) >= 0


def work_of_calls(run: Run, calls: Mask) -> Mask:
    """For each entry of `gpu_work`: whether one of these calls launched it."""
    call = links(run).call
    return np.asarray((call >= 0) & calls[np.maximum(call, 0)], bool)


_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
# Frames of the framework and of installed packages are not where the user can act.
_LIBRARY = re.compile(
    r"(^|[/\\])(site-packages|dist-packages|lib[/\\]python\d|torch[/\\]|threading\.py|contextlib\.py|<frozen|<string)|^<built-in|"
    r"^nn\.Module|^torch[/\\]|^<"
)


def parse_frame(text: str) -> Location | None:
    """A Location from 'file.py(12): function'; None for built-ins and for code of libraries."""
    match = _FRAME.match(text)
    if not match or _LIBRARY.search(match["file"]):
        return None
    return Location(shorten(match["file"]), int(match["line"]), match["function"])


def shorten(path: str) -> str:
    """The last three components of a path: no home folders, no user names."""
    parts = [p for p in re.split(r"[/\\]+", path) if p not in ("", ".", "~")]
    if len(parts) > 3 or re.match(r"^([/\\~]|\w:)", path):
        # An absolute path may name a user in /home/NAME or /Users/NAME; these components are the first to go.
        parts = parts[2:] if parts and parts[0].lower() in ("home", "users") else parts
        parts = parts[-3:]
    return "/".join(parts)


def locations(
    run: Run,
    threads: npt.NDArray[np.int64],
    moments: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64] | None = None,
    most: int = 5,
) -> list[Location]:
    """The user's source lines that were executing at (thread key, moment), by weight; empty without Python frames or stacks.

    A backward operator runs on a thread without Python frames: its moments find no line and count as unknown.
    """
    forest, frames = frame_forest(run), run.table("python_frames")
    total: dict[tuple[str, int | None, str | None], float] = defaultdict(float)
    weight = np.ones(len(moments)) if weights is None else np.asarray(weights, float)
    if not len(moments):
        return []
    if len(frames):
        inner = forest.innermost(threads, moments)
        place: dict[int, Location | None] = {}
        for row, share in zip(inner.tolist(), weight.tolist(), strict=True):
            if row < 0:
                continue
            if row not in place:
                place[row] = _user_frame(run, frames["name"], forest.parent, row)
            found = place[row]
            if found is not None:
                total[found.file, found.line, found.function] += share
    else:
        _by_stacks(run, threads, moments, weight, total)
    whole = float(weight.sum()) or 1.0
    ranked = sorted(total.items(), key=lambda item: (-item[1], str(item[0])))
    return [Location(file, line, function, round(share / whole, 4)) for (file, line, function), share in ranked[:most]]


def _user_frame(run: Run, names: npt.NDArray[np.int32], parent: Rows, row: int) -> Location | None:
    for _ in range(400):  # deeper than any stack worth reading
        found = parse_frame(run.strings[int(names[row])])
        if found is not None:
            return found
        row = int(parent[row])
        if row < 0:
            return None
    return None


def _by_stacks(
    run: Run,
    threads: npt.NDArray[np.int64],
    moments: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    total: dict[tuple[str, int | None, str | None], float],
) -> None:
    """Old traces keep each operator's call stack as text."""
    ops = run.table("host_ops")
    if not ops.has("stack"):
        return
    for row, share in zip(op_forest(run).innermost(threads, moments).tolist(), weight.tolist(), strict=True):
        if row < 0:
            continue
        for frame in run.strings[int(ops["stack"][row])].split(";"):
            found = parse_frame(frame.strip())
            if found is not None:
                total[found.file, found.line, found.function] += share
                break
