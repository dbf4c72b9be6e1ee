"""To which operator, annotated range and line of source a CUDA call, a kernel or a moment of host time belongs."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import links
from advisor.derive.gpus import gpu_work
from advisor.derive.nesting import Nesting, mixed_key, thread_keys
from advisor.derive.paths import short_path
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
        named = np.flatnonzero((ops["op"] > 0) & np.isin(ops["op"], op))
        keys, first = np.unique(mixed_key(ops["rank"][named], ops["process"][named], ops["op"][named]), return_index=True)
        if len(keys):
            asked = mixed_key(work.rank[lost], work.process[lost], op)
            at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
            hit = (op > 0) & (keys[at] == asked)
            result[lost[hit]] = named[first[at[hit]]]
    return result


def matching_codes(run: Run, codes: npt.NDArray[np.int32], pattern: str) -> npt.NDArray[np.int32]:
    """Those of the distinct codes whose text the pattern matches (re.search), in order."""
    compiled = re.compile(pattern)
    there = np.zeros(len(run.strings) + 1, bool)  # the last one for -1
    there[codes] = True
    return np.array([c for c in np.flatnonzero(there[:-1]) if compiled.search(run.strings[int(c)])], np.int32)


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
# Frames of the interpreter, of the framework and of installed packages are not where the user can act. The tracer writes
# files of importable packages relative to where they are installed.
_LIBRARY = re.compile(
    r"""
    (^|[/\\]) (site-packages | dist-packages | lib[/\\]python\d[\d.]*) [/\\]
    | (^|[/\\]) torch[/\\] (nn|optim|utils|autograd|cuda|distributed|amp|fx|jit|profiler|_\w+|functional)\b
    | ^<
    | ^(torch|torchvision|torchaudio|torchmetrics|numpy|scipy|pandas|PIL|cv2|sklearn|einops|tqdm|wandb|triton|apex|xformers
      |flash_attn|transformer_engine|transformers|accelerate|datasets|peft|trl|timm|lightning|lightning_fabric
      |pytorch_lightning|deepspeed|ignite|jax|flax|tensorflow|keras) [/\\]
    | ^(_?threading|contextlib|functools|runpy|queue|selectors|socket|pickle|copy|copyreg|enum|abc|inspect|typing|random|warnings
      |weakref|_weakrefset|_collections_abc|json|logging|multiprocessing|concurrent|asyncio|importlib|collections|subprocess
      |tempfile|shutil|gzip|zipfile|posixpath|os|re|dataclasses) (\.py$|[/\\])
    """,
    re.VERBOSE,
)


def parse_frame(text: str) -> Location | None:
    """A Location from 'file.py(12): function'; None for built-ins and for code of libraries."""
    match = _FRAME.match(text)
    if not match or _LIBRARY.search(match["file"]):
        return None
    return Location(short_path(match["file"]), int(match["line"]), match["function"])


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
    if not len(moments):
        return []
    weight = np.ones(len(moments)) if weights is None else np.asarray(weights, float)
    by_frames = len(run.table("python_frames")) > 0
    forest = frame_forest(run) if by_frames else op_forest(run)
    inner, codes = forest.innermost(threads, moments), run.derived(_line_of_frame if by_frames else _line_of_op)
    known = inner >= 0
    found, slot = np.unique(codes[inner[known]], return_inverse=True)
    spent = np.bincount(slot, weights=weight[known], minlength=len(found))
    total: dict[tuple[str, int | None, str | None], float] = defaultdict(float)
    for code, share in zip(found.tolist(), spent.tolist(), strict=True):
        place = _first_line(run.strings[code]) if code >= 0 else None
        if place is not None:
            total[place.file, place.line, place.function] += share
    whole = float(weight.sum()) or 1.0
    ranked = sorted(total.items(), key=lambda item: (-item[1], str(item[0])))
    return [Location(file, line, function, round(share / whole, 4)) for (file, line, function), share in ranked[:most]]


def _first_line(text: str) -> Location | None:
    """The innermost line of the user's in a frame, or in a stack of frames joined by ';'."""
    return next(filter(None, (parse_frame(frame.strip()) for frame in text.split(";"))), None)


def _line_of_frame(run: Run) -> npt.NDArray[np.int32]:
    """For each row of `python_frames`: code of the innermost frame of the user's, itself or around it, else -1."""
    names = run.table("python_frames")["name"]
    return _inherited(run, frame_forest(run), names)


def _line_of_op(run: Run) -> npt.NDArray[np.int32]:
    """For each row of `host_ops`: code of the innermost recorded stack with a line of the user's, else -1.

    Old traces keep each operator's call stack as text.
    """
    return _inherited(run, op_forest(run), run.table("host_ops")["stack"])


def _inherited(run: Run, forest: Nesting, texts: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """For each row: the text of itself or the nearest ancestor whose text names a line of the user's, else -1."""
    own = [int(code) for code in np.unique(texts) if code >= 0 and _first_line(run.strings[int(code)]) is not None]
    nearest = forest.nearest(np.isin(texts, own))
    return np.where(nearest >= 0, texts[np.maximum(nearest, 0)], np.int32(-1)) if len(texts) else texts
