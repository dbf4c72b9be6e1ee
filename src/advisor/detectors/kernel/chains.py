"""Kernels picked out of a sequence by name, and what stays of a stretch of them when one kernel does its work."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from advisor.derive.phases import optimizer_calls
from advisor.derive.sequence import Sequence, costliest, runs_of
from advisor.detectors.words import name_text
from advisor.model import Evidence, Run
from advisor.model.tables import Array


def named(run: Run, found: Sequence, pattern: re.Pattern[str]) -> Array:
    """For each kernel: whether the pattern is found in its name."""
    names = run.table("kernels")["name"][found.row]
    return np.isin(names, [code for code in np.unique(names) if pattern.search(run.strings[int(code)])])


def of_calls(found: Sequence, calls: Array | None) -> Array:
    """For each kernel: whether one of these calls launched it."""
    if calls is None:
        return np.zeros(len(found), bool)
    return np.asarray((found.call >= 0) & calls[np.maximum(found.call, 0)], bool)


def optimizer_kernels(run: Run, found: Sequence) -> Array:
    """For each kernel: whether it belongs to the optimizer step."""
    return of_calls(found, optimizer_calls(run))


def longest(found: Sequence, chosen: Array, count: int) -> Array:
    """Of each stretch of chosen kernels the longest few: one fused kernel moves at least what its largest member moves."""
    number = runs_of(chosen, found.stream)
    order = np.lexsort((-found.gpu_ns, number))
    order = order[number[order] >= 0]
    rank = np.arange(len(order)) - np.searchsorted(number[order], number[order])
    kept = np.zeros(len(found), bool)
    kept[order[rank < count]] = True
    return kept


def kernel_table(run: Run, found: Sequence, chosen: Array, caption: str, most: int = 6) -> Evidence:
    """The chosen kernels by name, the costliest first."""
    rows: list[list[Any]] = [[name_text(name), calls, gpu] for name, calls, gpu in costliest(run, found, chosen, most)]
    return Evidence(caption, ["kernel", "calls", "gpu_ns"], rows)
