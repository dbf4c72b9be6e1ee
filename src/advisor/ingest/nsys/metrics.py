"""Sampled hardware metrics of GPUs."""

from __future__ import annotations

import msgspec
import numpy as np

from advisor.ingest.nsys.database import NULL
from advisor.ingest.nsys.export import Export, grouped
from advisor.model import Strings, Table

_GPU_ID = 0xFF  # the last byte of typeId is the profiler's number of the GPU


def hardware_metrics(export: Export, ordinals: dict[int, int]) -> Table:
    """Metric samples in long form. `ordinals` maps the profiler's GPU numbers to CUDA ordinals."""
    found = export.read("GPU_METRICS", {"timestamp": "int64", "typeId": "int64", "metricId": "int64", "value": "real"})
    if found is None:
        return _generic(export, ordinals)
    names: dict[tuple[int, ...], int] = {
        (kind, metric): export.trace.strings.code(name)
        for kind, metric, name in export.database.rows("TARGET_INFO_GPU_METRICS", ["typeId", "metricId", "metricName"])
        if isinstance(kind, int) and isinstance(metric, int) and isinstance(name, str)
    }
    good = (found["timestamp"] != NULL) & ~np.isnan(found["value"])
    pairs, group = grouped(found["typeId"], found["metricId"])
    codes = np.array([names.get(pair, -1) for pair in pairs], np.int32)[group]
    device = np.array([_device(kind, ordinals) for kind, _ in pairs], np.int32)[group]
    columns = {"time": found["timestamp"], "device": device, "metric": codes, "value": found["value"]}
    return Table("hardware_metrics", columns).take(good & (codes >= 0)).ordered()


def _device(kind: int, ordinals: dict[int, int]) -> int:
    return ordinals.get(kind & _GPU_ID, kind & _GPU_ID)


def _generic(export: Export, ordinals: dict[int, int]) -> Table:
    """The same samples as exporters up to 2022 wrote them: one JSON object with text values a moment."""
    texts = Strings()
    found = export.read(
        "GENERIC_EVENTS", {"rawTimestamp": "int64", "timestamp": "int64", "typeId": "int64", "data": "text"}, texts
    )
    if found is None:
        return Table("hardware_metrics")
    sources = _metric_types(export)
    time = np.where(found["timestamp"] == NULL, found["rawTimestamp"], found["timestamp"])
    rows: list[tuple[int, int, int, float]] = []
    strings = export.trace.strings
    for moment, kind, code in zip(time.tolist(), found["typeId"].tolist(), found["data"].tolist(), strict=True):
        if moment == NULL or code < 0 or kind not in sources:
            continue
        device = _device(kind, ordinals)
        for name, value in _numbers(texts[code]):
            rows.append((moment, device, strings.code(name), value))
    if not rows:
        return Table("hardware_metrics")
    times, devices, metrics, values = zip(*rows, strict=True)
    return Table("hardware_metrics", {"time": times, "device": devices, "metric": metrics, "value": values}).ordered()


def _metric_types(export: Export) -> set[int]:
    """typeIds whose source is the GPU metrics sampler; GENERIC_EVENTS holds other things too."""
    sources = {
        source
        for source, data in export.database.rows("GENERIC_EVENT_SOURCES", ["sourceId", "data"])
        if isinstance(data, str) and _object(data).get("Name") == "GpuMetrics"
    }
    types = export.database.rows("GENERIC_EVENT_TYPES", ["typeId", "sourceId"])
    return {kind for kind, source in types if isinstance(kind, int) and source in sources}


def _object(text: str) -> dict[str, object]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _numbers(text: str) -> list[tuple[str, float]]:
    numbers = []
    for name, value in _object(text).items():
        try:
            numbers.append((name, float(value)))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
    return numbers
