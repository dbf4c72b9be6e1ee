"""Collectives: kind, size, group, bandwidth, and how long each rank waited in them for its peers.

A communication kernel runs from its rank's arrival to the end of the transfer. Across ranks the n-th collective of a
process group is the same collective: it transfers from the latest arrival to the earliest end; what a rank's kernel runs
before that is waiting. With one rank's trace alone the two cannot be told apart and `wait_ns` is -1.

Bus bandwidth follows the definitions of NVIDIA's nccl-tests (PERFORMANCE.md): algorithm bandwidth (bytes / time) times
2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for broadcast, reduce and send/recv.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.derive.kernel_classes import KernelClass, kernel_kinds
from advisor.derive.nesting import distinct_rows, mixed_key
from advisor.model import Run, Table

KINDS = ("unknown", "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "send-recv")
_KIND_PATTERNS = tuple(
    (KINDS.index(kind), re.compile(pattern, re.I))
    for kind, pattern in (
        ("all-reduce", r"all_?reduce"),
        ("reduce-scatter", r"reduce_?scatter"),
        ("all-gather", r"all_?gather"),
        ("all-to-all", r"all_?to_?all"),
        ("broadcast", r"broadcast"),
        ("send-recv", r"send|recv"),
        ("reduce", r"reduce"),
    )
)
# Bytes of an element by the names that PyTorch and NCCL print, in lower case and without "c10::" or "nccl" before them.
_ELEMENT = {
    **dict.fromkeys(("char", "int8", "byte", "uint8", "bool"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8e4m3", "float8e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16", "short", "int16", "uint16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64", "complexfloat"), 8),
    "complexdouble": 16,
}


@dataclass(frozen=True)
class Collectives:
    """One entry a communication kernel, in time order.

    kernel: row of `kernels`; kind: index into KINDS; bytes: message size (the larger of in and out), -1 unknown;
    group_size: ranks, -1 unknown; call: row of `collective_calls`, -1 unknown; match: equal for the same collective on
    several ranks, -1 if unmatched; wait_ns, transfer_ns: see the module's text, -1 unknown; last: this rank arrived last.
    """

    kernel: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    bytes: npt.NDArray[np.int64]
    group_size: npt.NDArray[np.int32]
    call: npt.NDArray[np.int64]
    match: npt.NDArray[np.int64]
    wait_ns: npt.NDArray[np.int64]
    transfer_ns: npt.NDArray[np.int64]
    last: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.kernel)

    def bus_bandwidth(
        self, world_size: int | None = None, transfer_ns: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.float64]:
        """Bytes/s on the slowest link, NaN where size, group or transfer time (the given, else the known) are unknown."""
        transfer = self.transfer_ns if transfer_ns is None else transfer_ns
        n = np.where(self.group_size > 0, self.group_size, world_size or -1).astype(float)
        factor = np.select(
            [self.kind == 1, np.isin(self.kind, (2, 3, 4)), np.isin(self.kind, (5, 6, 7))],
            [2 * (n - 1) / n, (n - 1) / n, np.ones(len(n))],
            np.nan,
        )
        known = (self.bytes > 0) & (transfer > 0) & (n > 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(known, self.bytes * factor / (transfer * 1e-9), np.nan)


def collectives(run: Run) -> Collectives:
    return run.derived(_collectives)


def collective_kind(name: str) -> int:
    """Index into KINDS of a kernel's or operator's name."""
    for kind, pattern in _KIND_PATTERNS:
        if pattern.search(name):
            return kind
    return 0


def _collectives(run: Run) -> Collectives:
    kernels = run.table("kernels")
    rows = np.flatnonzero(kernel_kinds(run).of(KernelClass.COMMUNICATION))
    calls = run.table("collective_calls")
    call = _arguments(run, rows)
    kind = _by_text(run, kernels["name"][rows])
    known = call >= 0
    if known.any():
        stated = _by_text(run, calls["collective"][call[known]])
        kind[known] = np.where(stated > 0, stated, kind[known])
    size = np.full(len(rows), -1, np.int64)
    group_size = np.full(len(rows), -1, np.int32)
    communicator = np.full(len(rows), -1, np.int64)
    size[known] = _bytes(run, calls)[call[known]]
    group_size[known] = calls["group_size"][call[known]]
    group, ranks = calls["group"][call[known]], calls["group_ranks"][call[known]]
    communicator[known] = np.where((group >= 0) | (ranks >= 0), mixed_key(group, ranks) & np.iinfo(np.int64).max, -1)
    match, wait, transfer, last = _matched(kernels, rows, communicator, kind, size)
    return Collectives(rows, kind, size, group_size, call, match, wait, transfer, last)


def _by_text(run: Run, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.int8]:
    distinct, inverse = np.unique(codes, return_inverse=True)
    return np.array([collective_kind(run.strings[int(c)]) for c in distinct], np.int8)[inverse].reshape(-1)


def _arguments(run: Run, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each kernel row: the row of `collective_calls` that describes it, by correlation or else by operator.

    A host's wait for a collective is recorded like one, and moves nothing.
    """
    kernels, calls = run.table("kernels"), run.table("collective_calls")
    waits = [code for code in np.unique(calls["collective"]) if run.strings[int(code)].lower() == "wait"]
    moves = (calls["group_size"] != 1) & ~np.isin(calls["collective"], waits)
    result = np.full(len(rows), -1, np.int64)
    for column in ("op", "correlation"):
        described = np.flatnonzero(calls.known(column) & moves)
        if not len(described):
            continue
        keys, first = np.unique(
            mixed_key(calls["rank"][described], calls["process"][described], calls[column][described]), return_index=True
        )
        asked = mixed_key(kernels["rank"][rows], kernels["process"][rows], kernels[column][rows])
        at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        hit = (keys[at] == asked) & (kernels[column][rows] >= 0)
        result[hit] = described[first[at[hit]]]
    return result


def _bytes(run: Run, calls: Table) -> npt.NDArray[np.int64]:
    distinct, inverse = np.unique(calls["dtype"], return_inverse=True)
    names = [re.sub("^(c10::|nccl)", "", run.strings[int(c)].lower()) for c in distinct]
    element = np.array([_ELEMENT.get(name, -1) for name in names], np.int64)
    each = element[inverse].reshape(-1) if len(distinct) else np.empty(0, np.int64)
    count = np.maximum(calls["elements_in"], calls["elements_out"])
    computed = np.where((each > 0) & (count >= 0), count * each, -1)
    return np.asarray(np.where(calls["bytes"] >= 0, calls["bytes"], computed), np.int64)


def _matched(
    kernels: Table,
    rows: npt.NDArray[np.int64],
    communicator: npt.NDArray[np.int64],
    kind: npt.NDArray[np.int8],
    size: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(match, wait, transfer, last) of `Collectives`. `communicator`: equal for the same process group, -1 unknown."""
    n = len(rows)
    match = np.full(n, -1, np.int64)
    wait = np.full(n, -1, np.int64)
    transfer, last = np.full(n, -1, np.int64), np.zeros(n, bool)
    members, who = distinct_rows(kernels["rank"][rows], kernels["process"][rows])
    if len(members) < 2:
        return match, wait, transfer, last
    start, end = kernels["start"][rows], kernels["end"][rows]
    left = _by_order(match, who, communicator, kind, size)
    if len(left):
        others = _aligned(who[left], start[left], end[left], int(np.bincount(who[left]).argmax()))
        match[left] = np.where(others >= 0, others + n, -1)
    slots, slot = np.unique(match, return_inverse=True)
    used = match >= 0
    arrival, done = np.full(len(slots), np.iinfo(np.int64).min), np.full(len(slots), np.iinfo(np.int64).max)
    np.maximum.at(arrival, slot[used], start[used])
    np.minimum.at(done, slot[used], end[used])
    low, high = np.full(len(slots), len(KINDS), np.int64), np.full(len(slots), -1, np.int64)
    np.minimum.at(low, slot[used], kind[used])
    np.maximum.at(high, slot[used], kind[used])
    # Done before the last arrival: the clocks of the ranks disagree, or these are not the same collective.
    sound = (np.bincount(slot[used], minlength=len(slots)) > 1) & (done >= arrival) & (low == high)
    match = np.where(used & sound[slot], match, -1)
    used = match >= 0
    wait[used] = np.maximum(arrival[slot[used]] - start[used], 0)
    transfer[used] = (done - arrival)[slot[used]]
    last[used] = start[used] == arrival[slot[used]]
    return match, wait, transfer, last


def _by_order(
    match: npt.NDArray[np.int64],
    who: npt.NDArray[np.int32],
    communicator: npt.NDArray[np.int64],
    kind: npt.NDArray[np.int8],
    size: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Fill `match` where all ranks of a communicator ran the same list of collectives; returns the positions left over.

    A lost record would shift all that follow, so the order is only trusted where kinds and sizes agree from first to last.
    """
    left = []
    for one in np.unique(communicator):
        mine = np.flatnonzero(communicator == one)
        lists = [mine[who[mine] == member] for member in np.unique(who[mine])]
        first = lists[0]
        if all(np.array_equal(kind[x], kind[first]) and np.array_equal(size[x], size[first]) for x in lists[1:]):
            for each in lists:
                match[each] = first
        else:
            left.append(mine)
    return np.sort(np.concatenate(left)) if left else np.empty(0, np.int64)


def _aligned(
    who: npt.NDArray[np.int32], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], reference: int
) -> npt.NDArray[np.int64]:
    """Match each rank's kernels with those of the rank that has most: the one that overlaps in time, in order."""
    match = np.full(len(who), -1, np.int64)
    # Transfers end together on all ranks, so ends are the better key than starts.
    by_end = np.argsort(end, kind="stable")
    base = by_end[who[by_end] == reference]
    match[base] = np.arange(len(base))
    for member in np.unique(who[who != reference]):
        mine = by_end[who[by_end] == member]
        at = np.minimum(np.searchsorted(end[base], end[mine] - 50_000), len(base) - 1)
        overlap = (start[base][at] < end[mine]) & (end[base][at] > start[mine])
        mine, at = mine[overlap], at[overlap]
        first = np.unique(at, return_index=True)[1]
        match[mine[first]] = at[first]
    return match
