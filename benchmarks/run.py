"""Measures reading and analysing generated recordings, side by side with the standard library doing the bare read.

    python benchmarks/run.py                 every measurement (about ten minutes, 2 GB of disk)
    python benchmarks/run.py --quick         small inputs, one run each: does it work at all
    python benchmarks/run.py --only nsys     the measurements whose name contains that word

Each measurement is a process of its own; time and memory are those of the whole process and its children, start-up included.
Exit status 1 if a target was missed, or a command failed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import generate
import measure
import snapshot

PYTHON = sys.executable
READ = (
    "import sys; from advisor.ingest import load_traces\n"
    "traces, problems, _ = load_traces([sys.argv[1]], processes=int(sys.argv[2])); assert traces, problems"
)
JSON = "import json, sys; json.load(open(sys.argv[1], 'rb'))"
GZIP = "import gzip, json, sys; json.load(gzip.open(sys.argv[1]))"
CSV = "import csv, sys; rows = list(csv.reader(open(sys.argv[1])))"
SQLITE = (
    "import collections, sqlite3, sys; database = sqlite3.connect(sys.argv[1])\n"
    "names = [name for (name,) in database.execute(\"SELECT name FROM sqlite_master WHERE type = 'table'\")]\n"
    "[collections.deque(database.execute(f'SELECT * FROM {name}'), maxlen=0) for name in names]"
)
PICKLE = (
    "import pickle, sys\n"
    "class Refusing(pickle.Unpickler):\n"
    "    def find_class(self, module, name): raise pickle.UnpicklingError(name)\n"
    "Refusing(open(sys.argv[1], 'rb')).load()"
)


@dataclass(frozen=True)
class Input:
    """A generated file. `amount` counts `unit`s: MB (1e6 bytes of text) or rows."""

    path: Path
    amount: float
    unit: str


@dataclass(frozen=True)
class Case:
    """One line of the table. `target`: least units a second; `seconds`, `memory_mb`: most of each. None: only shown."""

    name: str
    input: Input | None
    command: Sequence[str]
    target: float | None = None
    seconds: float | None = None
    memory_mb: float | None = None


def code(text: str, *arguments: object) -> list[str]:
    return [PYTHON, "-c", text, *map(str, arguments)]


def advisor(*arguments: object) -> list[str]:
    return [PYTHON, "-m", "advisor", *map(str, arguments)]


class Inputs:
    """Generates each input when first asked for; what lies in the folder already is used again."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder, self.scale = folder, 0.02 if quick else 1.0
        folder.mkdir(parents=True, exist_ok=True)

    def _make(self, name: str, unit: str, write: Callable[[Path], float]) -> Input:
        path = self.folder / name
        note = path.with_name(path.name + ".amount")
        if not (path.exists() and note.exists()):
            print(f"generating {path.name}", file=sys.stderr)
            note.write_text(str(write(path)))
        return Input(path, float(note.read_text()), unit)

    def trace(self, name: str, megabytes: float, scaled: bool = True, **options: bool) -> Input:
        size = megabytes * (self.scale if scaled else 1)
        return self._make(name, "MB", lambda path: generate.write_trace(path, size, **options) / 1e6)

    def export(self, name: str, rows: int) -> Input:
        return self._make(name, "rows", lambda path: generate.write_export(path, int(rows * self.scale)))

    def memory(self, name: str, events: int) -> Input:
        return self._make(name, "MB", lambda path: snapshot.write(path, int(events * self.scale)) / 1e6)

    def smi(self, name: str, hours: float) -> Input:
        return self._make(name, "rows", lambda path: generate.write_smi(path, hours * self.scale))


def cases(inputs: Inputs) -> list[Callable[[], list[Case]]]:
    """The groups of measurements; each group's inputs are made when it is its turn."""
    output = inputs.folder / "report.json"
    analyze = ("analyze", "--format", "json", "--output", output)

    def torch_plain() -> list[Case]:
        plain = inputs.trace("trace.json", 300)
        return [
            Case("torch JSON: standard library's json", plain, code(JSON, plain.path)),
            Case("torch JSON: read, 1 process", plain, code(READ, plain.path, 1), target=120),
            Case("torch JSON: read, 2 processes", plain, code(READ, plain.path, 2), target=190),
            Case("torch JSON: advisor analyze", plain, advisor(*analyze, plain.path)),
        ]

    def torch_stacks() -> list[Case]:
        full = inputs.trace("stacks.json", 300, stacks=True, shapes=True)
        return [
            Case("torch JSON with shapes, stacks: json", full, code(JSON, full.path)),
            Case("torch JSON with shapes, stacks: read, 1 process", full, code(READ, full.path, 1), target=120),
            Case("torch JSON with shapes, stacks: read, 2 processes", full, code(READ, full.path, 2), target=190),
        ]

    def torch_gzip() -> list[Case]:
        zipped = inputs.trace("trace.json.gz", 300)
        return [
            Case("torch gzip: standard library's gzip, json", zipped, code(GZIP, zipped.path)),
            Case("torch gzip: read, 1 process", zipped, code(READ, zipped.path, 1)),
            Case("torch gzip: read, 2 processes", zipped, code(READ, zipped.path, 2)),
            Case("torch gzip: advisor analyze", zipped, advisor(*analyze, zipped.path)),
        ]

    def torch_large() -> list[Case]:
        large = inputs.trace("large.json", 1000)
        # The standard library needs five to six times the size of the text in memory: measured above on less.
        return [Case("torch JSON of 1 GB: advisor analyze", large, advisor(*analyze, large.path), memory_mb=800)]

    def nsys() -> list[Case]:
        export = inputs.export("export.sqlite", 2_000_000)
        return [
            Case("nsys SQLite: standard library's sqlite3", export, code(SQLITE, export.path)),
            Case("nsys SQLite: read", export, code(READ, export.path, 2)),
            Case("nsys SQLite: advisor analyze", export, advisor(*analyze, export.path), target=0.5e6),
        ]

    def smi() -> list[Case]:
        log = inputs.smi("smi.csv", 24)
        return [
            Case("nvidia-smi log, 24 h x 8 GPUs: csv", log, code(CSV, log.path)),
            Case("nvidia-smi log, 24 h x 8 GPUs: read", log, code(READ, log.path, 2)),
            Case("nvidia-smi log, 24 h x 8 GPUs: advisor analyze", log, advisor(*analyze, log.path), seconds=10),
        ]

    def memory() -> list[Case]:
        history = inputs.memory("snapshot.pickle", 1_000_000)
        return [
            Case("memory snapshot, a million events: pickle", history, code(PICKLE, history.path)),
            Case("memory snapshot, a million events: read", history, code(READ, history.path, 2), memory_mb=200),
            Case("memory snapshot, a million events: advisor analyze", history, advisor(*analyze, history.path), memory_mb=600),
        ]

    def small() -> list[Case]:
        trace = inputs.trace("small.json.gz", 10, scaled=False)
        return [
            Case("start: python -c pass", None, code("pass")),
            Case("start: advisor --help", None, advisor("--help"), seconds=0.3),
            Case("small trace: standard library's gzip, json", trace, code(GZIP, trace.path)),
            Case("small trace: advisor analyze", trace, advisor(*analyze, trace.path), seconds=1.0),
        ]

    return [small, torch_plain, torch_stacks, torch_gzip, torch_large, nsys, smi, memory]


def line(case: Case, runs: list[measure.Measurement]) -> tuple[str, bool]:
    """The row of the table, and whether every target was met."""
    walls = [run.wall for run in runs]
    wall, peak = statistics.median(walls), max(run.peak for run in runs) / 1e6
    cpu = statistics.median(run.processor for run in runs)
    cells = [case.name, "", f"{wall:.2f}", f"{min(walls):.2f}..{max(walls):.2f}", f"{cpu:.2f}", "", f"{peak:.0f}"]
    rate = None
    if case.input:
        rate = case.input.amount / wall
        cells[1] = f"{case.input.amount:,.0f} {case.input.unit}"
        cells[5] = f"{rate:,.0f} {case.input.unit}/s"
    checks = [
        (
            case.target,
            f">= {case.target or 0:,.0f} {case.input.unit if case.input else ''}/s",
            rate is not None and rate >= (case.target or 0),
        ),
        (case.seconds, f"<= {case.seconds} s", wall <= (case.seconds or 0)),
        (case.memory_mb, f"<= {case.memory_mb} MB", peak <= (case.memory_mb or 0)),
    ]
    asked = [(text, met) for limit, text, met in checks if limit is not None]
    failed = next((run for run in runs if run.status != 0), None)
    if failed:
        asked.append((f"FAILED: {(failed.error.splitlines() or ['status ' + str(failed.status)])[-1][:100]}", False))
    cells.append("; ".join(f"{text}{'' if met else ' MISSED'}" for text, met in asked))
    return "| " + " | ".join(cells) + " |", all(met for _, met in asked)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder for the generated inputs, kept for the next run (default: temporary)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each command; the table shows the median")
    parser.add_argument("--only", default="", help="measure only the commands whose name contains this")
    parser.add_argument("--quick", action="store_true", help="inputs of a fiftieth, one run each; targets are not meant for it")
    options = parser.parse_args()
    good, repeats = True, 1 if options.quick else options.repeats
    print(f"{len(os.sched_getaffinity(0))} cores, Python {sys.version.split()[0]}; median of {repeats}\n")
    print("| what | input | seconds | range | processor s | rate | peak MB | target |")
    print("| --- | --: | --: | --: | --: | --: | --: | --- |")
    with tempfile.TemporaryDirectory(prefix="advisor-bench-") as temporary:
        inputs = Inputs(options.data or Path(temporary), options.quick)
        for group in cases(inputs):
            for case in group() if not options.only or options.only in group.__name__ else []:
                runs = [measure.run(case.command) for _ in range(repeats)]
                text, met = line(case, runs)
                print(text, flush=True)
                good = good and met
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
