"""Differences of configuration: what beside the program differs between the sides, and which conclusions that spoils."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.comparing.recordings import Recording, Repeats
from advisor.model.comparison import Conclusion, Difference

ALL: tuple[Conclusion, ...] = ("step", "categories", "kernels", "findings", "promises")
TIMES: tuple[Conclusion, ...] = ("step", "categories", "promises")
# Share of the recorded step from which on the profiler's part decides what a different capture makes of the step.
_SLOWS = 0.05
_SAME_WORK = 0.02  # relative difference of FLOPs or bytes of a step up to which it is the same work
_VERSIONS = {
    "torch_version": "PyTorch",
    "cuda_runtime_version": "CUDA",
    "cuda_driver_version": "CUDA of the driver",
    "driver_version": "driver",
    "nccl_version": "NCCL",
    "backend": "communication backend",
}
_CAPTURES = {"stacks": "Python stacks", "shapes": "input shapes", "memory": "memory events"}


def differences(base: Repeats, head: Repeats) -> list[Difference]:
    """Those that void something first."""
    one, other = base.middle, head.middle
    found = [
        *_steps(one, other),
        *_machine(one, other),
        *_work(base, head),
        *_capture(one, other),
        *_program(one, other),
        *_reports(one, other),
    ]
    return sorted(found, key=lambda difference: not difference.voids)


def _steps(base: Recording, head: Recording) -> Iterator[Difference]:
    if not base.step_ns or not head.step_ns:
        return
    if "none" in (base.source, head.source):
        message = "no steps were found, so whole recordings are compared and not steps: tell the steps with --step-pattern"
        yield Difference("step-source", base.source, head.source, message, TIMES)
    elif base.source != head.source:
        message = "the steps were found in different ways: a step may mean something else on each side"
        yield Difference("step-source", base.source, head.source, message)


def _machine(base: Recording, head: Recording) -> Iterator[Difference]:
    first, second = _gpus(base), _gpus(head)
    if first and second and first != second:
        message = "the GPUs differ: times tell of the machines as much as of the program"
        yield Difference("gpu", first, second, message, ALL)
    ranks = [one.report.run.get("world_size") or len(one.report.run.get("ranks") or []) or None for one in (base, head)]
    if None not in ranks and ranks[0] != ranks[1]:
        message = "the jobs have different numbers of ranks"
        yield Difference("ranks", str(ranks[0]), str(ranks[1]), message, ("step", "categories", "promises"))
    recorded = [len(one.report.breakdown) for one in (base, head)]
    if 0 not in recorded and recorded[0] != recorded[1] and ranks[0] == ranks[1]:
        message = "different numbers of GPUs were recorded: rules that compare ranks see more on one side"
        yield Difference("recorded-gpus", str(recorded[0]), str(recorded[1]), message, ("categories",))


def _gpus(recording: Recording) -> str | None:
    """'NVIDIA H200 (132 SMs)', all different models; None if no name is known."""
    found = {
        f"{device['name']}" + (f" ({device['sm_count']} SMs)" if device.get("sm_count") else "")
        for device in recording.report.run.get("devices") or []
        if device.get("name")
    }
    return ", ".join(sorted(found)) or None


def _work(base: Repeats, head: Repeats) -> Iterator[Difference]:
    one, other = _of_program(base.middle), _of_program(head.middle)
    items = (base.items, head.items)
    if None not in items and items[0] != items[1]:
        message = "the steps hold different numbers of items: the verdict is on the time per item"
        yield Difference("items", f"{items[0]:g}", f"{items[1]:g}", message, ("categories", "findings", "promises"))
        return
    flops = (one.get("matrix_flops"), other.get("matrix_flops"))
    # A compiler and CUDA graphs hide operators, and with them their FLOPs.
    hidden = any(one.get(key) != other.get(key) for key in ("compiled", "cuda_graphs"))
    if _differ(*flops) and not hidden:
        if _other_sizes(one.get("matrix_shapes") or [], other.get("matrix_shapes") or []):
            message = "a step computes another amount (batch, sequence length or model): tell the items a step of both sides"
            yield Difference("work", f"{flops[0]:.3g} FLOP", f"{flops[1]:.3g} FLOP", message, ALL)
        else:
            message = "a step computes another amount, with products of the same sizes: work was added or taken out"
            yield Difference("work", f"{flops[0]:.3g} FLOP", f"{flops[1]:.3g} FLOP", message)
    copied = (one.get("input_bytes"), other.get("input_bytes"))
    if _differ(*copied):
        message = "another amount is copied to the GPU in a step: look whether the batch is the same"
        yield Difference("input-bytes", f"{copied[0]:,} bytes", f"{copied[1]:,} bytes", message)


def _differ(base: int | None, head: int | None) -> bool:
    return bool(base and head and abs(base - head) > _SAME_WORK * max(base, head))


def _other_sizes(base: list[list[float]], head: list[list[float]]) -> bool:
    """True where the products have other sizes, or all come so many times as often: another batch, length or model."""
    before, after = ({tuple(shape[:4]): shape[4] for shape in side if len(shape) == 5} for side in (base, head))
    common = before.keys() & after.keys()
    return not any(abs(before[size] - after[size]) <= _SAME_WORK * before[size] for size in common)


def _of_program(recording: Recording) -> dict[str, Any]:
    return recording.report.run.get("program") or {}


def _capture(base: Recording, head: Recording) -> Iterator[Difference]:
    """Another capture slows the host by another amount; a step that the GPU paces hardly notices."""
    slowed = any(
        _overhead(one).get("estimated_frac") is None or _overhead(one)["estimated_frac"] > _SLOWS for one in (base, head)
    )
    voids: tuple[Conclusion, ...] = TIMES if slowed else ()
    formats = [_formats(one) for one in (base, head)]
    if all(formats) and formats[0] != formats[1]:
        message = "the recordings come from different profilers" + (
            ", which slow the host by different amounts" if slowed else "; neither slowed the step much"
        )
        yield Difference("capture-format", formats[0], formats[1], message, voids)
    for key, words in _CAPTURES.items():
        told = [_overhead(one).get(key) for one in (base, head)]
        if None not in told and told[0] != told[1]:
            message = f"{words} were recorded on one side only" + (
                ": host times are longer there, record both sides alike" if slowed else "; neither recording slowed the step much"
            )
            yield Difference(f"capture-{key}", _yes(told[0]), _yes(told[1]), message, voids)


def _overhead(recording: Recording) -> dict[str, Any]:
    return recording.report.run.get("profiler_overhead") or {}


def _formats(recording: Recording) -> str:
    """Kinds of the files that give times; device logs beside them change nothing."""
    found = {str(source.get("format")) for source in recording.report.run.get("sources") or []}
    return ", ".join(sorted(name for name in found if not name.startswith("nvidia-smi")))


def _program(base: Recording, head: Recording) -> Iterator[Difference]:
    one, other = _of_program(base), _of_program(head)
    before, after = one.get("versions") or {}, other.get("versions") or {}
    for key, name in _VERSIONS.items():
        if key in before and key in after and before[key] != after[key]:
            message = f"another version of {name} may explain a change" if "version" in key else f"another {name}"
            yield Difference(key.replace("_", "-"), before[key], after[key], message)
    before, after = one.get("variables") or {}, other.get("variables") or {}
    for key in sorted({*before, *after} if before and after else ()):
        if before.get(key) != after.get(key):
            message = f"the environment variable {key} differs and may explain a change"
            said = [f"{key}={values[key]}" if key in values else "not set" for values in (before, after)]
            yield Difference("variable", said[0], said[1], message)
    for key, words in (("compiled", "kernels of a compiler"), ("cuda_graphs", "CUDA graphs")):
        if None not in (one.get(key), other.get(key)) and one[key] != other[key]:
            yield Difference(key.replace("_", "-"), _yes(one[key]), _yes(other[key]), f"{words} run on one side only")


def _reports(base: Recording, head: Recording) -> Iterator[Difference]:
    if base.report.version != head.report.version:
        message = "the reports were written by different versions of advisor, whose rules and estimates may differ"
        yield Difference("advisor-version", base.report.version, head.report.version, message)
    told = [
        next((notice.message for notice in one.report.notices if notice.code == "thresholds-changed"), None)
        for one in (base, head)
    ]
    if told[0] != told[1]:
        message = "the sides were judged by different thresholds"
        yield Difference("thresholds", told[0], told[1], message, ("findings", "promises"))
    cut = [any(notice.code == "input-cut-short" for notice in one.report.notices) for one in (base, head)]
    if any(cut):
        message = "a recording is cut short and lacks records"
        yield Difference("cut-short", _yes(cut[0]), _yes(cut[1]), message, ("categories", "findings", "promises"))


def _yes(value: Any) -> str:
    return "yes" if value else "no"
