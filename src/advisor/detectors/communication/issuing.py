"""Which host calls issue each collective, and what in the program asked for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from advisor.derive.attribution import op_above, op_of_call, op_of_work, range_forest, ranges_named
from advisor.derive.calls import LAUNCHES, is_kind, links
from advisor.derive.collectives import Collectives
from advisor.derive.gpus import KERNEL, gpu_work, work_by_row
from advisor.derive.kernel_classes import KernelClass, kernel_kinds
from advisor.derive.nesting import mixed_key, thread_keys
from advisor.model import Run

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# The operator that carries out a collective: outermost first, as PyTorch's versions nest them.
_CARRIERS = (r"^c10d::", r"^record_param_comms$", r"^nccl:")
# Where FSDP gathers, reduces and frees the shards of one unit; FSDP2 names the unit in brackets.
_SHARDING = r"^FSDP::|^FullyShardedDataParallel\._"
_UNIT = re.compile(r"\(([^()]*)\)\s*$|^FSDP::backward_prefetch for (.+)$")
_GRADIENT_HOOK = r"AccumulateGrad"
# Between the collectives of a loop over tensors lies at most the scaling and copying of one tensor.
_LOOP_LAUNCHES = 2
_LOOP_LENGTH = 4
_SMALL_WORK = (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.UNKNOWN)


class Source(IntEnum):
    """Why a collective is issued. OTHER: its result may be needed before the next one, as far as the recording tells."""

    OTHER = 0
    SHARDS = 1
    GRADIENT_HOOK = 2
    LOOP = 3


@dataclass(frozen=True)
class Issuing:
    """One entry a communication kernel of `collectives(run)`.

    call: row of `runtime_calls` that launched it, -1 unknown; carrier: row of the operator around the collective, -1 unknown;
    source: Source; unit: number of the FSDP unit that it belongs to, -1 none. unit_of_call: the same for each row of
    `runtime_calls`; carrier_of_call likewise.
    """

    call: Rows
    carrier: Rows
    source: npt.NDArray[np.int8]
    unit: Rows
    unit_of_call: Rows
    carrier_of_call: Rows

    def calls_of(self, chosen: Mask) -> Mask:
        """The calls that issue these collectives: all inside their operators, or at least their launches."""
        mask = np.zeros(len(self.unit_of_call), bool)
        mask[self.call[chosen & (self.call >= 0)]] = True
        carriers = self.carrier[chosen & (self.carrier >= 0)]
        return mask | (np.isin(self.carrier_of_call, carriers) & (self.carrier_of_call >= 0))

    def calls_of_units(self, units: Rows) -> Mask:
        """All calls that FSDP makes for these units."""
        return np.isin(self.unit_of_call, units[units >= 0])


def issuing(run: Run, found: Collectives) -> Issuing:
    """Of all communication kernels of the run."""
    work = gpu_work(run)
    place = work_by_row(work, KERNEL, len(run.table("kernels")))[found.kernel]
    call, op = links(run).call[place], op_of_work(run)[place]
    carrier_of_call = _carriers(run, op_of_call(run))
    unit_of_call = _units(run)
    known = call >= 0
    unit = np.where(known, unit_of_call[np.maximum(call, 0)], -1) if len(unit_of_call) else np.full(len(call), -1)
    source = np.zeros(len(found), np.int8)
    source[_loops(run, call)] = Source.LOOP
    source[op_above(run, op, _GRADIENT_HOOK) >= 0] = Source.GRADIENT_HOOK
    source[unit >= 0] = Source.SHARDS
    return Issuing(call, _carriers(run, op), source, unit.astype(np.int64), unit_of_call, carrier_of_call)


def _carriers(run: Run, ops: Rows) -> Rows:
    result = np.full(len(ops), -1, np.int64)
    for pattern in reversed(_CARRIERS):
        above = op_above(run, ops, pattern)
        result = np.where(above >= 0, above, result)
    return result


def _units(run: Run) -> Rows:
    """For each row of `runtime_calls`: the FSDP unit of the innermost FSDP range around it, else -1."""
    calls, ranges, sharding = run.table("runtime_calls"), run.table("ranges"), ranges_named(run, _SHARDING)
    if not sharding.any():
        return np.full(len(calls), -1, np.int64)
    forest = range_forest(run)
    inner = forest.innermost(thread_keys(calls), calls["start"])
    row = np.where(inner >= 0, forest.nearest(sharding)[np.maximum(inner, 0)], -1)
    names, index = np.unique(ranges["name"][np.maximum(row, 0)], return_inverse=True)
    labels = [_unit_name(run.strings[int(name)]) for name in names]
    numbers = {label: number for number, label in enumerate(sorted(set(labels)))}
    return np.where(row >= 0, np.array([numbers[label] for label in labels], np.int64)[index.reshape(-1)], -1)


def _unit_name(text: str) -> str:
    found = _UNIT.search(text)
    return next((part for part in found.groups() if part), "") if found else ""


def _loops(run: Run, call: Rows) -> Mask:
    """Collectives issued one after the other, with at most small work for one tensor between them: a loop over tensors.

    Inside a custom autograd function or a module a collective stands alone between other work, and is none.
    """
    result = np.zeros(len(call), bool)
    calls = run.table("runtime_calls")
    launches = np.flatnonzero(is_kind(run, *LAUNCHES) & (links(run).count > 0))
    if not len(launches):
        return result
    work, kinds = gpu_work(run), kernel_kinds(run)
    last = links(run).last_work[launches]
    small = np.zeros(len(launches), bool)
    kernels = work.source[last] == KERNEL
    small[kernels] = np.isin(kinds.kind[work.row[last[kernels]]], _SMALL_WORK)
    collective = np.isin(launches, call[call >= 0])
    member = mixed_key(calls["rank"][launches], calls["process"][launches])
    for one in np.unique(member):
        mine = np.flatnonzero(member == one)
        mine = mine[np.argsort(calls["start"][launches[mine]], kind="stable")]
        at = np.flatnonzero(collective[mine])
        between = np.diff(at) - 1
        # Of the launches between two collectives none may be more than small work.
        heavy = np.concatenate(([0], np.cumsum(~small[mine] & ~collective[mine])))
        close = (between <= _LOOP_LAUNCHES) & (heavy[at[1:]] == heavy[at[:-1]]) if len(at) > 1 else np.empty(0, bool)
        for group in np.split(at, np.flatnonzero(~close) + 1) if len(at) else []:
            if len(group) >= _LOOP_LENGTH:
                chosen = launches[mine[group]]
                result |= np.isin(call, chosen)
    return result
