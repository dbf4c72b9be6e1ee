"""What a budget can limit: for each figure its name, its kind, the side that is bad, and where in the report it stands.

This table is the home of the names: the configuration file, `--fail-on NAME>VALUE`, the JSON Schema and the documentation
take them from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from advisor.gates.amounts import Quantity, parse, told
from advisor.model import Breakdown, Report


class Unknown(Exception):
    """The report does not tell this figure. The message says why, and what would let it, in words that follow a colon."""


@dataclass(frozen=True)
class Figure:
    """A figure of a report in the base unit of its quantity, and where in the report's JSON it stands."""

    value: float
    source: str


@dataclass(frozen=True)
class Measure:
    """words: the subject of a sentence. least: the limit is a minimum, since more is better. read: raises Unknown."""

    name: str
    words: str
    meaning: str
    quantity: Quantity
    read: Callable[[Report], Figure]
    least: bool = False
    example: str = ""


def limit(name: str, value: object) -> float:
    """A limit of the measure of this name, in its base unit. ValueError, in words, for one that no run can reach."""
    quantity = MEASURES[name].quantity
    amount = parse(quantity, value)
    if quantity == "share" and amount > 1:
        raise ValueError(f"{told(quantity, amount)} is more than all: {name} is from 0 to 100 %")
    return amount


def figure(measure: Measure, report: Report) -> Figure:
    """The figure in the report. Unknown, with the reason, if the report does not tell it."""
    return measure.read(report)


def _step(report: Report) -> Figure:
    steps = report.run.get("steps")
    if not report.step_ns or not isinstance(steps, Mapping):
        raise Unknown("the input holds no steps")
    if steps.get("source") == "none":
        raise Unknown("no step was found, the whole recording counts as one; --step-pattern tells the steps")
    return Figure(report.step_ns, "run.steps.median_ns")


def _throughput(report: Report) -> Figure:
    found = report.extra.get("throughput")
    if not isinstance(found, Mapping):
        raise Unknown("the number of items a step is not given; set items-per-step")
    _step(report)
    return Figure(float(found["items_per_second"]), "throughput.items_per_second")


def _worst(part: Callable[[Breakdown], int], source: str) -> Callable[[Report], Figure]:
    """The share of the recorded step, of the GPU on which it is largest."""

    def read(report: Report) -> Figure:
        parts = [(part(one) / one.step_ns, place) for place, one in enumerate(report.breakdown) if one.step_ns > 0]
        if not parts:
            raise Unknown("the input holds no steps with GPU work")
        share, place = max(parts, key=lambda pair: (pair[0], -pair[1]))
        return Figure(share, f"breakdown[{place}].{source} / breakdown[{place}].step_ns")

    return read


def _idle_by(cause: str) -> Callable[[Report], Figure]:
    return _worst(lambda part: part.idle_by_cause.get(cause, 0), f"idle_by_cause.{cause}")


def _combined(report: Report) -> Figure:
    _step(report)
    if report.combined is None:
        return Figure(0.0, "combined_saving.expected_frac")
    return Figure(report.combined.expected_ns / (report.step_ns or 1), "combined_saving.expected_frac")


def _utilisation(report: Report) -> Figure:
    limits = report.extra.get("limits")
    for place, entry in enumerate(limits if isinstance(limits, list) else ()):
        if entry.get("id") == "model-flops-utilisation" and entry.get("limit"):
            return Figure(entry["value"] / entry["limit"], f"limits[{place}].value / limits[{place}].limit")
    raise Unknown("needs a known GPU and the shapes of operators (torch.profiler with record_shapes=True)")


def _measured(key: str, why: str) -> Callable[[Report], Figure]:
    def read(report: Report) -> Figure:
        value: Any = report.run.get("measured", {}).get(key)
        if value is None:
            raise Unknown(why)
        return Figure(value, f"run.measured.{key}")

    return read


_IDLE = {
    "dataloader": ("data loading", "waits for data"),
    "host-sync": ("host synchronisation", "has run dry after the host waited for it"),
    "launch": ("kernel launches", "waits for launches"),
    "python": ("Python", "waits for Python code between launches"),
    "memory-management": ("memory management", "waits for allocations of the driver"),
}

_ALL = (
    Measure(
        "step-time",
        "step time",
        "Time of a step, as the report estimates it without the profiler",
        "duration",
        _step,
        example="120 ms",
    ),
    Measure(
        "throughput", "throughput", "Items a second; needs `items-per-step`", "count", _throughput, least=True, example="5000"
    ),
    Measure(
        "idle-share",
        "idle share of the GPU",
        "Share of the recorded step without any GPU work, on the GPU where it is largest",
        "share",
        _worst(lambda part: part.idle_ns, "idle_ns"),
        example="10 %",
    ),
    *(
        Measure(
            f"idle-{cause}",
            f"idle share by {words}",
            f"Share of the recorded step in which the GPU {meaning}",
            "share",
            _idle_by(cause),
            example="5 %",
        )
        for cause, (words, meaning) in _IDLE.items()
    ),
    Measure(
        "exposed-communication",
        "exposed communication",
        "Share of the recorded step in which only communication runs, waiting for other ranks included",
        "share",
        _worst(lambda part: part.exposed_communication_ns, "exposed_communication_ns"),
        example="5 %",
    ),
    Measure(
        "waiting-for-ranks",
        "waiting for other ranks",
        "Share of the recorded step in which a collective only waits for another rank",
        "share",
        _worst(lambda part: part.exposed_communication_wait_ns, "exposed_communication_wait_ns"),
        example="3 %",
    ),
    Measure(
        "exposed-copies",
        "exposed copies",
        "Share of the recorded step in which only copies run",
        "share",
        _worst(lambda part: part.exposed_copy_ns, "exposed_copy_ns"),
        example="2 %",
    ),
    Measure(
        "possible-saving",
        "possible saving",
        "Share of the step that all findings together are expected to save",
        "share",
        _combined,
        example="15 %",
    ),
    Measure(
        "mfu",
        "model FLOP utilisation",
        "FLOPs of the model's matrix products over the dense peak of the GPU and the step",
        "share",
        _utilisation,
        least=True,
        example="40 %",
    ),
    Measure(
        "memory-peak",
        "peak of GPU memory",
        "Most memory in use on a GPU: of all processes by device samples, or reserved by the allocator",
        "bytes",
        _measured(
            "memory_peak_bytes", "needs device samples (nvidia-smi beside the trace) or memory events (profile_memory=True)"
        ),
        example="70 GiB",
    ),
    Measure(
        "host-syncs-per-step",
        "host synchronisations a step",
        "Calls in a steady step that wait for the GPU until it has run dry, on the rank that sets the pace",
        "count",
        _measured("host_syncs_per_step", "needs steps, CUDA API calls and GPU work in the recording"),
        example="1",
    ),
    Measure(
        "kernels-per-step",
        "kernels a step",
        "Kernel executions in a steady step, on the rank that sets the pace",
        "count",
        _measured("kernels_per_step", "needs steps and GPU work in the recording"),
        example="2000",
    ),
)
MEASURES: dict[str, Measure] = {measure.name: measure for measure in _ALL}
