"""All pictures of a report. A picture that fails is absent and says so: none may cost the report or another picture."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from advisor.derive.gpus import gpu_work
from advisor.derive.steps import steps
from advisor.model import Finding, Report, Run
from advisor.model.pictures import Pictures, RankMap, Roofline, StepMap, StepMarks, Timeline
from advisor.pictures.curves import memory_curves, samples
from advisor.pictures.highlights import Places
from advisor.pictures.names import Names
from advisor.pictures.tables import kernel_table, rank_map, roofline, step_map, step_marks
from advisor.pictures.timeline import timeline
from advisor.pictures.view import shown
from advisor.replay.changes import Edit

T = TypeVar("T")

# What to record where a picture has nothing to show.
_NO_TRACE = "no trace of the program was given: a torch.profiler trace or an Nsight Systems export"
_NO_STEPS = "no step of any length was found"
_NO_MEMORY = "no memory events were recorded: torch.profiler with profile_memory=True, or a memory snapshot with a history"
_NO_SAMPLES = "no device samples were given: nvidia-smi -q -x -l 1 -f smi.xml, beside the trace"
_NO_GPU = "no GPU work was recorded"


def gather(
    run: Run,
    report: Report,
    edits: Mapping[str, Sequence[Edit]] | None = None,
    clean: Callable[[str], str] = str,
) -> Pictures:
    """The pictures of a run and its report.

    edits: what each finding's fix changes, by fingerprint. clean: makes a recorded text fit to be shown.
    """
    names = Names(run, clean)
    missing: dict[str, str] = {}

    def attempt(picture: str, make: Callable[[], T | None], empty: T, reason: str) -> T:
        try:
            made = make()
        except Exception as error:
            if os.environ.get("ADVISOR_DEBUG"):
                raise
            made, reason = None, f"it could not be made ({type(error).__name__})"
        if made is None:
            missing[picture] = reason
        return empty if made is None else made

    traced = len(steps(run)) > 0 or len(gpu_work(run)) > 0
    none: list[Timeline] = []
    timelines = attempt("timelines", lambda: _timelines(run, names, report.findings, edits or {}) or None, none, _NO_STEPS)
    unknown: tuple[Roofline | None, str] = (None, "")
    roof, why = attempt("roofline", lambda: roofline(run, names, report.step_ns), unknown, "")
    if roof is None:
        missing["roofline"] = missing.get("roofline") or why
    result = Pictures(
        strings=names.values,
        steps=attempt("steps", lambda: step_marks(run), StepMarks([], [], [], []), _NO_STEPS),
        timelines=timelines,
        memory=attempt("memory", lambda: memory_curves(run) or None, [], _NO_MEMORY),
        samples=attempt("samples", lambda: samples(run), None, _NO_SAMPLES),
        roofline=roof,
        kernels=attempt("kernels", lambda: kernel_table(run, names), None, _NO_GPU),
        ranks=attempt(
            "ranks", lambda: rank_map(report.breakdown) if report.breakdown else None, RankMap([], [], [], []), _NO_GPU
        ),
        step_map=attempt("step_map", lambda: _steps_of_ranks(run), StepMap([], [], [], []), _NO_STEPS),
        missing=missing,
    )
    if not traced:
        for picture in ("timelines", "kernels", "ranks", "step_map"):
            missing[picture] = _NO_TRACE
    return result


def _timelines(run: Run, names: Names, findings: Sequence[Finding], edits: Mapping[str, Sequence[Edit]]) -> list[Timeline]:
    views = shown(run)
    places = Places(run, edits, names.cleaned)
    return [timeline(run, view, names, findings, places, len(views)) for view in views]


def _steps_of_ranks(run: Run) -> StepMap | None:
    return step_map(run) if len(steps(run)) and steps(run).source != "none" else None
