"""What must not change a report: when a recording was made, how its threads and streams are numbered, the order of its rows.

And what must hold of any saving. All by files, readers and rules together.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor import analyze, load
from advisor.model import Report
from build.cases import GEMM, pointwise
from build.parallel import all_steps, data_parallel, experts, pipelined
from build.workload import Workload

Event = dict[str, Any]


def loader(k: float = 1, tool: str = "torch") -> Workload:
    w = Workload(tool=tool)
    for _ in w.steps(5):
        w.loader(30_000 * k)
        for _ in range(10):
            with w.op("aten::mm", us=300 * k):
                w.launch(GEMM, 1000 * k)
        w.host(0)
    return w


def waiting(k: float = 1, tool: str = "torch") -> Workload:
    w = Workload(tool=tool)
    for _ in w.steps(5):
        for _ in range(4):
            with w.op("aten::mm", us=600 * k), w.frame("train.py(7): step"):
                w.launch(GEMM, 800 * k)
            w.item()
    return w


def chains(k: float = 1, tool: str = "torch") -> Workload:
    w = Workload(tool=tool)
    for _ in w.steps(5):
        for _ in range(8):
            with w.op("aten::mm", us=20 * k):
                w.launch(GEMM, 1000 * k)
            for name in ("CUDAFunctor_add<float>", "GeluCUDAKernelImpl(at::TensorIteratorBase&)", "MulFunctor<float>"):
                with w.op("aten::pointwise", us=20 * k):
                    w.launch(pointwise(name), 400 * k)
    return w


def copies(k: float = 1, tool: str = "torch") -> Workload:
    w = Workload(tool=tool)
    for _ in w.steps(5):
        with w.op("aten::copy_"):
            w.copy("HtoD", round(200_000_000 * k), 20_000 * k, source="pageable")
        for _ in range(10):
            with w.op("aten::mm", us=300 * k):
                w.launch(GEMM, 4000 * k)
    return w


def healthy(k: float = 1, tool: str = "torch") -> Workload:
    w = Workload(tool=tool)
    for _ in w.steps(5):
        for _ in range(20):
            with w.op("aten::mm", us=100 * k):
                w.launch(GEMM, 1000 * k)
    return w


def serial(k: float = 1, tool: str = "torch") -> Workload:
    return data_parallel(
        serial=True, forward_us=500 * k, backward_us=1000 * k, reduce_us=500 * k, elements=round((1 << 26) * k), tool=tool
    )


def late(k: float = 1, tool: str = "torch") -> Workload:
    w = Workload(ranks=2, tool=tool)
    for _ in range(5):
        with all_steps(w):
            for rank in w.ranks:
                for _ in range(10):
                    with rank.op("aten::linear", us=20 * k):
                        rank.launch(GEMM, (600 if rank.number else 400) * k)
                rank.stream_wait(17, on=7)
            w.collective("allreduce", round((1 << 22) * k), 60 * k)
            for rank in w.ranks:
                rank.stream_wait(7, on=17)
                rank.launch("fused_adam_kernel", 100 * k)
    return w


def stages(k: float = 1, tool: str = "torch") -> Workload:
    return pipelined(3, 3, steps=4, forward_us=800 * k, tool=tool)


def routed(k: float = 1, tool: str = "torch") -> Workload:
    return experts(((1.8, 0.6, 0.6),) * 2, steps=4, dense_us=600 * k, expert_us=1000 * k, exchange_us=100 * k, tool=tool)


Loop = Callable[..., Workload]
ONE: list[Loop] = [loader, waiting, chains, copies, healthy]
SEVERAL: list[Loop] = [serial, late, stages, routed]
LOOPS: list[Loop] = [*ONE, *SEVERAL]
every_loop = pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)


def reported(files: list[Path], folder: Path) -> str:
    """The report as text, without the folder's name and the numbers of streams, which evidence may show."""
    document = analyze(load(files)).to_dict()
    for table in (table for finding in document["findings"] for table in finding["evidence"]):
        if "stream" in table["columns"]:
            shown = table["columns"].index("stream")
            table["rows"] = [[*row[:shown], *row[shown + 1 :]] for row in table["rows"]]
    return json.dumps(document).replace(str(folder), "")


def changed(loop: Loop, folder: Path, change: Callable[[list[Event]], list[Event]]) -> tuple[str, str]:
    """The report of a recording, and that of its changed copy."""
    before, after = folder / "before", folder / "after"
    files = loop().write_kineto(before)
    after.mkdir()
    copied = []
    for file in files:
        document = json.loads(file.read_text())
        document["traceEvents"] = change(document["traceEvents"])
        copied.append(after / file.name)
        copied[-1].write_text(json.dumps(document))
    return reported(files, before), reported(copied, after)


@every_loop
def test_the_hour_does_not_matter(tmp_path: Path, loop: Loop) -> None:
    before, after = changed(loop, tmp_path, lambda events: [event | {"ts": event["ts"] + 86_400_000_000} for event in events])
    assert before == after


def exported(loop: Loop, folder: Path, change: Callable[[sqlite3.Connection, str, list[str]], None]) -> tuple[str, str]:
    """The report of an nsys export, and that of its copy, each table of which was changed."""
    (folder / "before").mkdir()
    (folder / "after").mkdir()
    first = loop(1, "nsys").write_nsys(folder / "before" / "run.sqlite")
    second = folder / "after" / "run.sqlite"
    shutil.copy(first, second)
    with sqlite3.connect(second) as base:
        for (table,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            change(base, table, [column[1] for column in base.execute(f"PRAGMA table_info({table})")])
    base.close()
    return reported([first], folder / "before"), reported([second], folder / "after")


@every_loop
def test_the_hour_does_not_matter_to_an_export(tmp_path: Path, loop: Loop) -> None:
    def later(base: sqlite3.Connection, table: str, columns: list[str]) -> None:
        for column in {"start", "end"} & set(columns):
            base.execute(f"UPDATE {table} SET {column} = {column} + 86400000000000")

    before, after = exported(loop, tmp_path, later)
    assert before == after


@every_loop
def test_the_order_of_rows_does_not_matter(tmp_path: Path, loop: Loop) -> None:
    def shuffled(base: sqlite3.Connection, table: str, columns: list[str]) -> None:
        rows = base.execute(f"SELECT * FROM {table}").fetchall()
        base.execute(f"DELETE FROM {table}")
        places = ", ".join("?" * len(columns))
        base.executemany(f"INSERT INTO {table} VALUES ({places})", random.Random(7).sample(rows, len(rows)))

    before, after = exported(loop, tmp_path, shuffled)
    assert before == after


@every_loop
def test_the_names_of_threads_and_streams_do_not_matter_to_an_export(tmp_path: Path, loop: Loop) -> None:
    def renamed(base: sqlite3.Connection, table: str, columns: list[str]) -> None:
        for column, more in (("globalTid", 100), ("endGlobalTid", 100), ("streamId", 100)):
            if column in columns:
                base.execute(f"UPDATE {table} SET {column} = {column} + {more}")

    before, after = exported(loop, tmp_path, renamed)
    assert before == after


@every_loop
def test_the_order_of_events_does_not_matter(tmp_path: Path, loop: Loop) -> None:
    before, after = changed(loop, tmp_path, lambda events: random.Random(5).sample(events, len(events)))
    assert before == after


@every_loop
def test_the_names_of_threads_and_streams_do_not_matter(tmp_path: Path, loop: Loop) -> None:
    def renamed(events: list[Event]) -> list[Event]:
        result = []
        for event in events:
            event = event | {"tid": event["tid"] + 100}
            if "stream" in event.get("args", {}):
                event["args"] = event["args"] | {"stream": event["args"]["stream"] + 100}
            result.append(event)
        return result

    before, after = changed(loop, tmp_path, renamed)
    assert before == after


@pytest.mark.parametrize("loop", ONE, ids=lambda loop: loop.__name__)
def test_the_number_of_the_process_does_not_matter(tmp_path: Path, loop: Loop) -> None:
    """Host events carry it; GPU events carry their device there."""

    def renamed(events: list[Event]) -> list[Event]:
        return [event | ({"pid": event["pid"] + 31_000} if event["pid"] >= 1000 else {}) for event in events]

    before, after = changed(loop, tmp_path, renamed)
    assert before == after


@pytest.mark.parametrize("loop", SEVERAL, ids=lambda loop: loop.__name__)
def test_the_numbers_of_ranks_do_not_matter(tmp_path: Path, loop: Loop) -> None:
    """Ranks count from the other end: the same findings and savings, in terms of the new numbers."""
    w = loop()
    files, last = w.write_kineto(tmp_path / "before"), len(w.ranks) - 1
    (tmp_path / "after").mkdir()
    for file in files:
        document = json.loads(file.read_text())
        document["distributedInfo"]["rank"] = rank = last - document["distributedInfo"]["rank"]
        (tmp_path / "after" / f"rank{rank}.pt.trace.json").write_text(json.dumps(document))
    first, second = (analyze(load(sorted((tmp_path / side).iterdir()))) for side in ("before", "after"))
    assert [(one.rule, one.saving) for one in first.findings] == [(one.rule, one.saving) for one in second.findings]
    assert first.combined == second.combined and first.findings
    assert [one.outcome for one in first.rules] == [one.outcome for one in second.rules]
    for one, other in zip(first.findings, second.findings, strict=True):
        if len(one.scope.get("ranks", [])) == 1 and one.rule in ("straggler-rank", "pipeline-bubble", "expert-imbalance"):
            assert other.scope["ranks"] == [last - one.scope["ranks"][0]]


def test_the_number_of_the_late_rank_does_not_matter(tmp_path: Path) -> None:
    files = late().write_kineto(tmp_path)
    first = analyze(load(files))
    swapped = []
    for file in files:
        document = json.loads(file.read_text())
        document["distributedInfo"]["rank"] = 1 - document["distributedInfo"]["rank"]
        swapped.append(tmp_path / f"swapped{document['distributedInfo']['rank']}.pt.trace.json")
        swapped[-1].write_text(json.dumps(document))
    second = analyze(load(swapped))
    assert [finding.rule for finding in first.findings] == [finding.rule for finding in second.findings] == ["straggler-rank"]
    assert first.findings[0].saving == second.findings[0].saving and first.combined == second.combined
    assert (first.findings[0].scope["ranks"], second.findings[0].scope["ranks"]) == ([1], [0])


def parts(report: Report) -> dict[str, float]:
    assert report.step_ns
    return {one.rule: one.saving.expected_ns / report.step_ns for one in report.findings if one.saving}


@pytest.mark.parametrize(("tool", "k"), [("nsys", 4), ("torch", 3)])
@every_loop
def test_times_that_scale_scale_the_savings(tmp_path: Path, loop: Loop, tool: str, k: float) -> None:
    """Several times as long, and as many bytes; no time crosses a threshold in ns. Calls keep their length: within 2 points."""
    reports = []
    for times in (1, k):
        w = loop(times, tool)
        folder = tmp_path / str(times)
        reports.append(analyze(load([w.write_nsys(tmp_path / f"{times}.sqlite")] if tool == "nsys" else w.write_kineto(folder))))
    first, second = reports
    assert first.step_ns and second.step_ns
    assert second.step_ns / first.step_ns == pytest.approx(k, rel=0.05)
    assert parts(first) == pytest.approx(parts(second), abs=0.02)


@pytest.mark.parametrize("tool", ["torch", "nsys"])
@every_loop
def test_savings_stay_inside_the_step(tmp_path: Path, loop: Loop, tool: str) -> None:
    w = loop(1, tool)
    report = analyze(load(w.write_nsys(tmp_path / "r.sqlite") if tool == "nsys" else w.write_kineto(tmp_path)))
    step = report.step_ns
    assert step
    savings = [finding.saving for finding in report.findings if finding.saving]
    for saving in savings:
        assert 0 <= saving.low_ns <= saving.expected_ns <= saving.high_ns < step
    assert (report.combined is None) is (not savings)
    if report.combined:
        for which in ("low_ns", "expected_ns", "high_ns"):
            largest = max(getattr(saving, which) for saving in savings)
            assert largest <= getattr(report.combined, which) < step
    for part in report.breakdown:
        exposed = part.exposed_communication_ns + part.exposed_copy_ns
        assert part.compute_ns + exposed + part.idle_ns == part.step_ns
        assert sum(part.idle_by_cause.values()) == part.idle_ns


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_gaps_of_no_length_save_nothing(tmp_path: Path, tool: str) -> None:
    """A loader that hands out at once, a wait for what has ended long ago, a copy of nothing."""
    w = Workload(tool=tool)
    for _ in w.steps(6):
        w.loader(0)
        with w.op("aten::copy_"):
            w.copy("HtoD", 0, 0, source="pageable", stream=9)
        w.sync("event", stream=33)
        for _ in range(20):
            with w.op("aten::mm", us=100):
                w.launch(GEMM, 1000)
    report = analyze(load(w.write_nsys(tmp_path / "r.sqlite") if tool == "nsys" else w.write_kineto(tmp_path)))
    assert [finding for finding in report.findings if finding.saving] == [] and report.combined is None


def test_a_healthy_loop_is_told_nothing(tmp_path: Path) -> None:
    assert analyze(load(healthy().write_kineto(tmp_path))).findings == []
