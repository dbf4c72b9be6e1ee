"""What each CUDA or HIP call on a host thread does, and which call launched which GPU work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from advisor.derive.gpus import GpuWork, gpu_work
from advisor.derive.nesting import mixed_key
from advisor.model import Run


class CallKind(IntEnum):
    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    COPY = 3
    MEMSET = 4
    SYNC_DEVICE = 5
    SYNC_STREAM = 6
    SYNC_EVENT = 7
    MALLOC = 8
    FREE = 9
    EVENT = 10
    WAIT_EVENT = 11
    MODULE = 12
    TRIVIAL = 13


# First match decides. TRIVIAL calls nest in others or take no time worth a node of their own.
_KINDS: tuple[tuple[CallKind, str], ...] = (
    (CallKind.GRAPH_LAUNCH, r"^(cuda|cu|hip)GraphLaunch"),
    (CallKind.LAUNCH, r"^(cuda|cu|hip)(Ext|Hcc)?(Module)?Launch(Cooperative)?(Kernel|MultiKernel|Grid|ByPtr)|^(cuda|cu)Launch$"),
    (CallKind.SYNC_DEVICE, r"^(cuda(Device|Thread)|cuCtx|hipDevice|hipCtx)Synchronize"),
    (CallKind.SYNC_STREAM, r"^(cuda|cu|hip)StreamSynchronize"),
    (CallKind.SYNC_EVENT, r"^(cuda|cu|hip)EventSynchronize"),
    (CallKind.WAIT_EVENT, r"^(cuda|cu|hip)StreamWait"),
    (CallKind.MEMSET, r"^(cuda|cu|hip)Memset"),
    (CallKind.COPY, r"^(cuda|cu|hip)Memcpy"),
    (CallKind.MALLOC, r"^(cuda|cu|hip)(Ext)?(Malloc|Mem(Alloc|Create|Map|SetAccess)|(Mem)?Host(Alloc|Malloc|Register))"),
    (CallKind.FREE, r"^(cuda|cu|hip)(Free|Mem(Free|Release|Unmap)|(Mem)?Host(Free|Unregister))"),
    (CallKind.MODULE, r"^(cu|hip)(Module|Library)(Load|GetFunction|GetKernel)|^cuLink"),
    (
        CallKind.TRIVIAL,
        r"GetErrorString|GetLastError|PeekAtLast|IsCapturing|GetCaptureInfo|EventQuery|StreamQuery|GetFuncBySymbol|"
        r"ExchangeStreamCaptureMode|^INVALID|GetProcAddress|PointerGetAttr|FuncGetAttr|KernelGet|OccupancyMax|GetDevice$|SetDevice$|"
        r"CtxGet|CtxSet|CtxPush|CtxPop|DriverGet|PushCallConfiguration|PopCallConfiguration|DeviceGetAttribute",
    ),
    (CallKind.EVENT, r"^(cuda|cu|hip)Event(Record|Create|Destroy)"),
)
_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)

LAUNCHES = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)
SYNCS = (CallKind.SYNC_DEVICE, CallKind.SYNC_STREAM, CallKind.SYNC_EVENT)


def call_kind(name: str) -> CallKind:
    for kind, pattern in _PATTERNS:
        if pattern.search(name):
            return kind
    return CallKind.OTHER


def call_kinds(run: Run) -> npt.NDArray[np.int8]:
    """CallKind of each row of `runtime_calls`."""
    return run.derived(_call_kinds)


def _call_kinds(run: Run) -> npt.NDArray[np.int8]:
    codes, inverse = np.unique(run.table("runtime_calls")["name"], return_inverse=True)
    kinds = np.array([int(call_kind(run.strings[int(code)])) for code in codes], np.int8)
    return kinds[inverse] if len(codes) else np.empty(0, np.int8)


def is_kind(run: Run, *kinds: CallKind) -> npt.NDArray[np.bool_]:
    """For each row of `runtime_calls`: whether it is of one of these kinds."""
    return np.isin(call_kinds(run), [int(kind) for kind in kinds])


@dataclass(frozen=True)
class Links:
    """call: for each row of `gpu_work`, the row of `runtime_calls` that launched it, else -1.

    last_work: for each row of `runtime_calls`, the position in `gpu_work` of the last operation it launched, else -1.
    count: for each row of `runtime_calls`, how many operations it launched (a graph launch: hundreds).
    """

    call: npt.NDArray[np.int64]
    last_work: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]

    def delay(self, work: GpuWork, call_start: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each operation: start minus begin of its launch call, at least 0; -1 without a launch."""
        known = self.call >= 0
        result = np.full(len(self.call), -1, np.int64)
        result[known] = np.maximum(work.start[known] - call_start[self.call[known]], 0)
        return result


def links(run: Run) -> Links:
    return run.derived(_links)


def _links(run: Run) -> Links:
    work, calls = gpu_work(run), run.table("runtime_calls")
    has_id = np.flatnonzero(calls["correlation"] >= 0)
    useful = has_id[
        np.isin(call_kinds(run)[has_id], [int(k) for k in CallKind if k not in (CallKind.TRIVIAL, *SYNCS, CallKind.EVENT)])
    ]
    call = _first_match(
        mixed_key(calls["rank"][useful], calls["process"][useful], calls["correlation"][useful]),
        useful,
        mixed_key(work.rank, work.process, work.correlation),
    )
    last = np.full(len(calls), -1, np.int64)
    linked = np.flatnonzero(call >= 0)
    by_end = linked[np.argsort(work.end[linked], kind="stable")]
    last[call[by_end]] = by_end  # later assignments win: the operation that ends last stays
    return Links(call, last, np.bincount(call[linked], minlength=len(calls)))


def _first_match(keys: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], asked: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each asked key: the first of `rows` (which are in time order) with that key, else -1."""
    distinct, first = np.unique(keys, return_index=True)
    if not len(distinct):
        return np.full(len(asked), -1, np.int64)
    at = np.minimum(np.searchsorted(distinct, asked), len(distinct) - 1)
    return np.where(distinct[at] == asked, rows[first[at]], -1)
