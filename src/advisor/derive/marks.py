"""Which ranges mark steps."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.nesting import Nesting, mixed_key, thread_keys
from advisor.model import InputError, Run, Table
from advisor.model.schema import StepState

PROFILER_STEP = re.compile(r"^ProfilerStep\s*#?(\d+)")
# "step 12", "iteration12", "train_step: 3", "Iteration #4", "batch 7"
NUMBERED_STEP = re.compile(
    r"^\W*(?:(?:train(?:ing)?|global|optimi[sz]er)[ _\-.]*)?(?:step|iter(?:ation)?|batch)[ _\-:#=]*(\d+)\W*$", re.I
)
_PATIENCE_S = 5.0  # for the user's own pattern, which may backtrack for ever
NAMED_STEP = re.compile(r"^\W*(?:train(?:ing)?[ _\-.]*)?(?:step|iter(?:ation)?|batch)\W*$", re.I)


@dataclass(frozen=True)
class Marks:
    """Host ranges of steps in time order. rank and process are -1 where unknown; number is the step's own, or its position."""

    source: str
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int32]
    process: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)


NONE = Marks(
    "none",
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
)


def marked_steps(run: Run) -> Marks:
    """Steps that ranges mark: the user's pattern, ProfilerStep#, or an NVTX or record_function label of a step."""
    return run.derived(_marked_steps)


def _marked_steps(run: Run) -> Marks:
    found = _in_ranges(run)
    return found if len(found) or run.options.step_pattern else _timed(run)


def _timed(run: Run) -> Marks:
    """Steps that the program's hook timed inside recording windows: marks for recordings without operators and ranges."""
    timed = run.table("step_times")
    if not len(timed):
        return NONE
    recorded = timed.take(timed["state"] == int(StepState.RECORDED))
    # The host's side: the GPU may still be busy with steps from before the window when its last step ends on the host.
    lengths = [table for name in ("runtime_calls", "host_ops") if len(table := run.table(name))]
    if not lengths:
        return NONE
    first, last = min(int(t["start"].min()) for t in lengths), max(int(t["end"].max()) for t in lengths)
    near = recorded.take((recorded["end"] > first) & (recorded["start"] < last))
    return Marks("profiler-step", near["start"], near["end"], near["rank"], near["process"], near["number"])


def _in_ranges(run: Run) -> Marks:
    ranges = run.table("ranges")
    if not len(ranges):
        return NONE
    codes = np.unique(ranges["name"])
    texts = {int(code): run.strings[int(code)] for code in codes if code >= 0}
    if run.options.step_pattern:
        pattern = re.compile(run.options.step_pattern)
        with _patience("the step pattern takes too long on the ranges of this recording; write it without nested repeats"):
            matches = {code: pattern.search(text) for code, text in texts.items()}
        return _from_codes(run, "user-pattern", matches)
    profiler = _from_codes(run, "profiler-step", {c: PROFILER_STEP.match(t) for c, t in texts.items()})
    if len(profiler):
        return profiler
    numbered = _from_codes(run, "nvtx", {c: NUMBERED_STEP.match(t) for c, t in texts.items()})
    if len(numbered):
        return numbered
    named = _from_codes(run, "nvtx", {c: NAMED_STEP.match(t) for c, t in texts.items()})
    return named if len(named) >= 2 else NONE


@contextmanager
def _patience(message: str) -> Iterator[None]:
    """InputError with this message when the block takes longer than _PATIENCE_S, where a timer can interrupt it."""
    timed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not timed or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def give_up(*_: object) -> None:
        raise InputError(message)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _from_codes(run: Run, source: str, matches: dict[int, re.Match[str] | None]) -> Marks:
    """The outermost ranges whose names match."""
    wanted = [code for code, match in matches.items() if match]
    ranges = run.table("ranges")
    rows = np.flatnonzero(np.isin(ranges["name"], wanted))
    if not len(rows):
        return NONE
    # A mark on several threads (a loader's "batch 3" beside the trainer's) counts on the busiest thread of a process only.
    chosen = ranges.take(rows)
    keep = _main_thread(run, thread_keys(chosen), mixed_key(chosen["rank"], chosen["process"]))
    chosen = chosen.take(keep)
    chosen = chosen.take(_outermost(run, chosen, one_label=source != "user-pattern")).ordered()
    numbers = np.array([_number(matches[int(code)]) for code in chosen["name"]], np.int64)
    members = mixed_key(chosen["rank"], chosen["process"])
    if (numbers < 0).any() or not _rising(numbers, members):
        numbers = _positions(members)
    return Marks(source, chosen["start"], chosen["end"], chosen["rank"], chosen["process"], numbers)


def _outermost(run: Run, rows: Table, one_label: bool) -> npt.NDArray[np.bool_]:
    """Which of the ranges mark steps: those with the label that stands outermost, in each process.

    "batch 3" inside "step 3" is a part of it, also where a batch or two lie outside any step. Ranges that were never popped
    all end at the same moment, each inside the one before: the label of the outermost is the step. Of labels that
    take turns ("iteration 3", "optimizer step 3") one marks the step: with `one_label` the one that covers most time.
    """
    labels, roots = _labels(run, rows["name"]), Nesting(rows).roots()
    processes, length = mixed_key(rows["rank"], rows["process"]), (rows["end"] - rows["start"]).astype(float)
    keep = np.zeros(len(rows), bool)
    for process in np.unique(processes):
        mine = processes == process
        count, outer = np.bincount(labels[mine]), np.bincount(labels[mine], weights=roots[mine])
        often = (outer > 0) & (2 * outer >= count)
        step_labels = np.flatnonzero(often if often.any() else outer > 0)
        if one_label:
            time = np.bincount(labels[mine], weights=length[mine])
            step_labels = step_labels[[time[step_labels].argmax()]]
        keep |= mine & np.isin(labels, step_labels)
    return keep


def _labels(run: Run, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """An id per row that is equal for names which differ in their digits only."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    texts = [re.sub(r"\d+", "", run.strings[int(code)]) for code in distinct]
    ids = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return np.array([ids[text] for text in texts], np.int64)[inverse].reshape(-1)


def _number(match: re.Match[str] | None) -> int:
    """The step's number, if the pattern has one as its first group."""
    text = match.group(1) if match and match.re.groups else None
    return int(text) if text and text.isdecimal() and len(text) < 18 else -1


def _rising(numbers: npt.NDArray[np.int64], keys: npt.NDArray[np.int64]) -> bool:
    """Whether the numbers of each key rise in row order: a new epoch and a clock that jumps begin again."""
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    return bool((np.diff(numbers[order])[same] > 0).all())


def _positions(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For rows in time order: how many rows of the same key came before."""
    order = np.argsort(keys, kind="stable")
    first = np.concatenate(([True], keys[order][1:] != keys[order][:-1]))
    began = np.maximum.accumulate(np.where(first, np.arange(len(keys)), 0))
    result = np.empty(len(keys), np.int64)
    result[order] = np.arange(len(keys)) - began
    return result


def _main_thread(run: Run, threads: npt.NDArray[np.int64], processes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Positions of the marks of each process's thread that made most CUDA calls (else most marks)."""
    calls = run.table("runtime_calls")
    made, counts = np.unique(thread_keys(calls), return_counts=True)
    weight = dict(zip(made.tolist(), counts.tolist(), strict=True))
    keep = np.zeros(len(threads), bool)
    for process in np.unique(processes):
        here = np.flatnonzero(processes == process)
        candidates, first, marks = np.unique(threads[here], return_index=True, return_counts=True)
        options = zip(candidates.tolist(), first.tolist(), marks.tolist(), strict=True)
        best = max(options, key=lambda option: (weight.get(option[0], 0), option[2], -option[1]))
        keep[here[threads[here] == best[0]]] = True
    return np.flatnonzero(keep)
