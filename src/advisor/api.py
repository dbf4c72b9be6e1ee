"""The functions that a program or notebook calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import ingest
from advisor.model import InputError, Options, Report, Run, display
from advisor.model.comparison import Comparison
from advisor.report import render as _render

if TYPE_CHECKING:
    from advisor.derive.inventory import GpuWork
    from advisor.model import Device, Notice, Trace


def _report_page(report: Report) -> str:
    from advisor.report.notebook import report_page

    return report_page(report)


def _run_page(run: Run) -> str:
    from advisor.report.notebook import run_page

    return run_page(run)


display.PAGES.update({Report: _report_page, Run: _run_page})


def load(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    options: Options | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Read recordings of one training run: files, folders, patterns, archives.

    progress(done, total) is called while reading, in bytes. An input that cannot be used is a notice of the run
    (code "input-unused"); raises advisor.model.InputError if none can be used.
    """
    return ingest.load(_listed(paths), options, progress)


def info(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    progress: Callable[[int, int], None] | None = None,
    problem: Callable[[str, str], None] | None = None,
) -> dict[str, Any]:
    """What each recording holds, as a document of schema advisor.info/1.

    problem(path, reason) is called for each input that cannot be used; raises advisor.model.InputError if none can be used.
    """
    traces, problems, notices = ingest.load_traces(_listed(paths), progress, problem)
    if not traces:
        raise ingest.NothingRead(problems)
    return {
        "schema": "advisor.info/1",
        "files": [_described(trace) for trace in traces],
        "notices": [_notice(notice) for notice in notices],
    }


def _described(trace: Trace) -> dict[str, Any]:
    from advisor.derive import inventory

    run = ingest.join([trace])
    counts = inventory.table_counts(run)
    known = [rank for rank in run.ranks if rank is not None] or ([trace.rank] if trace.rank is not None else [])
    return {
        "path": trace.path,
        "format": trace.format,
        "format_version": trace.format_version,
        "rank": known[0] if len(known) == 1 else None,
        "ranks": known,
        "tables": counts,
        "devices": [_device(device) for device in inventory.devices(run)],
        "gpu": [_gpu(work) for work in inventory.gpu_totals(run)],
        "steps": {"count": counts["steps"], "source": inventory.step_source(run)},
        "notices": [_notice(notice) for notice in trace.notices],
    }


def _gpu(work: GpuWork) -> dict[str, Any]:
    entry = {"device": work.device if work.device >= 0 else None, "first_ns": work.first, "last_ns": work.last}
    if work.process is not None:
        entry["process"] = work.process
    return {**entry, "kernel_sum_ns": work.kernel_sum, "kernel_busy_ns": work.kernel_busy, "busy_ns": work.busy}


def _device(device: Device) -> dict[str, Any]:
    return {
        "index": device.index,
        "name": device.name or None,
        "compute_capability": device.capability_text,
        "sm_count": device.sm_count,
        "memory_bytes": device.memory_bytes,
    }


def _notice(notice: Notice) -> dict[str, str]:
    return {"code": notice.code, "message": notice.message}


def _listed(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Sequence[str | os.PathLike[str]]:
    return [paths] if isinstance(paths, str | os.PathLike) else paths


def analyze(run: Run, **arguments: Any) -> Report:
    """Judge what `load` gave by all rules.

    Arguments by keyword: `select` and `ignore`, names of rules or families; `rule_dirs`, folders of rules of your own;
    `thresholds`, numbers in place of those of the rules (rule -> name -> number). No configuration file is read.
    `redact=True` leaves source locations out; `pictures=True` fills `Report.pictures`, which pages and plots draw. TypeError
    for anything that is no run; InputError for names that do not exist, and for options of the run that cannot be.
    """
    from advisor.rules import engine

    if not isinstance(run, Run):
        raise TypeError(
            f"analyze() takes the run that advisor.load() gives, not a {type(run).__name__}: advisor.analyze(advisor.load(paths))"
        )

    return engine.analyze(run, **arguments)


def load_report(path: str | os.PathLike[str]) -> Report:
    """A report that `advisor analyze --format json` wrote. InputError for a file that is none, or of another version."""
    from advisor.ingest import saved_report
    from advisor.ingest.source import Source

    return saved_report.read(Source(Path(path)))


def compare(base: Report | Sequence[Report], head: Report | Sequence[Report]) -> Comparison:
    """What became of the base: one report a side, or one for each repeat."""
    from advisor import comparing

    sides = ([side] if isinstance(side, Report) else list(side) for side in (base, head))
    first, second = (
        [comparing.Recording(f"{name} {number}", report) for number, report in enumerate(side, 1)]
        for name, side in zip(("base", "head"), sides, strict=True)
    )
    return comparing.compare(first, second)


def render(report: Report | Comparison, format: str, **style: Any) -> str:
    """The report as text in one of `advisor.report.FORMATS`; arguments by keyword as `advisor.report.render` has them.
    A comparison in one of `advisor.report.comparison.FORMATS`, which knows `all_findings` besides.

    sarif explains its rules by the pages of all built-in rules, unless `rule_pages` gives others.
    """
    if isinstance(report, Comparison):
        from advisor.report import comparison

        return comparison.render(report, format, **style)
    if format == "sarif" and "rule_pages" not in style:
        from advisor.rules.catalogue import catalogue
        from advisor.rules.describe import pages

        style["rule_pages"] = pages(entry.rule for entry in catalogue()[0])
    return _render(report, format, **style)


__all__ = ["InputError", "Options", "analyze", "compare", "info", "load", "load_report", "render"]
