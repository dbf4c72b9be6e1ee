"""Times both sides of a pair without a profiler, then records each under several profilers, and writes what was seen."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pair import Loop, Pair, Place
from torch.profiler import ProfilerActivity, profile, schedule

REPEATS = 4
WARM_STEPS = 2  # of the recording, before its active steps
KINDS: dict[str, dict[str, Any]] = {  # how a recording is made: active steps, what it holds
    "light": {"active": 8},
    "full": {"active": 3, "record_shapes": True, "with_stack": True},
    "shapes": {"active": 8, "record_shapes": True},
    "stacks": {"active": 3, "with_stack": True},
    "cuda": {"active": 8, "only": "cuda"},
    "cpu": {"active": 8, "only": "cpu"},
}
SMI = (
    "timestamp,index,name,utilization.gpu,utilization.memory,memory.used,memory.total,power.draw,power.limit,temperature.gpu,"
    "clocks.current.sm,clocks.max.sm,clocks.current.memory,clocks_event_reasons.active,pcie.link.gen.current,pcie.link.width.current"
)


def block_ms(loop: Loop, place: Place, steps: int, warm: int = 2) -> float:
    """Milliseconds a step; the host waits for the GPU at both ends of the steps and nowhere else."""
    loop.enter()
    for _ in range(warm):
        loop.step()
    place.wait()
    begin = time.perf_counter()
    for _ in range(steps):
        loop.step()
    place.wait()
    return (time.perf_counter() - begin) * 1e3 / steps


def record(loop: Loop, place: Place, kind: str, target: Path, steps: int, warm: int) -> dict[str, Any]:
    """Write one recording to `target`. -> the step time right before and after it, and the host's clock at its step ends."""
    how = dict(KINDS[kind])
    active, only = how.pop("active"), how.pop("only", "")
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if place.device.type == "cuda" else [ProfilerActivity.CPU]
    activities = {"cuda": both[-1:], "cpu": both[:1]}.get(only, both)
    before = block_ms(loop, place, steps, warm)
    for _ in range(warm):
        loop.step()
    ends: list[int] = []
    plan = schedule(wait=0, warmup=WARM_STEPS, active=active, repeat=1)
    with profile(
        activities=activities, schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace(str(target)), **how
    ) as prof:
        for number in range(WARM_STEPS + active):
            loop.step()
            if number == WARM_STEPS - 1:
                place.wait()  # the recorded steps begin with an idle GPU and are not waited for before the recording ends
            if number >= WARM_STEPS:
                ends.append(time.perf_counter_ns())
            prof.step()
            if number == WARM_STEPS - 1:
                ends.append(time.perf_counter_ns())
    place.wait()
    after = block_ms(loop, place, steps, warm)
    return {
        "free_before_ms": before,
        "free_after_ms": after,
        "host_step_ms": [(b - a) / 1e6 for a, b in pairwise(ends)],
        "active": active,
    }


def counts(path: Path) -> dict[str, int]:
    """Events of a recording by category."""
    result: dict[str, int] = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        category = event.get("cat", "")
        result[category] = result.get(category, 0) + 1
    return result


def probe(place: Place) -> dict[str, float]:
    """Microseconds of an operator and of an operator with one launch, by themselves and under each kind of profiler."""
    small = torch.zeros(1)
    near = torch.zeros(1, device=place.device)
    result: dict[str, float] = {}

    def rate(x: torch.Tensor) -> float:
        begin = time.perf_counter()
        for _ in range(400):
            x.add_(1)
        return (time.perf_counter() - begin) * 1e6 / 400

    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if place.device.type == "cuda" else [ProfilerActivity.CPU]
    for kind, how in (("free", None), ("light", {}), ("full", {"record_shapes": True, "with_stack": True}), ("free_again", None)):
        for name, x in (("cpu", small), ("launch", near)):
            found = []
            for _ in range(2):
                place.wait()
                if how is None:
                    found.append(rate(x))
                else:
                    with profile(activities=both, **how):
                        rate(x)
                        place.wait()
                        found.append(rate(x))
                    place.wait()
            result[f"{kind}_{name}_us"] = min(found)
    return result


def measure(pair: Pair, place: Place, folder: Path, say: Any) -> dict[str, Any]:
    """Everything of one pair, below `folder`: truth.json, before/, after/. -> the short result."""
    started = time.perf_counter()
    torch.manual_seed(0)
    sides = {"before": pair.build(place, True), "after": pair.build(place, False)}
    warm = pair.warm
    steps, memory = {}, {}
    for side, loop in sides.items():
        (folder / side).mkdir(parents=True, exist_ok=True)
        loop.enter()
        if place.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        for _ in range(pair.block if pair.block else 6):
            loop.step()
        guess = 0.0 if pair.block else block_ms(loop, place, 4, 0)
        steps[side] = pair.block or max(6, min(60, int(330 / max(guess, 0.1))))
        if place.tiny:
            steps[side] = 2
        memory[side] = _memory(place)
    say(f"{pair.name}: built and warm after {time.perf_counter() - started:.1f} s, blocks of {steps}")
    times: dict[str, list[float]] = {"before": [], "after": []}
    for repeat in range(REPEATS):
        for side in ("before", "after") if repeat % 2 == 0 else ("after", "before"):
            times[side].append(block_ms(sides[side], place, steps[side], warm))
    say(f"{pair.name}: " + " ".join(f"{s} {[round(x, 2) for x in t]}" for s, t in times.items()))
    if pair.device_log and place.device.type == "cuda":
        _device_log(sides["before"], place, folder / "before" / "smi.csv")
    kinds = ["light", *(["full"] if pair.full else []), *(["cuda", "cpu", "shapes", "stacks"] if pair.extra else [])]
    profiled: dict[str, dict[str, Any]] = {"before": {}, "after": {}}
    for kind in kinds:
        for side, loop in sides.items():
            if KINDS[kind].get("only") == "cuda" and place.device.type != "cuda":
                continue
            target = folder / side / f"trace_{kind}.json"
            try:
                profiled[side][kind] = record(loop, place, kind, target, max(2, steps[side] // 2), warm)
                profiled[side][kind]["counts"] = counts(target)
            except Exception as problem:  # the other recordings of this pair still count
                say(f"{pair.name}: {side} {kind} failed: {type(problem).__name__}: {problem}")
                profiled[side][kind] = {"error": str(problem)[:300]}
            if kind in ("cpu", "shapes", "stacks"):
                target.unlink(missing_ok=True)
    for loop in sides.values():
        loop.close()
    _write(pair, place, folder, sides, times, memory, profiled)
    _compress(folder)
    say(f"{pair.name}: done after {time.perf_counter() - started:.1f} s")
    return {"times": times, "items": {s: x.items for s, x in sides.items()}, "profiled": profiled}


def _memory(place: Place) -> dict[str, int]:
    if place.device.type != "cuda":
        return {}
    now = torch.cuda.memory_stats()
    return {
        "peak_alloc": now["allocated_bytes.all.peak"],
        "peak_reserved": now["reserved_bytes.all.peak"],
        "retries": now["num_alloc_retries"],
        "ooms": now["num_ooms"],
        "total": torch.cuda.get_device_properties(0).total_memory,
    }


def _device_log(loop: Loop, place: Place, target: Path) -> None:
    with target.open("w") as out, suppress(OSError):
        log = subprocess.Popen(["nvidia-smi", f"--query-gpu={SMI}", "--format=csv", "-lms", "200"], stdout=out)
        begin = time.perf_counter()
        while time.perf_counter() - begin < 4:
            loop.step()
        place.wait()
        log.terminate()
        log.wait(10)


def _write(pair: Pair, place: Place, folder: Path, sides: Any, times: Any, memory: Any, profiled: Any) -> None:
    about = {
        "gpu": torch.cuda.get_device_name() if place.device.type == "cuda" else "none",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    for side, loop in sides.items():
        free = statistics.median(times[side])
        found = {
            "scenario": pair.name, "variant": side, "rank": 0, "world": 1, "step_ms_free": free, "step_ms_all": times[side],
            "items_per_step": loop.items, "items_per_s": loop.items * 1e3 / free,
            "mem": memory[side], "profiled": profiled[side], **about,
        }  # fmt: skip
        (folder / side / "measure.json").write_text(json.dumps(found, indent=1))
    each = {side: [ms / sides[side].items for ms in times[side]] for side in sides}
    truth = {
        "scenario": pair.name, "gpus": 1, "planted_cause": pair.cause, "fix": pair.fix, "rules": pair.rules,
        "also_true": sorted({*pair.also, *pair.rules}), "bound_only": pair.bound_only, "cause_only": pair.cause_only,
        "still_true_after": pair.after, "steady_step": pair.steady, "note": pair.note,
        "measured_gain_frac": [round(1 - a / b, 4) for b, a in zip(each["before"], each["after"], strict=True)],
        "before_ms": times["before"], "after_ms": times["after"],
        "before_items": [sides["before"].items] * REPEATS, "after_items": [sides["after"].items] * REPEATS,
        "gpu": about["gpu"], "torch": about["torch"], "memory_before": memory["before"],
    }  # fmt: skip
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))


def _compress(folder: Path) -> None:
    running = [subprocess.Popen(["gzip", "-f", "-6", str(path)]) for path in sorted(folder.rglob("trace_*.json"))]
    for one in running:
        one.wait(60)
