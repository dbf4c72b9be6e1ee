"""Values that no recording can hold, but damaged and hostile files state: times that no clock shows, sizes below zero.

Left out here, once for all formats, they cannot overflow or turn a sum around later.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from advisor.model import Device, InputError, Table, Trace

FARTHEST_NS = 1 << 61  # from the trace's zero: 73 years, so that a clock that jumped from 1970 to today still counts
LONGEST_NS = 1 << 53  # of one row: 104 days
_LAST_EPOCH_NS = 4_200_000_000_000_000_000  # the year 2103
_MOST_RANKS = 1 << 31  # ranks are int32
_MOST_CAPABILITY = 1000
# Columns without a unit whose values are counts or positions; the other such columns are ids, which may be any number.
_COUNTS = {"rank", "device", "elements_in", "elements_out", "group_size"}
_OF_A_GPU = ("kernels", "copies", "graph_executions", "device_samples", "device_processes", "hardware_metrics")


def keep_plausible(trace: Trace) -> Trace:
    """The same trace without impossible rows, and with impossible values as "not recorded". Says how many rows were left out.

    InputError if no row is left.
    """
    lost = 0
    for name, table in trace.tables.items():
        good = _possible_times(table)
        if good is not None:
            lost += len(table) - int(np.count_nonzero(good))
            table = table.take(good)
        trace.tables[name] = _possible_values(table)
    if lost and not any(len(table) for table in trace.tables.values()):
        raise InputError("none of its events has a time that a clock could show")
    if lost:
        trace.notice("times-impossible", f"{lost:,} rows with times that no clock shows were left out")
    trace.devices = [_possible_device(device) for device in trace.devices if device.index >= 0]
    if trace.rank is not None and not 0 <= trace.rank < _MOST_RANKS:
        trace.rank = None
    if trace.world_size is not None and not 0 < trace.world_size <= _MOST_RANKS:
        trace.world_size = None
    if trace.epoch_ns is not None and not 0 <= trace.epoch_ns <= _LAST_EPOCH_NS:
        trace.epoch_ns = None
    return trace


def _possible_times(table: Table) -> npt.NDArray[np.bool_] | None:
    """Which rows have possible times; None if all have."""
    times = {column.name: table[column.name] for column in table.spec.columns if column.unit == "ns"}
    if not len(table) or not times:
        return None
    bad = np.zeros(len(table), bool)
    for name, values in times.items():
        if int(values.min()) < -FARTHEST_NS or int(values.max()) > FARTHEST_NS:
            bad |= table.known(name) & ((values < -FARTHEST_NS) | (values > FARTHEST_NS))
    if "end" in times:
        lasts = times["end"] - times["start"]
        if int(lasts.min()) < 0 or int(lasts.max()) > LONGEST_NS:
            bad |= (lasts < 0) | (lasts > LONGEST_NS)
    return ~bad if bad.any() else None


def _possible_values(table: Table) -> Table:
    changed = {}
    for column in table.spec.columns:
        values = table[column.name]
        if not len(values):
            continue
        if values.dtype.kind == "f":
            if np.isinf(values).any():
                changed[column.name] = np.where(np.isinf(values), np.nan, values).astype(values.dtype)
        elif column.name == "device" and table.name in _OF_A_GPU:
            if int(values.min()) < 0:  # what does not say which GPU it is about is most often about the only one
                changed[column.name] = np.maximum(values, 0)
        elif column.missing == -1 and (column.name in _COUNTS or column.unit not in ("", "text")) and int(values.min()) < -1:
            changed[column.name] = np.maximum(values, -1)
    return table.replace(**changed) if changed else table


def _possible_device(device: Device) -> Device:
    capability = device.compute_capability
    if capability is not None and not all(0 <= part < _MOST_CAPABILITY for part in capability):
        capability = None
    return replace(
        device,
        compute_capability=capability,
        sm_count=_positive(device.sm_count),
        memory_bytes=_positive(device.memory_bytes),
    )


def _positive(value: int | None) -> int | None:
    return value if value is not None and value > 0 else None
